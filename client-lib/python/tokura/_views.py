"""Views: where KV lies in an engine's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self, final

from tokura import _core
from tokura._errors import invalid
from tokura._namespace import DTYPE_BYTES, DTYPES, Array, DType, choose

MemorySpace = Literal["host", "cuda"]
Order = Literal["NHD", "HND"]

CoreView = _core.View

_SPACES: dict[str, int] = {"host": 0, "cuda": 1}
# DLPack's (type code, bits).
_ARRAY_DTYPES: dict[tuple[int, int], DType] = {
    (2, 32): "float32",
    (2, 16): "float16",
    (4, 16): "bfloat16",
    (10, 8): "float8_e4m3",  # float8_e4m3fn
}
# The axes of an array by its order; -1: a page is one axis more, before these.
_AXES: dict[str, tuple[int, int, int]] = {"HND": (0, 1, 2), "NHD": (1, 0, 2)}  # head, token, channel


class KvStrides(NamedTuple):
    """Byte strides of K or of V inside an engine's pages."""

    page: int
    head: int
    token: int
    channel: int


class _Described(NamedTuple):
    """An array: where it lies and how."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    space: MemorySpace
    read_only: bool


def _describe(array: Array, dtype: DType | None) -> _Described:
    address, shape, strides, code, bits, gpu, read_only = _core.describe_array(array)
    known = _ARRAY_DTYPES.get((code, bits))
    if dtype is None and known is None:
        raise invalid(f"an array's type ({code}, {bits} bits) is none of KV; say dtype=")
    if dtype is not None and (choose(DTYPES, dtype, "dtype") and DTYPE_BYTES[dtype] * 8 != bits):
        raise invalid(f"dtype is {dtype}, but the array's elements have {bits} bits")
    space: MemorySpace = "cuda" if gpu else "host"
    chosen = dtype if dtype is not None else known
    assert chosen is not None
    return _Described(address, shape, strides, chosen, space, read_only)


def _describe_all(arrays: Sequence[Array], dtype: DType | None, dims: int) -> list[_Described]:
    """Describe one array per layer; all alike, of ``dims`` dimensions."""
    described = [_describe(array, dtype) for array in arrays]
    if not described:
        raise invalid("no layers")
    first = described[0]
    for layer, array in enumerate(described):
        if len(array.shape) != dims:
            raise invalid(f"layer {layer} has {len(array.shape)} dimensions, not {dims}")
        alike = array._replace(address=0, read_only=False) == first._replace(
            address=0, read_only=False
        )
        if not alike:
            raise invalid(f"layer {layer} differs from layer 0 in shape, strides, type or device")
    return described


def _check_halves(k: _Described, v: _Described) -> None:
    """K and V of a layer agree in all but their channels and strides."""
    if k.dtype != v.dtype or k.space != v.space or k.shape[:-1] != v.shape[:-1]:
        raise invalid(f"K is {k.dtype} {k.shape}, V is {v.dtype} {v.shape}")


@final
class KvPages:
    """An engine's paged KV memory of one layer group: where K and V of every layer begin, and the
    strides.

    Made once, at start; :meth:`view` then gives the pages of one sequence. Nothing is copied. An
    unknown layout is refused, never guessed.
    """

    def __init__(
        self,
        *,
        dtype: DType,
        heads: int,
        k_head_dim: int,
        v_head_dim: int,
        page_tokens: int,
        pages: int,
        layers: Sequence[tuple[int, int]],
        k_strides: KvStrides,
        v_strides: KvStrides,
        space: MemorySpace = "host",
        owner: object = None,
        writable: bool = True,
    ) -> None:
        """Describe memory by addresses.

        ``layers``: per layer the address of element (page 0, head 0, token 0, channel 0) of K and
        of V (0: no V, for latent). ``heads``: the KV heads that this worker holds, in model order.
        ``pages``: how many there are; page tables are checked against it. ``owner`` is kept alive
        as long as this object, its views and their operations are.
        """
        if pages <= 0 or page_tokens <= 0:
            raise invalid("pages and page_tokens must be positive")
        shape = (
            choose(DTYPES, dtype, "dtype"),
            choose(_SPACES, space, "space"),
            heads,
            k_head_dim,
            v_head_dim,
            page_tokens,
            not writable,
        )
        places = [(int(k), int(v)) for k, v in layers]
        try:
            self._core = _core.Pages(shape, places, tuple(k_strides), tuple(v_strides))
        except TypeError as error:
            raise invalid("sizes, strides and addresses must be integers") from error
        self._dtype = dtype
        self._heads = heads
        self._page_tokens = page_tokens
        self._pages = pages
        self._layers = len(places)
        self._writable = writable
        self._owner = owner

    @classmethod
    def from_arrays(
        cls,
        k: Sequence[Array],
        v: Sequence[Array] | None,
        *,
        order: Order,
        dtype: DType | None = None,
    ) -> Self:
        """Describe one K and one V array per layer, [pages, page_tokens, heads, head_dim] (NHD) or
        [pages, heads, page_tokens, head_dim] (HND), of any strides; all layers must agree in shape
        and strides.

        ``v`` None: latent, V is part of K. ``dtype`` says what the bytes are where the array's own
        type cannot (bfloat16 as uint16, float8_e4m3 as uint8). Halves of one tensor are given as
        two arrays: ``kv[:, 0]`` and ``kv[:, 1]``.
        """
        return cls._from_described(
            _describe_all(k, dtype, 4), _describe_all(v, dtype, 4) if v is not None else None,
            order, owner=(list(k), list(v) if v is not None else None),
        )

    @classmethod
    def _from_described(
        cls, k: list[_Described], v: list[_Described] | None, order: Order, owner: object
    ) -> Self:
        if order not in _AXES:
            raise invalid(f"order is {order!r}, not NHD or HND")
        if v is not None:
            if len(k) != len(v):
                raise invalid(f"K has {len(k)} layers, V has {len(v)}")
            _check_halves(k[0], v[0])
        head, token, channel = (axis + 1 for axis in _AXES[order])

        def strides(array: _Described) -> KvStrides:
            s = array.strides
            return KvStrides(page=s[0], head=s[head], token=s[token], channel=s[channel])

        addresses = [a.address for a in v] if v is not None else [0] * len(k)
        return cls(
            dtype=k[0].dtype,
            heads=k[0].shape[head],
            k_head_dim=k[0].shape[channel],
            v_head_dim=v[0].shape[channel] if v is not None else 0,
            page_tokens=k[0].shape[token],
            pages=k[0].shape[0],
            layers=list(zip((a.address for a in k), addresses, strict=True)),
            k_strides=strides(k[0]),
            v_strides=strides(v[0]) if v is not None else KvStrides(0, 0, 0, 0),
            space=k[0].space,
            owner=owner,
            writable=not any(a.read_only for a in [*k, *(v or [])]),
        )

    @classmethod
    def vllm_cpu(cls, layers: Sequence[Array], *, head_dim: int, dtype: DType | None = None) -> Self:
        """Describe vLLM's CPU cache: per layer a contiguous [pages, heads, page_tokens,
        2 * head_dim] tensor, in which each head of a page is K as [head_dim, page_tokens] and then
        V as [page_tokens, head_dim]."""
        described = _describe_all(layers, dtype, 4)
        first = described[0]
        pages, heads, page_tokens, content = first.shape
        size = DTYPE_BYTES[first.dtype]
        packed = (page_tokens * content * size, content * size, size)
        if content != 2 * head_dim or first.strides[1:] != packed:
            raise invalid(
                f"shape {first.shape} with strides {first.strides} is not vLLM's CPU cache of"
                f" head_dim {head_dim}"
            )
        page, head = first.strides[0], first.strides[1]
        half = page_tokens * head_dim * size
        return cls(
            dtype=first.dtype,
            heads=heads,
            k_head_dim=head_dim,
            v_head_dim=head_dim,
            page_tokens=page_tokens,
            pages=pages,
            layers=[(array.address, array.address + half) for array in described],
            k_strides=KvStrides(page, head, token=size, channel=page_tokens * size),
            v_strides=KvStrides(page, head, token=head_dim * size, channel=size),
            space=first.space,
            owner=list(layers),
            writable=not any(array.read_only for array in described),
        )

    def view(self, page_table: Sequence[int] | Array, tokens: int | None = None) -> KvView:
        """Give the memory of one sequence: its token t is slot t % page_tokens of page
        page_table[t // page_tokens].

        ``tokens`` None: all of the pages. Cheap: per request, not per layer.
        """
        if tokens is not None and tokens < 0:
            raise invalid("tokens is negative")
        core = _core.View(self._core, page_table, -1 if tokens is None else tokens, self._pages)
        return KvView._wrap(self, core)

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self._dtype

    @property
    def heads(self) -> int:
        """KV heads that this worker holds."""
        return self._heads

    @property
    def page_tokens(self) -> int:
        """Tokens of a page."""
        return self._page_tokens

    @property
    def pages(self) -> int:
        """Number of pages."""
        return self._pages

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self._layers


@final
class KvView:
    """Where the KV of one layer group of one sequence lies in an engine's memory. Immutable. Made
    by KvPages.view, or of contiguous arrays."""

    _pages: KvPages
    _core: CoreView

    def __init__(self) -> None:
        raise TypeError("views are made by KvPages.view or KvView.contiguous")

    @classmethod
    def _wrap(cls, pages: KvPages, core: CoreView) -> Self:
        view = cls.__new__(cls)
        view._pages = pages
        view._core = core
        return view

    @classmethod
    def contiguous(
        cls,
        k: Sequence[Array],
        v: Sequence[Array] | None,
        *,
        order: Order = "HND",
        dtype: DType | None = None,
    ) -> Self:
        """View one K and one V array per layer, [heads, tokens, head_dim] (HND) or [tokens, heads,
        head_dim] (NHD), of any strides: one page."""

        def paged(arrays: Sequence[Array]) -> list[_Described]:
            return [
                array._replace(shape=(1, *array.shape), strides=(0, *array.strides))
                for array in _describe_all(arrays, dtype, 3)
            ]

        owner = (list(k), list(v) if v is not None else None)
        halves = paged(v) if v is not None else None
        pages = KvPages._from_described(paged(k), halves, order, owner)
        return cls._wrap(pages, _core.View(pages._core, [0], -1, 1))

    @property
    def tokens(self) -> int:
        """Tokens that the view covers."""
        return self._core.tokens

    @property
    def writable(self) -> bool:
        """False when an array was read-only: puts take the view, gets refuse it."""
        return self._pages._writable


@final
class SequenceView:
    """The engine's memory of one sequence: a view per layer group, for the head shards that this
    worker holds.

    Wherever a SequenceView is expected a KvView stands for one with a single group, all shards and
    first_token 0.
    """

    def __init__(
        self,
        groups: Sequence[KvView | None],
        *,
        first_shard: int = 0,
        shards: int = 1,
        first_token: int = 0,
    ) -> None:
        """``groups``: one per layer group of the namespace; None: this group is neither read nor
        written.

        ``first_token``: of the sequence, where the views begin; a multiple of block_tokens. Without
        it, block i of a match or chain is at tokens [i * block_tokens, (i + 1) * block_tokens) of
        the views.
        """
        if first_shard < 0 or shards <= 0 or first_token < 0:
            raise invalid("first_shard and first_token must not be negative, shards positive")
        self._groups = list(groups)
        self._placement = (first_shard, shards, first_token)


def core_view(view: KvView | SequenceView) -> tuple[list[Any], tuple[int, int, int], object]:
    """Return what the extension takes: views, placement, and what to keep alive."""
    if isinstance(view, KvView):
        return [view._core], (0, 0, 0), view
    if not isinstance(view, SequenceView):
        raise TypeError(f"a view is a KvView or a SequenceView, not {type(view).__name__}")
    groups = [group._core if group is not None else None for group in view._groups]
    return groups, view._placement, view
