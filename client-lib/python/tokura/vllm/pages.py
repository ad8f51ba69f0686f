"""The engine's pages as the client sees them, and pages of our own with the same layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import tokura
from tokura.vllm import compat
from tokura.vllm.layout import PLAIN_BACKEND, describe_pages, find_packing
from tokura.vllm.packing import AmxPacking

# The engine's page for "none": what a sliding window left behind.
NULL_PAGE = 0
# In tables of copies: room that stands for no page of the engine.
FILLER_PAGE = -1


@dataclass
class GroupPages:
    """One layer group's tensors, in the order of its layers, and what describes them: strides, or
    how their pages are packed."""

    info: compat.GroupInfo
    tensors: list[Any]
    pages: tokura.KvPages | None
    packing: AmxPacking | None


@dataclass(frozen=True)
class Shards:
    """The head shards that this worker holds."""

    first: int
    count: int
    # Whether it is the one that saves them, where several workers hold the same.
    saves: bool


def find_shards(
    group: compat.GroupInfo, head_shards: int, heads: int, parallelism: compat.Parallelism
) -> Shards:
    """Return which shards of a group a rank holds. ValueError: head_shards cuts through its
    heads."""
    if group.kind == "latent":
        return Shards(first=0, count=1, saves=parallelism.rank == 0)
    replicas = max(1, parallelism.size // heads)
    first_head = parallelism.rank // replicas * group.local_kv_heads
    shard_heads = heads // head_shards
    if group.local_kv_heads % shard_heads:
        raise ValueError(
            f"tokura: head_shards {head_shards} is too coarse for {parallelism.size} ranks of "
            f"{group.local_kv_heads} KV heads; set a multiple of {heads // group.local_kv_heads}"
        )
    return Shards(
        first=first_head // shard_heads,
        count=group.local_kv_heads // shard_heads,
        saves=parallelism.rank % replicas == 0,
    )


class PageMap:
    """Views of sequences in the engine's pages. Owned by the worker's thread."""

    def __init__(
        self,
        groups: Sequence[compat.GroupInfo],
        caches: dict[str, Any],
        shards: Shards,
        block_tokens: int,
        backend_of: Callable[[str], tuple[str, str]],
    ) -> None:
        """ValueError: a layer is missing, or its layout is not known."""
        self.shards = shards
        self.block_tokens = block_tokens
        self._backend_of = backend_of
        self.groups = [self._describe(group, caches) for group in groups]
        # Where views may begin.
        self.alignment = math.lcm(block_tokens, *(group.page_tokens for group in groups))
        first = self.groups[0].tensors[0]
        on_host = getattr(first, "device", None) is None or first.device.type == "cpu"
        # Whether the client reads and writes the engine's pages itself; else copies stand between.
        self.direct = on_host and all(group.packing is None for group in self.groups)

    def _describe(self, group: compat.GroupInfo, caches: dict[str, Any]) -> GroupPages:
        missing = [name for name in group.layer_names if name not in caches]
        if missing:
            raise ValueError(f"tokura: the engine did not register a cache for {missing[0]}")
        tensors = [caches[name] for name in group.layer_names]
        backend, variant = self._backend_of(group.layer_names[0])
        packing = find_packing(backend, variant, group, tensors)
        pages = None if packing else describe_pages(group, tensors, backend, variant)
        return GroupPages(group, tensors, pages, packing)

    def start_of(self, token: int) -> int:
        """Where a view that has a token begins."""
        return token - token % self.alignment

    def page_range(
        self, group: int, table: Sequence[int], first_token: int, end_token: int
    ) -> list[int] | None:
        """A group's pages of tokens [start_of(first_token), end_token); None: some that hold
        [first_token, end_token) are gone."""
        size = self.groups[group].info.page_tokens
        pages = list(table[self.start_of(first_token) // size : -(-end_token // size)])
        needed = table[first_token // size : -(-end_token // size)]
        complete = len(needed) == -(-end_token // size) - first_token // size
        return pages if complete and NULL_PAGE not in needed else None

    def view(
        self,
        tables: Sequence[Sequence[int]],
        first_token: int,
        end_token: int,
        groups: Collection[int] | None = None,
    ) -> tokura.SequenceView:
        """View tokens [start_of(first_token), end_token) of a sequence, of some groups (None: all).
        Groups that have not got
        pages for [first_token, end_token) are left out."""
        start = self.start_of(first_token)
        views: list[tokura.KvView | None] = []
        for g, (group, table) in enumerate(zip(self.groups, tables, strict=True)):
            pages = self.page_range(g, table, first_token, end_token)
            wanted = pages is not None and (groups is None or g in groups)
            if wanted and pages:
                assert group.pages is not None, "packed pages are copied, never viewed"
                views.append(group.pages.view(pages, end_token - start))
            else:
                views.append(None)
        return self.sequence(views, start)

    def sequence(self, views: list[tokura.KvView | None], start: int) -> tokura.SequenceView:
        """Views of this worker's heads."""
        return tokura.SequenceView(
            views, first_shard=self.shards.first, shards=self.shards.count, first_token=start
        )

    def describe_like(self, group: int, tensors: list[Any]) -> tokura.KvPages:
        """Describe copies of a group's tensors: with the layout of its own, or plain ones."""
        info = self.groups[group].info
        if self.groups[group].packing is not None:
            return describe_pages(info, tensors, PLAIN_BACKEND, "")
        return describe_pages(info, tensors, *self._backend_of(info.layer_names[0]))

    def copy(
        self,
        tables: Sequence[Sequence[int]],
        first_token: int,
        end_token: int,
        groups: Collection[int] | None = None,
    ) -> PageCopy:
        """Make pages of our own for what view would give."""
        return PageCopy(self, tables, first_token, end_token, groups)


