"""A stand-in of the package `tokura`, in plain Python: what the connector uses of it, over memory of this process.

Blocks lie in a `Store` that clients share. A test decides when lookups answer, when puts read their pages, and which blocks are
lost. `check_against` compares every signature here with the package's sources.
"""

import ast
import ctypes
import hashlib
import struct
from dataclasses import asdict, dataclass
from typing import NamedTuple

__version__ = "0"
EXTRA_MULTIMODAL_HASH = 1
SIZES = {"float32": 4, "float16": 2, "bfloat16": 2}


class TokuraError(Exception):
    """Base of all errors."""


class ResourceExhausted(TokuraError):
    """The client is at its limit."""


class DeadlineExceeded(TokuraError):
    """Too late."""


@dataclass(frozen=True, kw_only=True)
class LayerGroup:
    layers: tuple
    kv_heads: int
    k_head_dim: int
    v_head_dim: int = None
    kind: str = "full"
    window: int = 0


@dataclass(frozen=True, kw_only=True)
class NamespaceSpec:
    model: str
    groups: tuple
    dtype: str
    model_revision: str = ""
    tenant: str = "default"
    lora_digest: str = ""
    salt: str = ""
    head_shards: int = 1
    block_tokens: int = 64
    rope: str = "post"


class Namespace:
    def __init__(self, spec):
        self.spec = spec
        self.block_tokens = spec.block_tokens
        self.block_bytes = block_bytes(spec)
        self.fingerprint = hashlib.sha256(repr(asdict(spec)).encode()).digest()


def block_bytes(spec):
    """Raw size of a whole block."""
    elements = sum(len(g.layers) * g.kv_heads * (g.k_head_dim + g.v_head_dim) for g in spec.groups)
    return elements * spec.block_tokens * SIZES[spec.dtype]


class KeyExtra(NamedTuple):
    kind: int
    hash: bytes


class KvStrides(NamedTuple):
    page: int
    head: int
    token: int
    channel: int


class TokenChain:
    def __init__(self, namespace, tokens=(), *, extras=()):
        self.namespace, self.keys, self._tail, self._extras = namespace, [], [], []
        self.append(tokens, extras=extras)

    @classmethod
    def from_engine_hashes(cls, namespace, hashes):
        chain = cls(namespace)
        chain.append_engine_hashes(hashes)
        return chain

    @classmethod
    def from_keys(cls, namespace, keys):
        chain = cls(namespace)
        chain.keys = list(keys)
        return chain

    def append(self, tokens, *, extras=()):
        self._extras += [(len(self._tail), extra.kind, extra.hash) for extra in extras]
        for token in tokens:
            self._tail.append(token)
            if len(self._tail) == self.namespace.block_tokens:
                parent = self.keys[-1] if self.keys else b""
                text = struct.pack(f"<{len(self._tail)}I", *self._tail) + repr(self._extras).encode()
                self.keys.append(hashlib.sha256(self.namespace.fingerprint + parent + text).digest()[:16])
                self._tail, self._extras = [], []

    def append_engine_hashes(self, hashes):
        self.keys += [hashlib.sha256(self.namespace.fingerprint + h).digest()[:16] for h in hashes]

    @property
    def blocks(self):
        return len(self.keys)

    def __len__(self):
        return len(self.keys)


class KvPages:
    def __init__(
        self,
        *,
        dtype,
        heads,
        k_head_dim,
        v_head_dim,
        page_tokens,
        pages,
        layers,
        k_strides,
        v_strides,
        space="host",
        owner=None,
        writable=True,
    ):
        self.dims = (k_head_dim, v_head_dim)
        self.strides = (k_strides, v_strides)
        self.element, self.heads, self.layers = SIZES[dtype], heads, layers
        self.page_tokens, self.pages, self.owner = page_tokens, pages, owner

    def view(self, page_table, tokens=None):
        assert all(0 <= page < self.pages for page in page_table), page_table
        assert tokens <= len(page_table) * self.page_tokens
        return KvView(self, list(page_table), tokens)


