"""Saves: blocks put from the engine's pages, which are held until they are read no more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tokura
from tokura.vllm.messages import SaveJob
from tokura.vllm.options import Options
from tokura.vllm.pages import PageCopy, PageMap
from tokura.vllm.stats import Counters

_KEY_BYTES = 16


@dataclass
class _Put:
    """A save under way."""

    request_id: str
    future: tokura.PutFuture
    started: float
    released: bool = False


class SaveBook:
    """All saves of a worker. Owned by its thread.

    A page is read until its put has encoded it into the ring. Until then the engine keeps it:
    requests hold theirs while they
    run, finished ones because the scheduler's side says so, and preempted ones are fenced before
    the next step writes.
    """

    def __init__(
        self,
        client: tokura.Client,
        page_map: PageMap,
        options: Options,
        counters: Counters,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._map = page_map
        self._options = options
        self._counters = counters
        self._clock = clock
        self._puts: list[_Put] = []
        self._released: dict[str, int] = {}
        # Copies of the pages of this step's jobs, filled layer by layer.
        self._copies: dict[tuple[str, int], PageCopy] = {}
        # The engine frees pages that a window leaves behind while the request runs.
        self._windows = any(group.info.kind == "sliding" for group in page_map.groups)

    def prepare(self, jobs: Sequence[SaveJob]) -> None:
        """Save these jobs of the step from copies that take_layer makes."""
        for job in jobs:
            self._copies[(job.request_id, job.first_block)] = self._copy_of(job)

    def take_layer(self, group: int, layer: int) -> None:
        """Copy a layer of the step's jobs."""
        for copy in self._copies.values():
            copy.take_layer(group, layer)

    def start(self, job: SaveJob, namespace: tokura.Namespace) -> None:
        """Start to store a job's blocks; all its layers are computed."""
        copy = self._copies.pop((job.request_id, job.first_block), None)
        if not self._map.shards.saves:
            self._note_released(job.request_id)
            return
        if copy is None and not self._map.direct:
            copy = self._copy_of(job)
        if copy is not None:
            copy.take_rest()
        first, end = self._tokens_of(job)
        view = copy.view() if copy is not None else self._map.view(job.pages, first, end)
        keys = [job.keys[i : i + _KEY_BYTES] for i in range(0, len(job.keys), _KEY_BYTES)]
        try:
            future = self._client.start_put(
                namespace,
                tokura.TokenChain.from_keys(namespace, keys),
                view,
                codec=self._options.codec,
                first_block=job.first_block,
                blocks=job.blocks,
                content_id_base=job.content_id,
            )
        except tokura.TokuraError:
            self._counters.add("saves_dropped")
            self._note_released(job.request_id)
            return
        self._counters.add("saves")
        # A copy is nobody else's: the engine's pages are free at once.
        put = _Put(job.request_id, future, self._clock(), released=copy is not None)
        if put.released:
            self._note_released(job.request_id)
        self._puts.append(put)

    def settle(self) -> None:
        """End of a step: forget copies of jobs that were not started, and wait where pages are
        freed behind our back."""
        self._copies.clear()
        if self._windows:
            for put in self._puts:
                put.future.wait_released()

    def fence(self, request_id: str) -> bool:
        """Wait until no save reads a request's pages; return whether there was any."""
        reading = [p for p in self._puts if p.request_id == request_id and not p.released]
        for put in reading:
            put.future.wait_released()
        return bool(reading)

    def busy(self, request_id: str) -> bool:
        """Whether some save still reads a request's pages, as of the last take_released."""
        return any(p.request_id == request_id and not p.released for p in self._puts)

    def take_released(self) -> dict[str, int]:
        """Per request, the jobs whose pages are read no more since the last time. Counts the puts
        that are done."""
        going_on = []
        for put in self._puts:
            if not put.released and put.future.released():
                put.released = True
                self._counters.observe("save_held_seconds", self._clock() - put.started)
                self._note_released(put.request_id)
            if put.released and put.future.done():
                self._count(put)
            else:
                going_on.append(put)
        self._puts = going_on
        released, self._released = self._released, {}
        return released

    def close(self) -> None:
        """Cancel what is under way and wait until no page is read."""
        for put in self._puts:
            put.future.cancel()
        for put in self._puts:
            put.future.wait_released()
        self._puts = []

    def _copy_of(self, job: SaveJob) -> PageCopy:
        return self._map.copy(job.pages, *self._tokens_of(job))

    def _tokens_of(self, job: SaveJob) -> tuple[int, int]:
        tokens = self._map.block_tokens
        return job.first_block * tokens, (job.first_block + job.blocks) * tokens

    def _note_released(self, request_id: str) -> None:
        self._released[request_id] = self._released.get(request_id, 0) + 1

    def _count(self, put: _Put) -> None:
        try:
            result = put.future.result(0)
        except (tokura.TokuraError, TimeoutError):
            self._counters.add("save_failures")
            return
        self._counters.observe("save_seconds", result.seconds)
        self._counters.add("saved_blocks", result.stored)
        self._counters.add("save_failures", len(result.codes) - result.stored)
        self._counters.add("saved_bytes", result.bytes_logical)
        self._counters.add("saved_wire_bytes", result.bytes_moved)
