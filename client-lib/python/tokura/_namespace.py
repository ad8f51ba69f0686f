"""Namespaces and chains: what names KV."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, final

from tokura import _core
from tokura._errors import invalid

DType = Literal["float32", "float16", "bfloat16", "float8_e4m3"]
AttentionKind = Literal["full", "sliding", "latent", "recurrent", "other"]
RopeState = Literal["post", "pre", "none"]
# Anything with __dlpack__ or the buffer protocol: numpy arrays, torch tensors, ….
Array = Any
# Token ids 0 … 2**32 - 1.
Tokens = Sequence[int] | Array

DTYPES: dict[str, int] = {"float32": 1, "float16": 2, "bfloat16": 3, "float8_e4m3": 4}
DTYPE_BYTES: dict[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3": 1}
_KINDS: dict[str, int] = {"full": 0, "sliding": 1, "latent": 2, "recurrent": 3, "other": 4}
_ROPE: dict[str, int] = {"post": 0, "pre": 1, "none": 2}

# What a KeyExtra is of. 128 … 255 are private to the engine.
EXTRA_MULTIMODAL_HASH = 1
EXTRA_PROMPT_EMBEDDING_HASH = 2


def choose(table: dict[str, int], value: str, name: str) -> int:
    """Return the number of a name; InvalidArgument lists the known ones."""
    if value not in table:
        raise invalid(f"{name} is {value!r}, not one of {', '.join(table)}")
    return table[value]


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class LayerGroup:
    """The layers of one attention kind.

    layers: ascending indices in the model.
    kv_heads: of the whole model; divisible by the namespace's head_shards (1 for "latent").
    k_head_dim: "latent": latent + rope channels.
    v_head_dim: None: as k_head_dim, and 0 for "latent", where V is part of K.
    window: tokens a query sees; "sliding" only.
    """

    layers: Sequence[int]
    kv_heads: int
    k_head_dim: int
    v_head_dim: int | None = None
    kind: AttentionKind = "full"
    window: int = 0


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class NamespaceSpec:
    """Everything that must match for KV to be interchangeable.

    Two processes that differ in any field never see each other's blocks.

    groups: 1 … 8 layer groups.
    lora_digest: empty: no adapter.
    head_shards: common tensor-parallel granule: the number of contiguous ranges that the KV heads
        are cut into.
    block_tokens: 1 … 1024.
    rope: state of rotary position embedding in K: applied, not yet, none.
    """

    model: str
    groups: Sequence[LayerGroup]
    dtype: DType
    model_revision: str = ""
    tenant: str = "default"
    lora_digest: str = ""
    salt: str = ""
    head_shards: int = 1
    block_tokens: int = 64
    rope: RopeState = "post"


def _describe(group: LayerGroup) -> tuple[int, int, list[int], int, int, int]:
    v_head_dim = group.v_head_dim
    if v_head_dim is None:
        v_head_dim = 0 if group.kind == "latent" else group.k_head_dim
    kind = choose(_KINDS, group.kind, "kind")
    return kind, group.window, list(group.layers), group.kv_heads, group.k_head_dim, v_head_dim


@final
class Namespace:
    """A valid NamespaceSpec with its fingerprint. Immutable; needs no client."""

    def __init__(self, spec: NamespaceSpec) -> None:
        """Raise InvalidArgument that names the field and the rule it breaks."""
        self._spec = spec
        texts = (spec.tenant, spec.model, spec.model_revision, spec.lora_digest, spec.salt)
        for text in texts:
            if "\0" in text:
                raise invalid("names must not contain NUL")
        dtype = choose(DTYPES, spec.dtype, "dtype")
        rope = choose(_ROPE, spec.rope, "rope")
        numbers = (dtype, rope, spec.head_shards, spec.block_tokens)
        try:
            self._core = _core.Namespace(texts, numbers, [_describe(g) for g in spec.groups])
        except TypeError as error:
            raise invalid("sizes, heads and layers must be integers from 0 to 2**32 - 1") from error

    @property
    def spec(self) -> NamespaceSpec:
        """What it was made of."""
        return self._spec

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 over the fields, 32 bytes."""
        return self._core.fingerprint

    @property
    def block_tokens(self) -> int:
        """Tokens of a block."""
        return self._spec.block_tokens

    @property
    def block_bytes(self) -> int:
        """Raw size of one whole block: all groups, all heads, as the engine holds it."""
        return self._core.block_bytes


