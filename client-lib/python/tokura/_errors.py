"""Status codes and the exceptions that carry them."""

from __future__ import annotations

import enum
from typing import NamedTuple


class StatusCode(enum.IntEnum):
    """The canonical status codes."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class TokuraError(Exception):
    """Base of all errors of this package. ``str(error)`` is "CODE: message"."""

    def __init__(self, code: StatusCode, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


class InvalidArgument(TokuraError, ValueError):
    """An option, a shape, a layout, or bytes that do not parse; the message names it."""


class DeadlineExceeded(TokuraError, TimeoutError):
    """No answer in time."""


class Unavailable(TokuraError, ConnectionError):
    """The transport does not start."""


class ResourceExhausted(TokuraError):
    """Too many operations outstanding, or no memory to register."""


class FailedPrecondition(TokuraError):
    """A closed client, a forked process, another UCX, coordinators where nodes were set."""


class Cancelled(TokuraError):
    """The operation was cancelled before it had a result."""


class BlockStatus(NamedTuple):
    """How one block of an operation ended; ``message`` is empty when OK."""

    code: StatusCode
    message: str


_CLASSES: dict[StatusCode, type[TokuraError]] = {
    StatusCode.INVALID_ARGUMENT: InvalidArgument,
    StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    StatusCode.UNAVAILABLE: Unavailable,
    StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    StatusCode.CANCELLED: Cancelled,
}


def make_error(code: int, message: str) -> TokuraError:
    """Make the exception of a code; the extension raises it."""
    status = StatusCode(code)
    return _CLASSES.get(status, TokuraError)(status, message)


def invalid(message: str) -> InvalidArgument:
    """Make an InvalidArgument."""
    return InvalidArgument(StatusCode.INVALID_ARGUMENT, message)
