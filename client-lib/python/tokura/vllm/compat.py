"""Everything that depends on the version of vLLM: imports, and how the engine's objects are read.

The rest of the connector imports nothing of vLLM. Written against 0.32; what else is known to work
is in ``TESTED``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import vllm
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)
from vllm.logger import init_logger
from vllm.v1.metrics.cache_hit_source import CacheHitSource
from vllm.v1.metrics.utils import create_metric_per_engine

__all__ = [
    "CacheHitSource",
    "KVConnectorBase_V1",
    "KVConnectorMetadata",
    "KVConnectorPromMetrics",
    "KVConnectorRole",
    "KVConnectorStats",
    "KVConnectorTransferResults",
    "KVConnectorWorkerMetadata",
    "SupportsHMA",
    "create_metric_per_engine",
    "init_logger",
]

TESTED = ("0.32",)


def tested_version() -> bool:
    """Whether this vLLM is one that the connector's tests run with."""
    return ".".join(str(vllm.__version__).split(".")[:2]) in TESTED


@dataclass(frozen=True)
class GroupInfo:
    """One of the engine's KV cache groups: layers that share a page table."""

    kind: str
    window: int
    layer_names: tuple[str, ...]
    layer_indices: tuple[int, ...]
    local_kv_heads: int
    k_head_dim: int
    v_head_dim: int
    page_tokens: int
    dtype: str


_DTYPES = {
    "torch.float32": "float32",
    "torch.float16": "float16",
    "torch.bfloat16": "bfloat16",
}


def read_groups(kv_cache_config: Any) -> list[GroupInfo]:
    """Describe the engine's cache groups. ValueError: one whose meaning is not known."""
    return [_read_group(group) for group in kv_cache_config.kv_cache_groups]


def _read_group(group: Any) -> GroupInfo:
    spec = group.kv_cache_spec
    kind = _KINDS.get(type(spec).__name__)
    if kind is None:
        raise ValueError(
            f"tokura: layers of kind {type(spec).__name__} are not supported "
            f"({group.layer_names[0]})"
        )
    if str(getattr(spec, "kv_quant_mode", "NONE")).rsplit(".", 1)[-1] not in ("NONE", "0"):
        raise ValueError("tokura: a quantized KV cache is not supported; use kv_cache_dtype auto")
    dtype = _DTYPES.get(str(spec.dtype))
    if dtype is None:
        raise ValueError(f"tokura: KV of type {spec.dtype} is not supported")
    if getattr(spec, "tokens_per_state", 1) != 1 or getattr(group, "host_resident", False):
        raise ValueError(f"tokura: the cache of {group.layer_names[0]} is not one state per token")
    window = getattr(spec, "sliding_window", None) or 0
    named = sorted((_layer_index(name), name) for name in group.layer_names)
    return GroupInfo(
        # Kept whole although computed with a window: every block is there, as with full attention.
        kind=kind,
        window=window if kind == "sliding" else 0,
        layer_names=tuple(name for _, name in named),
        layer_indices=tuple(index for index, _ in named),
        local_kv_heads=1 if kind == "latent" else int(spec.num_kv_heads),
        k_head_dim=int(spec.head_size),
        v_head_dim=0 if kind == "latent" else int(spec.head_size_v),
        page_tokens=int(spec.block_size),
        dtype=dtype,
    )


_KINDS = {
    "FullAttentionSpec": "full",
    "SlidingWindowSpec": "sliding",
    "MLAAttentionSpec": "latent",
}


def _layer_index(name: str) -> int:
    numbers = [int(part) for part in name.split(".") if part.isdigit()]
    if len(numbers) != 1:
        raise ValueError(f"tokura: cannot tell which layer {name} is")
    return numbers[0]


@dataclass(frozen=True)
class Parallelism:
    """How the model is spread over workers, and which of them this is."""

    size: int
    rank: int


def read_parallelism(vllm_config: Any, kv_cache_config: Any, role_is_worker: bool) -> Parallelism:
    """Describe the ranks. ValueError: the model's layers or tokens are cut, which blocks of whole
    layers cannot follow."""
    parallel = vllm_config.parallel_config
    for field in (
        "pipeline_parallel_size",
        "decode_context_parallel_size",
        "prefill_context_parallel_size",
    ):
        if getattr(parallel, field, 1) != 1:
            raise ValueError(f"tokura: {field} must be 1")
    size = int(parallel.tensor_parallel_size)
    return Parallelism(size=size, rank=_tensor_rank(parallel) if role_is_worker else 0)


