"""One load: a promised range of tokens, fetched into the engine's pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tokura
from tokura.vllm.messages import LoadJob
from tokura.vllm.options import Options
from tokura.vllm.pages import FILLER_PAGE, NULL_PAGE, PageCopy, PageMap


@dataclass
class LoadOutcome:
    """How a load ended: everything before ``valid_tokens`` is in the pages."""

    valid_tokens: int
    seconds: float = 0.0
    wire_seconds: float = 0.0
    decode_seconds: float = 0.0
    bytes_moved: int = 0
    bytes_logical: int = 0


@dataclass
class _Fetch:
    """Blocks of the match, of some groups, fetched by one get."""

    blocks: range
    groups: tuple[int, ...]
    future: tokura.GetFuture | None
    # Set when the blocks go to pages of our own first.
    copy: PageCopy | None


class Load:
    """Owned by the worker's thread.

    Blocks that lie wholly in the promised range are decoded straight into its pages. A block that
    begins before it (the engine
    has those tokens itself, and others may be reading them) or ends behind it goes to pages of our
    own, and only whole pages
    within the range are copied. Pages that the client does not reach are filled that way, too.
    """

    def __init__(
        self,
        client: tokura.Client,
        namespace: tokura.Namespace,
        job: LoadJob,
        page_map: PageMap,
        options: Options,
        clock: Callable[[], float],
    ) -> None:
        self.job = job
        self._client = client
        self._namespace = namespace
        self._map = page_map
        self._options = options
        self.cancelled = False
        self._clock = clock
        self._started = clock()
        self._fetches = self._start()

    def _start(self) -> list[_Fetch]:
        try:
            match = tokura.Match.from_bytes(self.job.match)
        except tokura.TokuraError:
            return []
        fetches: list[_Fetch] = []
        for first, groups in sorted(self._group_starts().items()):
            for blocks, whole in self._cut(first):
                fetches.append(self._fetch(match, blocks, groups, whole))
        return fetches

    def _group_starts(self) -> dict[int, list[int]]:
        """First token to load → the groups that begin there: those with a window have no pages
        before it."""
        starts: dict[int, list[int]] = {}
        for g, table in enumerate(self.job.pages):
            size = self._map.groups[g].info.page_tokens
            page = self.job.end_token // size
            while page * size > self.job.first_token and table[page - 1] != NULL_PAGE:
                page -= 1
            starts.setdefault(max(page * size, self.job.first_token), []).append(g)
        return starts

    def _cut(self, first: int) -> list[tuple[range, bool]]:
        """Cut the blocks of [first, end) into those that lie wholly in it and those that do not."""
        tokens, end = self._namespace.block_tokens, self.job.end_token
        inner = range(-(-first // tokens), end // tokens)
        if inner.start > inner.stop:
            return [(range(inner.stop, inner.start), False)]
        pieces = [
            (range(first // tokens, inner.start), False),
            (inner, True),
            (range(inner.stop, -(-end // tokens)), False),
        ]
        return [(blocks, whole) for blocks, whole in pieces if len(blocks) > 0]

    def _fetch(self, match: tokura.Match, blocks: range, groups: list[int], whole: bool) -> _Fetch:
        tokens = self._namespace.block_tokens
        first, end = blocks.start * tokens, blocks.stop * tokens
        copy = None
        if whole and self._map.direct:
            view = self._map.view(self.job.pages, first, end, groups)
        else:
            # The block's tokens outside of the range need room, too; their pages are never given
            # back.
            tables = [_filled(table, self._map, g, end) for g, table in enumerate(self.job.pages)]
            copy = self._map.copy(tables, first, end, groups)
            view = copy.view()
        try:
            future = self._client.start_get(
                self._namespace,
                match,
                view,
                first_block=blocks.start,
                blocks=len(blocks),
                track_layers=not self.job.asynchronous and self._options.layerwise,
                max_error=self._options.max_error,
                allow_summary=self._options.allow_summary,
            )
        except tokura.TokuraError:
            future = None
        return _Fetch(blocks, tuple(groups), future, copy)

    def wait_layer(self, group: int, layer: int) -> None:
        """Wait until a layer is filled, or the load has ended."""
        for fetch in self._fetches:
            if fetch.future is None or group not in fetch.groups:
                continue
            if fetch.copy is None:
                fetch.future.wait_layer(layer, group=group)
            else:
                self._copy(fetch)

    def cancel(self) -> None:
        """End it early; it is still to be finished."""
        self.cancelled = True
        for fetch in self._fetches:
            if fetch.future is not None:
                fetch.future.cancel()

    def done(self) -> bool:
        """Whether finish would not wait."""
        return all(fetch.future is None or fetch.future.done() for fetch in self._fetches)

    def finish(self) -> LoadOutcome:
        """Wait until no page is written any more; return how it ended."""
        outcome = LoadOutcome(valid_tokens=self.job.end_token if self._fetches else 0)
        for fetch in self._fetches:
            ok = self._take(fetch, outcome)
            if ok < len(fetch.blocks):
                valid = (fetch.blocks.start + ok) * self._namespace.block_tokens
                outcome.valid_tokens = min(outcome.valid_tokens, valid)
        outcome.valid_tokens = max(self.job.first_token, outcome.valid_tokens)
        outcome.seconds = self._clock() - self._started
        return outcome

    def _take(self, fetch: _Fetch, outcome: LoadOutcome) -> int:
        """Leading blocks of a fetch that are in the engine's pages."""
        if fetch.future is None:
            return 0
        try:
            result = fetch.future.result()
        except tokura.TokuraError:
            return 0
        self._copy(fetch)
        outcome.wire_seconds = max(outcome.wire_seconds, result.wire_seconds)
        outcome.decode_seconds += result.decode_seconds
        outcome.bytes_moved += result.bytes_moved
        outcome.bytes_logical += result.bytes_logical
        return result.prefix_ok

    def _copy(self, fetch: _Fetch) -> None:
        """Bring what came to pages of our own to the engine's."""
        if fetch.copy is None or fetch.future is None:
            return
        try:
            ok = fetch.future.result().prefix_ok
        except tokura.TokuraError:
            ok = 0
        tokens = self._namespace.block_tokens
        end = min((fetch.blocks.start + ok) * tokens, self.job.end_token)
        fetch.copy.give(self.job.first_token, end)
        fetch.copy = None


def _filled(table: Sequence[int], page_map: PageMap, group: int, end_token: int) -> list[int]:
    """A page table that covers tokens up to end_token and has no gaps; what it adds stands for no
    page of the engine."""
    pages = -(-end_token // page_map.groups[group].info.page_tokens)
    filled = [page if page != NULL_PAGE else FILLER_PAGE for page in table[:pages]]
    return filled + [FILLER_PAGE] * (pages - len(filled))
