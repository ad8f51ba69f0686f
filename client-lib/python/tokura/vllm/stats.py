"""Statistics: counted where things happen, carried by vLLM's hooks to its log and to Prometheus."""

from __future__ import annotations

import threading
from typing import Any

from tokura.vllm.compat import (
    KVConnectorPromMetrics,
    KVConnectorStats,
    create_metric_per_engine,
)

# Name → what it counts. Prometheus: vllm:tokura_NAME_total.
COUNTERS = {
    "lookups": "Requests whose prefix was looked up.",
    "lookup_failures": "Lookups that could not be started.",
    "lookup_timeouts": "Lookups that were given up at lookup_timeout; the request was computed.",
    "promised_tokens": "Tokens that the engine was told to load instead of computing them.",
    "loads": "Loads started, per worker.",
    "load_failures": "Loads of which some block failed; the engine computes from there.",
    "loaded_tokens": "Tokens loaded, per worker.",
    "loaded_bytes": "Raw size of what was loaded.",
    "loaded_wire_bytes": "Bytes that crossed the wire for it.",
    "saves": "Save jobs started, per worker.",
    "saved_blocks": "Blocks stored, or held already, per worker.",
    "save_failures": "Blocks that were not stored.",
    "saves_dropped": "Saves not started: the client was at its limit, or a load had failed.",
    "saved_bytes": "Raw size of what was stored.",
    "saved_wire_bytes": "Bytes that crossed the wire for it.",
    "fences": "Preempted requests whose saves were waited for.",
}
# Name → what one observation is. Prometheus: histogram vllm:tokura_NAME.
TIMES = {
    "lookup_seconds": "From the start of a lookup to its answer.",
    "acquire_seconds": "From the start of an acquire to its answer.",
    "load_seconds": "From the start of a load to its end.",
    "load_wire_seconds": "Of a load, from the first request to the last payload.",
    "load_decode_seconds": "Of a load, time of the codec threads.",
    "save_seconds": "From the start of a save to its end.",
    "save_held_seconds": "From the start of a save until its pages were no longer read.",
}
_BUCKETS = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0]
# Observations kept between two reports; what is more is dropped.
_OBSERVATIONS_MAX = 4096


class TokuraStats(KVConnectorStats):  # type: ignore[misc]
    """One interval of one side; several are added up."""

    data: dict[str, Any]

    def __init__(self, data: dict[str, Any] | None = None) -> None:
        super().__init__(data=data if data else {})

    def reset(self) -> None:
        """Forget all."""
        self.data = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """Add another interval or side to this one."""
        for name, value in other.data.items():
            if name in TIMES:
                self.data[name] = (self.data.get(name, []) + value)[:_OBSERVATIONS_MAX]
            else:
                self.data[name] = self.data.get(name, 0) + value
        return self

    def reduce(self) -> dict[str, int | float]:
        """Give the numbers of vLLM's periodic log line."""
        line: dict[str, int | float] = {
            f"tokura {name}": self.data[name] for name in COUNTERS if name in self.data
        }
        for name in TIMES:
            if values := self.data.get(name):
                line[f"tokura {name} (mean)"] = round(sum(values) / len(values), 6)
        return line

    def is_empty(self) -> bool:
        """Whether nothing happened."""
        return not self.data


class Counters:
    """What one side counts until the engine asks. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._data: dict[str, Any] = {}

    def add(self, name: str, count: int = 1) -> None:
        """Count."""
        if name not in COUNTERS:
            raise KeyError(name)
        if count:
            with self._lock:
                self._data[name] = self._data.get(name, 0) + count

    def observe(self, name: str, seconds: float) -> None:
        """Take one observation of a time."""
        if name not in TIMES:
            raise KeyError(name)
        with self._lock:
            values = self._data.setdefault(name, [])
            if len(values) < _OBSERVATIONS_MAX:
                values.append(seconds)

    def take(self) -> TokuraStats | None:
        """Return what was counted since the last time; None when nothing was."""
        with self._lock:
            data, self._data = self._data, {}
        return TokuraStats(data) if data else None


class TokuraPromMetrics(KVConnectorPromMetrics):  # type: ignore[misc]
    """The same numbers for Prometheus, one series per engine."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {
            name: create_metric_per_engine(
                self._counter_cls(
                    name=f"vllm:tokura_{name}", documentation=text, labelnames=labelnames
                ),
                per_engine_labelvalues,
            )
            for name, text in COUNTERS.items()
        }
        self._times = {
            name: create_metric_per_engine(
                self._histogram_cls(
                    name=f"vllm:tokura_{name}",
                    documentation=text,
                    buckets=_BUCKETS,
                    labelnames=labelnames,
                ),
                per_engine_labelvalues,
            )
            for name, text in TIMES.items()
        }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Record one interval."""
        for name, value in transfer_stats_data.items():
            if name in self._counters:
                self._counters[name][engine_idx].inc(value)
            elif name in self._times:
                for seconds in value:
                    self._times[name][engine_idx].observe(seconds)
