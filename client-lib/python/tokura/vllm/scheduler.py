"""The scheduler's side: what exists, what is promised, what the workers load and save. Runs in the
engine's core."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tokura
from tokura.vllm import compat
from tokura.vllm.identity import ModelIdentity, RequestChain
from tokura.vllm.lookups import LookupBook, Ticket
from tokura.vllm.messages import LoadJob, NamespaceId, SaveJob, StepPlan, StepReport
from tokura.vllm.options import Options
from tokura.vllm.pages import NULL_PAGE
from tokura.vllm.stats import Counters

# Codecs whose blocks are what the engine would have computed.
_EXACT = frozenset({"raw"})


@dataclass
class _Request:
    """What is known of one request of the engine."""

    request: Any
    namespace: NamespaceId
    chain: RequestChain
    ticket: Ticket | None = None
    # The engine's local hit when it asked last.
    local_tokens: int = 0
    # Workers that have not reported the load that is with them.
    loading: int = 0
    # It was preempted while some had not: what they loaded is gone, and is looked up anew.
    load_lost: bool = False
    # A load of it failed: it is computed from then on, so that failures cannot repeat for ever.
    load_failed: bool = False
    # Raised with every failed load; saves planned before it are void.
    generation: int = 0
    pages: list[list[int]] = field(default_factory=list)
    # Blocks before this one are saved, planned, or not ours to save; None: not decided yet.
    next_save: int | None = None
    # What a failed load showed: blocks from here on are saved again.
    save_again_from: int | None = None
    # Saved no more, nor looked up: the engine's weights may have changed while it ran.
    stale: bool = False
    saves_planned: int = 0
    saves_released: int = 0


class SchedulerSide:
    """Owned by the engine's scheduler thread; the client's threads only move tickets on."""

    def __init__(
        self,
        options: Options,
        identity: ModelIdentity,
        groups: Sequence[compat.GroupInfo],
        client: tokura.Client,
        *,
        alignment: int,
        workers: int,
        engine_hash_tokens: int,
        loads: bool,
        saves: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._identity = identity
        self._groups = groups
        self._alignment = alignment
        self._workers = workers
        self._engine_hash_tokens = engine_hash_tokens
        self._loads = loads
        self._saves = saves
        self._clock = clock
        # Of several groups only whole requests can be reported as failed, and only when they load
        # between steps. Several
        # workers have to agree on the outcome before any of them computes with it.
        self._asynchronous = (
            len(groups) > 1 or workers > 1 or (options.load_async and not options.layerwise)
        )
        self._windows = any(group.kind == "sliding" for group in groups)
        self.counters = Counters()
        self.book = LookupBook(
            client,
            self.counters,
            timeout=options.lookup_timeout,
            leases_max=options.leases_max,
            accept={"max_error": options.max_error, "allow_summary": options.allow_summary},
            clock=clock,
        )
        self._requests: dict[str, _Request] = {}
        self._plan = StepPlan()
        # Finished requests whose pages the engine keeps until their saves read them no more.
        self._held: dict[str, _Request] = {}
        # Pages that hold what a lossy form decoded to: never saved as if they were the engine's
        # own.
        self._lossy_pages: set[int] = set()

    # ---- lookups ----

    def on_new_request(self, request: Any) -> None:
        """Start to look up what exists of it."""
        if not compat.request_supported(request):
            return
        namespace = self._identity.namespace_of(request)
        opened = self._identity.open(namespace)
        state = _Request(
            request=request,
            namespace=namespace,
            chain=RequestChain(opened, request, self._engine_hash_tokens),
        )
        known = self._requests.get(request.request_id)
        if known is not None and known.ticket is not None:
            known.ticket.end()
        self._requests[request.request_id] = state
        self._look_up(state)

    def matched_tokens(self, request: Any, local_tokens: int) -> tuple[int | None, bool]:
        """Tokens that can be loaded beyond the local hit; None while that is being found out.

        Changes nothing that the engine could see, and is cheap: it is asked in every step.
        """
        state = self._requests.get(request.request_id)
        if state is None or not self._loads or not compat.reads_cache(request):
            return 0, False
        if state.loading:
            # The engine schedules a step ahead of what it hears: a load that was preempted is
            # reported first, then another can be promised.
            return None, False
        now = self._clock()
        if state.ticket is None or state.ticket.expired(now):
            # It ran before and was preempted, or waited so long that its lease ends.
            self._look_up(state)
        ticket = state.ticket
        if ticket is None:
            return 0, False
        if not ticket.decided(now):
            return None, False
        state.local_tokens = local_tokens
        tokens = self._usable_tokens(state, request) - local_tokens
        if tokens < max(1, self._options.load_tokens_min):
            return 0, False
        return tokens, self._asynchronous

    def _look_up(self, state: _Request) -> None:
        if state.ticket is not None:
            state.ticket.end()
            state.ticket = None
        if state.load_failed or state.stale:
            return
        chain = state.chain.update()
        if chain.blocks > 0:
            state.ticket = self.book.open(self._identity.open(state.namespace), chain)

    def _usable_tokens(self, state: _Request, request: Any) -> int:
        match = state.ticket.match if state.ticket is not None else None
        if match is None:
            return 0
        # One token is left to compute, so that there is something to sample from.
        tokens = min(match.tokens, len(compat.request_tokens(request)) - 1)
        return tokens - tokens % self._alignment

    # ---- loads ----

    def allocated(
        self, request: Any, pages: tuple[Sequence[int], ...], external_tokens: int
    ) -> None:
        """The engine has pages for what was promised (0 tokens: it goes on without)."""
        state = self._requests.get(request.request_id)
        if state is None or state.loading:
            return
        ticket = state.ticket
        if external_tokens == 0:
            if ticket is not None:
                ticket.end()
            return
        match = ticket.match if ticket is not None else None
        end = state.local_tokens + external_tokens
        state.loading = self._workers
        self.counters.add("promised_tokens", external_tokens)
        if match is not None:
            self._note_lossy(match, pages, state.local_tokens, end)
        self._plan.loads.append(
            LoadJob(
                request_id=request.request_id,
                namespace=state.namespace,
                # Without a match the promise cannot be kept; the workers report that as any other
                # failure.
                match=match.to_bytes() if match is not None else b"",
                first_token=state.local_tokens,
                end_token=end,
                pages=tuple(tuple(group) for group in pages),
                asynchronous=self._asynchronous,
                generation=state.generation,
            )
        )

    def _note_lossy(
        self, match: tokura.Match, pages: tuple[Sequence[int], ...], first: int, end: int
    ) -> None:
        block, codecs = self._options.block_tokens, match.codecs
        for group, table in zip(self._groups, pages, strict=True):
            for page in range(first // group.page_tokens, -(-end // group.page_tokens)):
                blocks = range(
                    page * group.page_tokens // block, -(-(page + 1) * group.page_tokens // block)
                )
                if any(codecs[i] not in _EXACT for i in blocks if i < len(codecs)):
                    self._lossy_pages.add(table[page])
                else:
                    self._lossy_pages.discard(table[page])
        self._lossy_pages.discard(NULL_PAGE)

    # ---- steps ----

    def plan_step(self, output: Any) -> StepPlan:
        """Return this step's work for the workers."""
        plan, self._plan = self._plan, StepPlan()
        plan.fences = list(compat.preempted_requests(output))
        for request_id in plan.fences:
            self._forget_run(request_id)
        for scheduled in compat.scheduled_requests(output):
            state = self._requests.get(scheduled.request_id)
            if state is None:
                continue
            self._take_pages(state, scheduled)
            end = scheduled.computed_tokens + scheduled.scheduled_tokens
            if not self._options.save_decoded:
                end = min(end, state.request.num_prompt_tokens)
            self._plan_save(plan, state, end, scheduled.computed_tokens)
        return plan

    def _forget_run(self, request_id: str) -> None:
        state = self._requests.get(request_id)
        if state is not None:
            state.pages = []
            state.next_save = None
            if state.loading:
                state.load_lost = True
            elif state.ticket is not None:
                state.ticket.end()
                state.ticket = None

    def _take_pages(self, state: _Request, scheduled: compat.ScheduledRequest) -> None:
        fresh_from = [0] * len(self._groups)
        if scheduled.replaces:
            assert scheduled.pages is not None
            state.pages = [list(group) for group in scheduled.pages]
            fresh_from = [-(-scheduled.computed_tokens // g.page_tokens) for g in self._groups]
        elif scheduled.pages is not None:
            fresh_from = [len(group) for group in state.pages]
            for group, new in zip(state.pages, scheduled.pages, strict=True):
                group.extend(new)
        if scheduled.pages is not None:
            for group, first in zip(state.pages, fresh_from, strict=True):
                self._lossy_pages.difference_update(group[first:])
        if state.next_save is None:
            known = state.ticket.known_blocks if state.ticket is not None else None
            computed = -(-scheduled.computed_tokens // self._options.block_tokens)
            # What the lookup did not find is saved, also where the engine has it from its own
            # cache: another engine may not.
            state.next_save = known if known is not None else computed
            if state.save_again_from is not None:
                state.next_save = min(state.next_save, state.save_again_from)
            if state.ticket is not None and not state.loading:
                state.ticket.end()
                state.ticket = None

    def _plan_save(
        self, plan: StepPlan, state: _Request, end_token: int, computed_tokens: int
    ) -> None:
        # Drafts and tokens still in flight have no ids yet; their blocks follow in a later step.
        end_token = min(end_token, len(compat.request_tokens(state.request)))
        end = end_token // self._options.block_tokens
        first = state.next_save
        if not self._saves or state.stale or first is None or end <= first:
            return
        keys = state.chain.update().keys[:end]
        end = len(keys)
        state.next_save = max(first, end)
        pages = self._kept_pages(state, computed_tokens)
        for start, blocks in self._savable_runs(state, first, end):
            state.saves_planned += 1
            plan.saves.append(
                SaveJob(
                    request_id=state.request.request_id,
                    namespace=state.namespace,
                    keys=b"".join(keys[: start + blocks]),
                    first_block=start,
                    blocks=blocks,
                    pages=pages,
                    content_id=tokura.new_content_id(),
                    generation=state.generation,
                )
            )

    def _kept_pages(self, state: _Request, computed_tokens: int) -> tuple[tuple[int, ...], ...]:
        """The request's pages without those that a window has left behind: the engine gives them to
        others, untold."""
        tables = []
        for group, table in zip(self._groups, state.pages, strict=True):
            gone = max(0, computed_tokens - group.window + 1) // group.page_tokens
            gone = min(len(table), gone) if group.kind == "sliding" else 0
            tables.append((NULL_PAGE,) * gone + tuple(table[gone:]))
        return tuple(tables)

    def _savable_runs(self, state: _Request, first: int, end: int) -> list[tuple[int, int]]:
        """Runs (first block, number) within [first, end) none of whose pages holds what a lossy
        form decoded to."""
        runs: list[tuple[int, int]] = []
        for block in range(first, end):
            if self._touches_lossy(state, block):
                continue
            if runs and sum(runs[-1]) == block:
                runs[-1] = (runs[-1][0], runs[-1][1] + 1)
            else:
                runs.append((block, 1))
        return runs

    def _touches_lossy(self, state: _Request, block: int) -> bool:
        if not self._lossy_pages:
            return False
        tokens = self._options.block_tokens
        return any(
            table[page] in self._lossy_pages
            for group, table in zip(self._groups, state.pages, strict=True)
            for page in range(
                block * tokens // group.page_tokens,
                min(len(table), -(-(block + 1) * tokens // group.page_tokens)),
            )
        )

    def take_report(self, report: StepReport) -> None:
        """Learn what the workers did."""
        for request_id, valid_tokens in report.failed.items():
            self._load_failed(request_id, valid_tokens)
        for request_id, jobs in report.loaded.items():
            state = self._requests.get(request_id)
            if state is None:
                continue
            state.loading = max(0, state.loading - jobs)
            if state.loading > 0:
                continue
            if state.ticket is not None:
                # The ticket stays for what it knows, until the request is scheduled.
                state.ticket.end()
            if state.load_lost:
                state.ticket, state.load_lost = None, False
        for request_id, jobs in report.released.items():
            state = self._requests.get(request_id) or self._held.get(request_id)
            if state is not None:
                state.saves_released += jobs

    def _load_failed(self, request_id: str, valid_tokens: int) -> None:
        state = self._requests.get(request_id)
        if state is None:
            return
        state.load_failed = True
        state.generation += 1
        # The engine computes from the first page on that is not whole.
        for group, table in zip(self._groups, state.pages, strict=False):
            self._lossy_pages.difference_update(table[valid_tokens // group.page_tokens :])
        blocks = valid_tokens // self._options.block_tokens
        state.save_again_from = blocks
        if state.next_save is not None:
            state.next_save = min(state.next_save, blocks)

    def transfers_ended(self, request_ids: Sequence[str]) -> None:
        """The workers reported that these finished requests' pages are read no more."""
        for request_id in request_ids:
            self._held.pop(request_id, None)

    # ---- ends ----

    def finished(self, request: Any) -> bool:
        """End a request; True: its pages must stay until the workers report its saves as sent."""
        state = self._requests.pop(request.request_id, None)
        if state is None:
            return False
        if state.ticket is not None:
            state.ticket.end()
        if state.loading and self._asynchronous:
            # It has not run: nothing reads its pages, and the engine itself holds them until the
            # load is reported.
            return False
        # The last blocks' tokens may have become known only now. (Behind a window, pages are gone
        # by now.)
        whole = compat.finished_normally(request) and bool(state.pages) and not self._windows
        if whole and self._options.save_decoded:
            computed = request.num_computed_tokens
            self._plan_save(self._plan, state, computed, computed)
        if state.saves_planned * self._workers <= state.saves_released:
            return False
        self._held[request.request_id] = state
        self._plan.held.append(request.request_id)
        return True

    @property
    def holds_pages(self) -> bool:
        """Whether pages of finished requests will come free without preempting anybody."""
        return bool(self._held)

    def reset(self) -> None:
        """The engine drops its caches, maybe for new weights: nothing saved before is hit from here
        on."""
        self._identity.forget()
        for state in self._requests.values():
            state.stale = True
            if state.ticket is not None and not state.loading:
                state.ticket.end()

    def close(self) -> None:
        """Release every lease."""
        self.book.close()