def _tensor_rank(parallel: Any) -> int:
    if parallel.tensor_parallel_size == 1:
        return 0
    from vllm.distributed.parallel_state import get_tensor_model_parallel_rank

    return int(get_tensor_model_parallel_rank())


def total_kv_heads(vllm_config: Any) -> int:
    """KV heads of the whole model."""
    return int(vllm_config.model_config.get_total_num_kv_heads())


def attention_backend(vllm_config: Any, layer_name: str) -> tuple[str, str]:
    """Name of the attention backend of a layer, and of its variant where it has several layouts."""
    layer = vllm_config.compilation_config.static_forward_context[layer_name]
    name = str(layer.get_attn_backend().get_name())
    return name, _cpu_variant(vllm_config, layer) if name == "CPU_ATTN" else ""


def _cpu_variant(vllm_config: Any, layer: Any) -> str:
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    block_size = vllm_config.cache_config.block_size
    return str(_get_attn_isa(layer.dtype, block_size, layer.head_size, layer.kv_cache_dtype))


def failure_policy(vllm_config: Any) -> str:
    """What the engine does with a request whose load failed."""
    return str(getattr(vllm_config.kv_transfer_config, "kv_load_failure_policy", "fail"))


def hit_alignment(vllm_config: Any, groups: Sequence[GroupInfo]) -> int:
    """Tokens that a promised hit is a multiple of."""
    return math.lcm(
        int(vllm_config.cache_config.block_size), *(group.page_tokens for group in groups)
    )


# ---- requests ----


def request_tokens(request: Any) -> Sequence[int]:
    """All token ids that are known of a request, prompt and output."""
    tokens: Sequence[int] = request.all_token_ids
    return tokens


def request_supported(request: Any) -> bool:
    """Whether token ids (and hashes of items) say all about this request's KV."""
    return (
        getattr(request, "prompt_embeds", None) is None
        and getattr(request, "prompt_is_token_ids", None) is None
        and not getattr(request, "resumable", False)
    )


def reads_cache(request: Any) -> bool:
    """Whether the request may use cached KV at all."""
    return not getattr(request, "skip_reading_prefix_cache", False)


@dataclass(frozen=True)
class PromptItem:
    """A multimodal item of a prompt: its place and the hash of its content."""

    offset: int
    hash: bytes


def text_bytes(text: str) -> bytes:
    """UTF-8 of what a caller may have chosen, also of halves of surrogate pairs: an exception here
    would end the engine."""
    return text.encode(errors="surrogatepass")


def request_items(request: Any) -> list[PromptItem]:
    """Return the multimodal items of a request, in order."""
    return sorted(
        (
            PromptItem(offset=int(f.mm_position.offset), hash=text_bytes(str(f.identifier)))
            for f in request.mm_features or ()
        ),
        key=lambda item: item.offset,
    )


def finished_normally(request: Any) -> bool:
    """Whether a finished request ended by its own rules, so that what it computed is whole."""
    return str(request.status) in ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED")


# ---- steps ----


@dataclass(frozen=True)
class ScheduledRequest:
    """One request of a step: what it has, and what the step computes."""

    request_id: str
    # Pages per group; they replace what was known, or (append) follow it.
    pages: tuple[list[int], ...] | None
    replaces: bool
    computed_tokens: int
    scheduled_tokens: int


def scheduled_requests(output: Any) -> Iterator[ScheduledRequest]:
    """Go through the requests that a step computes."""
    for new in output.scheduled_new_reqs:
        yield ScheduledRequest(
            request_id=new.req_id,
            pages=new.block_ids,
            replaces=True,
            computed_tokens=new.num_computed_tokens,
            scheduled_tokens=output.num_scheduled_tokens[new.req_id],
        )
    cached = output.scheduled_cached_reqs
    for i, request_id in enumerate(cached.req_ids):
        yield ScheduledRequest(
            request_id=request_id,
            pages=cached.new_block_ids[i],
            replaces=request_id in cached.resumed_req_ids,
            computed_tokens=cached.num_computed_tokens[i],
            scheduled_tokens=output.num_scheduled_tokens[request_id],
        )


def preempted_requests(output: Any) -> Iterable[str]:
    """Return the requests whose pages were taken away since the last step."""
    return sorted(output.preempted_req_ids or ())
