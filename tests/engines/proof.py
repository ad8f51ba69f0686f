"""What is run, and what has to come out of it. Prints one table and ends with "N passed, N failed".

proof.py MODEL_DIRECTORY PROGRAMS_DIRECTORY OUT_DIRECTORY [--only NAME,…] [--codecs NAME,…]
"""

import argparse
import pathlib
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from compare import Table, against, counted, median, rows_of
from lora import make_adapters
from matrix import Matrix
from servers import Cluster

A, B, C, LONG = "0+600", "40+600", "97+300", "300+1500"
DECODED, LAYERWISE, SMALL, SPAWNED, CHUNKED = "400+300", "500+300", "600+300", "700+300", "800+600"
CROWD = ["1000+260", "1100+260", "1200+260", "1300+260"]
SMALL_PAGES = {"block_size": 32}
# A load that takes long enough for something to happen to it.
SLOW = {"ring_bytes": "32MiB"}
# Relative to the same computation in other chunks; equal bits are only demanded of equal computations.
ROUNDING = 1e-4


def generate(*prompts: str, **more: Any) -> dict[str, Any]:
    """A step."""
    return {"prompts": list(prompts), **more}


class Proof:
    """All runs, in an order in which each finds what it needs."""

    def __init__(self, matrix: Matrix, table: Table, codecs: list[str], only: list[str]) -> None:
        self.matrix = matrix
        self.table = table
        self.codecs = codecs
        self.only = only
        self.baseline: dict[tuple[str, str], dict[str, Any]] = {}

    def run(self) -> None:
        """Everything that was asked for."""
        parts: list[tuple[str, Callable[[], None]]] = [
            ("baseline", self.baselines),
            ("write", self.write),
            ("read", self.read),
            ("layerwise", self.layerwise),
            ("pages", self.pages),
            ("processes", self.processes),
            ("nocache", self.no_local_cache),
            ("chunks", self.chunks),
            ("halves", self.halves),
            ("codecs", self.all_codecs),
            ("lookups", self.lookups),
            ("faults", self.faults),
            ("transfers", self.transfers),
            ("full", self.full),
            ("preempt", self.preempt),
            ("abort", self.abort),
            ("identity", self.identity),
            ("hashes", self.engine_hashes),
            ("ranks", self.ranks),
        ]
        if unknown := set(self.only) - {name for name, _ in parts}:
            sys.exit(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(name for name, _ in parts)}")
        needed = ("baseline", "write")  # by most parts
        chosen = [(n, part) for n, part in parts if not self.only or n in self.only or n in needed]
        started = time.monotonic()
        for i, (name, part) in enumerate(chosen):
            print(f"==> [{time.monotonic() - started:4.0f}s] {name} ({i + 1} of {len(chosen)})", flush=True)
            try:
                part()
            except Exception as error:
                traceback.print_exc()
                self.table.check(name, "runs", False, f"{type(error).__name__}: {error}"[:200])
        runs = {name: result["left"] for name, result in self.matrix.results.items() if "left" in result}
        left = {name: found for name, found in runs.items() if found}
        self.table.check("memory", "nothing is left of any request", not left, f"{len(runs)} runs, left {left or 'nothing'}")

    # ---- what everything is compared with ----

    def baselines(self) -> None:
        """vLLM alone: cold, and from its own prefix cache."""
        first = [A, B, C, LONG, DECODED, LAYERWISE, SMALL, SPAWNED, CHUNKED]
        self._baseline("base128", {}, [generate(*first), generate(*first)], ["cold", "local"])
        small = [A, B, SMALL]
        steps = [generate(*small), generate(*small), generate(*CROWD, batch=True, max_tokens=60)]
        self._baseline("base32", SMALL_PAGES, steps, ["cold32", "local32", "crowd"])

    def _baseline(
        self, name: str, llm: dict[str, Any], steps: list[Any], kinds: list[str], more: dict[str, Any] | None = None
    ) -> None:
        result = self.matrix.earlier(name, steps) if self.only else None
        result = result or self.matrix.run({"name": name, "llm": llm, "steps": steps, **(more or {})})
        for step, done, kind in zip(steps, result["steps"], kinds, strict=False):
            for prompt, output in zip(step["prompts"], done["results"], strict=True):
                self.baseline[kind, prompt] = output
        self.table.check(name, "runs", "error" not in result, result.get("error", ""))

    def check(
        self, run: str, result: dict[str, Any], kind: str, step: dict[str, Any], index: int, hit: int | None, within: float
    ) -> None:
        """Compare a step's outputs with the baseline's, and the tokens hit with those expected."""
        label = f"{run}: {step.get('label', ', '.join(step['prompts']))}"
        if index >= len(result["steps"]):
            self.table.check(label, "runs", False, result.get("error", "no result"))
            return
        outputs = result["steps"][index]["results"]
        same, largest = against(outputs, [self.baseline.get((kind, p)) for p in step["prompts"]])
        cached = [output["cached"] for output in outputs]
        good = same and largest <= within and (hit is None or cached == [hit] * len(cached))
        self.table.check(
            label, f"as {kind}", good, f"hit {cached}, tokens {'same' if same else 'DIFFER'}, |Δlogprob| {largest:.1e}"
        )

    # ---- 1: equal outputs ----

    def write(self) -> None:
        """One engine saves; it is not disturbed by that."""
        step = generate(A, B, C, LONG, DECODED, max_tokens=8, settle=False)
        more = generate(DECODED, max_tokens=90, label="decodes past a block")
        result = self.matrix.run({"name": "write", "connector": {"codec": "raw"}, "steps": [step, more, generate(settle=True)]})
        self.decoded_blocks(result)
        self.check("write", result, "cold", step, 0, 0, 0.0)
        saved = counted(result, "saved_blocks")
        self.table.check(
            "write", "saves", saved >= 9 * 2 + 4 + 23 + 6, f"{saved} blocks, {counted(result, 'save_failures')} failures"
        )

    def decoded_blocks(self, written: dict[str, Any]) -> None:
        """A prompt of which most was decoded by another engine."""
        decoded = written["steps"][1]["results"][0]["ids"] if len(written["steps"]) > 1 else []
        if len(decoded) != 90:
            self.table.check("decoded blocks", "runs", False, written.get("error", "nothing was decoded"))
            return
        step = generate(DECODED, append=decoded)
        alone = self.matrix.run({"name": "decoded alone", "steps": [step, step]})
        result = self.matrix.run({"name": "decoded", "connector": {"codec": "raw"}, "steps": [step]})
        if alone["steps"]:
            self.baseline["decoded", DECODED] = alone["steps"][1]["results"][0]
        # Decoded token by token elsewhere, prefilled here.
        self.check("decoded blocks", result, "decoded", {**step, "label": "300 of prompt, 90 decoded"}, 0, 384, ROUNDING)

    def read(self) -> None:
        """Another engine loads: between steps, and before the step."""
        for name, options in (("read async", {}), ("read sync", {"load_async": False})):
            step = generate(A, B, LONG)
            result = self.matrix.run({"name": name, "connector": {"codec": "raw", **options}, "steps": [step]})
            if "error" in result:
                self.table.check(name, "runs", False, result["error"])
            self._check_parts(name, result, step, {A: 512, B: 512, LONG: 1408})
            shown = result.get("metrics", {}).get("vllm:tokura_loaded_tokens", 0)
            self.table.check(name, "is in Prometheus", shown == 2432, f"vllm:tokura_loaded_tokens {shown}")
            self.table.latency(f"raw, {name.split()[1]}", result)

    def _check_parts(self, name: str, result: dict[str, Any], step: dict[str, Any], hits: dict[str, int]) -> None:
        for i, (prompt, hit) in enumerate(hits.items()):
            steps = [{**s, "results": s["results"][i : i + 1]} for s in result["steps"]]
            self.check(name, {**result, "steps": steps}, "local", generate(prompt), 0, hit, 0.0)

    def layerwise(self) -> None:
        """Layers loaded just before they are needed, and saved as they are computed."""
        steps = [generate(A, B), generate(LAYERWISE), generate(LAYERWISE, settle=True, reset=True)]
        result = self.matrix.run({"name": "layerwise", "connector": {"codec": "raw", "layerwise": True}, "steps": steps})
        self.check("layerwise", result, "local", steps[0], 0, 512, 0.0)
        self.check("layerwise", result, "cold", steps[1], 1, 0, 0.0)
        self.check("layerwise", result, "local", steps[2], 2, 256, 0.0)

    def pages(self) -> None:
        """Pages of 32 tokens read what pages of 128 saved, and the reverse."""
        steps = [generate(A, B), generate(SMALL), generate(SMALL, settle=True, reset=True)]
        spec = {"name": "pages32", "llm": SMALL_PAGES, "connector": {"codec": "raw"}, "steps": steps}
        result = self.matrix.run(spec)
        self.check("pages 32", result, "local32", steps[0], 0, 576, 0.0)
        self.check("pages 32", result, "cold32", steps[1], 1, 0, 0.0)
        self.check("pages 32", result, "local32", steps[2], 2, 256, ROUNDING)
        step = generate(SMALL, label="saved from pages of 32")
        result = self.matrix.run({"name": "pages128", "connector": {"codec": "raw"}, "steps": [step]})
        self.check("pages 128", result, "local", step, 0, 256, ROUNDING)

    def processes(self) -> None:
        """Caller, scheduler and worker in processes of their own, with another PYTHONHASHSEED."""
        steps = [generate(A, B), generate(SPAWNED), generate(settle=True)]
        spec = {"name": "processes", "connector": {"codec": "raw"}, "steps": steps, "multiprocess": True}
        result = self.matrix.run({**spec, "environment": {"PYTHONHASHSEED": "4711"}})
        self.check("three processes, other PYTHONHASHSEED", result, "local", steps[0], 0, 512, 0.0)
        self.check("three processes, other PYTHONHASHSEED", result, "cold", steps[1], 1, 0, 0.0)

    def no_local_cache(self) -> None:
        """Local prefix caching off; also reads what other kinds of engine wrote."""
        steps = [generate(A, B)]
        if not self.only:
            steps.append(generate(SPAWNED, label="what three processes saved"))
        spec = {"name": "nocache", "llm": {"enable_prefix_caching": False}, "connector": {"codec": "raw"}, "steps": steps}
        result = self.matrix.run(spec)
        self.check("local caching off", result, "local", steps[0], 0, 512, 0.0)
        if not self.only:
            self.check("local caching off", result, "local", steps[1], 1, 256, 0.0)

    def chunks(self) -> None:
        """Prefill in chunks of 256 tokens."""
        steps = [generate(A), generate(CHUNKED), generate(CHUNKED, settle=True, reset=True)]
        spec = {"name": "chunks", "llm": {"max_num_batched_tokens": 256}, "connector": {"codec": "raw"}, "steps": steps}
        result = self.matrix.run(spec)
        self.check("chunked prefill", result, "local", steps[0], 0, 512, ROUNDING)
        self.check("chunked prefill", result, "cold", steps[1], 1, 0, ROUNDING)
        self.check("chunked prefill", result, "local", steps[2], 2, 512, ROUNDING)

    def halves(self) -> None:
        """The types that models are published in; on processors with AMX bfloat16's pages are packed."""
        ways = {"async": {}, "sync": {"load_async": False}, "layerwise": {"layerwise": True}}
        for dtype, names in (("bfloat16", ways), ("float16", ["async"])):
            kind = {"dtype": dtype}
            cold, local = f"cold {dtype}", f"local {dtype}"
            self._baseline(f"base {dtype}", {}, [generate(A, B), generate(A, B)], [cold, local], kind)
            spec = {"connector": {"codec": "raw"}, "steps": [generate(A, B), generate(settle=True)]}
            result = self.matrix.run({"name": f"{dtype} write", **spec, **kind})
            self.check(f"{dtype} write", result, cold, generate(A, B), 0, 0, 0.0)
            for name in names:
                spec = {"connector": {"codec": "raw", **ways[name]}, "steps": [generate(A, B)]}
                result = self.matrix.run({"name": f"{dtype} read {name}", **spec, **kind})
                self.check(f"{dtype} read {name}", result, local, generate(A, B), 0, 512, 0.0)

    # ---- 1 and 4: codecs ----

    def all_codecs(self) -> None:
        """Each codec: how far outputs agree with the exact ones, time to first token, bytes, parts of the time."""
        steps: list[dict[str, Any]] = []
        for codec in self.codecs:
            steps.append(generate(A, LONG, codec=codec, salt=codec, max_tokens=1))
            steps.append(generate(A, LONG, codec=codec, salt=codec, max_tokens=24, settle=True, reset=True))
        exact = generate(A, LONG, salt="exact", max_tokens=24)
        result = self.matrix.run({"name": "codecs", "connector": {"codec": "raw"}, "steps": [exact, *steps]})
        if "error" in result:
            self.table.check("codecs", "runs", False, result["error"])
            return
        want = result["steps"][0]["results"]
        for i, codec in enumerate(self.codecs):
            done = result["steps"][2 + 2 * i]
            self.table.codec(codec, want, done, result["steps"][1 + 2 * i])
            hits = [output["cached"] for output in done["results"]]
            self.table.check(f"codec {codec}", "hits", hits == [512, 1408], f"hit {hits}")
        for prompt in (A, LONG):
            length = prompt.split("+")[1]
            for kind in ("cold", "local"):
                ttft = self.baseline[kind, prompt]["ttft"]
                self.table.plain_latency(f"{kind}, {length} tokens", ttft)

    # ---- 2: faults ----

    def faults(self) -> None:
        """Between promise and load something happens; every request finishes with the baseline's output."""
        cases: list[tuple[str, list[str], list[list[str]]]] = [
            ("node killed", ["kill"], []),
            ("node stopped", ["pause"], [["resume", "n0"], ["resume", "n1"]]),
            ("node lost its blocks", ["restart_node"], []),
            ("coordinator killed", ["kill_coordinator"], []),
            ("coordinator restarted", ["restart_coordinator"], []),
            ("blocks evicted", ["remove"], []),
        ]
        for mode, options in (("async", {}), ("sync", {"load_async": False}), ("layerwise", {"layerwise": True})):
            steps = []
            chosen = cases if mode == "async" else [cases[0], cases[5]]
            for name, do, after in chosen:
                steps.append(generate(C, before=[["heal"]], hold=True, reset=True, fault={"do": do}, label=name))
                # While it is so, and with the local cache gone.
                steps.append(generate(C, reset=True, label=f"{name}, the next request", after=after))
            steps.append(generate(C, before=[["heal"]], hold=True, reset=True, label="all well again"))
            # With the waiting times that users have.
            connector = {"codec": "raw", "progress_timeout": "200ms", "lookup_timeout": "200ms", **options}
            result = self.matrix.run({"name": f"faults {mode}", "connector": connector, "steps": steps})
            for i in range(len(steps)):
                self.check(mode, result, "cold", steps[i], i, 256 if i == len(steps) - 1 else None, ROUNDING)
                if "fault" in steps[i] and i < len(result["steps"]):
                    self.table.check(f"{mode}: {steps[i]['label']}", "happened", result["steps"][i]["fired"], rows_of(result, i))
        self._down_from_the_start()

    def transfers(self) -> None:
        """A node stops or dies while it sends, as its own metrics show; every request finishes with the baseline's output."""
        steps = []
        for name, operation in (("node stopped", "pause"), ("node killed", "kill")):
            well = {"before": [["heal"]], "hold": True, "reset": True}
            steps.append(generate(LONG, **well, trap=operation, label=f"{name} while it sends"))
            resume = [["resume", "n0"], ["resume", "n1"]] if operation == "pause" else []
            steps.append(generate(LONG, reset=True, label=f"{name}, the next request", after=resume))
        for mode, options in (("async", {}), ("sync", {"load_async": False}), ("layerwise", {"layerwise": True})):
            # A small window makes the load long enough to be interrupted for certain.
            connector = {"codec": "raw", "progress_timeout": "200ms", "lookup_timeout": "200ms", **SLOW, **options}
            result = self.matrix.run({"name": f"transfers {mode}", "connector": connector, "steps": steps})
            for i, step in enumerate(steps):
                self.check(f"transfers {mode}", result, "cold", step, i, None, ROUNDING)
                if "trap" in step and i < len(result["steps"]):
                    done = result["steps"][i]
                    failed = done["counted"].get("load_failures", 0)
                    moved = done["counted"].get("loaded_bytes", 0) / 1e6
                    seen = f"{done['sprung'] or 'no node'}, {failed} load failed after {moved:.0f} MB, {rows_of(result, i)}"
                    self.table.check(f"transfers {mode}: {step['label']}", "happened", bool(done["sprung"]) and failed == 1, seen)

    def lookups(self) -> None:
        """The engine is told to ask later while a lookup runs, and to compute when it does not end."""
        self.matrix.cluster.heal()
        steps = [
            generate(C, hold=True, reset=True, label="answered"),
            generate(C, reset=True, before=[["pause_coordinator"]], after=[["resume_coordinator"]], label="not answered"),
        ]
        steps.insert(0, generate(C))
        connector = {"codec": "raw", "lookup_timeout": "200ms"}
        result = self.matrix.run({"name": "lookups", "connector": connector, "steps": steps})
        self.check("lookups", result, "cold", steps[1], 1, 256, ROUNDING)
        self.check("lookups", result, "cold", steps[2], 2, 0, ROUNDING)
        for i, least in ((1, 1), (2, 10)):
            done = result["steps"][i]["counted"] if i < len(result["steps"]) else {}
            asked, late = done.get("asked_to_wait", 0), done.get("lookup_timeouts", 0)
            good = asked >= least and late == i - 1
            what = f"asked to wait {asked} times, {late} lookups given up"
            self.table.check(f"lookups: {steps[i]['label']}", "None, then an answer", good, what)

    def _down_from_the_start(self) -> None:
        """No servers at all while an engine runs, and while it starts."""
        self.matrix.cluster.heal()
        for server in (*self.matrix.cluster.nodes.values(), self.matrix.cluster.coordinator):
            server.kill()
        steps = [generate(C, label="no servers")]
        result = self.matrix.run({"name": "no servers", "connector": {"codec": "raw"}, "steps": steps})
        self.check("no servers", result, "cold", steps[0], 0, 0, 0.0)
        self.matrix.cluster.heal()

    def full(self) -> None:
        """Arenas of two blocks each: puts are refused, old blocks evicted."""
        cluster = Cluster(self.matrix._programs, self.matrix.out / "full", "8MiB")
        try:
            steps = [generate(A, B, C, label="arena full"), generate(A, settle=True, reset=True, label="arena full, again")]
            result = self.matrix.run({"name": "full", "connector": {"codec": "raw"}, "steps": steps}, cluster)
            self.check("full", result, "cold", steps[0], 0, None, ROUNDING)
            self.check("full", result, "cold", steps[1], 1, None, ROUNDING)
            failed = counted(result, "save_failures")
            self.table.check("full", "refused", failed > 0, f"{failed} blocks refused")
        finally:
            cluster.stop()

    def preempt(self) -> None:
        """Too few pages for four requests: one is preempted, and loads what it had saved."""
        steps = [generate(*CROWD, batch=True, max_tokens=60, label="four requests, too few pages")]
        llm = {**SMALL_PAGES, "num_gpu_blocks_override": 38, "max_model_len": 512}
        result = self.matrix.run({"name": "preempt", "llm": llm, "connector": {"codec": "raw"}, "steps": steps})
        self.check("preempt", result, "crowd", steps[0], 0, None, ROUNDING)
        loaded = counted(result, "loaded_tokens")
        self.table.check("preempt", "reloads", loaded > 0, f"{loaded} tokens loaded, {counted(result, 'fences')} fences")

    def abort(self) -> None:
        """A request is aborted while it loads; another finishes."""
        self.matrix.cluster.heal()
        steps = [generate(LONG, B), generate(LONG, B, hold=True, reset=True, abort=True, label="one of two aborted")]
        result = self.matrix.run({"name": "abort", "connector": {"codec": "raw"}, "steps": steps + [generate(B)]})
        done = result["steps"][1]["results"] if len(result["steps"]) > 1 else []
        same, largest = against(done, [self.baseline["cold", B]])
        self.table.check("abort", "the other ends", len(done) == 1 and same and largest <= ROUNDING, f"|Δlogprob| {largest:.1e}")
        self.check("abort", result, "cold", generate(B, label="and the engine goes on"), 2, None, ROUNDING)
        seen = result["steps"][1]["abort"] if len(result["steps"]) > 1 else {}
        dropped = seen.get("loading", 0) > 0 and seen.get("leases", 0) > 0 and seen.get("leases_after") == 0
        what = f"aborted with {seen.get('loading', 0)} load under way and {seen.get('leases', 0):.0f} leases at the nodes, "
        what += f"{seen.get('leases_after', -1):.0f} left {seen.get('seconds', 0):.2f} s after the last request"
        self.table.check("abort", "leases are dropped", dropped, what)

    def ranks(self) -> None:
        """Three tensor-parallel workers load what one engine saved, and save what it loads."""
        self.matrix.cluster.heal()
        connector = {"codec": "raw", "head_shards": 3}
        steps = [generate(A, C, LONG, label="one worker"), generate(A, C, LONG, hold=True, label="one worker, again")]
        result = self.matrix.run({"name": "ranks 1", "connector": connector, "steps": steps})
        self.check("ranks", result, "cold", steps[0], 0, 0, 0.0)
        # Sums over ranks are taken in another order, so that equal bits cannot be expected.
        steps = [generate(A, C, label="three ranks, what one worker saved"), generate(B, label="three ranks")]
        spec = {"name": "ranks 3", "connector": connector, "steps": [*steps, generate(settle=True)], "kv_mib": 256}
        result = self.matrix.run({**spec, "llm": {"tensor_parallel_size": 3}, "multiprocess": True})
        hits = [[o["cached"] for o in step["results"]] for step in result["steps"][:2]]
        self.table.check("ranks: three of them", "hit", hits == [[512, 256], [0]], f"hit {hits} {result.get('error', '')}")
        self.check("ranks", result, "local", steps[0], 0, None, 1e-3)
        self.check("ranks", result, "cold", steps[1], 1, None, 1e-3)
        steps = [generate(B, label="one worker, what three ranks saved")]
        result = self.matrix.run({"name": "ranks back", "connector": connector, "steps": steps})
        self.check("ranks", result, "local", steps[0], 0, 512, 1e-3)
        self._ranks_that_fail(connector)

    def _ranks_that_fail(self, connector: dict[str, Any]) -> None:
        """A node dies while three ranks load from it: they agree on what is valid, and the engine goes on."""
        steps = [generate(LONG, label="a node killed while three ranks load"), generate(B, label="and they go on")]
        spec = {"name": "ranks fail", "connector": {**connector, **SLOW}, "steps": steps, "kv_mib": 256, "trap": "kill"}
        result = self.matrix.run({**spec, "llm": {"tensor_parallel_size": 3}, "multiprocess": True})
        for i, step in enumerate(steps):
            self.check("ranks", result, "cold", step, i, None, 1e-3)
        failed = result.get("metrics", {}).get("vllm:tokura_load_failures", 0)
        sprung = result.get("sprung", "")
        self.table.check("ranks: a node killed", "happened", bool(sprung) and failed > 0, f"{sprung}, {failed} ranks' loads failed")
        self.matrix.cluster.heal()

    # ---- 3: identity ----

    def identity(self) -> None:
        """What differs in anything that changes KV is no hit."""
        self.matrix.cluster.heal()
        adapters = make_adapters(pathlib.Path(self.matrix.model), self.matrix.out / "adapters")
        one = {"max_tokens": 1, "settle": True, "reset": True}
        steps = [
            generate(C, **one),
            generate(C, **{**one, "hold": True}, label="the same", hit=256),
            generate(C, **one, salt="s", label="a salt", hit=0),
            generate(C, **one, salt="s", label="the same salt", hit=256),
            generate(C, **one, salt="t", label="another salt", hit=0),
            generate(C, **one, lora=["one", str(adapters[0])], label="a LoRA", hit=0),
            generate(C, **one, lora=["one", str(adapters[0])], label="the same LoRA", hit=256),
            generate(C, **one, lora=["two", str(adapters[1])], label="another LoRA name", hit=0),
        ]
        llm = {"enable_lora": True, "max_loras": 1, "max_lora_rank": 8}
        result = self.matrix.run({"name": "identity", "llm": llm, "connector": {"codec": "raw"}, "steps": steps})
        for step, done in zip(steps[1:], result["steps"][1:], strict=False):
            self._check_hit(step["label"], [o["cached"] for o in done["results"]], [step["hit"]])
        self.table.check("identity", "runs", "error" not in result, result.get("error", ""))
        for label, spec in (
            ("another model revision", {"connector": {"codec": "raw", "model_revision": "other"}}),
            ("another dtype", {"connector": {"codec": "raw"}, "dtype": "float16"}),
            ("another tenant", {"connector": {"codec": "raw", "tenant": "other"}}),
        ):
            result = self.matrix.run({"name": label, "steps": [generate(C, max_tokens=1)], **spec})
            hits = [o["cached"] for step in result["steps"] for o in step["results"]]
            self._check_hit(label, hits, [0])

    def engine_hashes(self) -> None:
        """Keys over vLLM's own block hashes, in other processes: the same ones where PYTHONHASHSEED is the same."""
        self.matrix.cluster.heal()
        # Three parts a block: one would be more than the nodes take.
        connector = {"codec": "raw", "identity": "engine-hashes", "block_tokens": 128, "head_shards": 3}
        self.matrix.run({"name": "hashes write", "connector": connector, "steps": [generate(C), generate(settle=True)]})
        steps = [generate(C, label="three processes"), generate(B, label="another prompt")]
        result = self.matrix.run({"name": "hashes", "connector": connector, "steps": steps, "multiprocess": True})
        self.check("engine hashes", result, "local", steps[0], 0, 256, 0.0)
        self.check("engine hashes", result, "cold", steps[1], 1, 0, 0.0)

    def _check_hit(self, label: str, hits: list[int], wanted: list[int]) -> None:
        self.table.check(f"identity: {label}", "no hit" if wanted == [0] else "hit", hits == wanted, f"hit {hits}")


def main() -> None:
    """As a program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--codecs", default="raw,int8,kivi4")
    arguments = parser.parse_args()
    # Ended from outside: the servers end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    matrix = Matrix(arguments.model, arguments.programs, arguments.out)
    table = Table()
    try:
        matrix.import_engine()
        only = [name for name in arguments.only.split(",") if name]
        Proof(matrix, table, arguments.codecs.split(","), only).run()
    finally:
        matrix.cluster.stop()
    failed = table.print()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
