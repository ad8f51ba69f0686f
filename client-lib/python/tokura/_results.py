"""What operations return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self, final

from tokura import _core
from tokura._errors import BlockStatus, StatusCode, TokuraError

CoreMatch = _core.Match

_OK = BlockStatus(StatusCode.OK, "")


@final
@dataclass(frozen=True, slots=True)
class MatchRun:
    """Consecutive blocks of a match that lie on one node."""

    node: str
    first: int
    count: int


@final
class Match:
    """What a lookup or acquire found for a chain: its leading blocks. ``len(match)`` is their
    number. Immutable."""

    _core: CoreMatch

    def __init__(self) -> None:
        raise TypeError("matches are made by Client.lookup, Client.acquire or Match.from_bytes")

    @classmethod
    def _wrap(cls, core: CoreMatch) -> Self:
        match = cls.__new__(cls)
        match._core = core
        return match

    def __len__(self) -> int:
        return self._core.blocks

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self._core.blocks

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return self._core.blocks * self._core.block_tokens

    @property
    def held(self) -> bool:
        """Whether some of it is leased (the result of an acquire)."""
        return self._core.held

    @property
    def keys(self) -> list[bytes]:
        """Keys of the blocks, 16 bytes each."""
        return self._core.keys()

    @property
    def runs(self) -> list[MatchRun]:
        """Where the blocks lie, in order, each once."""
        return [MatchRun(*run) for run in self._core.runs()]

    @property
    def codecs(self) -> list[str]:
        """Codec of each block, such as "raw" or "kivi4"; empty where not known."""
        return self._core.codecs()

    @property
    def stored_bytes(self) -> list[int]:
        """Encoded size of each block; of a hint, an estimate; empty where not known."""
        return self._core.stored_bytes()

    @property
    def fingerprint(self) -> bytes:
        """Of the namespace."""
        return self._core.fingerprint

    @property
    def seconds(self) -> float:
        """Duration of the lookup or acquire; 0 after from_bytes."""
        return self._core.seconds

    def to_bytes(self) -> bytes:
        """Serialise, for another process of the same tenant. Versioned, checked by a CRC."""
        return self._core.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Match:
        """Parse to_bytes' result. Any bytes are safe to give; InvalidArgument says what is
        wrong."""
        return cls._wrap(_core.Match.from_bytes(data))


class _BlocksResult:
    """What gets, puts and removes have in common."""

    def __init__(self, core: _core.BlocksResult) -> None:
        self._core = core

    @property
    def statuses(self) -> list[BlockStatus]:
        """How each block ended."""
        messages = self._core.messages
        return [
            BlockStatus(StatusCode(code), messages[i]) if code else _OK
            for i, code in enumerate(self._core.codes)
        ]

    @property
    def codes(self) -> bytes:
        """The status codes alone, one byte per block: cheap to scan."""
        return self._core.codes

    @property
    def ok(self) -> bool:
        """Whether every asked-for block is OK."""
        return self._core.blocks_ok == self._core.blocks

    @property
    def seconds(self) -> float:
        """From start to end of the operation."""
        return self._core.seconds


@final
class GetResult(_BlocksResult):
    """Result of one get. The contents of the view are defined for OK blocks only, and never change
    after this. A block is OK only when all its asked-for parts were verified and decoded from one
    writer's bits; else NOT_FOUND, DATA_LOSS, DEADLINE_EXCEEDED, UNAVAILABLE, CANCELLED, …."""

    @property
    def prefix_ok(self) -> int:
        """Number of leading OK blocks."""
        return self._core.prefix_ok

    @property
    def codecs(self) -> list[str]:
        """Codec per block; empty where not OK."""
        return self._core.codecs

    @property
    def declared_error(self) -> list[float]:
        """Relative attention-output error per block, mean over layers: 0 is exact, infinity is
        lossy and never measured."""
        return self._core.declared_error

    @property
    def proxy_error(self) -> list[bool]:
        """Whether the error was judged by the block's own keys only."""
        return [bool(proxy) for proxy in self._core.proxy_error]

    @property
    def bytes_moved(self) -> int:
        """Payload over the wire."""
        return self._core.bytes_moved

    @property
    def bytes_logical(self) -> int:
        """Raw size of the OK blocks."""
        return self._core.bytes_logical

    @property
    def wire_seconds(self) -> float:
        """From the first request sent to the last payload received; overlaps with decoding."""
        return self._core.wire_ns * 1e-9

    @property
    def decode_seconds(self) -> float:
        """Time of the codec threads, added up: verify and decode."""
        return self._core.codec_ns * 1e-9


@final
class PutResult(_BlocksResult):
    """Result of one put. OK: stored, or held already; CANCELLED: never visible; RESOURCE_EXHAUSTED:
    the node has no room; FAILED_PRECONDITION: the codec needs a model profile, and none here fits;
    UNKNOWN or DEADLINE_EXCEEDED: may be stored, and then with the right bytes."""

    @property
    def stored(self) -> int:
        """Number of OK blocks."""
        return self._core.blocks_ok

    @property
    def bytes_moved(self) -> int:
        """Payload over the wire."""
        return self._core.bytes_moved

    @property
    def bytes_logical(self) -> int:
        """Raw size of the OK blocks."""
        return self._core.bytes_logical

    @property
    def wire_seconds(self) -> float:
        """From the first payload offered to the last answer received; overlaps with encoding."""
        return self._core.wire_ns * 1e-9

    @property
    def encode_seconds(self) -> float:
        """Time of the codec threads, added up."""
        return self._core.codec_ns * 1e-9


@final
class RemoveResult(_BlocksResult):
    """Result of one remove: OK, NOT_FOUND or UNAVAILABLE per key."""


class NodeStat(NamedTuple):
    """What one node holds. ``error`` is set, and the rest empty, when it did not answer."""

    node: str
    incarnation: int
    blocks: int
    forms: int
    bytes_stored: int
    bytes_logical: int
    capacity_bytes: int
    largest_free_bytes: int
    pinned_bytes: int
    leases: int
    error: TokuraError | None
