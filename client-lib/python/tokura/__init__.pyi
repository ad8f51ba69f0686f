"""Tokura's client: share KV blocks of LLM inference through cache nodes.

    client = tokura.Client(coordinators=["127.0.0.1:7420"])
    namespace = tokura.Namespace(tokura.NamespaceSpec(model="my-model", dtype="float16", groups=[...]))
    chain = tokura.TokenChain(namespace, token_ids)
    client.put(namespace, chain, view)                  # encode straight from the engine's pages
    match = client.lookup(namespace, chain)             # how much of this prefix exists?
    got = client.get(namespace, match, view)            # verify, decode straight into the pages
    usable_tokens = got.prefix_ok * namespace.block_tokens

Rules that hold everywhere:

* Durations are seconds (float), sizes are bytes (int), keys and ids are ``bytes``. Options are keyword-only and have the names
  of the C++ client's and of the programs' options.
* A cache failure is a miss: operations do not raise because a node is dead, slow or full; each block has its own status.
  Exceptions mean wrong arguments, a closed client, or no capacity to start an operation (``ResourceExhausted``).
* Every operation ends by its deadline. ``start_X`` returns a :class:`Future` at once; ``X(...)`` is ``start_X(...).result()``,
  with the interpreter lock released while it waits. Futures are awaitable: ``match = await client.start_lookup(...)``.
* A view is read (put) or written (get) in place. Arrays that a view was made of are kept alive by it, and the view by the
  operation; memory given by address must stay valid until the get is done, or the put's source is released.
* All classes may be used from any thread. A process that forks must do so before it makes its first :class:`Client`; making or
  using one in a child of a process that had one raises ``FailedPrecondition``. Importing the package starts no thread.
"""

import enum
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar, final

__version__: str
# Version of the C ABI of the library in use, major * 1000 + minor.
ABI_VERSION: int
# Version of the UCX that the package was built with and uses; the same on all machines of a cluster.
UCX_VERSION: str

# Element types of KV. Shared with the namespace: KV of two dtypes never meets.
DType = Literal["float32", "float16", "bfloat16", "float8_e4m3"]
AttentionKind = Literal["full", "sliding", "latent", "recurrent", "other"]
# State of rotary position embedding in K: "post" (applied, the default), "pre" (not yet), "none".
RopeState = Literal["post", "pre", "none"]
MemorySpace = Literal["host", "cuda"]
LogLevel = Literal["trace", "debug", "info", "warn", "error"]
# Anything with __dlpack__ or the buffer protocol: numpy arrays, torch tensors, ….
Array = Any
# Token ids 0 … 2**32 - 1: a sequence of int, or an integer array (uint32 and int32 are taken without conversion).
Tokens = Sequence[int] | Array

# What a KeyExtra is of. 128 … 255 are private to the engine.
EXTRA_MULTIMODAL_HASH: int
EXTRA_PROMPT_EMBEDDING_HASH: int

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

    code: StatusCode
    message: str
    def __init__(self, code: StatusCode, message: str) -> None: ...

# Also a ValueError: an option, a shape, a layout or bytes that do not parse; the message names it.
class InvalidArgument(TokuraError, ValueError): ...
# Also a TimeoutError.
class DeadlineExceeded(TokuraError, TimeoutError): ...
# Also a ConnectionError: the transport does not start.
class Unavailable(TokuraError, ConnectionError): ...
# Too many operations outstanding, or no memory to register.
class ResourceExhausted(TokuraError): ...
# A closed client, a forked process, coordinators where nodes were set.
class FailedPrecondition(TokuraError): ...
# The operation was cancelled before it had a result.
class Cancelled(TokuraError): ...

class BlockStatus(NamedTuple):
    """How one block of an operation ended."""

    code: StatusCode
    # Empty when OK.
    message: str

