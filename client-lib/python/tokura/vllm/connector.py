"""The class that vLLM loads. It only hands on: what the scheduler asks to one object, what a worker
does to another."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from typing import Any

import tokura
from tokura.vllm import compat
from tokura.vllm.compat import (
    CacheHitSource,
    KVConnectorBase_V1,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from tokura.vllm.identity import ModelIdentity
from tokura.vllm.messages import NamespaceId, StepPlan, StepReport
from tokura.vllm.options import PART_BYTES_MAX, Options, parse_options
from tokura.vllm.pages import PageMap, find_shards
from tokura.vllm.scheduler import SchedulerSide
from tokura.vllm.stats import TokuraPromMetrics, TokuraStats
from tokura.vllm.worker import WorkerSide

logger = compat.init_logger("vllm.tokura")

# Algorithms of vLLM whose block hashes are the same in every process.
_STABLE_HASHES = ("sha256", "sha256_cbor")


class TokuraConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """Shares the KV of prefixes through Tokura's cache nodes. See tokura.vllm and
    tokura.vllm.options."""

    _cache_hit_source = CacheHitSource.P2P

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        """ValueError: an option, or a model that cannot be cached; the message says which and
        why."""
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        options = parse_options(transfer.kv_connector_extra_config)
        self._options = options
        self._groups = compat.read_groups(kv_cache_config)
        _check_blocks(options, self._groups)
        is_worker = role == KVConnectorRole.WORKER
        self._parallelism = compat.read_parallelism(vllm_config, kv_cache_config, is_worker)
        identity = ModelIdentity(options, vllm_config, self._groups, self._parallelism)
        self._head_shards = identity.head_shards
        hash_tokens = _engine_hash_tokens(options, vllm_config, self._groups)
        whole_block = identity.open(NamespaceId()).block_bytes
        self._client = _share_client(options)
        self._ended = False
        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide | None = None
        if is_worker:
            self._worker = WorkerSide(options, identity, self._client)
            return
        self._say_what_will_be(identity, whole_block // identity.head_shards)
        self._scheduler = SchedulerSide(
            options,
            identity,
            self._groups,
            self._client,
            alignment=compat.hit_alignment(vllm_config, self._groups),
            workers=self._parallelism.size,
            engine_hash_tokens=hash_tokens,
            loads=transfer.is_kv_consumer,
            saves=transfer.is_kv_producer,
        )

    def _say_what_will_be(self, identity: ModelIdentity, part_bytes: int) -> None:
        described = identity.describe()
        if self._options.identity == "engine-hashes":
            algorithm = self._vllm_config.cache_config.prefix_caching_hash_algo
            seed = os.environ.get("PYTHONHASHSEED", "unset")
            described += f", engine-hashes {algorithm} with PYTHONHASHSEED {seed}"
        logger.info("Tokura %s: %s", tokura.__version__, described)
        part_bytes_max = self._options.part_bytes_max or PART_BYTES_MAX
        if part_bytes > part_bytes_max:
            logger.warning(
                "Blocks of this model have parts of %d bytes before they are encoded, more than "
                "part_bytes_max (%d): what does not become smaller is not saved. Raise "
                "part_bytes_max and ring_bytes, or set head_shards or a smaller block_tokens.",
                part_bytes,
                part_bytes_max,
            )
        if not compat.tested_version():
            logger.warning(
                "Tokura's connector is tested with vLLM %s, not with this version.",
                ", ".join(compat.TESTED),
            )
        if compat.failure_policy(self._vllm_config) != "recompute":
            logger.warning(
                "kv_load_failure_policy is %r: a request whose blocks are lost between promise and "
                'load (a node that dies, say) FAILS. Set "kv_load_failure_policy": "recompute" in '
                "--kv-transfer-config to have it computed instead.",
                compat.failure_policy(self._vllm_config),
            )
        try:
            self._client.wait_ready(self._options.connect_wait)
        except tokura.TokuraError as error:
            logger.warning("Tokura is not reachable yet (%s); until it is, nothing is hit.", error)

    # ---- class-level ----

    @property
    def requires_kv_delivery(self) -> bool:
        """A cache: what is not saved is computed again."""
        return False

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        """Whether hooks of single layers do work."""
        return bool(extra_config.get("layerwise", False))

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> TokuraStats:
        """Make statistics of what another process sent."""
        return TokuraStats(data)

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> TokuraPromMetrics:
        """Register the metrics vllm:tokura_…."""
        return TokuraPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    # ---- scheduler ----

    def _schedules(self) -> SchedulerSide:
        assert self._scheduler is not None, "asked of a worker's connector"
        return self._scheduler

    def on_new_request(self, request: Any) -> None:
        """Start to look it up."""
        self._schedules().on_new_request(request)

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Say how much more can be loaded."""
        return self._schedules().matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Plan the load."""
        self._schedules().allocated(request, blocks.get_block_ids(), num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> StepPlan:
        """Hand the step's plan to the workers."""
        return self._schedules().plan_step(scheduler_output)

    def update_connector_output(self, connector_output: Any) -> None:
        """Take in what the workers did."""
        report = connector_output.kv_connector_worker_meta
        if isinstance(report, StepReport):
            self._schedules().take_report(report)
        self._schedules().transfers_ended(sorted(connector_output.finished_sending or ()))

    def request_finished(
        self, request: Any, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        """End a request."""
        return self._schedules().finished(request), None

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """End a request."""
        return self._schedules().finished(request), None

    def has_pending_block_frees(self) -> bool:
        """Whether saves of finished requests will give pages back."""
        return self._schedules().holds_pages

    def has_pending_push_work(self) -> bool:
        """Whether the engine has to go on stepping although no request is left: its pages are not
        free before the workers have said that saves read them no more."""
        return self._schedules().holds_pages

    def reset_cache(self) -> bool | None:
        """Hit nothing that was saved up to now."""
        self._schedules().reset()
        logger.warning(
            "Tokura: caches were reset; this engine neither hits nor adds to what others have "
            "until it is started again."
        )
        return True

    # ---- worker ----

    def _works(self) -> WorkerSide:
        assert self._worker is not None, "asked of the scheduler's connector"
        return self._worker

    def _plan(self) -> StepPlan:
        plan = self._get_connector_metadata()
        assert isinstance(plan, StepPlan)
        return plan

    def get_mem_pool_context(self) -> AbstractContextManager[None] | None:
        """Leave the pages where the engine puts them: what crosses the wire is the client's ring,
        which alone is registered, and codecs stand between it and the pages."""
        return None

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Learn where the pages are. ValueError: a layout that is not known."""
        heads = compat.total_kv_heads(self._vllm_config)
        shards = {
            find_shards(group, self._head_shards, heads, self._parallelism)
            for group in self._groups
        }
        if len(shards) != 1:
            raise ValueError("tokura: the layer groups are spread over ranks in different ways")
        self._works().register(
            PageMap(
                self._groups,
                kv_caches,
                shards.pop(),
                self._options.block_tokens,
                lambda name: compat.attention_backend(self._vllm_config, name),
            )
        )

    def handle_preemptions(self, kv_connector_metadata: Any) -> None:
        """Make pages that were taken away safe to overwrite."""
        if isinstance(kv_connector_metadata, StepPlan):
            self._works().before_step(kv_connector_metadata)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Start the step's loads."""
        self._works().start_loads(self._plan())

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Wait for a layer, where layers are loaded one by one."""
        if self._options.layerwise:
            self._works().wait_layer(layer_name)

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Copy a layer, where layers are saved one by one."""
        if self._options.layerwise:
            self._works().save_layer(layer_name)

    def wait_for_save(self) -> None:
        """Start the step's saves."""
        self._works().end_step(self._plan())

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        """Say which requests' pages are free, and which loads ended and failed."""
        sent, received, failed = self._works().poll(finished_req_ids)
        return KVConnectorTransferResults(
            finished_sending=sent, finished_recving=received, failed_recving=failed
        )

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """The same, without failures of whole requests."""
        results = self.get_transfer_results(finished_req_ids)
        return results.finished_sending or None, results.finished_recving or None

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Pages that were promised and not filled."""
        return self._works().take_failed_pages()

    def build_connector_worker_meta(self) -> StepReport | None:
        """Tell the scheduler's side."""
        return self._works().take_report()

    # ---- both ----

    def get_kv_connector_stats(self) -> TokuraStats | None:
        """Hand over what was counted."""
        side = self._worker or self._scheduler
        return side.counters.take() if side is not None else None

    def shutdown(self) -> None:
        """End everything; no page is read or written after it. Twice does nothing."""
        if self._ended:
            return
        self._ended = True
        if self._worker is not None:
            self._worker.close()
        if self._scheduler is not None:
            self._scheduler.close()
        _return_client(self._options)


def _check_blocks(options: Options, groups: list[compat.GroupInfo]) -> None:
    for group in groups:
        page, block = group.page_tokens, options.block_tokens
        if page % block and block % page:
            raise ValueError(
                f"tokura: block_tokens ({block}) must divide the engine's pages of {page} tokens, "
                "or be a multiple of them"
            )


def _engine_hash_tokens(options: Options, vllm_config: Any, groups: list[compat.GroupInfo]) -> int:
    """Tokens per block hash of the engine, where those are the identity."""
    if options.identity != "engine-hashes":
        return 0
    cache = vllm_config.cache_config
    algorithm = str(cache.prefix_caching_hash_algo)
    if algorithm not in _STABLE_HASHES and "PYTHONHASHSEED" not in os.environ:
        raise ValueError(
            f"tokura: with identity engine-hashes, prefix_caching_hash_algo {algorithm} needs the "
            f"same PYTHONHASHSEED everywhere; or use {' or '.join(_STABLE_HASHES)}"
        )
    tokens = int(getattr(cache, "hash_block_size", None) or groups[0].page_tokens)
    if options.block_tokens % tokens:
        raise ValueError(
            f"tokura: with identity engine-hashes, block_tokens ({options.block_tokens}) must be a "
            f"multiple of the engine's {tokens} tokens per hash"
        )
    return tokens


# One client per process and set of options: with one process per engine, scheduler and worker share
# it.
_clients: dict[tuple[int, tuple[tuple[str, Any], ...]], tuple[tokura.Client, int]] = {}
_clients_lock = threading.Lock()


def _client_key(options: Options) -> tuple[int, tuple[tuple[str, Any], ...]]:
    return os.getpid(), tuple(sorted(options.client_arguments().items()))


def _share_client(options: Options) -> tokura.Client:
    with _clients_lock:
        key = _client_key(options)
        client, users = _clients.get(key) or (tokura.Client(**options.client_arguments()), 0)
        _clients[key] = (client, users + 1)
        return client


def _return_client(options: Options) -> None:
    with _clients_lock:
        key = _client_key(options)
        client, users = _clients.pop(key, (None, 0))
        if client is None:
            return
        if users > 1:
            _clients[key] = (client, users - 1)
        else:
            client.close()
