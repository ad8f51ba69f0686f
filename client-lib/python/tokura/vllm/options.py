"""Options of the connector: ``kv_connector_extra_config``, with the names that the client and the
programs use."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The client's default of part_bytes_max.
PART_BYTES_MAX = 16 << 20
_SIZE_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_DURATION_UNITS = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What an engine is told about Tokura. Sizes take "64MiB", durations "200ms" (or numbers:
    bytes, seconds)."""

    # ---- the client; see tokura.Client. None: the client's own default. ----
    coordinators: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    name: str = "vllm"
    ring_bytes: int | None = None
    window_bytes: int | None = None
    part_bytes_max: int | None = None
    codec_threads: int | None = None
    operations_max: int | None = None
    inline_decode_bytes: int | None = None
    progress_timeout: float | None = None
    connect_timeout: float | None = None
    heartbeat: float | None = None
    dead_after: float | None = None
    breaker_backoff_min: float | None = None
    breaker_backoff_max: float | None = None
    ingest_codec: str | None = None
    profile_dir: str | None = None
    profiles: tuple[str, ...] | None = None
    accept_proxy_error: bool | None = None
    sink_tokens: int | None = None
    wake: str | None = None
    spin: float | None = None

    # ---- what KV it is ----
    tenant: str = "default"
    # Default: the engine's model name. Engines that serve one model from different paths set it.
    model: str | None = None
    # Default: the commit of the model's repository, or a digest of the files of a local directory.
    model_revision: str | None = None
    block_tokens: int = 64
    # Ranges that the KV heads are cut into; engines of different tensor-parallel sizes share blocks
    # when they set the same
    # number, a multiple of each size. Default: this engine's size.
    head_shards: int | None = None
    # "tokens": keys over token ids. "engine-hashes": over vLLM's own block hashes, which are the
    # same only where PYTHONHASHSEED is (or is set nowhere).
    identity: str = "tokens"

    # ---- loading and saving ----
    # Tolerated attention error; None: what the policy says, 0: exact only.
    max_error: float | None = None
    allow_summary: bool = False
    # Codec of what is saved; None: what the policy says, else ingest_codec.
    codec: str | None = None
    # Load between steps (others go on meanwhile), or before the step that needs it.
    load_async: bool = True
    # Load synchronously, each layer just before it is needed, and save from copies of the layers
    # made as they are computed.
    layerwise: bool = False
    # Hits of fewer new tokens than this are recomputed.
    load_tokens_min: int = 0
    # Save blocks that are completed while decoding, too.
    save_decoded: bool = True
    # How long a request waits for the answer how much of it exists.
    lookup_timeout: float = 0.2
    # Requests whose blocks are pinned before they reach the head of the queue.
    leases_max: int = 64
    # How long the start of the engine waits for servers; without them it starts all the same.
    connect_wait: float = 2.0

    def client_arguments(self) -> dict[str, Any]:
        """Return the arguments of tokura.Client that are set."""
        return {
            field: value for field in CLIENT_FIELDS if (value := getattr(self, field)) is not None
        }


CLIENT_FIELDS = tuple(f.name for f in dataclasses.fields(Options))[
    : [f.name for f in dataclasses.fields(Options)].index("tenant")
]
_SIZES = frozenset({"ring_bytes", "window_bytes", "part_bytes_max", "inline_decode_bytes"})
_DURATIONS = frozenset(
    {
        "progress_timeout",
        "connect_timeout",
        "heartbeat",
        "dead_after",
        "breaker_backoff_min",
        "breaker_backoff_max",
        "spin",
        "lookup_timeout",
        "connect_wait",
    }
)
_LISTS = frozenset({"coordinators", "nodes", "profiles"})
_INTEGERS = frozenset(
    {
        "codec_threads",
        "operations_max",
        "sink_tokens",
        "block_tokens",
        "head_shards",
        "load_tokens_min",
        "leases_max",
    }
)
_BOOLEANS = frozenset(
    {"accept_proxy_error", "allow_summary", "load_async", "layerwise", "save_decoded"}
)


def parse_options(config: Mapping[str, Any]) -> Options:
    """Read ``kv_connector_extra_config``. ValueError names the option and what is wrong with it."""
    values: dict[str, Any] = {}
    known = {field.name for field in dataclasses.fields(Options)}
    for key, value in config.items():
        field = key.replace("-", "_")
        if field not in known:
            raise ValueError(f"tokura: unknown option {key!r} in kv_connector_extra_config")
        values[field] = _convert(field, value)
    options = Options(**values)
    if bool(options.coordinators) == bool(options.nodes):
        raise ValueError("tokura: set one of coordinators and nodes in kv_connector_extra_config")
    if options.identity not in ("tokens", "engine-hashes"):
        raise ValueError(f"tokura: identity is tokens or engine-hashes, not {options.identity!r}")
    if not 1 <= options.block_tokens <= 1024:
        raise ValueError(f"tokura: block_tokens is 1 to 1024, not {options.block_tokens}")
    if options.head_shards is not None and options.head_shards < 1:
        raise ValueError(f"tokura: head_shards is at least 1, not {options.head_shards}")
    return options


def _convert(field: str, value: Any) -> Any:
    if value is None:
        return None
    if field in _LISTS:
        parts = value.split(",") if isinstance(value, str) else list(value)
        return tuple(str(part).strip() for part in parts)
    if field in _SIZES:
        return int(_quantity(field, value, _SIZE_UNITS))
    if field in _DURATIONS:
        return _quantity(field, value, _DURATION_UNITS)
    if field in _BOOLEANS:
        if not isinstance(value, bool):
            raise ValueError(f"tokura: {field} is true or false, not {value!r}")
        return value
    if field in _INTEGERS:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"tokura: {field} is a whole number, not {value!r}")
        return value
    if field == "max_error":
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise ValueError(f"tokura: {field} is a number of at least 0, not {value!r}")
        return float(value)
    if not isinstance(value, str):
        raise ValueError(f"tokura: {field} is text, not {value!r}")
    return value


def _quantity(field: str, value: Any, units: Mapping[str, float]) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    match = _NUMBER_AND_UNIT.fullmatch(value) if isinstance(value, str) else None
    if match is None or match.group(2) not in units:
        wanted = ", ".join(unit for unit in units if unit)
        raise ValueError(f"tokura: {field} is a number with one of {wanted}, not {value!r}")
    return float(match.group(1)) * units[match.group(2)]
