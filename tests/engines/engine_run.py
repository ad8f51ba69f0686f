"""One engine process: runs the steps of a specification and returns what came out.

In a process forked from one that has imported vLLM already (see matrix.py), or as a program of its own:
    engine_run.py SPECIFICATION.json RESULT.json
"""

import json
import os
import sys
import time
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1")
# One thread in every run: with more, sums are taken in another order, and with a busy core threads wait for each other.
os.environ.update(OMP_NUM_THREADS="1", VLLM_CPU_OMP_THREADS_BIND="nobind")

TEXT = "/usr/share/common-licenses/GPL-3"
WARM_UP = [1, 2, 3, 4, 5]


class Run:
    """An engine and what its steps need."""

    def __init__(self, spec: dict[str, Any], ask_parent: Any) -> None:
        from vllm import LLM

        self.spec = spec
        self.ask_parent = ask_parent
        self.counted: dict[str, Any] = {}
        self.on_promise: Any = None
        self.abort_seen: dict[str, Any] = {}
        if spec.get("connector") and not spec.get("multiprocess"):
            self._watch()
        arguments = dict(
            model=spec["model"],
            dtype=spec.get("dtype", "float32"),
            max_model_len=2048,
            enforce_eager=True,
            kv_cache_memory_bytes=spec.get("kv_mib", 640) << 20,
            max_num_seqs=8,
            seed=0,
            disable_log_stats=False,
        )
        arguments.update(spec.get("llm", {}))
        if spec.get("connector"):
            arguments["kv_transfer_config"] = dict(
                kv_connector="TokuraConnector",
                kv_connector_module_path="tokura.vllm",
                kv_role="kv_both",
                kv_load_failure_policy=spec.get("policy", "recompute"),
                kv_connector_extra_config=spec["connector"],
            )
        started = time.monotonic()
        self.llm = LLM(**arguments)
        self.start_seconds = time.monotonic() - started
        self.ids = self.llm.get_tokenizer()(open(TEXT).read())["input_ids"]
        self.generate([{"prompt_token_ids": WARM_UP}], 1)

    def _watch(self) -> None:
        """Add up what the connector counts, and stop where a test wants to interfere."""
        from tokura.vllm import scheduler, stats

        take = stats.Counters.take

        def counting_take(counters: Any) -> Any:
            taken = take(counters)
            for name, value in (taken.data if taken is not None else {}).items():
                self.counted[name] = self.counted.get(name, type(value)()) + value
            return taken

        stats.Counters.take = counting_take  # type: ignore[method-assign]
        allocated = scheduler.SchedulerSide.allocated

        def watched(side: Any, request: Any, pages: Any, external_tokens: int) -> None:
            state = side._requests.get(request.request_id)
            ticket = state.ticket if state is not None else None
            match = ticket.match if ticket is not None else None
            allocated(side, request, pages, external_tokens)
            if external_tokens and match is not None and self.on_promise is not None:
                act, self.on_promise = self.on_promise, None
                act(side, state, match)

        scheduler.SchedulerSide.allocated = watched  # type: ignore[method-assign]
        asked = scheduler.SchedulerSide.matched_tokens

        def counting_asked(side: Any, request: Any, local_tokens: int) -> Any:
            answer = asked(side, request, local_tokens)
            self.counted["asked_to_wait"] = self.counted.get("asked_to_wait", 0) + (answer[0] is None)
            return answer

        scheduler.SchedulerSide.matched_tokens = counting_asked  # type: ignore[method-assign]

    def prompt(self, name: str, step: dict[str, Any]) -> dict[str, Any]:
        """A prompt by name: "OFFSET+LENGTH" in tokens of a long English text, and what the step appends."""
        offset, length = (int(part) for part in name.split("+"))
        ids = self.ids[offset : offset + length] + step.get("append", [])
        prompt: dict[str, Any] = {"prompt_token_ids": ids}
        if step.get("salt"):
            prompt["cache_salt"] = step["salt"]
        return prompt

    def generate(self, prompts: list[dict[str, Any]], max_tokens: int, lora: Any = None) -> list[dict[str, Any]]:
        """Greedy tokens, their logprobs, and how it went."""
        from vllm import SamplingParams

        sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, logprobs=1)
        started = time.monotonic()
        outputs = self.llm.generate(prompts, sampling, use_tqdm=False, lora_request=lora)
        seconds = time.monotonic() - started
        return [
            {
                "ids": list(output.outputs[0].token_ids),
                "logprobs": [list(step.values())[0].logprob for step in output.outputs[0].logprobs or []],
                "cached": output.num_cached_tokens,
                "finish": output.outputs[0].finish_reason,
                "ttft": getattr(output.metrics, "first_token_latency", None),
                "seconds": seconds,
            }
            for output in outputs
        ]

    def settle(self) -> None:
        """Let saves end: steps until the engine holds no pages for them, then until they are stored."""
        if not self.spec.get("connector"):
            return
        self.generate([{"prompt_token_ids": WARM_UP}], 1)
        if self.spec.get("multiprocess"):
            time.sleep(2.0)
            return
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        saves = get_kv_transfer_group()._worker._saves
        for put in list(saves._puts):
            put.future.result()
        self.generate([{"prompt_token_ids": WARM_UP}], 1)

    def save_until_held(self, step: dict[str, Any]) -> None:
        """Compute and save prompts until all of their blocks are found: servers that were started a moment ago have to meet."""
        import tokura
        from tokura.vllm.messages import NamespaceId

        side = self.llm.llm_engine.engine_core.engine_core.scheduler.connector._scheduler
        namespace = side._identity.open(NamespaceId(salt=step.get("salt", "")))
        prompts = [self.prompt(name, step) for name in step["prompts"]]
        chains = [tokura.TokenChain(namespace, prompt["prompt_token_ids"]) for prompt in prompts]
        for _ in range(40):
            self.settle()
            if all(len(side.book.client.lookup(namespace, chain)) == len(chain) for chain in chains):
                return
            time.sleep(0.25)
            self.llm.reset_prefix_cache()
            self.generate(prompts, 1)
        raise RuntimeError("what was saved is not found")

    def step(self, step: dict[str, Any]) -> dict[str, Any]:
        """Carry out one step of the specification."""
        before = {name: _copy(value) for name, value in self.counted.items()}
        for operation in step.get("before", ()):
            self.ask_parent(*operation)
        if step.get("hold"):
            self.save_until_held(step)
        elif step.get("settle"):
            self.settle()
        if step.get("reset"):
            self.llm.reset_prefix_cache()
        if step.get("codec"):
            self._set_codec(step["codec"])
        if step.get("fault"):
            self.on_promise = lambda side, state, match: self._interfere(step["fault"], side, state, match)
        if step.get("trap"):
            self.ask_parent("trap", step["trap"])
        prompts = [self.prompt(name, step) for name in step.get("prompts", ())]
        max_tokens = step.get("max_tokens", 8)
        results: list[dict[str, Any]] = []
        if step.get("abort"):
            results = self._abort_first(prompts, max_tokens)
        elif step.get("batch"):
            results = self.generate(prompts, max_tokens, self._lora(step))
        else:
            for prompt in prompts:
                results += self.generate([prompt], max_tokens, self._lora(step))
        fired = bool(step.get("fault")) and self.on_promise is None
        self.on_promise = None
        sprung = self.ask_parent("sprung") if step.get("trap") else ""
        for operation in step.get("after", ()):
            self.ask_parent(*operation)
        if self.spec.get("connector") and not self.spec.get("multiprocess"):
            self._drain_counters()
        seen = {"fired": fired, "sprung": sprung, "abort": self.abort_seen}
        return {"results": results, "counted": _difference(self.counted, before), **seen}

    def _drain_counters(self) -> None:
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        get_kv_transfer_group()._worker.counters.take()
        self.llm.llm_engine.engine_core.engine_core.scheduler.connector._scheduler.counters.take()

    def _interfere(self, fault: dict[str, Any], side: Any, state: Any, match: Any) -> None:
        """Between promise and load: something happens to the node that holds the promised blocks, or to the blocks."""
        node = match.runs[0].node
        for operation in fault["do"]:
            if operation == "remove":
                # What an evictor that disregards leases would do.
                state.ticket.end()
                side.book.client.remove(side._identity.open(state.namespace), match.keys[1:])
            else:
                self.ask_parent(operation, node)

    def _abort_first(self, prompts: list[dict[str, Any]], max_tokens: int) -> list[dict[str, Any]]:
        """Abort the first request as soon as its load is with the workers; the others go on. Notes what the nodes' metrics
        say of its lease."""
        from vllm import SamplingParams

        sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, logprobs=1)
        engine = self.llm.llm_engine
        aborted: list[Any] = []

        def abort(side: Any, state: Any, match: Any) -> None:
            aborted.append(state)

        self.on_promise = abort
        for i, prompt in enumerate(prompts):
            engine.add_request(f"abort-{i}", prompt, sampling)
        results = {}
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.finished:
                    results[output.request_id] = output
            if aborted:
                state = aborted.pop()
                # No step of the engine in between: what the request holds, it goes on holding.
                self.ask_parent("some_leases")
                self.abort_seen = {"loading": state.loading, "leases": self.ask_parent("leases")}
                engine.abort_request([state.request.request_id], internal=True)
        self.abort_seen["seconds"] = self.ask_parent("no_leases")
        self.abort_seen["leases_after"] = self.ask_parent("leases")
        return [
            {
                "ids": list(output.outputs[0].token_ids),
                "logprobs": [list(s.values())[0].logprob for s in output.outputs[0].logprobs or []],
                "cached": output.num_cached_tokens,
                "finish": output.outputs[0].finish_reason,
                "ttft": None,
                "seconds": 0.0,
            }
            for name, output in sorted(results.items())
            if output.outputs[0].finish_reason != "abort"
        ]

    def _lora(self, step: dict[str, Any]) -> Any:
        if not step.get("lora"):
            return None
        from vllm.lora.request import LoRARequest

        name, path = step["lora"]
        number = 1 + sum(name.encode())
        return LoRARequest(name, number, path)

    def _set_codec(self, codec: str) -> None:
        import dataclasses

        from vllm.distributed.kv_transfer import get_kv_transfer_group

        saves = get_kv_transfer_group()._worker._saves
        saves._options = dataclasses.replace(saves._options, codec=codec)

    def left(self) -> dict[str, int]:
        """What the connector still knows of requests, all of which have ended: collections that are not empty."""
        if not self.spec.get("connector") or self.spec.get("multiprocess"):
            return {}
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        self.settle()
        worker = get_kv_transfer_group()._worker
        side = self.llm.llm_engine.engine_core.engine_core.scheduler.connector._scheduler
        owners = {
            side: ("_requests", "_held"),
            side.book: ("_held", "_pinned"),
            worker: ("_step_loads", "_loads", "_void", "_held"),
            worker._saves: ("_puts", "_released", "_copies"),
        }
        sizes = {f"{type(o).__name__}.{name}": len(getattr(o, name)) for o, names in owners.items() for name in names}
        return {name: size for name, size in sizes.items() if size}

    def metrics(self) -> dict[str, float]:
        """Tokura's metrics as the engine's Prometheus endpoint would show them."""
        return {
            metric.name: getattr(metric, "value", getattr(metric, "count", 0))
            for metric in self.llm.get_metrics()
            if "tokura" in metric.name
        }

    def close(self) -> None:
        """End the engine, and with it the connector."""
        self.llm.llm_engine.engine_core.shutdown()


def _copy(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value


def _difference(after: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """What was counted between two moments."""
    return {
        name: value[len(before.get(name, [])) :] if isinstance(value, list) else value - before.get(name, 0)
        for name, value in after.items()
        if value != before.get(name)
    }


def run(spec: dict[str, Any], ask_parent: Any) -> dict[str, Any]:
    """Run a specification."""
    engine = Run(spec, ask_parent)
    steps = []
    try:
        for step in spec["steps"]:
            print(f"=== step {step}", flush=True)
            steps.append(engine.step(step))
        left = engine.left()
        metrics = engine.metrics()
    finally:
        engine.close()
    return {"name": spec["name"], "start_seconds": engine.start_seconds, "steps": steps, "metrics": metrics, "left": left}


def main() -> None:
    """As a program."""
    with open(sys.argv[1]) as file:
        spec = json.load(file)
    result = run(spec, None)
    with open(sys.argv[2], "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
