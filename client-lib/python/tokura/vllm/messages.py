"""What the scheduler's side and the workers' sides tell each other, once per step."""

from __future__ import annotations

from dataclasses import dataclass, field

from tokura.vllm.compat import KVConnectorMetadata, KVConnectorWorkerMetadata


@dataclass(frozen=True)
class NamespaceId:
    """Which namespace of the engine's model a request belongs to."""

    lora_digest: str = ""
    salt: str = ""


@dataclass(frozen=True)
class LoadJob:
    """Fill the pages of tokens [first_token, end_token) of a request from a held match."""

    request_id: str
    namespace: NamespaceId
    match: bytes
    first_token: int
    end_token: int
    # Per layer group the request's pages, from its first token on.
    pages: tuple[tuple[int, ...], ...]
    asynchronous: bool
    generation: int


@dataclass(frozen=True)
class SaveJob:
    """Store blocks [first_block, first_block + blocks) of a request, whose KV is complete when this
    step has run."""

    request_id: str
    namespace: NamespaceId
    # Keys of the chain from its root to the last of these blocks, 16 bytes each.
    keys: bytes
    first_block: int
    blocks: int
    pages: tuple[tuple[int, ...], ...]
    # Shared by the ranks, so that their parts make one block.
    content_id: bytes
    generation: int


@dataclass
class StepPlan(KVConnectorMetadata):  # type: ignore[misc]
    """One step's work for the workers."""

    loads: list[LoadJob] = field(default_factory=list)
    saves: list[SaveJob] = field(default_factory=list)
    # Requests whose pages were taken away: their saves must have stopped reading before the step
    # writes.
    fences: list[str] = field(default_factory=list)
    # Finished requests whose pages the engine holds until the workers report that their saves read
    # no more.
    held: list[str] = field(default_factory=list)


@dataclass
class StepReport(KVConnectorWorkerMetadata):  # type: ignore[misc]
    """What a worker did since its last report; several workers' are added up."""

    # Per request, the save jobs whose pages are no longer read.
    released: dict[str, int] = field(default_factory=dict)
    # Per request, the load jobs that ended, whatever their outcome.
    loaded: dict[str, int] = field(default_factory=dict)
    # Per request whose load failed somewhere, the first token that is not valid.
    failed: dict[str, int] = field(default_factory=dict)

    def aggregate(self, other: StepReport) -> StepReport:
        """Return both together."""
        failed = dict(self.failed)
        for request_id, token in other.failed.items():
            failed[request_id] = min(token, failed.get(request_id, token))
        return StepReport(
            released=_sum(self.released, other.released),
            loaded=_sum(self.loaded, other.loaded),
            failed=failed,
        )

    def empty(self) -> bool:
        """Whether there is nothing to say."""
        return not (self.released or self.loaded or self.failed)


def _sum(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {key: a.get(key, 0) + b.get(key, 0) for key in (*a, *(k for k in b if k not in a))}