@final
@dataclass(frozen=True, kw_only=True, slots=True)
class LayerGroup:
    """The layers of one attention kind."""

    # Ascending indices in the model.
    layers: Sequence[int]
    # KV heads of the whole model; divisible by the namespace's head_shards (1 for "latent").
    kv_heads: int
    # "latent": latent + rope channels.
    k_head_dim: int
    # None: as k_head_dim, and 0 for "latent", where V is part of K.
    v_head_dim: int | None = None
    kind: AttentionKind = "full"
    # Tokens a query sees; "sliding" only.
    window: int = 0

@final
@dataclass(frozen=True, kw_only=True, slots=True)
class NamespaceSpec:
    """Everything that must match for KV to be interchangeable.

    Two processes that differ in any field never see each other's blocks.
    """

    model: str
    # 1 … 8 groups.
    groups: Sequence[LayerGroup]
    dtype: DType
    model_revision: str = ""
    tenant: str = "default"
    # Empty: no adapter.
    lora_digest: str = ""
    salt: str = ""
    # Common tensor-parallel granule: the number of contiguous ranges that the KV heads are cut into.
    head_shards: int = 1
    # 1 … 1024.
    block_tokens: int = 64
    rope: RopeState = "post"

@final
class Namespace:
    """A valid NamespaceSpec with its fingerprint. Immutable; needs no client."""

    def __init__(self, spec: NamespaceSpec) -> None:
        """Raise InvalidArgument that names the field and the rule it breaks."""
    @property
    def spec(self) -> NamespaceSpec: ...
    @property
    def fingerprint(self) -> bytes:
        """SHA-256 over the fields, 32 bytes."""
    @property
    def block_tokens(self) -> int: ...
    @property
    def block_bytes(self) -> int:
        """Raw size of one whole block: all groups, all heads, as the engine holds it."""

class KeyExtra(NamedTuple):
    """What changes KV without changing token ids; part of the key of the block that holds the item's first token."""

    # EXTRA_MULTIMODAL_HASH, EXTRA_PROMPT_EMBEDDING_HASH, or 128 … 255.
    kind: int
    # The whole hash, never truncated.
    hash: bytes

@final
class TokenChain:
    """The block keys of a growing sequence, each computed once. ``len(chain)`` is the number of complete blocks.

    Thread-safe: appends and reads are serialised. Operations take a snapshot when they start.
    """

    def __init__(self, namespace: Namespace, tokens: Tokens = ..., *, extras: Sequence[KeyExtra] = ...) -> None: ...
    @classmethod
    def from_engine_hashes(cls, namespace: Namespace, hashes: Iterable[bytes]) -> Self:
        """Make a chain of an engine's own stable block hashes, one per block of block_tokens, each naming its whole prefix."""
    @classmethod
    def from_keys(cls, namespace: Namespace, keys: Iterable[bytes]) -> Self:
        """Make a chain of block keys (16 bytes each) computed elsewhere, of the same namespace."""
    def append(self, tokens: Tokens, *, extras: Sequence[KeyExtra] = ...) -> None:
        """Append tokens; completed blocks get keys.

        ``extras`` are of the item that begins with the first of ``tokens``: one append per item and one for the text between.
        How text is cut into appends changes nothing. FailedPrecondition on a chain of keys or engine hashes.
        """
    def append_engine_hashes(self, hashes: Iterable[bytes]) -> None:
        """Append blocks to a chain of engine hashes. FailedPrecondition on a chain of tokens."""
    def copy(self) -> TokenChain:
        """Fork the sequence."""
    def prefix(self, blocks: int) -> TokenChain:
        """Return the first ``blocks`` blocks as a chain of keys, which lookups and puts take as any other."""
    def __len__(self) -> int: ...
    @property
    def blocks(self) -> int: ...
    @property
    def tokens(self) -> int:
        """All tokens, the open tail included."""
    @property
    def keys(self) -> list[bytes]:
        """Keys of the complete blocks, 16 bytes each."""
    @property
    def fingerprint(self) -> bytes: ...

