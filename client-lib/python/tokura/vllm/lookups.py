"""How much of a request exists: one lookup per request, its blocks pinned before they are
promised."""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable
from typing import Any

import tokura
from tokura.vllm.stats import Counters

# Leases end after 10 s without renewal, and at 60 s for good.
RENEW_SECONDS = 3.0
LEASE_SECONDS_MAX = 50.0


class Phase(enum.Enum):
    """Where a ticket stands."""

    LOOKING = "looking"
    # The lookup is done; pinning waits until the request is at the head of the queue.
    FOUND = "found"
    ACQUIRING = "acquiring"
    HELD = "held"
    # Nothing to load, whatever the reason.
    OVER = "over"


class Ticket:
    """One request's lookup and lease. Thread-safe: the client's threads move it on, the scheduler
    asks and ends it."""

    def __init__(self, book: LookupBook, namespace: tokura.Namespace) -> None:
        self._book = book
        self._namespace = namespace
        self._lock = threading.Lock()
        self._pin = False
        self._lease: tokura.Lease | None = None
        self._future: tokura.Future[Any] | None = None
        self._known: int | None = None
        self._match: tokura.Match | None = None
        self.phase = Phase.LOOKING
        self._since = book.clock()  # When the step under way began.
        self.held_since = 0.0

    def start(self, chain: Any, *, pin: bool) -> None:
        """Start the lookup; ``pin``: what it finds is acquired at once. Once, by who made it."""
        self._pin = pin
        self._look(chain)

    @property
    def known_blocks(self) -> int | None:
        """Leading blocks that the lookup found; None when it has not answered."""
        return self._known

    @property
    def match(self) -> tokura.Match | None:
        """What is pinned, once it is."""
        lease = self._lease
        return lease.match if lease is not None and self.phase is Phase.HELD else None

    def decided(self, now: float) -> bool:
        """Whether it is settled how much is held. Pins what was found, and gives up after the
        deadline."""
        with self._lock:
            if self.phase in (Phase.HELD, Phase.OVER):
                return True
            found = self.phase is Phase.FOUND
            late = not found and now - self._since >= self._book.timeout
        if late:
            self._book.counters.add("lookup_timeouts")
            self.end()
        elif found:
            self._acquire()
        return late

    def expired(self, now: float) -> bool:
        """Whether the lease will end for good before a load could use it."""
        return self.phase is Phase.HELD and now - self.held_since >= LEASE_SECONDS_MAX

    def end(self) -> None:
        """Let everything go: a lease is released, also one that is still on its way."""
        with self._lock:
            self.phase = Phase.OVER
            lease, self._lease = self._lease, None
            future, self._future = self._future, None
        self._book.forget(self)
        if lease is not None:
            lease.release()
        if future is not None:
            future.cancel()

    def renew(self) -> None:
        """Ask the nodes to hold on."""
        lease = self._lease
        if lease is not None:
            try:
                lease.renew()
            except tokura.TokuraError:
                # It ends by its age then, and what it held is a failed load at worst.
                self._book.forget(self)

    # ---- steps, on the scheduler's thread or the client's ----

    def _look(self, chain: Any) -> None:
        book = self._book
        book.counters.add("lookups")
        try:
            future = book.client.start_lookup(
                self._namespace, chain, deadline=book.timeout, **book.accept
            )
        except tokura.TokuraError:
            book.counters.add("lookup_failures")
            self.end()
            return
        self._future = future
        future.add_done_callback(self._looked)

    def _looked(self, future: tokura.Future[tokura.Match]) -> None:
        match = _result(future)
        with self._lock:
            if self.phase is not Phase.LOOKING:
                return
            self._known = len(match) if match is not None else None
            self._match = match
            self.phase = Phase.OVER if not self._known else Phase.FOUND
            pin = self._pin and self.phase is Phase.FOUND
        if not pin:
            self._book.forget(self)
        self._book.counters.observe("lookup_seconds", self._book.clock() - self._since)
        if pin:
            self._acquire()

    def _acquire(self) -> None:
        with self._lock:
            if self.phase is not Phase.FOUND or self._match is None:
                return
            self.phase = Phase.ACQUIRING
            match = self._match
            self._since = acquiring = self._book.clock()
        try:
            future = self._book.client.start_acquire(self._namespace, match, **self._book.accept)
        except tokura.TokuraError:
            self._book.counters.add("lookup_failures")
            self.end()
            return
        with self._lock:
            ended = self.phase is Phase.OVER
            if not ended:
                self._future = future
        future.add_done_callback(lambda done: self._acquired(done, acquiring))

    def _acquired(self, future: tokura.Future[tokura.Lease], since: float) -> None:
        lease = _result(future)
        with self._lock:
            wanted = self.phase is Phase.ACQUIRING
            if wanted and lease is not None and len(lease.match) > 0:
                self._lease, lease = lease, None
                self._future = None
                self.held_since = self._book.clock()
                self.phase = Phase.HELD
            elif wanted:
                self.phase = Phase.OVER
        if lease is not None:
            lease.release()
        if self.phase is not Phase.HELD:
            self._book.forget(self)
        elif wanted:
            self._book.keep(self)
            self._book.counters.observe("acquire_seconds", self.held_since - since)


def _result(future: tokura.Future[Any]) -> Any:
    try:
        return future.result(0)
    except (tokura.TokuraError, TimeoutError):
        return None


class LookupBook:
    """All tickets of an engine; renews the leases of those that wait. Thread-safe."""

    def __init__(
        self,
        client: Any,
        counters: Counters,
        *,
        timeout: float,
        leases_max: int,
        accept: dict[str, Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = client
        self.counters = counters
        self.timeout = timeout
        self.accept = accept
        self.clock = clock
        self._leases_max = leases_max
        self._lock = threading.Lock()
        # Whose leases are renewed; and those with all that will be held without being asked for.
        self._held: set[Ticket] = set()
        self._pinned: set[Ticket] = set()
        self._closed = threading.Event()
        self._keeper: threading.Thread | None = None

    def open(self, namespace: tokura.Namespace, chain: Any) -> Ticket:
        """Start a lookup; its blocks are pinned at once while few others are, or will be."""
        ticket = Ticket(self, namespace)
        with self._lock:
            pin = len(self._pinned) < self._leases_max
            if pin:
                self._pinned.add(ticket)
        ticket.start(chain, pin=pin)
        return ticket

    def keep(self, ticket: Ticket) -> None:
        """Renew a ticket's lease from now on."""
        with self._lock:
            if ticket.phase is Phase.HELD:
                self._held.add(ticket)
                self._pinned.add(ticket)
            if self._keeper is None and not self._closed.is_set():
                self._keeper = threading.Thread(
                    target=self._renew_forever, name="tokura-leases", daemon=True
                )
                self._keeper.start()

    def forget(self, ticket: Ticket) -> None:
        """Renew it no more, and let others be pinned instead."""
        with self._lock:
            self._held.discard(ticket)
            self._pinned.discard(ticket)

    @property
    def held(self) -> int:
        """Tickets whose blocks are pinned."""
        return len(self._held)

    def renew_all(self) -> None:
        """Renew every lease that is held."""
        with self._lock:
            held = list(self._held)
        for ticket in held:
            ticket.renew()

    def close(self) -> None:
        """Release everything, also what is still being looked up or pinned."""
        self._closed.set()
        with self._lock:
            tickets = self._held | self._pinned
        for ticket in tickets:
            ticket.end()
        if self._keeper is not None:
            self._keeper.join()

    def _renew_forever(self) -> None:
        while not self._closed.wait(RENEW_SECONDS):
            self.renew_all()