class KeyExtra(NamedTuple):
    """What changes KV without changing token ids; part of the key of the block that holds the
    item's first token. ``hash`` is the whole hash, never truncated."""

    kind: int
    hash: bytes


@final
class TokenChain:
    """The block keys of a growing sequence, each computed once. ``len(chain)`` is the number of
    complete blocks.

    Thread-safe: appends and reads are serialised. Operations take a snapshot when they start.
    """

    def __init__(
        self, namespace: Namespace, tokens: Tokens = (), *, extras: Sequence[KeyExtra] = ()
    ) -> None:
        self._namespace = namespace
        self._core = _core.Chain(namespace._core)
        if len(tokens) > 0 or len(extras) > 0:
            self.append(tokens, extras=extras)

    @classmethod
    def _wrap(cls, namespace: Namespace, core: _core.Chain) -> Self:
        chain = cls(namespace)
        chain._core = core
        return chain

    @classmethod
    def from_engine_hashes(cls, namespace: Namespace, hashes: Iterable[bytes]) -> Self:
        """Make a chain of an engine's own stable block hashes, one per block of block_tokens, each
        naming its whole prefix."""
        chain = cls(namespace)
        chain.append_engine_hashes(hashes)
        return chain

    @classmethod
    def from_keys(cls, namespace: Namespace, keys: Iterable[bytes]) -> Self:
        """Make a chain of block keys (16 bytes each) computed elsewhere, of the same namespace."""
        chain = cls(namespace)
        chain._core.append_keys(join_keys(keys))
        return chain

    def append(self, tokens: Tokens, *, extras: Sequence[KeyExtra] = ()) -> None:
        """Append tokens; completed blocks get keys.

        ``extras`` are of the item that begins with the first of ``tokens``: one append per item and
        one for the text between. How text is cut into appends changes nothing. FailedPrecondition
        on a chain of keys or engine hashes.
        """
        self._core.append_tokens(tokens, list(extras))

    def append_engine_hashes(self, hashes: Iterable[bytes]) -> None:
        """Append blocks to a chain of engine hashes. FailedPrecondition on one of tokens."""
        for engine_hash in hashes:
            self._core.append_engine_hash(engine_hash)

    def copy(self) -> TokenChain:
        """Fork the sequence."""
        return TokenChain._wrap(self._namespace, self._core.copy())

    def prefix(self, blocks: int) -> TokenChain:
        """Return the first ``blocks`` blocks as a chain of keys, which lookups and puts take as any
        other."""
        core = _core.Chain(self._namespace._core)
        core.append_keys(self._core.joined_keys(blocks))
        return TokenChain._wrap(self._namespace, core)

    def __len__(self) -> int:
        return self._core.blocks

    @property
    def blocks(self) -> int:
        """Number of complete blocks."""
        return self._core.blocks

    @property
    def tokens(self) -> int:
        """All tokens, the open tail included."""
        return self._core.tokens

    @property
    def keys(self) -> list[bytes]:
        """Keys of the complete blocks, 16 bytes each."""
        return self._core.keys()

    @property
    def fingerprint(self) -> bytes:
        """Of the namespace."""
        return self._namespace.fingerprint


def join_keys(keys: Iterable[bytes]) -> bytes:
    """Join block keys. InvalidArgument: one has not 16 bytes."""
    listed = list(keys)
    if any(len(key) != 16 for key in listed):
        raise invalid("a block key has 16 bytes")
    return b"".join(listed)