class KvStrides(NamedTuple):
    """Byte strides of K or of V inside an engine's pages."""

    page: int
    head: int
    token: int
    channel: int

@final
class KvPages:
    """An engine's paged KV memory of one layer group: where K and V of every layer begin, and the strides.

    Made once, at start; :meth:`view` then gives the pages of one sequence. Nothing is copied. An unknown layout is refused,
    never guessed.
    """

    def __init__(
        self,
        *,
        dtype: DType,
        heads: int,
        k_head_dim: int,
        v_head_dim: int,
        page_tokens: int,
        pages: int,
        layers: Sequence[tuple[int, int]],
        k_strides: KvStrides,
        v_strides: KvStrides,
        space: MemorySpace = "host",
        owner: object = None,
        writable: bool = True,
    ) -> None:
        """Describe memory by addresses.

        ``layers``: per layer the address of element (page 0, head 0, token 0, channel 0) of K and of V (0: no V, for latent).
        ``heads``: the KV heads that this worker holds, in model order. ``pages``: how many there are; page tables are checked
        against it. ``owner`` is kept alive as long as this object, its views and their operations are.
        """
    @classmethod
    def from_arrays(
        cls,
        k: Sequence[Array],
        v: Sequence[Array] | None,
        *,
        order: Literal["NHD", "HND"],
        dtype: DType | None = None,
    ) -> Self:
        """Describe one K and one V array per layer, [pages, page_tokens, heads, head_dim] (NHD) or [pages, heads, page_tokens,
        head_dim] (HND), of any strides; all layers must agree in shape and strides.

        ``v`` None: latent, V is part of K. ``dtype`` says what the bytes are where the array's own type cannot (bfloat16 as
        uint16, float8_e4m3 as uint8). Halves of one tensor are given as two arrays: ``kv[:, 0]`` and ``kv[:, 1]``.
        """
    @classmethod
    def vllm_cpu(cls, layers: Sequence[Array], *, head_dim: int, dtype: DType | None = None) -> Self:
        """Describe vLLM's CPU cache: per layer a contiguous [pages, heads, page_tokens, 2 * head_dim] tensor, in which each
        head of a page is K as [head_dim, page_tokens] and then V as [page_tokens, head_dim]."""
    def view(self, page_table: Sequence[int] | Array, tokens: int | None = None) -> KvView:
        """Give the memory of one sequence: its token t is slot t % page_tokens of page page_table[t // page_tokens].

        ``tokens`` None: all of the pages. Cheap: per request, not per layer.
        """
    @property
    def dtype(self) -> DType: ...
    @property
    def heads(self) -> int: ...
    @property
    def page_tokens(self) -> int: ...
    @property
    def pages(self) -> int: ...
    @property
    def layers(self) -> int: ...

@final
class KvView:
    """Where the KV of one layer group of one sequence lies in an engine's memory. Immutable. See KvPages.view."""

    @classmethod
    def contiguous(
        cls,
        k: Sequence[Array],
        v: Sequence[Array] | None,
        *,
        order: Literal["HND", "NHD"] = "HND",
        dtype: DType | None = None,
    ) -> Self:
        """View one K and one V array per layer, [heads, tokens, head_dim] (HND) or [tokens, heads, head_dim] (NHD)."""
    @property
    def tokens(self) -> int: ...
    @property
    def writable(self) -> bool:
        """False when an array was read-only: puts take the view, gets refuse it."""

@final
class SequenceView:
    """The engine's memory of one sequence: a view per layer group, for the head shards that this worker holds.

    Wherever a SequenceView is expected a KvView stands for one with a single group, all shards and first_token 0.
    """

    def __init__(
        self,
        groups: Sequence[KvView | None],
        *,
        first_shard: int = 0,
        shards: int = 1,
        first_token: int = 0,
    ) -> None:
        """``groups``: one per layer group of the namespace; None: this group is neither read nor written.

        ``first_token``: of the sequence, where the views begin; a multiple of block_tokens. Without it, block i of a match or
        chain is at tokens [i * block_tokens, (i + 1) * block_tokens) of the views.
        """

