"""Where K and V lie in the engine's tensors. What is not known here is refused, never guessed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tokura
from tokura.vllm.compat import GroupInfo
from tokura.vllm.packing import ELEMENT_BYTES, AmxPacking

# Variants of vLLM's CPU attention whose pages are, per head, K as [head_dim, tokens] and then V as
# [tokens, head_dim].
_CPU_VARIANTS = frozenset({"vec", "vec16"})
# The variant for bfloat16 on processors with AMX, whose pages no strides describe.
_CPU_PACKED = "amx"
# Pages of our own that stand for packed ones.
PLAIN_BACKEND = "plain pages"
# Backends that keep, per token and head, K's channels and then V's.
_TOKEN_MAJOR = frozenset({"FLASH_ATTN", "TRITON_ATTN", "FLASHINFER", PLAIN_BACKEND})
_LATENT = frozenset({"FLASHMLA", "TRITON_MLA", "CUTLASS_MLA", "FLASH_ATTN_MLA", "FLASHINFER_MLA"})


@dataclass(frozen=True)
class TensorShape:
    """A layer's tensor [pages, heads, tokens, content] as the engine registers it."""

    pages: int
    heads: int
    tokens: int
    content: int
    # Of the four dimensions, in elements.
    strides: tuple[int, int, int, int]
    element_bytes: int


def tensor_shape(tensor: Any) -> TensorShape:
    """Read a registered tensor. ValueError: not the four dimensions that the layouts are written
    for."""
    shape = tuple(int(n) for n in tensor.shape)
    strides = tuple(int(n) for n in tensor.stride())
    if len(shape) == 3:  # Latent caches have one head and may leave its dimension out.
        shape = (shape[0], 1, shape[1], shape[2])
        strides = (strides[0], strides[1], strides[1], strides[2])
    if len(shape) != 4:
        raise ValueError(
            f"tokura: a KV tensor of shape {shape} is not [pages, heads, tokens, content]"
        )
    return TensorShape(
        pages=shape[0],
        heads=shape[1],
        tokens=shape[2],
        content=shape[3],
        strides=(strides[0], strides[1], strides[2], strides[3]),
        element_bytes=int(tensor.element_size()),
    )


@dataclass(frozen=True)
class Layout:
    """Strides in bytes of K and of V in a layer's tensor, and where V begins."""

    k_strides: tokura.KvStrides
    v_strides: tokura.KvStrides
    v_offset: int


def find_layout(backend: str, variant: str, group: GroupInfo, shape: TensorShape) -> Layout:
    """Return the layout of a backend's tensors. ValueError: it is not known, or the tensor does not
    look like it."""
    _check_shape(backend, variant, group, shape)
    if backend == "CPU_ATTN" and variant in _CPU_VARIANTS:
        return _cpu(backend, variant, group, shape)
    if backend in (_LATENT if group.kind == "latent" else _TOKEN_MAJOR):
        return _token_major(backend, variant, group, shape)
    raise _unknown(backend, variant, group, shape)


def find_packing(
    backend: str, variant: str, group: GroupInfo, tensors: Sequence[Any]
) -> AmxPacking | None:
    """Return how pages are packed; None: strides describe them. ValueError: packed, but not as is
    known."""
    if (backend, variant) != ("CPU_ATTN", _CPU_PACKED):
        return None
    shape = _shape_of_all(tensors)
    _check_shape(backend, variant, group, shape)
    whole_head = shape.strides[2:] == (shape.content, 1)
    if (
        group.v_head_dim != group.k_head_dim
        or shape.element_bytes != ELEMENT_BYTES
        or not whole_head
        or shape.strides[1] < shape.tokens * shape.content
    ):
        raise _unknown(backend, variant, group, shape)
    return AmxPacking(shape.heads, group.k_head_dim, shape.tokens)


def _check_shape(backend: str, variant: str, group: GroupInfo, shape: TensorShape) -> None:
    if shape.heads != group.local_kv_heads or shape.tokens != group.page_tokens:
        raise _unknown(backend, variant, group, shape)
    if shape.content != group.k_head_dim + group.v_head_dim:
        raise _unknown(backend, variant, group, shape)


def _cpu(backend: str, variant: str, group: GroupInfo, shape: TensorShape) -> Layout:
    size, dim, tokens = shape.element_bytes, group.k_head_dim, shape.tokens
    page, head = shape.strides[0] * size, shape.strides[1] * size
    whole_head = shape.strides[2:] == (shape.content, 1)
    if group.v_head_dim != dim or not whole_head or shape.strides[1] < tokens * shape.content:
        raise _unknown(backend, variant, group, shape)
    return Layout(
        k_strides=tokura.KvStrides(page=page, head=head, token=size, channel=tokens * size),
        v_strides=tokura.KvStrides(page=page, head=head, token=dim * size, channel=size),
        v_offset=dim * tokens * size,
    )


def _token_major(backend: str, variant: str, group: GroupInfo, shape: TensorShape) -> Layout:
    size = shape.element_bytes
    if shape.strides[3] != 1:
        raise _unknown(backend, variant, group, shape)
    strides = tokura.KvStrides(
        page=shape.strides[0] * size,
        head=shape.strides[1] * size,
        token=shape.strides[2] * size,
        channel=size,
    )
    return Layout(k_strides=strides, v_strides=strides, v_offset=group.k_head_dim * size)


def _unknown(backend: str, variant: str, group: GroupInfo, shape: TensorShape) -> ValueError:
    name = f"{backend} ({variant})" if variant else backend
    return ValueError(
        f"tokura: the KV layout of {name} is not known for {group.kind} attention with "
        f"{group.local_kv_heads} heads of {group.k_head_dim}+{group.v_head_dim} channels and pages "
        f"of {group.page_tokens} tokens: tensor [{shape.pages}, {shape.heads}, {shape.tokens}, "
        f"{shape.content}], strides {list(shape.strides)}. Start the engine with an attention "
        "backend and dtype that the README's table under With vLLM lists, or without the connector."
    )


def _shape_of_all(tensors: Sequence[Any]) -> TensorShape:
    shapes = {tensor_shape(tensor) for tensor in tensors}
    if len(shapes) != 1:
        raise ValueError(f"tokura: the layers of one group differ: {sorted(map(str, shapes))}")
    return shapes.pop()


def describe_pages(
    group: GroupInfo, tensors: Sequence[Any], backend: str, variant: str
) -> tokura.KvPages:
    """Describe the tensors of a group's layers, in order, to the client. ValueError: an unknown
    layout."""
    shape = _shape_of_all(tensors)
    layout = find_layout(backend, variant, group, shape)
    has_v = group.v_head_dim > 0
    bases = [int(tensor.data_ptr()) for tensor in tensors]
    return tokura.KvPages(
        dtype=_dtype(group),
        heads=group.local_kv_heads,
        k_head_dim=group.k_head_dim,
        v_head_dim=group.v_head_dim,
        page_tokens=group.page_tokens,
        pages=shape.pages,
        layers=[(base, base + layout.v_offset if has_v else 0) for base in bases],
        k_strides=layout.k_strides,
        v_strides=layout.v_strides,
        owner=list(tensors),
    )


def _dtype(group: GroupInfo) -> tokura.DType:
    dtypes: dict[str, tokura.DType] = {
        "float32": "float32",
        "float16": "float16",
        "bfloat16": "bfloat16",
    }
    return dtypes[group.dtype]
