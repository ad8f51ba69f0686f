"""Which KV is the same: the namespace of an engine's model, and the chain of keys of each
request."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import tokura
from tokura.vllm import compat
from tokura.vllm.messages import NamespaceId
from tokura.vllm.options import Options

# Bytes at both ends of a file of weights that its digest covers; a whole read would take minutes
# for large models.
_SAMPLE_BYTES = 64 << 10
# Longer salts are named by their digest.
_SALT_BYTES_MAX = 256
_WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")


class ModelIdentity:
    """The namespaces of one engine: everything but adapter and salt is fixed. Thread-compatible."""

    def __init__(
        self,
        options: Options,
        vllm_config: Any,
        groups: Sequence[compat.GroupInfo],
        parallelism: compat.Parallelism,
    ) -> None:
        """ValueError: the model's revision cannot be told, or head_shards does not fit."""
        model = vllm_config.model_config
        heads = compat.total_kv_heads(vllm_config)
        latent = any(group.kind == "latent" for group in groups)
        self.head_shards = 1 if latent else options.head_shards or min(parallelism.size, heads)
        if heads % self.head_shards:
            raise ValueError(
                f"tokura: head_shards {self.head_shards} does not divide the {heads} KV heads"
            )
        self._fields: dict[str, Any] = {
            "tenant": options.tenant,
            "model": options.model or str(model.model),
            "model_revision": _revision(options, model),
            "dtype": groups[0].dtype,
            "block_tokens": options.block_tokens,
            "head_shards": self.head_shards,
            "groups": [
                tokura.LayerGroup(
                    layers=group.layer_indices,
                    kv_heads=1 if group.kind == "latent" else heads,
                    k_head_dim=group.k_head_dim,
                    v_head_dim=group.v_head_dim,
                    kind=_kind(group),
                    window=group.window,
                )
                for group in groups
            ],
        }
        self._generation = ""
        self._opened: dict[NamespaceId, tokura.Namespace] = {}

    def open(self, namespace: NamespaceId) -> tokura.Namespace:
        """Return a namespace of this model."""
        opened = self._opened.get(namespace)
        if opened is None:
            if len(self._opened) >= 1024:  # Salts are the callers' text; forget the oldest.
                self._opened.pop(next(iter(self._opened)))
            spec = tokura.NamespaceSpec(
                **self._fields, lora_digest=namespace.lora_digest, salt=namespace.salt
            )
            opened = self._opened[namespace] = tokura.Namespace(spec)
        return opened

    def namespace_of(self, request: Any) -> NamespaceId:
        """Return which namespace a request belongs to."""
        lora = request.lora_request
        return NamespaceId(
            lora_digest=lora_digest(lora) if lora is not None else "",
            salt=self._generation + _salt(request.cache_salt or ""),
        )

    def forget(self) -> None:
        """Hit nothing that was saved up to now, by whom ever: the engine's weights may have
        changed."""
        self._generation = f"generation:{os.urandom(16).hex()}:"

    def describe(self) -> str:
        """Return the namespace in words, for the log."""
        shown = {k: v for k, v in self._fields.items() if k != "groups"}
        return ", ".join(f"{key} {value}" for key, value in shown.items())


def _kind(group: compat.GroupInfo) -> tokura.AttentionKind:
    kinds: dict[str, tokura.AttentionKind] = {
        "full": "full",
        "sliding": "sliding",
        "latent": "latent",
    }
    return kinds[group.kind]


def _salt(text: str) -> str:
    """A caller's salt; what is long or no text becomes its digest."""
    data = compat.text_bytes(text)
    plain = len(data) <= _SALT_BYTES_MAX and text.isprintable()
    return text if plain else "sha256:" + hashlib.sha256(data).hexdigest()


def _revision(options: Options, model: Any) -> str:
    """What fixes the values of the model's KV besides its name."""
    parts = {"quantization": str(model.quantization or ""), "dtype": str(model.dtype)}
    overrides = getattr(model, "hf_overrides", None)
    if overrides:
        parts["hf_overrides"] = (
            json.dumps(overrides, sort_keys=True, default=str)
            if isinstance(overrides, dict)
            else repr(overrides)
        )
    base = options.model_revision or _weights_revision(model)
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    return f"{base}#{digest}"


