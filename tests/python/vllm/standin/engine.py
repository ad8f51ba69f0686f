"""A very small engine: pages in this process's memory, requests, and steps that call the connector's hooks in vLLM's order."""

import ctypes
import hashlib
import os
import struct
import sys
import types
from types import SimpleNamespace

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(HERE, "..", "..", "..", "..", "client-lib", "python", "tokura")


def install():
    """Make `import tokura.vllm` find the connector, with stand-ins of vLLM and of the client beneath it."""
    import fake_tokura
    import fake_vllm

    fake_vllm.install()
    package = types.ModuleType("tokura")
    package.__path__ = [PACKAGE]
    vars(package).update({name: value for name, value in vars(fake_tokura).items() if not name.startswith("__")})
    package.__version__ = fake_tokura.__version__
    # Types that the connector only names.
    for name in ("DType", "AttentionKind", "GetFuture", "PutFuture"):
        vars(package).setdefault(name, object)
    sys.modules["tokura"] = package


class Tensor:
    """The part of a tensor that the connector uses. Elements of 2 bytes are whole numbers here."""

    def __init__(self, shape, strides=None, memory=None, *, offset=0, kind=ctypes.c_float):
        self.shape = tuple(shape)
        self._strides = tuple(strides or _contiguous(shape))
        self._offset = offset
        size = 1 + sum((n - 1) * s for n, s in zip(self.shape, self._strides))
        self._memory = memory if memory is not None else (kind * size)()
        assert 0 <= offset and offset + size <= len(self._memory)

    def stride(self):
        return self._strides

    def element_size(self):
        return ctypes.sizeof(self._memory._type_)

    def storage_offset(self):
        return self._offset

    def data_ptr(self):
        return ctypes.addressof(self._memory)

    def new_empty(self, shape, device=None):
        return Tensor(shape, kind=self._memory._type_)

    def as_strided(self, shape, strides, offset):
        return Tensor(shape, strides, self._memory, offset=offset)

    def copy_(self, source):
        assert self.shape == source.shape
        pages = range(self.shape[0])
        values = [source._memory[i] for page in pages for i in source._offsets(page)]
        for i, value in zip([i for page in pages for i in self._offsets(page)], values):
            self._memory[i] = value

    def permute(self, order):
        return Tensor([self.shape[d] for d in order], [self._strides[d] for d in order], self._memory)

    def _offsets(self, page):
        def walk(d, at):
            if d == len(self.shape):
                yield at
            else:
                for i in range(self.shape[d]):
                    yield from walk(d + 1, at + i * self._strides[d])

        return list(walk(1, self._offset + page * self._strides[0]))

    def __getitem__(self, page):
        return [self._memory[i] for i in self._offsets(page)]

    def __setitem__(self, page, values):
        for i, value in zip(self._offsets(page), values):
            self._memory[i] = value


def _contiguous(shape):
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return strides


LAYERS, HEAD_DIM = 2, 2


class FullAttentionSpec(SimpleNamespace):
    pass


class SlidingWindowSpec(SimpleNamespace):
    pass


class MambaSpec(SimpleNamespace):
    pass


def spec(kind=FullAttentionSpec, page_tokens=8, heads=2, **more):
    """A cache group's spec."""
    fields = dict(block_size=page_tokens, num_kv_heads=heads, head_size=HEAD_DIM, head_size_v=HEAD_DIM, dtype="torch.float32")
    return kind(**{**fields, **more})


