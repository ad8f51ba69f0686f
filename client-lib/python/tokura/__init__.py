"""Tokura's client: share KV blocks of LLM inference through cache nodes.

    client = tokura.Client(coordinators=["127.0.0.1:7420"])
    spec = tokura.NamespaceSpec(model="my-model", dtype="float16", groups=[...])
    namespace = tokura.Namespace(spec)
    chain = tokura.TokenChain(namespace, token_ids)
    client.put(namespace, chain, view)                  # encode straight from the engine's pages
    match = client.lookup(namespace, chain)             # how much of this prefix exists?
    got = client.get(namespace, match, view)            # verify, decode straight into the pages
    usable_tokens = got.prefix_ok * namespace.block_tokens

Rules that hold everywhere:

* Durations are seconds (float), sizes are bytes (int), keys and ids are ``bytes``. Options are
  keyword-only and have the names of the C++ client's and of the programs' options.
* A cache failure is a miss: operations do not raise because a node is dead, slow or full; each
  block has its own status. Exceptions mean wrong arguments, a closed client, or no capacity to
  start an operation (``ResourceExhausted``).
* Every operation ends by its deadline. ``start_X`` returns a :class:`Future` at once; ``X(...)`` is
  ``start_X(...).result()``, with the interpreter lock released while it waits. Futures are
  awaitable: ``match = await client.start_lookup(...)``.
* A view is read (put) or written (get) in place. Arrays that a view was made of are kept alive by
  it, and the view by the operation; memory given by address must stay valid until the get is done,
  or the put's source is released.
* All classes may be used from any thread. A process that forks must do so before it makes its first
  :class:`Client`; making or using one in a child of a process that had one raises
  ``FailedPrecondition``. Importing the package starts no thread.
"""

from tokura import _ucx
from tokura._build import UCX_VERSION

_ucx.check(UCX_VERSION)

from tokura import _core  # noqa: E402
from tokura._client import (  # noqa: E402
    Client,
    Lease,
    LogLevel,
    new_content_id,
    set_log_level,
)
from tokura._errors import (  # noqa: E402
    BlockStatus,
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    ResourceExhausted,
    StatusCode,
    TokuraError,
    Unavailable,
)
from tokura._futures import Future, GetFuture, PutFuture  # noqa: E402
from tokura._namespace import (  # noqa: E402
    EXTRA_MULTIMODAL_HASH,
    EXTRA_PROMPT_EMBEDDING_HASH,
    Array,
    AttentionKind,
    DType,
    KeyExtra,
    LayerGroup,
    Namespace,
    NamespaceSpec,
    RopeState,
    TokenChain,
    Tokens,
)
from tokura._results import (  # noqa: E402
    GetResult,
    Match,
    MatchRun,
    NodeStat,
    PutResult,
    RemoveResult,
)
from tokura._views import KvPages, KvStrides, KvView, MemorySpace, SequenceView  # noqa: E402

__version__: str = _core.version()
# Version of the C ABI of the library in use, major * 1000 + minor.
ABI_VERSION: int = _core.abi_version()

__all__ = [
    "ABI_VERSION",
    "EXTRA_MULTIMODAL_HASH",
    "EXTRA_PROMPT_EMBEDDING_HASH",
    "UCX_VERSION",
    "Array",
    "AttentionKind",
    "BlockStatus",
    "Cancelled",
    "Client",
    "DType",
    "DeadlineExceeded",
    "FailedPrecondition",
    "Future",
    "GetFuture",
    "GetResult",
    "InvalidArgument",
    "KeyExtra",
    "KvPages",
    "KvStrides",
    "KvView",
    "LayerGroup",
    "Lease",
    "LogLevel",
    "Match",
    "MatchRun",
    "MemorySpace",
    "Namespace",
    "NamespaceSpec",
    "NodeStat",
    "PutFuture",
    "PutResult",
    "RemoveResult",
    "ResourceExhausted",
    "RopeState",
    "SequenceView",
    "StatusCode",
    "TokenChain",
    "Tokens",
    "TokuraError",
    "Unavailable",
    "new_content_id",
    "set_log_level",
]

# Engines have logs of their own: what is worth a warning is enough.
set_log_level("warn")
