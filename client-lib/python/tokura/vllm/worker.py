"""A worker's side: fills pages from Tokura and saves them, as the scheduler's side planned."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import tokura
from tokura.vllm.identity import ModelIdentity
from tokura.vllm.loads import Load
from tokura.vllm.messages import StepPlan, StepReport
from tokura.vllm.options import Options
from tokura.vllm.pages import PageMap
from tokura.vllm.saves import SaveBook
from tokura.vllm.stats import Counters


class WorkerSide:
    """Owned by the worker's thread."""

    def __init__(
        self,
        options: Options,
        identity: ModelIdentity,
        client: tokura.Client,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._identity = identity
        self._client = client
        self._clock = clock
        self.counters = Counters()
        self._map: PageMap | None = None
        self._saves: SaveBook | None = None
        # (group, layer) of each layer's name.
        self._layers: dict[str, tuple[int, int]] = {}
        # Synchronous loads of this step, and loads that go on between steps.
        self._step_loads: list[Load] = []
        self._loads: dict[str, Load] = {}
        # Requests whose load failed: saves planned in this generation or before are of KV that
        # never was.
        self._void: dict[str, int] = {}
        self._report = StepReport()
        self._failed_pages: set[int] = set()
        self._failed_requests: set[str] = set()
        self._held: set[str] = set()

    def register(self, page_map: PageMap) -> None:
        """Learn where the engine's pages are."""
        self._map = page_map
        self._saves = SaveBook(self._client, page_map, self._options, self.counters, self._clock)
        self._layers = {
            name: (g, i)
            for g, group in enumerate(page_map.groups)
            for i, name in enumerate(group.info.layer_names)
        }

    # ---- a step, in the order of the engine's calls ----

    def before_step(self, plan: StepPlan) -> None:
        """Pages of preempted requests are about to be overwritten: wait until no save reads them.
        Called before every step."""
        for request_id in plan.fences:
            if self._saves is not None and self._saves.fence(request_id):
                self.counters.add("fences")
        if self._options.layerwise and plan.saves and self._saves is not None:
            self._saves.prepare(plan.saves)

    def start_loads(self, plan: StepPlan) -> None:
        """Start this step's loads; unless layers are waited for one by one, synchronous ones are
        done on return."""
        for job in plan.loads:
            assert self._map is not None, "loads come after the caches are registered"
            self.counters.add("loads")
            namespace = self._identity.open(job.namespace)
            load = Load(self._client, namespace, job, self._map, self._options, self._clock)
            if job.asynchronous:
                self._loads[job.request_id] = load
            else:
                self._step_loads.append(load)
        if not self._options.layerwise:
            self._end_step_loads()

    def wait_layer(self, name: str) -> None:
        """Wait until this step's loads have filled a layer, or ended."""
        place = self._layers.get(name)
        if place is not None:
            for load in self._step_loads:
                load.wait_layer(*place)

    def save_layer(self, name: str) -> None:
        """A layer of this step is computed."""
        place = self._layers.get(name)
        if place is not None and self._saves is not None:
            self._saves.take_layer(*place)

    def end_step(self, plan: StepPlan) -> None:
        """All layers are computed: start this step's saves."""
        self._end_step_loads()
        self._held.update(plan.held)
        for job in plan.saves:
            assert self._saves is not None, "saves come after the caches are registered"
            if job.generation <= self._void.get(job.request_id, -1):
                self.counters.add("saves_dropped")
                self._note_released(job.request_id, 1)
            else:
                self._saves.start(job, self._identity.open(job.namespace))
        if self._saves is not None:
            self._saves.settle()

    def poll(self, finished: Iterable[str]) -> tuple[set[str], set[str], set[str]]:
        """Requests whose pages saves read no more (of those that the engine holds), whose loads
        ended, and whose loads failed as
        a whole."""
        for request_id in finished:
            self._void.pop(request_id, None)
            if request_id in self._loads:
                self._loads[request_id].cancel()
        ended = {request_id for request_id, load in self._loads.items() if load.done()}
        for request_id in sorted(ended):
            self._end_load(self._loads.pop(request_id))
        failed, self._failed_requests = self._failed_requests & ended, set()
        sent = set()
        if self._saves is not None:
            for request_id, jobs in self._saves.take_released().items():
                self._note_released(request_id, jobs)
            sent = {request_id for request_id in self._held if not self._saves.busy(request_id)}
            self._held -= sent
        return sent, ended, failed

    def take_failed_pages(self) -> set[int]:
        """Pages that loads promised and did not fill."""
        pages, self._failed_pages = self._failed_pages, set()
        return pages

    def take_report(self) -> StepReport | None:
        """What the scheduler's side should know; None when nothing happened."""
        report, self._report = self._report, StepReport()
        return None if report.empty() else report

    def close(self) -> None:
        """End what is under way and wait until no page is read or written."""
        for load in (*self._step_loads, *self._loads.values()):
            load.cancel()
        for load in (*self._step_loads, *self._loads.values()):
            load.finish()
        self._step_loads, self._loads = [], {}
        if self._saves is not None:
            self._saves.close()

    # ---- inside ----

    def _end_step_loads(self) -> None:
        loads, self._step_loads = self._step_loads, []
        for load in loads:
            self._end_load(load)

    def _end_load(self, load: Load) -> None:
        outcome = load.finish()
        job = load.job
        self._report.loaded[job.request_id] = self._report.loaded.get(job.request_id, 0) + 1
        self.counters.add("loaded_tokens", outcome.valid_tokens - job.first_token)
        self.counters.add("loaded_bytes", outcome.bytes_logical)
        self.counters.add("loaded_wire_bytes", outcome.bytes_moved)
        self.counters.observe("load_seconds", outcome.seconds)
        self.counters.observe("load_wire_seconds", outcome.wire_seconds)
        self.counters.observe("load_decode_seconds", outcome.decode_seconds)
        if outcome.valid_tokens >= job.end_token or load.cancelled:
            return
        self.counters.add("load_failures")
        self._void[job.request_id] = job.generation
        self._report.failed[job.request_id] = outcome.valid_tokens
        assert self._map is not None
        if len(self._map.groups) > 1:
            # Page numbers are only unique within a group; the engine recomputes the whole request.
            self._failed_requests.add(job.request_id)
            self._report.failed[job.request_id] = 0
            return
        size = self._map.groups[0].info.page_tokens
        first, end = outcome.valid_tokens // size, -(-job.end_token // size)
        self._failed_pages.update(job.pages[0][first:end])

    def _note_released(self, request_id: str, jobs: int) -> None:
        self._report.released[request_id] = self._report.released.get(request_id, 0) + jobs