class KvView:
    def __init__(self, pages, table, tokens):
        self.pages, self.table, self.tokens = pages, table, tokens

    def addresses(self, first, end, heads):
        """Address of every element of tokens [first, end) of these heads, in the stored order."""
        p = self.pages
        for bases in p.layers:
            for base, strides, dim in zip(bases, p.strides, p.dims):
                for head in heads:
                    for token in range(first, end):
                        page, slot = self.table[token // p.page_tokens], token % p.page_tokens
                        at = base + page * strides.page + head * strides.head + slot * strides.token
                        yield from (at + c * strides.channel for c in range(dim))


class SequenceView:
    def __init__(self, groups, *, first_shard=0, shards=1, first_token=0):
        self.groups, self.first_shard, self.shards, self.first_token = groups, first_shard, shards, first_token

    def parts(self, block, tokens):
        """((group, shard), addresses) of each part of a block that this view has."""
        first = block * tokens - self.first_token
        assert first >= 0
        for g, view in enumerate(self.groups):
            if view is None:
                continue
            assert first + tokens <= view.tokens, (first, tokens, view.tokens)
            each = view.pages.heads // self.shards
            for shard in range(self.shards):
                heads = range(shard * each, (shard + 1) * each)
                yield (g, self.first_shard + shard), view.pages.element, list(view.addresses(first, first + tokens, heads))


class Match:
    def __init__(self, keys, codecs, tokens):
        self.keys, self.codecs, self.block_tokens = keys, codecs, tokens
        self.tokens = len(keys) * tokens

    def __len__(self):
        return len(self.keys)

    def to_bytes(self):
        return struct.pack("<I", self.block_tokens) + b"".join(self.keys)

    @classmethod
    def from_bytes(cls, data):
        if len(data) < 4:
            raise TokuraError("not a match")
        keys = [data[i : i + 16] for i in range(4, len(data), 16)]
        return cls(keys, [""] * len(keys), struct.unpack("<I", data[:4])[0])


class Lease:
    def __init__(self, store, match):
        self.store, self.match, self.renewals, self.released = store, match, 0, False
        store.leases.append(self)

    def renew(self):
        self.renewals += 1

    def release(self):
        self.released = True


@dataclass
class Result:
    codes: bytes
    bytes_moved: int = 0
    bytes_logical: int = 0
    seconds: float = 0.0
    wire_seconds: float = 0.0
    decode_seconds: float = 0.0

    @property
    def prefix_ok(self):
        return next((i for i, code in enumerate(self.codes) if code), len(self.codes))

    @property
    def stored(self):
        return self.codes.count(0)


class Future:
    """Runs its work when the store lets it."""

    def __init__(self, store, work):
        self._store, self._work, self._result, self._done = store, work, None, False
        self._callbacks, self.cancelled, self.layers_waited = [], False, []
        store.waiting.append(self)

    def run(self):
        if not self._done:
            self._result, self._done = self._work(), True
            self._store.waiting = [f for f in self._store.waiting if f is not self]
            for callback in self._callbacks:
                callback(self)

    def done(self):
        return self._done

    def result(self, timeout=None):
        if not self._done and timeout == 0:
            raise TimeoutError
        self.run()
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    def cancel(self):
        self.cancelled = True

    def add_done_callback(self, callback):
        if self._done:
            callback(self)
        else:
            self._callbacks.append(callback)

    # Of gets and puts.
    def wait_layer(self, layer, *, group=0, timeout=None):
        self.layers_waited.append((group, layer))
        self.run()
        return True

    def released(self):
        return self._done

    def wait_released(self, timeout=None):
        self.run()
        return True


class Store:
    """What all clients of a test share."""

    def __init__(self):
        self.blocks = {}  # key → {(group, shard): bytes}
        self.codecs = {}  # key → codec
        self.writers = {}  # key → content id
        self.lost = set()
        self.leases, self.waiting = [], []
        self.hold = set()  # "lookup", "acquire", "get", "put": these wait for `run`
        self.refuse = set()

    def run(self):
        """Let everything that waits go on."""
        while self.waiting:
            self.waiting[0].run()

    def start(self, kind, work):
        if kind in self.refuse:
            raise ResourceExhausted(kind)
        future = Future(self, work)
        if kind not in self.hold:
            future.run()
        return future

    def held(self, keys):
        """Leading keys whose blocks are here."""
        n = 0
        while n < len(keys) and keys[n] in self.blocks and keys[n] not in self.lost:
            n += 1
        return keys[:n]


store = Store()


class Client:
    made = []

    def __init__(self, **options):
        self.options, self.closed = options, False
        Client.made.append(self)

    def close(self):
        self.closed = True

    def wait_ready(self, timeout=5.0):
        if "ready" in store.refuse:
            raise DeadlineExceeded("nobody answers")

    def _match(self, keys, tokens):
        held = store.held(keys)
        return Match(held, [store.codecs.get(key, "raw") for key in held], tokens)

    def start_lookup(self, namespace, chain, *, max_error=None, allow_summary=False, touch=True, deadline=None):
        keys = list(chain.keys)
        return store.start("lookup", lambda: self._match(keys, namespace.block_tokens))

    def start_acquire(self, namespace, match, *, max_error=None, allow_summary=False):
        return store.start("acquire", lambda: Lease(store, self._match(match.keys, namespace.block_tokens)))

    def start_get(
        self,
        namespace,
        match,
        view,
        *,
        max_error=None,
        allow_summary=False,
        first_block=0,
        blocks=None,
        first_layer=0,
        layers=None,
        track_layers=False,
        deadline=None,
    ):
        return store.start("get", lambda: self._get(namespace, match, view, range(first_block, first_block + blocks)))

    def _get(self, namespace, match, view, blocks):
        codes, moved = bytearray(), 0
        for block in blocks:
            key = match.keys[block]
            parts = list(view.parts(block, namespace.block_tokens))
            if key in store.lost or any(part not in store.blocks.get(key, {}) for part, _, _ in parts):
                codes.append(5)
                continue
            for part, element, addresses in parts:
                data = store.blocks[key][part]
                for i, address in enumerate(addresses):
                    ctypes.memmove(address, data[i * element : (i + 1) * element], element)
                moved += len(data)
            codes.append(0)
        return Result(bytes(codes), moved, moved)

    def start_put(self, namespace, chain, view, *, codec=None, first_block=0, blocks=None, deadline=None, content_id_base=None):
        keys = list(chain.keys)
        work = range(first_block, first_block + blocks)
        return store.start("put", lambda: self._put(namespace, keys, view, work, codec or "raw", content_id_base))

    def _put(self, namespace, keys, view, blocks, codec, content_id):
        for block in blocks:
            parts = store.blocks.setdefault(keys[block], {})
            if store.writers.setdefault(keys[block], content_id) != content_id:
                continue
            for part, element, addresses in view.parts(block, namespace.block_tokens):
                parts[part] = b"".join(ctypes.string_at(a, element) for a in addresses)
            store.codecs[keys[block]] = codec
        return Result(bytes(len(blocks)))


_ids = iter(range(1, 1 << 32))


def new_content_id():
    return struct.pack("<QQ", 0, next(_ids))


def check_against(sources):
    """Names of functions here whose parameters the package does not have; empty when all is well."""
    wrong = []
    theirs = _signatures(ast.parse(sources))
    with open(__file__) as source:
        mine = _signatures(ast.parse(source.read()))
    for name, parameters in mine.items():
        owner, _, function = name.rpartition(".")
        private = function.startswith("_") and function != "__init__" or function in _OWN
        if owner in _OWN or private or name in _OWN or owner in ("Result", "KvView") and function != "view":
            continue
        if owner == "Future":
            candidates = [theirs.get(f"{c}.{function}") for c in ("Future", "GetFuture", "PutFuture")]
        else:
            candidates = [theirs.get(name)]
        known = set().union(*(c for c in candidates if c is not None))
        options = parameters == {"self", "options"}
        if not any(c is not None for c in candidates) or not (options or parameters <= known):
            wrong.append(name)
    return wrong


# Of the stand-in alone.
_OWN = {"Store", "block_bytes", "check_against", "parts", "addresses", "run"} | {
    "Future.__init__",
    "Lease.__init__",
    "Match.__init__",
    "SequenceView.parts",
}


def _signatures(tree):
    found = {}
    for node in tree.body:
        functions = [(node.name, node)] if isinstance(node, ast.FunctionDef) else []
        if isinstance(node, ast.ClassDef):
            functions = [(f"{node.name}.{f.name}", f) for f in node.body if isinstance(f, ast.FunctionDef)]
        for name, f in functions:
            a = f.args
            found[name] = {x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs)} | {x.arg for x in (a.vararg, a.kwarg) if x}
    return found
