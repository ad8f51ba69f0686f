"""The client."""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Literal, Self, final

from tokura import _core
from tokura._errors import invalid, make_error
from tokura._futures import Dispatcher, Future, GetFuture, PutFuture
from tokura._namespace import Namespace, TokenChain, join_keys
from tokura._results import GetResult, Match, NodeStat, PutResult, RemoveResult
from tokura._views import KvView, SequenceView, core_view

LogLevel = Literal["trace", "debug", "info", "warn", "error"]

_WAKES = {"sleep": False, "spin": True}
_FOREVER_NS = 2**63 - 1


def _nanoseconds(seconds: float, name: str) -> int:
    if not seconds >= 0:
        raise invalid(f"{name} is {seconds}; it is in seconds and not negative")
    return int(min(seconds * 1e9, _FOREVER_NS))


def _deadline_ns(deadline: float | None) -> int:
    return -1 if deadline is None else _nanoseconds(deadline, "deadline")


def _accept(
    max_error: float | None, allow_summary: bool, touch: bool = True, deadline: float | None = None
) -> tuple[float, bool, bool, int]:
    if max_error is not None and not max_error >= 0:
        raise invalid(f"max_error is {max_error}; it is not negative")
    error = -1.0 if max_error is None else float(max_error)
    return error, allow_summary, touch, _deadline_ns(deadline)


def _count(value: int | None, name: str) -> int:
    """A number of blocks or layers as the extension takes it, where 0 means all."""
    if value is None:
        return 0
    if value <= 0:
        raise invalid(f"{name} is {value}; None is all")
    return value


@final
class Lease:
    """Blocks pinned at their nodes by an acquire: what they confirmed, cut to the first gap.

    Ends with release, with the client, after lease_age (10 s) without renewal or progress, or at
    lease_age_max (60 s). As a context manager it releases at the end. Dropping it without release
    lets it run out: workers may still be reading.
    """

    def __init__(self, client: _core.Client, match: Match) -> None:
        self._client = client
        self._match = match
        self._released = False

    @property
    def match(self) -> Match:
        """To get from, here or (as bytes) in another process."""
        return self._match

    def renew(self) -> None:
        """Ask the nodes to hold on; returns at once."""
        if not self._released:
            self._client.renew(self._match._core)

    def release(self) -> None:
        """Let the nodes unpin; returns at once. Twice, or after the client was closed, does
        nothing."""
        if not self._released and not self._client.closed:
            self._released = True
            self._client.release(self._match._core)

    def __enter__(self) -> Match:
        return self._match

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def _take_match(operation: _core.Operation) -> Match:
    return Match._wrap(operation.match())


def _take_get(operation: _core.Operation) -> GetResult:
    return GetResult(operation.result())


def _take_put(operation: _core.Operation) -> PutResult:
    return PutResult(operation.result())


def _take_remove(operation: _core.Operation) -> RemoveResult:
    return RemoveResult(operation.result())


def _take_nodes(operation: _core.Operation) -> list[NodeStat]:
    operation.check()
    return [
        NodeStat._make((*values, make_error(code, message) if code else None))
        for code, message, values in operation.nodes()
    ]


def _end(client: _core.Client, dispatcher: Dispatcher) -> None:
    client.close()
    dispatcher.close()