def configs(options=None, *, page_tokens=8, ranks=1, heads=2, backend="CPU_ATTN", variant="vec", specs=None, **transfer):
    """vLLM's configuration objects, as far as the connector reads them."""
    specs = specs or [spec(page_tokens=page_tokens, heads=max(1, heads // ranks))]
    groups = [
        SimpleNamespace(layer_names=[f"model.layers.{g + len(specs) * i}.self_attn.attn" for i in range(LAYERS)], kv_cache_spec=s)
        for g, s in enumerate(specs)
    ]
    extra = {"coordinators": ["127.0.0.1:1"], "block_tokens": 4, "model_revision": "r1", **(options or {})}
    role = transfer.pop("kv_role", "kv_both")
    layer = SimpleNamespace(get_attn_backend=lambda: SimpleNamespace(get_name=lambda: backend))
    vllm_config = SimpleNamespace(
        kv_transfer_config=SimpleNamespace(
            kv_connector_extra_config=extra,
            is_kv_producer=role != "kv_consumer",
            is_kv_consumer=role != "kv_producer",
            **{"kv_load_failure_policy": "recompute", **transfer},
        ),
        cache_config=SimpleNamespace(block_size=page_tokens, prefix_caching_hash_algo="sha256", hash_block_size=None),
        parallel_config=SimpleNamespace(tensor_parallel_size=ranks),
        model_config=SimpleNamespace(
            model="m", dtype="torch.float32", quantization=None, hf_config=SimpleNamespace(), get_total_num_kv_heads=lambda: heads
        ),
        compilation_config=SimpleNamespace(static_forward_context={n: layer for g in groups for n in g.layer_names}),
        variant=variant,
    )
    return vllm_config, SimpleNamespace(kv_cache_groups=groups)


# Where vLLM's CPU backend has a token's channel in K, and in V, of one head of a page.
PLACES = {
    "vec": lambda token, c, size, dim: (c * size + token, token * dim + c),
    "amx": lambda token, c, size, dim: (
        token // 16 * 16 * dim + c // 2 * 32 + token % 16 * 2 + c % 2,
        c // 16 * 16 * size + token // 2 * 32 + c % 16 * 2 + token % 2,
    ),
}


class Request:
    """A request as vLLM's scheduler has it."""

    def __init__(self, name, tokens, *, lora=None, salt=None, items=()):
        self.request_id, self.all_token_ids, self.num_prompt_tokens = name, list(tokens), len(tokens)
        self.lora_request, self.cache_salt, self.mm_features = lora, salt, items
        self.prompt_embeds, self.skip_reading_prefix_cache, self.resumable = None, False, False
        self.num_computed_tokens, self.status, self.block_hashes = 0, "RUNNING", []
        self.pages = ([],)

    @property
    def num_tokens(self):
        return len(self.all_token_ids)


class Rig:
    """Connectors of a scheduler and of some workers, and the pages of each worker."""

    def __init__(self, options=None, *, pages=32, ranks=1, heads=2, specs=None, **settings):
        from tokura.vllm import compat
        from tokura.vllm.connector import TokuraConnector

        compat._tensor_rank = lambda parallel: self.rank
        compat._cpu_variant = lambda config, layer: config.variant
        self.ranks, self.heads, self.now = ranks, heads // ranks, 0.0
        self.config, self.cache = configs(options, ranks=ranks, heads=heads, specs=specs, **settings)
        self.page_tokens = self.config.cache_config.block_size
        self.scheduler = TokuraConnector(self.config, compat.KVConnectorRole.SCHEDULER, self.cache)
        self.scheduler._scheduler._clock = self.scheduler._scheduler.book.clock = lambda: self.now
        self.workers, self.memory = [], []
        self.names = [n for g in self.cache.kv_cache_groups for n in g.layer_names]
        for self.rank in range(ranks):
            worker = TokuraConnector(self.config, compat.KVConnectorRole.WORKER, self.cache)
            memory = {}
            for group in self.cache.kv_cache_groups:
                s = group.kv_cache_spec
                for name in group.layer_names:
                    kind = ctypes.c_uint16 if s.dtype == "torch.bfloat16" else ctypes.c_float
                    memory[name] = Tensor((pages, s.num_kv_heads, s.block_size, 2 * s.head_size), kind=kind)
            worker.register_kv_caches(memory)
            self.workers.append(worker)
            self.memory.append(memory)
        self.free = list(range(1, pages))
        self.failed_pages, self.sent, self.received, self.failed_requests = set(), set(), set(), set()
        self.pending = {"finished": set(), "preempted": set()}
        # What the scheduler does with a step's outputs before it hears what the workers' connectors report.
        self.before_report = None

    # ---- pages ----

    def allocate(self, request, tokens):
        """Give a request pages for so many tokens; return the new ones."""
        new = []
        for g, group in enumerate(self.cache.kv_cache_groups):
            need = -(-tokens // group.kv_cache_spec.block_size) - len(request.pages[g])
            taken = [self.free.pop(0) for _ in range(max(0, need))]
            request.pages[g].extend(taken)
            new.append(taken)
        return tuple(new)

    def slots(self, rank, request, token, group=0):
        """(layer, head, K or V, channel) → (tensor, index of the element) of one token, where vLLM's CPU backend has it."""
        g = self.cache.kv_cache_groups[group]
        size, dim = g.kv_cache_spec.block_size, g.kv_cache_spec.head_size
        place = PLACES[self.config.variant]
        page, slot = request.pages[group][token // size], token % size
        for layer, name in enumerate(g.layer_names):
            tensor = self.memory[rank][name]
            for head in range(tensor.shape[1]):
                base = page * tensor.stride()[0] + head * tensor.stride()[1]
                for c in range(dim):
                    k, v = place(slot, c, size, dim)
                    yield (layer, rank * self.heads + head, 0, c), tensor, base + k
                    yield (layer, rank * self.heads + head, 1, c), tensor, base + dim * size + v

    def compute(self, request, first, end):
        """Write what the model would: a number that depends on all tokens up to this one."""
        for rank in range(self.ranks):
            for token in range(first, end):
                for group in range(len(request.pages)):
                    for place, tensor, i in self.slots(rank, request, token, group):
                        tensor._memory[i] = value(request.all_token_ids[: token + 1], (group, *place))

    def wrong_tokens(self, request, end, group=0, first=0):
        """Tokens before `end` whose pages do not hold what the model would have written."""
        return [
            token
            for token in range(first, end)
            for rank in range(self.ranks)
            if any(
                t._memory[i] != value(request.all_token_ids[: token + 1], (group, *p))
                for p, t, i in self.slots(rank, request, token, group)
            )
        ]

    def scribble(self, pages, number=-1):
        """Overwrite pages, as another request would."""
        for memory in self.memory:
            for tensor in memory.values():
                for page in pages:
                    tensor[page] = [number] * len(tensor[page])

    # ---- steps ----

    def add(self, name, tokens, **more):
        """A new request."""
        request = Request(name, tokens, **more)
        request.pages = tuple([] for _ in self.cache.kv_cache_groups)
        self.scheduler.on_new_request(request)
        return request

    def ask(self, request, local=0):
        """What the scheduler asks."""
        return self.scheduler.get_num_new_matched_tokens(request, local)

    def promise(self, request, local, external):
        """Pages are there for what was promised."""
        self.allocate(request, local + external)
        self.scheduler.update_state_after_alloc(
            request, SimpleNamespace(get_block_ids=lambda: tuple(list(p) for p in request.pages)), external
        )

    def step(self, new=(), running=(), resumed=(), compute=True):
        """One step. `new`, `running`, `resumed`: (request, computed tokens, tokens to compute)."""
        output = SimpleNamespace(
            scheduled_new_reqs=[],
            scheduled_cached_reqs=SimpleNamespace(req_ids=[], resumed_req_ids=set(), new_block_ids=[], num_computed_tokens=[]),
            num_scheduled_tokens={},
            preempted_req_ids=self.pending["preempted"],
            finished_req_ids=self.pending["finished"],
        )
        self.pending = {"finished": set(), "preempted": set()}
        cached = output.scheduled_cached_reqs
        for request, computed, tokens in (*new, *running, *resumed):
            fresh = self.allocate(request, computed + tokens)
            output.num_scheduled_tokens[request.request_id] = tokens
            request.num_computed_tokens = computed + tokens
            if any(request is r for r, _, _ in new):
                ids = tuple(list(p) for p in request.pages)
                output.scheduled_new_reqs.append(
                    SimpleNamespace(req_id=request.request_id, block_ids=ids, num_computed_tokens=computed)
                )
                continue
            if any(request is r for r, _, _ in resumed):
                cached.resumed_req_ids.add(request.request_id)
                fresh = tuple(list(p) for p in request.pages)
            cached.req_ids.append(request.request_id)
            cached.new_block_ids.append(fresh if any(fresh) else None)
            cached.num_computed_tokens.append(computed)
        plan = self.scheduler.build_connector_meta(output)
        work = [(r, c, c + n) for r, c, n in (*new, *running, *resumed)] if compute else []
        return self._run(plan, work, output.finished_req_ids)

    def _run(self, plan, work, finished):
        synchronous = any(not job.asynchronous for job in plan.loads)
        reports = []
        for worker in self.workers:
            worker.bind_connector_metadata(plan)
            worker.handle_preemptions(plan)
            if synchronous:
                worker.start_load_kv(None)
        for name in self.names:
            for worker in self.workers:
                worker.wait_for_layer_load(name)
        for request, first, end in work:
            self.compute(request, first, end)
        for name in self.names:
            for rank, worker in enumerate(self.workers):
                worker.save_kv_layer(name, self.memory[rank][name], None)
        results = []
        for worker in self.workers:
            if not synchronous:
                worker.start_load_kv(None)
            worker.wait_for_save()
            results.append(worker.get_transfer_results(finished))
            self.failed_pages |= worker.get_block_ids_with_load_errors()
            reports.append(worker.build_connector_worker_meta())
            worker.clear_connector_metadata()
        self._aggregate(results, reports)
        return plan

    def _aggregate(self, results, reports):
        """As vLLM's KVOutputAggregator: done when every worker said so."""
        self.counts = getattr(self, "counts", {})
        done = {"sent": set(), "received": set()}
        for kind, field in (("sent", "finished_sending"), ("received", "finished_recving")):
            for name in (n for r in results for n in getattr(r, field)):
                self.counts[kind, name] = self.counts.get((kind, name), 0) + 1
                if self.counts[kind, name] == self.ranks:
                    done[kind].add(name)
                    del self.counts[kind, name]
        self.failed_requests |= {n for r in results for n in r.failed_recving}
        said = [r for r in reports if r is not None]
        report = said[0] if said else None
        for other in said[1:]:
            report = report.aggregate(other)
        if self.before_report is not None:
            self.before_report()
        self.sent |= done["sent"]
        self.received |= done["received"]
        self.scheduler.update_connector_output(
            SimpleNamespace(kv_connector_worker_meta=report, finished_sending=done["sent"], finished_recving=done["received"])
        )

    def finish(self, request, status="FINISHED_STOPPED"):
        """End a request; return whether its pages are held."""
        request.status = status
        self.pending["finished"].add(request.request_id)
        held, _ = self.scheduler.request_finished_all_groups(request, tuple(request.pages))
        if not held:
            self.free_pages(request)
        return held

    def free_pages(self, request):
        """Its pages are anybody's."""
        for pages in request.pages:
            self.free.extend(pages)
        request.pages = tuple([] for _ in request.pages)

    def preempt(self, request):
        """Take a request's pages away; return them."""
        taken = [page for pages in request.pages for page in pages]
        self.free_pages(request)
        self.pending["preempted"].add(request.request_id)
        return taken

    def run_alone(self, name, tokens, **more):
        """Compute and save a request from the start to the end."""
        request = self.add(name, tokens, **more)
        self.ask(request)
        self.scheduler.update_state_after_alloc(request, SimpleNamespace(get_block_ids=lambda: request.pages), 0)
        self.step(new=[(request, 0, len(tokens))])
        self.finish(request)
        self.step()
        return request

    def count(self, name):
        """What both sides have counted of something, up to now."""
        total = 0
        for side in (self.scheduler._scheduler, *(w._worker for w in self.workers)):
            total += side.counters._data.get(name, 0)
        return total


def value(tokens, place):
    """A number for one element of one token's KV."""
    digest = hashlib.sha256(struct.pack(f"<{len(tokens)}I", *tokens) + repr(place).encode()).digest()
    return int.from_bytes(digest[:2], "little")