class PageCopy:
    """Pages outside the engine with the layout of its own, or plain ones for packed ones, for a
    range of one sequence.

    For gets that may write only a part of a block into the engine's pages, for puts of layers as
    they are computed, and for memory that the client does not reach or whose layout it cannot
    describe.
    """

    def __init__(
        self,
        page_map: PageMap,
        tables: Sequence[Sequence[int]],
        first_token: int,
        end_token: int,
        groups: Collection[int] | None,
    ) -> None:
        self._map = page_map
        self._start = page_map.start_of(first_token)
        self._end = end_token
        # Per group that is in the copy: its pages in the engine, and a tensor per layer here.
        self._pages: dict[int, list[int]] = {}
        self._copies: dict[int, list[Any]] = {}
        self._described: dict[int, tokura.KvPages] = {}
        self._taken: set[tuple[int, int]] = set()
        for g, table in enumerate(tables):
            pages = page_map.page_range(g, table, first_token, end_token)
            if pages is None or (groups is not None and g not in groups):
                continue
            self._pages[g] = pages
            self._copies[g] = [_host_pages(t, len(pages)) for t in page_map.groups[g].tensors]
            self._described[g] = page_map.describe_like(g, self._copies[g])

    def take_layer(self, group: int, layer: int) -> None:
        """Copy one layer's pages from the engine."""
        if group in self._copies:
            source, copy = self._map.groups[group].tensors[layer], self._copies[group][layer]
            packing = self._map.groups[group].packing
            for i, page in enumerate(self._pages[group]):
                if packing is None:
                    copy[i] = source[page]
                else:
                    packing.unpack(source, page, copy, i)
            self._taken.add((group, layer))

    def take_rest(self) -> None:
        """Copy the layers that have not been copied yet."""
        for group, copies in self._copies.items():
            for layer in range(len(copies)):
                if (group, layer) not in self._taken:
                    self.take_layer(group, layer)

    def give(self, first_token: int, end_token: int) -> None:
        """Copy the pages that lie within [first_token, end_token) to the engine."""
        for group in self._copies:
            size = self._map.groups[group].info.page_tokens
            for i, page in enumerate(self._pages[group]):
                at = self._start + i * size
                if first_token <= at and at + size <= end_token and page > NULL_PAGE:
                    self._give_page(group, i, page)

    def _give_page(self, group: int, at: int, page: int) -> None:
        packing = self._map.groups[group].packing
        for target, copy in zip(self._map.groups[group].tensors, self._copies[group], strict=True):
            if packing is None:
                target[page] = copy[at]
            else:
                packing.pack(copy, at, target, page)

    def view(self) -> tokura.SequenceView:
        """View the range in these pages."""
        views: list[tokura.KvView | None] = [
            self._described[g].view(list(range(len(self._pages[g]))), self._end - self._start)
            if g in self._described
            else None
            for g in range(len(self._map.groups))
        ]
        return self._map.sequence(views, self._start)


def _host_pages(tensor: Any, pages: int) -> Any:
    """Make host memory for some pages of a tensor, each laid out as the tensor's own."""
    shape = (pages, *tensor.shape[1:])
    # Within a page the engine's dimensions keep their order; the pages follow each other.
    inner = sorted(range(1, len(shape)), key=lambda d: (-tensor.stride()[d], d))
    order = [0, *inner]
    flat = tensor.new_empty([shape[d] for d in order], device="cpu")
    return flat.permute([order.index(d) for d in range(len(shape))])