@final
class Client:
    """Tokura's client. One per process is enough; it owns one progress thread, the codec threads
    and one registered ring."""

    def __init__(
        self,
        *,
        coordinators: Sequence[str] = (),
        nodes: Sequence[str] = (),
        name: str = "client",
        ring_bytes: int = 64 << 20,
        window_bytes: int = 1 << 20,
        part_bytes_max: int = 16 << 20,
        codec_threads: int = 1,
        operations_max: int = 1024,
        inline_decode_bytes: int = 64 << 10,
        progress_timeout: float = 0.2,
        connect_timeout: float = 1.0,
        heartbeat: float = 0.25,
        dead_after: float = 1.0,
        breaker_backoff_min: float = 0.1,
        breaker_backoff_max: float = 2.0,
        ingest_codec: str = "kivi4",
        profile_dir: str | os.PathLike[str] | None = None,
        profiles: Sequence[str | os.PathLike[str]] = (),
        accept_proxy_error: bool = False,
        sink_tokens: int = 4,
        wake: Literal["sleep", "spin"] = "sleep",
        spin: float = 50e-6,
    ) -> None:
        """Start a client; servers need not be reachable, connections are made in the background.

        coordinators: "host:port" of coordinators, which say which nodes there are and what they
            hold.
        nodes: "host:port" of cache nodes, where there is no coordinator. One of the two lists is
            empty.
        name: for the servers' logs.
        ring_bytes: registered memory for payloads in both directions.
        window_bytes: what one node's payloads, in each direction, may take of the ring at a time;
            two parts are always allowed.
        part_bytes_max: larger parts are refused.
        codec_threads: that encode and decode.
        operations_max: outstanding; more are ResourceExhausted per block.
        inline_decode_bytes: gets up to this raw size are decoded on the progress thread.
        progress_timeout: an operation without progress for so long ends.
        ingest_codec: where no policy of a coordinator says otherwise.
        profile_dir, profiles: model profiles (``tokura profile``), a directory of *.profile and
            files. Blocks are put with the first that fits their model, of the files first. Blocks
            that need one that is not here are misses.
        accept_proxy_error: let forms judged by their own keys meet a stated max_error.
        sink_tokens: first tokens of a sequence that are kept raw.
        wake, spin: how the progress thread waits, and how long it spins before it sleeps.

        InvalidArgument: an option or address; Unavailable: the transport does not start;
        ResourceExhausted: memory cannot be registered; FailedPrecondition: another UCX was loaded,
        or the process was forked from one with a client. A profile that cannot be used is an error
        with the file's name.
        """
        for addresses in (coordinators, nodes):
            if isinstance(addresses, str):
                raise invalid(f"{addresses!r} is one address; give a list of them")
        if isinstance(profiles, str | os.PathLike):
            raise invalid(f"{profiles!r} is one profile; give a list of them")
        if wake not in _WAKES:
            raise invalid(f"wake is {wake!r}, not sleep or spin")
        durations = (
            _nanoseconds(progress_timeout, "progress_timeout"),
            _nanoseconds(connect_timeout, "connect_timeout"),
            _nanoseconds(heartbeat, "heartbeat"),
            _nanoseconds(dead_after, "dead_after"),
            _nanoseconds(breaker_backoff_min, "breaker_backoff_min"),
            _nanoseconds(breaker_backoff_max, "breaker_backoff_max"),
            _nanoseconds(spin, "spin"),
        )
        sizes = (ring_bytes, window_bytes, part_bytes_max, inline_decode_bytes)
        counts = (*sizes, codec_threads, operations_max, sink_tokens)
        if min(counts) < 0:
            raise invalid("sizes and counts are not negative")
        self._core = _core.Client(
            (list(coordinators), list(nodes)),
            (name, ingest_codec),
            ([os.fspath(file) for file in profiles], os.fspath(profile_dir or "")),
            counts,
            (accept_proxy_error, _WAKES[wake]),
            durations,
        )
        self._dispatcher = Dispatcher()
        # Also where the client is dropped, and at exit: no thread may outlive the interpreter.
        self._end = weakref.finalize(self, _end, self._core, self._dispatcher)

    def close(self) -> None:
        """Cancel every operation, wait until all views are quiet, disconnect. Twice does nothing.

        A client that is dropped, or open at interpreter exit, is closed then.
        """
        self._end()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._core.closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def wait_ready(self, timeout: float = 5.0) -> None:
        """Wait until some node is connected (in a cluster: every member that is up is, or has
        failed).

        DeadlineExceeded says what was tried and why it failed. Operations may be started without
        waiting; they miss until then.
        """
        operation = self._core.ready(_nanoseconds(timeout, "timeout"))
        operation.wait(-1)
        operation.check()

    def lookup(
        self,
        namespace: Namespace,
        chain: TokenChain,
        *,
        max_error: float | None = None,
        allow_summary: bool = False,
        touch: bool = True,
        deadline: float | None = None,
    ) -> Match:
        """Find the leading blocks of ``chain`` that some node holds in an acceptable form. A hint;
        cheap.

        Empty when there are none, or nobody answers. ``max_error`` None: the policy's budget, else
        any; 0: exact only. ``touch``: keep the chain warm. ``deadline`` None: progress_timeout.
        InvalidArgument: chain and namespace disagree.
        """
        return self.start_lookup(
            namespace,
            chain,
            max_error=max_error,
            allow_summary=allow_summary,
            touch=touch,
            deadline=deadline,
        )._result_or_quiet()

    def acquire(
        self,
        namespace: Namespace,
        match: Match,
        *,
        max_error: float | None = None,
        allow_summary: bool = False,
    ) -> Lease:
        """Pin a match at its nodes, cut to the first gap, before promising it to anybody."""
        return self.start_acquire(
            namespace, match, max_error=max_error, allow_summary=allow_summary
        )._result_or_quiet()

    def get(
        self,
        namespace: Namespace,
        match: Match,
        view: KvView | SequenceView,
        *,
        max_error: float | None = None,
        allow_summary: bool = False,
        first_block: int = 0,
        blocks: int | None = None,
        first_layer: int = 0,
        layers: int | None = None,
        track_layers: bool = False,
        deadline: float | None = None,
    ) -> GetResult:
        """Fetch blocks [first_block, first_block + blocks) of ``match`` into ``view`` (None: all to
        the end).

        ``track_layers``: tell which layers are done (GetFuture.wait_layer); blocks whose first
        layers a caller may have seen are then not tried at another node. ``first_layer``,
        ``layers``: a range within every group. Several gets of one block (layer ranges, shards)
        have it from one writer only when the match is held. ``deadline`` None: progress_timeout
        without progress plus twice the predicted transfer. InvalidArgument: the view does not fit
        the namespace, or is read-only.
        """
        return self.start_get(
            namespace,
            match,
            view,
            max_error=max_error,
            allow_summary=allow_summary,
            first_block=first_block,
            blocks=blocks,
            first_layer=first_layer,
            layers=layers,
            track_layers=track_layers,
            deadline=deadline,
        )._result_or_quiet()

    def put(
        self,
        namespace: Namespace,
        chain: TokenChain,
        view: KvView | SequenceView,
        *,
        codec: str | None = None,
        first_block: int = 0,
        blocks: int | None = None,
        deadline: float | None = None,
        content_id_base: bytes | None = None,
    ) -> PutResult:
        """Encode and store blocks of ``chain`` from ``view``; blocks that are held already are not
        sent.

        ``codec`` None: the policy's, else ingest_codec. ``blocks`` None: all complete blocks that
        the view covers. ``content_id_base``: 16 bytes that the writers of one sharded sequence
        (tensor-parallel ranks) share, so that their parts join; None: a single writer.
        """
        return self.start_put(
            namespace,
            chain,
            view,
            codec=codec,
            first_block=first_block,
            blocks=blocks,
            deadline=deadline,
            content_id_base=content_id_base,
        )._result_or_quiet()

    def remove(self, namespace: Namespace, keys: TokenChain | Sequence[bytes]) -> RemoveResult:
        """Remove blocks from the nodes."""
        return self.start_remove(namespace, keys)._result_or_quiet()

    def stat(self) -> list[NodeStat]:
        """Ask every node what it holds."""
        return Future(self._core.stat(), self._dispatcher, _take_nodes)._result_or_quiet()

    def set_nodes(self, nodes: Sequence[str]) -> None:
        """Replace the list of nodes; connections to those still listed stay. FailedPrecondition:
        coordinators say it."""
        self._core.set_nodes(list(nodes))

    def renew(self, match: Match) -> None:
        """Lease.renew for a held match, also of another process's acquire. Returns at once."""
        self._core.renew(match._core)

    def release(self, match: Match) -> None:
        """Lease.release for a held match. Returns at once."""
        self._core.release(match._core)

    def metrics_text(self) -> str:
        """Return the client's metrics (tokura_client_…) in Prometheus' text format."""
        return self._core.metrics_text().decode()

    def start_lookup(
        self,
        namespace: Namespace,
        chain: TokenChain,
        *,
        max_error: float | None = None,
        allow_summary: bool = False,
        touch: bool = True,
        deadline: float | None = None,
    ) -> Future[Match]:
        """Start a lookup."""
        accept = _accept(max_error, allow_summary, touch, deadline)
        operation = self._core.lookup(namespace._core, chain._core, accept)
        return Future(operation, self._dispatcher, _take_match)

    def start_acquire(
        self,
        namespace: Namespace,
        match: Match,
        *,
        max_error: float | None = None,
        allow_summary: bool = False,
    ) -> Future[Lease]:
        """Start an acquire."""
        accept = _accept(max_error, allow_summary)
        operation = self._core.acquire(namespace._core, match._core, accept)

        def take(ended: _core.Operation) -> Lease:
            return Lease(self._core, _take_match(ended))

        return Future(operation, self._dispatcher, take)

    def start_get(
        self,
        namespace: Namespace,
        match: Match,
        view: KvView | SequenceView,
        *,
        max_error: float | None = None,
        allow_summary: bool = False,
        first_block: int = 0,
        blocks: int | None = None,
        first_layer: int = 0,
        layers: int | None = None,
        track_layers: bool = False,
        deadline: float | None = None,
    ) -> GetFuture:
        """Start a get."""
        if min(first_block, first_layer) < 0:
            raise invalid("first_block and first_layer are not negative")
        if blocks == 0:  # an empty range, which the core would take for all
            first_block, blocks = len(match), None
        blocks_asked = _count(blocks, "blocks")
        operation = self._core.get(
            namespace._core,
            match._core,
            core_view(view),
            (first_block, blocks_asked, first_layer, _count(layers, "layers"), int(track_layers)),
            _accept(max_error, allow_summary, deadline=deadline),
        )
        return GetFuture(operation, self._dispatcher, _take_get)

    def start_put(
        self,
        namespace: Namespace,
        chain: TokenChain,
        view: KvView | SequenceView,
        *,
        codec: str | None = None,
        first_block: int = 0,
        blocks: int | None = None,
        deadline: float | None = None,
        content_id_base: bytes | None = None,
    ) -> PutFuture:
        """Start a put."""
        if first_block < 0:
            raise invalid("first_block is not negative")
        if blocks == 0:  # an empty range, which the core would take for all
            first_block, blocks = len(chain), None
        operation = self._core.put(
            namespace._core,
            chain._core,
            core_view(view),
            (first_block, _count(blocks, "blocks"), _deadline_ns(deadline)),
            (codec, content_id_base),
        )
        return PutFuture(operation, self._dispatcher, _take_put)

    def start_remove(
        self, namespace: Namespace, keys: TokenChain | Sequence[bytes]
    ) -> Future[RemoveResult]:
        """Start a remove."""
        listed = keys.keys if isinstance(keys, TokenChain) else keys
        operation = self._core.remove(namespace._core, join_keys(listed))
        return Future(operation, self._dispatcher, _take_remove)


def new_content_id() -> bytes:
    """Return 16 random bytes for content_id_base, to be given to all ranks that put one
    sequence."""
    return secrets.token_bytes(16)


def set_log_level(level: LogLevel) -> None:
    """Set which events the client logs on standard error, one line each. Default "warn"."""
    _core.set_log_level(level)
