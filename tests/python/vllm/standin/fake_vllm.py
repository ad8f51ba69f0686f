"""A stand-in of what the connector imports of vLLM: the base class's methods with vLLM's parameters, and empty shells.

`tests/engines.sh` runs `check_against_installed` with the real vLLM, so that this cannot drift away from it.
"""

import enum
import inspect
import logging
import sys
import types
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

VERSION = "0.32.0"


class KVConnectorRole(enum.Enum):
    SCHEDULER = 0
    WORKER = 1


class KVConnectorMetadata(ABC):
    pass


class KVConnectorWorkerMetadata(ABC):
    @abstractmethod
    def aggregate(self, other): ...


@dataclass
class KVConnectorTransferResults:
    finished_sending: set = field(default_factory=set)
    finished_recving: set = field(default_factory=set)
    failed_recving: set = field(default_factory=set)


class SupportsHMA(ABC):
    @abstractmethod
    def request_finished_all_groups(self, request, block_ids): ...


class CacheHitSource(str, enum.Enum):
    P2P = "p2p"


class KVConnectorBase_V1(ABC):
    def __init__(self, vllm_config, role, kv_cache_config):
        self._vllm_config, self._role, self._kv_cache_config = vllm_config, role, kv_cache_config
        self._connector_metadata = None
        self._kv_transfer_config = vllm_config.kv_transfer_config

    @property
    def role(self):
        return self._role

    def get_mem_pool_context(self):
        raise NotImplementedError

    def bind_connector_metadata(self, connector_metadata):
        self._connector_metadata = connector_metadata

    def clear_connector_metadata(self):
        self._connector_metadata = None

    def _get_connector_metadata(self):
        assert self._connector_metadata is not None
        return self._connector_metadata

    @abstractmethod
    def start_load_kv(self, forward_context, **kwargs): ...

    @abstractmethod
    def wait_for_layer_load(self, layer_name): ...

    @abstractmethod
    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs): ...

    @abstractmethod
    def wait_for_save(self): ...

    @abstractmethod
    def get_num_new_matched_tokens(self, request, num_computed_tokens): ...

    @abstractmethod
    def update_state_after_alloc(self, request, blocks, num_external_tokens): ...

    @abstractmethod
    def build_connector_meta(self, scheduler_output): ...

    # Not abstract, overridden by the connector. (What it does not override it inherits as it is.)
    def register_kv_caches(self, kv_caches): ...

    def handle_preemptions(self, kv_connector_metadata): ...

    def get_finished(self, finished_req_ids): ...

    def get_transfer_results(self, finished_req_ids): ...

    def get_block_ids_with_load_errors(self): ...

    def get_kv_connector_stats(self): ...

    def build_connector_worker_meta(self): ...

    def on_new_request(self, request): ...

    def update_connector_output(self, connector_output): ...

    def request_finished(self, request, block_ids): ...

    def has_pending_block_frees(self): ...

    def has_pending_push_work(self): ...

    def reset_cache(self): ...

    def shutdown(self): ...

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config): ...

    @classmethod
    def build_kv_connector_stats(cls, data=None): ...

    @classmethod
    def build_prom_metrics(cls, vllm_config, metric_types, labelnames, per_engine_labelvalues): ...


@dataclass
class KVConnectorStats:
    data: dict = field(default_factory=dict)

    def reset(self): ...

    def aggregate(self, other): ...

    def reduce(self): ...

    def is_empty(self): ...


class KVConnectorPromMetrics:
    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        self._counter_cls = metric_types["counter"]
        self._histogram_cls = metric_types["histogram"]

    def observe(self, transfer_stats_data, engine_idx=0): ...


def create_metric_per_engine(metric, per_engine_labelvalues):
    return {index: metric for index in per_engine_labelvalues}


def init_logger(name):
    return logging.getLogger(name)


MODULES = {
    "vllm": {},
    "vllm.logger": {"init_logger": init_logger},
    "vllm.distributed": {},
    "vllm.distributed.kv_transfer": {},
    "vllm.distributed.kv_transfer.kv_connector": {},
    "vllm.distributed.kv_transfer.kv_connector.v1": {},
    "vllm.distributed.kv_transfer.kv_connector.v1.base": {
        c.__name__: c
        for c in (
            KVConnectorBase_V1,
            KVConnectorMetadata,
            KVConnectorRole,
            KVConnectorTransferResults,
            KVConnectorWorkerMetadata,
            SupportsHMA,
        )
    },
    "vllm.distributed.kv_transfer.kv_connector.v1.metrics": {
        "KVConnectorPromMetrics": KVConnectorPromMetrics,
        "KVConnectorStats": KVConnectorStats,
    },
    "vllm.v1": {},
    "vllm.v1.metrics": {},
    "vllm.v1.metrics.cache_hit_source": {"CacheHitSource": CacheHitSource},
    "vllm.v1.metrics.utils": {"create_metric_per_engine": create_metric_per_engine},
}


def install():
    """Make `import vllm…` find the stand-in."""
    for name, names in MODULES.items():
        module = types.ModuleType(name)
        module.__path__ = []
        vars(module).update(names)
        sys.modules[name] = module
    sys.modules["vllm"].__version__ = VERSION


def _parameters(function):
    return [(p.name, p.kind) for p in inspect.signature(function).parameters.values()]


def check_against_installed():
    """Differences between the stand-in and the vLLM that is installed, in words; empty when there are none."""
    import importlib

    wrong = []
    for name, names in MODULES.items():
        real_module = importlib.import_module(name)
        for attribute, mine in names.items():
            real = getattr(real_module, attribute, None)
            if real is None:
                wrong.append(f"{name}.{attribute} is gone")
            elif inspect.isclass(mine):
                wrong += _differences(mine, real)
            elif _parameters(mine) != _parameters(real):
                wrong.append(f"{name}.{attribute} takes other parameters")
    return wrong


def _differences(mine, real):
    wrong = []
    abstract = getattr(real, "__abstractmethods__", frozenset())
    if issubclass(mine, enum.Enum):
        return [f"{mine.__name__}.{m} is gone" for m in mine.__members__ if m not in real.__members__]
    if abstract - set(dir(mine)):
        wrong.append(f"{mine.__name__} has new abstract methods: {sorted(abstract - set(dir(mine)))}")
    for name, value in vars(mine).items():
        function = getattr(value, "__func__", value)
        if not inspect.isfunction(function) or name.startswith("_") and name != "_get_connector_metadata":
            continue
        theirs = getattr(real, name, None)
        theirs = getattr(theirs, "__func__", theirs)
        if theirs is None:
            wrong.append(f"{mine.__name__}.{name} is gone")
        elif _parameters(function) != _parameters(theirs):
            wrong.append(f"{mine.__name__}.{name} takes other parameters: {inspect.signature(theirs)}")
    return wrong
