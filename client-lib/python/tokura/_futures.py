"""Futures: operations under way, for threads, pollers and asyncio."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable, Generator
from typing import Any, Generic, Self, TypeVar, final

from tokura import _core
from tokura._results import GetResult, PutResult

T = TypeVar("T", covariant=True)

_log = logging.getLogger("tokura")


class Dispatcher:
    """A thread that tells who waits for operations to end; started when the first asks.

    The client's own threads never wait for the interpreter lock: they leave numbers in a queue.
    """

    def __init__(self) -> None:
        self._endings = _core.Endings()
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: dict[int, Callable[[], None]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def watch(self, operation: _core.Operation, call: Callable[[], None]) -> None:
        """Call ``call`` on the dispatcher's thread once the operation ended."""
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._run, name="tokura-callbacks", daemon=True
                )
                self._thread.start()
            number = next(self._numbers)
            self._waiting[number] = call
        operation.notify(self._endings, number)

    def _run(self) -> None:
        while (number := self._endings.pop()) is not None:
            with self._lock:
                call = self._waiting.pop(number)
            call()

    def close(self) -> None:
        """Finish what has ended, then stop the thread. After the client ended every operation."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._endings.close()
        if thread is not None and thread is not threading.current_thread():
            thread.join()


class Future(Generic[T]):
    """An operation under way.

    Dropping a get's future cancels it and waits until its view is no longer written; dropping a
    put's waits until its view is no longer read (both bounded by the deadline). Dropping others
    lets them go on.
    """

    def __init__(
        self,
        operation: _core.Operation,
        dispatcher: Dispatcher,
        take: Callable[[_core.Operation], T],
    ) -> None:
        self._operation = operation
        self._dispatcher = dispatcher
        self._take = take
        self._lock = threading.Lock()
        self._result: list[T] = []  # none or one
        self._callbacks: list[Callable[[], None]] = []
        self._watched = False
        self._told = False

    def done(self) -> bool:
        """Poll. Cheap: no lock is waited for, for an engine's worker loop."""
        return self._operation.done()

    def result(self, timeout: float | None = None) -> T:
        """Wait at most ``timeout`` for the result; TimeoutError when it is not there by then (the
        operation goes on).

        The interpreter lock is released. A signal handler's exception (Ctrl-C) ends the wait; the
        blocking calls of Client then cancel the operation and wait until the view is quiet before
        they let it through.
        """
        if not self._operation.wait(-1 if timeout is None else max(timeout, 0)):
            raise TimeoutError(f"the operation has not ended after {timeout} s")
        with self._lock:
            if not self._result:
                self._result.append(self._take(self._operation))
            return self._result[0]

    def _result_or_quiet(self) -> T:
        """Return the result; when the wait is interrupted, cancel and let nobody touch the view
        any more."""
        try:
            return self.result()
        except BaseException:
            self._operation.cancel()
            self._operation.wait_quiet()
            raise

    def cancel(self) -> None:
        """End the operation early: what has not finished ends CANCELLED. Returns at once; the
        result still comes."""
        self._operation.cancel()

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call ``callback(future)`` once it is done, on a thread of this package; at once, here,
        when it is already.

        Exceptions of callbacks are logged and dropped.
        """
        self._call_when_done(lambda: callback(self))

    def _call_when_done(self, call: Callable[[], object]) -> None:
        def guarded() -> None:
            try:
                call()
            except Exception:
                _log.exception("a callback of an operation failed")

        with self._lock:
            now = self._told or (self.done() and not self._watched)
            watch = not now and not self._watched
            if not now:
                self._callbacks.append(guarded)
                self._watched = True
        if now:
            guarded()
        elif watch:
            self._dispatcher.watch(self._operation, self._tell)

    def _tell(self) -> None:
        with self._lock:
            self._told = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    async def _wait(self) -> T:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def set_ended() -> None:
            if not ended.done():
                ended.set_result(None)

        def tell() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(set_ended)

        self._call_when_done(tell)
        try:
            await ended
        except asyncio.CancelledError:
            self._operation.cancel()
            # Soon: the client answers a cancel at once.
            await asyncio.shield(loop.run_in_executor(None, self._operation.wait_quiet))
            raise
        return self.result(0)

    def __await__(self) -> Generator[Any, None, T]:
        """Wait in asyncio. Cancelling the task cancels the operation and waits until the view is
        quiet."""
        return self._wait().__await__()


@final
class GetFuture(Future[GetResult]):
    """A get under way."""

    def layer_done(self, layer: int, *, group: int = 0) -> bool:
        """Whether a layer (counted within its group, from 0) is complete for every block that did
        not fail, or the get ended.

        Without ``track_layers`` layers are done when the get is.
        """
        return self._operation.wait_layer(group, layer, 0)

    def wait_layer(self, layer: int, *, group: int = 0, timeout: float | None = None) -> bool:
        """Wait until layer_done, at most ``timeout``; return layer_done."""
        return self._operation.wait_layer(group, layer, -1 if timeout is None else max(timeout, 0))


@final
class PutFuture(Future[PutResult]):
    """A put under way."""

    def released(self) -> bool:
        """Whether the view is no longer read: the pages may be reused. By the deadline at the
        latest."""
        return self._operation.released()

    def wait_released(self, timeout: float | None = None) -> bool:
        """Wait until released, at most ``timeout``; return released."""
        return self._operation.wait_released(-1 if timeout is None else max(timeout, 0))