def _weights_revision(model: Any) -> str:
    path = pathlib.Path(str(model.model))
    if path.is_dir():
        return "files:" + directory_digest(path)
    commit = getattr(model.hf_config, "_commit_hash", None)
    if commit:
        return f"commit:{commit}"
    raise ValueError(
        "tokura: cannot tell which revision of the model this is; "
        "set model_revision in kv_connector_extra_config"
    )


def directory_digest(path: pathlib.Path) -> str:
    """Digest of a model's or adapter's files: the whole of small ones, size and both ends of
    weights."""
    digest = hashlib.sha256()
    for file in sorted(path.iterdir()):
        if file.suffix not in (*_WEIGHTS, ".json") or not file.is_file():
            continue
        size = file.stat().st_size
        digest.update(compat.text_bytes(f"{len(file.name)}:{file.name}:{size}:"))
        with file.open("rb") as stream:
            if file.suffix == ".json" or size <= 2 * _SAMPLE_BYTES:
                digest.update(stream.read())
            else:
                digest.update(stream.read(_SAMPLE_BYTES))
                stream.seek(size - _SAMPLE_BYTES)
                digest.update(stream.read(_SAMPLE_BYTES))
    return digest.hexdigest()


_lora_digests: dict[tuple[str, str], str] = {}


def lora_digest(lora: Any) -> str:
    """Digest of an adapter: its name, and its files where they are on this machine."""
    key = (str(lora.lora_name), str(lora.lora_path))
    if getattr(lora, "load_inplace", False):
        _lora_digests.pop(key, None)
    digest = _lora_digests.get(key)
    if digest is None:
        try:
            path = pathlib.Path(key[1])
            files = directory_digest(path) if path.is_dir() else f"path:{key[1]}"
        except OSError:  # The engine will say so when it loads the adapter.
            files = f"path:{key[1]}"
        text = f"{len(key[0])}:{key[0]}:{files}"
        digest = _lora_digests[key] = hashlib.sha256(compat.text_bytes(text)).hexdigest()
    return digest


class RequestChain:
    """The keys of a request's blocks, growing with its tokens. Thread-compatible."""

    def __init__(self, namespace: tokura.Namespace, request: Any, engine_hash_tokens: int) -> None:
        """``engine_hash_tokens``: tokens per hash of the engine when those are the identity, else
        0."""
        self._request = request
        self._hash_tokens = engine_hash_tokens
        self._block_tokens = namespace.block_tokens
        if engine_hash_tokens:
            self.chain = tokura.TokenChain.from_engine_hashes(namespace, [])
        else:
            self.chain = tokura.TokenChain(namespace)
        self._items = compat.request_items(request)
        self._appended = 0

    def update(self) -> tokura.TokenChain:
        """Take in what the request has become since the last time."""
        if self._hash_tokens:
            self._append_hashes()
        else:
            self._append_tokens()
        return self.chain

    def _append_tokens(self) -> None:
        tokens = compat.request_tokens(self._request)
        end = len(tokens)
        while self._appended < end:
            extras = []
            while self._items and self._items[0].offset <= self._appended:
                item = self._items.pop(0)
                extras.append(tokura.KeyExtra(tokura.EXTRA_MULTIMODAL_HASH, item.hash))
            until = min(end, self._items[0].offset) if self._items else end
            self.chain.append(list(tokens[self._appended : until]), extras=extras)
            self._appended = until

    def _append_hashes(self) -> None:
        per_block = self._block_tokens // self._hash_tokens
        hashes = self._request.block_hashes
        blocks = len(hashes) // per_block
        # A hash names its whole prefix, so that a block's last one stands for the block.
        new = [bytes(hashes[(i + 1) * per_block - 1]) for i in range(self._appended, blocks)]
        self.chain.append_engine_hashes(new)
        self._appended = blocks