class MatchRun(NamedTuple):
    """Consecutive blocks of a match that lie on one node."""

    node: str
    first: int
    count: int

@final
class Match:
    """What a lookup or acquire found for a chain: its leading blocks. ``len(match)`` is their number. Immutable."""

    def __len__(self) -> int: ...
    @property
    def blocks(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def held(self) -> bool:
        """Whether some of it is leased (the result of an acquire)."""
    @property
    def keys(self) -> list[bytes]: ...
    @property
    def runs(self) -> list[MatchRun]:
        """Where the blocks lie, in order, each once."""
    @property
    def codecs(self) -> list[str]:
        """Codec of each block, such as "raw" or "kivi4"."""
    @property
    def stored_bytes(self) -> list[int]:
        """Encoded size of each block; of a hint, an estimate."""
    @property
    def fingerprint(self) -> bytes: ...
    @property
    def seconds(self) -> float:
        """Duration of the lookup or acquire; 0 after from_bytes."""
    def to_bytes(self) -> bytes:
        """Serialise, for another process of the same tenant. Versioned, checked by a CRC."""
    @classmethod
    def from_bytes(cls, data: bytes) -> Match:
        """Parse to_bytes' result. Any bytes are safe to give; InvalidArgument says what is wrong."""

@final
class Lease:
    """Blocks pinned at their nodes by an acquire: what they confirmed, cut to the first gap.

    Ends with release, with the client, after lease_age (10 s) without renewal or progress, or at lease_age_max (60 s). As a
    context manager it releases at the end. Dropping it without release lets it run out: workers may still be reading.
    """

    @property
    def match(self) -> Match:
        """To get from, here or (as bytes) in another process."""
    def renew(self) -> None:
        """Ask the nodes to hold on; returns at once."""
    def release(self) -> None:
        """Let the nodes unpin; returns at once. Twice does nothing."""
    def __enter__(self) -> Match: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

@final
class GetResult:
    """Result of one get. The contents of the view are defined for OK blocks only, and never change after this."""

    @property
    def statuses(self) -> list[BlockStatus]:
        """One per asked-for block: OK, NOT_FOUND, DATA_LOSS, DEADLINE_EXCEEDED, UNAVAILABLE, CANCELLED, ….

        A block is OK only when all its asked-for parts were verified and decoded from one writer's bits.
        """
    @property
    def codes(self) -> bytes:
        """The status codes alone, one byte per block: cheap to scan."""
    @property
    def prefix_ok(self) -> int:
        """Number of leading OK blocks."""
    @property
    def ok(self) -> bool:
        """Whether every asked-for block is OK."""
    @property
    def codecs(self) -> list[str]:
        """Codec per block; empty where not OK."""
    @property
    def declared_error(self) -> list[float]:
        """Relative attention-output error per block, mean over layers: 0 is exact, infinity is lossy and never measured."""
    @property
    def proxy_error(self) -> list[bool]:
        """Whether the error was judged by the block's own keys only."""
    @property
    def bytes_moved(self) -> int:
        """Payload over the wire."""
    @property
    def bytes_logical(self) -> int:
        """Raw size of the OK blocks."""
    @property
    def seconds(self) -> float:
        """From start to end of the operation."""
    @property
    def wire_seconds(self) -> float:
        """From the first request sent to the last payload received; overlaps with decoding."""
    @property
    def decode_seconds(self) -> float:
        """Time of the codec threads, added up: verify and decode."""

@final
class PutResult:
    """Result of one put."""

    @property
    def statuses(self) -> list[BlockStatus]:
        """OK: stored, or held already; CANCELLED: never visible; RESOURCE_EXHAUSTED: the node has no room; UNKNOWN or
        DEADLINE_EXCEEDED: may be stored, and then with the right bytes."""
    @property
    def codes(self) -> bytes: ...
    @property
    def stored(self) -> int:
        """Number of OK blocks."""
    @property
    def ok(self) -> bool: ...
    @property
    def bytes_moved(self) -> int: ...
    @property
    def bytes_logical(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def wire_seconds(self) -> float:
        """From the first payload offered to the last answer received; overlaps with encoding."""
    @property
    def encode_seconds(self) -> float:
        """Time of the codec threads, added up."""

@final
class RemoveResult:
    """Result of one remove: OK, NOT_FOUND or UNAVAILABLE per key."""

    @property
    def statuses(self) -> list[BlockStatus]: ...
    @property
    def codes(self) -> bytes: ...

class NodeStat(NamedTuple):
    """What one node holds. ``error`` is set, and the rest 0, when it did not answer."""

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

T = TypeVar("T", covariant=True)

class Future(Generic[T]):
    """An operation under way.

    Dropping a get's future cancels it and waits until its view is no longer written; dropping a put's waits until its view is
    no longer read (both bounded by the deadline). Dropping others lets them go on.
    """

    def done(self) -> bool:
        """Poll. Cheap: no lock is waited for, for an engine's worker loop."""
    def result(self, timeout: float | None = None) -> T:
        """Wait at most ``timeout`` for the result; TimeoutError when it is not there by then (the operation goes on).

        The interpreter lock is released. A signal handler's exception (Ctrl-C) ends the wait; the blocking calls of Client then
        cancel the operation and wait until the view is quiet before they let it through.
        """
    def cancel(self) -> None:
        """End the operation early: what has not finished ends CANCELLED. Returns at once; the result still comes."""
    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call ``callback(future)`` once it is done, on a thread of this package; at once, here, when it is already.

        Exceptions of callbacks are logged and dropped.
        """
    def __await__(self) -> Generator[Any, None, T]:
        """Wait in asyncio. Cancelling the task cancels the operation and waits until the view is quiet."""

@final
class GetFuture(Future[GetResult]):
    def layer_done(self, layer: int, *, group: int = 0) -> bool:
        """Whether a layer (counted within its group, from 0) is complete for every block that did not fail, or the get ended.

        Without ``track_layers`` layers are done when the get is.
        """
    def wait_layer(self, layer: int, *, group: int = 0, timeout: float | None = None) -> bool:
        """Wait until layer_done, at most ``timeout``; return layer_done."""

@final
class PutFuture(Future[PutResult]):
    def released(self) -> bool:
        """Whether the view is no longer read: the pages may be reused. By the deadline at the latest."""
    def wait_released(self, timeout: float | None = None) -> bool:
        """Wait until released, at most ``timeout``; return released."""

@final
class Client:
    """Tokura's client. One per process is enough; it owns one progress thread, the codec threads and one registered ring."""

    def __init__(
        self,
        *,
        coordinators: Sequence[str] = (),
        nodes: Sequence[str] = (),
        name: str = "client",
        ring_bytes: int = 64 << 20,
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
        accept_proxy_error: bool = False,
        sink_tokens: int = 4,
        wake: Literal["sleep", "spin"] = "sleep",
        spin: float = 50e-6,
    ) -> None:
        """Start a client; servers need not be reachable, connections are made in the background.

        coordinators: "host:port" of coordinators, which say which nodes there are and what they hold.
        nodes: "host:port" of cache nodes, where there is no coordinator. One of the two lists is empty.
        name: for the servers' logs.
        ring_bytes: registered memory for payloads in both directions.
        part_bytes_max: larger parts are refused.
        codec_threads: that encode and decode.
        operations_max: outstanding; more are ResourceExhausted per block.
        inline_decode_bytes: gets up to this raw size are decoded on the progress thread.
        progress_timeout: an operation without progress for so long ends.
        ingest_codec: where no policy of a coordinator says otherwise.
        accept_proxy_error: let forms judged by their own keys meet a stated max_error.
        sink_tokens: first tokens of a sequence that are kept raw.
        wake, spin: how the progress thread waits, and how long it spins before it sleeps.

        InvalidArgument: an option or address; Unavailable: the transport does not start (another UCX, for one);
        ResourceExhausted: memory cannot be registered; FailedPrecondition: the process was forked from one with a client.
        """
    def close(self) -> None:
        """Cancel every operation, wait until all views are quiet, disconnect. Twice does nothing.

        At interpreter exit open clients are closed.
        """
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
    def wait_ready(self, timeout: float = 5.0) -> None:
        """Wait until some node is connected (in a cluster: every member that is up is, or has failed).

        DeadlineExceeded says what was tried and why it failed. Operations may be started without waiting; they miss until then.
        """
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
        """Find the leading blocks of ``chain`` that some node holds in an acceptable form. A hint; cheap.

        Empty when there are none, or nobody answers. ``max_error`` None: the policy's budget, else any; 0: exact only.
        ``touch``: keep the chain warm. ``deadline`` None: progress_timeout. InvalidArgument: chain and namespace disagree.
        """
    def acquire(
        self, namespace: Namespace, match: Match, *, max_error: float | None = None, allow_summary: bool = False
    ) -> Lease:
        """Pin a match at its nodes, cut to the first gap, before promising it to anybody."""
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
        """Fetch blocks [first_block, first_block + blocks) of ``match`` into ``view`` (None: all to the end).

        ``track_layers``: tell which layers are done (GetFuture.wait_layer); blocks whose first layers a caller may have seen are
        then not tried at another node. ``first_layer``, ``layers``: a range within every group. Several gets of one block (layer ranges, shards) have it from
        one writer only when the match is held. ``deadline`` None: progress_timeout without progress plus twice the predicted
        transfer. InvalidArgument: the view does not fit the namespace, or is read-only.
        """
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
        """Encode and store blocks of ``chain`` from ``view``; blocks that are held already are not sent.

        ``codec`` None: the policy's, else ingest_codec. ``blocks`` None: all complete blocks that the view covers.
        ``content_id_base``: 16 bytes that the writers of one sharded sequence (tensor-parallel ranks) share, so that their
        parts join; None: a single writer.
        """
    def remove(self, namespace: Namespace, keys: TokenChain | Sequence[bytes]) -> RemoveResult: ...
    def stat(self) -> list[NodeStat]: ...
    def set_nodes(self, nodes: Sequence[str]) -> None:
        """Replace the list of nodes; connections to those still listed stay. FailedPrecondition: coordinators say it."""
    def renew(self, match: Match) -> None:
        """Lease.renew for a held match, also of another process's acquire. Returns at once."""
    def release(self, match: Match) -> None:
        """Lease.release for a held match. Returns at once."""
    def metrics_text(self) -> str:
        """Return the client's metrics (tokura_client_…) in Prometheus' text format."""
    def start_lookup(
        self,
        namespace: Namespace,
        chain: TokenChain,
        *,
        max_error: float | None = None,
        allow_summary: bool = False,
        touch: bool = True,
        deadline: float | None = None,
    ) -> Future[Match]: ...
    def start_acquire(
        self, namespace: Namespace, match: Match, *, max_error: float | None = None, allow_summary: bool = False
    ) -> Future[Lease]: ...
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
    ) -> GetFuture: ...
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
    ) -> PutFuture: ...
    def start_remove(self, namespace: Namespace, keys: TokenChain | Sequence[bytes]) -> Future[RemoveResult]: ...

def new_content_id() -> bytes:
    """Return 16 random bytes for content_id_base, to be given to all ranks that put one sequence."""

def set_log_level(level: LogLevel) -> None:
    """Set which events the client logs on standard error, one line each. Default "warn"."""
