"""Runs engines one after the other, each in a process of its own, forked from one that has imported vLLM."""

import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import time
import traceback
from typing import Any

import engine_run
from servers import Cluster

RUN_SECONDS_MAX = 900.0


class Matrix:
    """Owns the cluster and the results."""

    def __init__(self, model: str, programs: pathlib.Path, out: pathlib.Path) -> None:
        self.model = model
        self.out = out
        out.mkdir(parents=True, exist_ok=True)
        self.cluster = Cluster(programs, out / "cluster")
        self._programs = programs
        self.results: dict[str, dict[str, Any]] = {}

    def import_engine(self) -> None:
        """Import what every run needs, once."""
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        started = time.monotonic()
        import transformers  # noqa: F401
        import vllm.model_executor.models.llama  # noqa: F401
        import vllm.v1.engine.core  # noqa: F401
        import vllm.v1.engine.llm_engine  # noqa: F401
        import vllm.v1.worker.cpu_worker  # noqa: F401

        import tokura.vllm  # noqa: F401

        print(f"imported vLLM {vllm.__version__} in {time.monotonic() - started:.0f} s", flush=True)

    def earlier(self, name: str, steps: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The result of a run of these steps of an earlier time that went well."""
        file = self.out / f"{name}.json"
        result = json.loads(file.read_text()) if file.exists() else {"error": "none"}
        return None if "error" in result or result.get("asked") != steps else dict(result)

    def run(self, spec: dict[str, Any], cluster: Cluster | None = None) -> dict[str, Any]:
        """Run one engine; what went wrong is in the result's "error"."""
        spec = {"model": self.model, **spec}
        if spec.get("connector") is not None:
            coordinator = (cluster or self.cluster).coordinator.data
            # Two cores for servers, codecs and the model: what is compared here must not depend on how busy they are.
            patience = {"progress_timeout": "2s", "lookup_timeout": "2s"}
            shared = {"coordinators": [coordinator], "model": "smollm2", **patience}
            spec["connector"] = {**shared, **spec["connector"]}
        started = time.monotonic()
        if spec.get("multiprocess"):
            if spec.get("trap"):
                self.cluster.do("trap", spec["trap"])
            result = self._run_program(spec)
            result["sprung"] = self.cluster.do("sprung")
        else:
            result = self._run_fork(spec, cluster or self.cluster)
        result["run_seconds"] = time.monotonic() - started
        result["asked"] = spec["steps"]
        self.results[spec["name"]] = result
        (self.out / f"{spec['name']}.json").write_text(json.dumps(result))
        error = result.get("error", "")
        print(f"{spec['name']:<20} {result['run_seconds']:5.0f} s {error}", flush=True)
        return result

    def _run_fork(self, spec: dict[str, Any], cluster: Cluster) -> dict[str, Any]:
        ours, theirs = multiprocessing.Pipe()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _child(spec, theirs, self.out / f"{spec['name']}.log")
        theirs.close()
        result = self._serve(ours, cluster)
        os.waitpid(pid, 0)
        return result

    def _serve(self, connection: Any, cluster: Cluster) -> dict[str, Any]:
        """Do what the run asks for until it is done."""
        end = time.monotonic() + RUN_SECONDS_MAX
        while connection.poll(max(0.0, end - time.monotonic())):
            try:
                kind, value = connection.recv()
            except EOFError:
                return {"steps": [], "error": "the engine's process died"}
            if kind == "result":
                return dict(value)
            connection.send(cluster.do(*value))
        return {"steps": [], "error": "the run did not end"}

    def _run_program(self, spec: dict[str, Any]) -> dict[str, Any]:
        """An engine of three processes: the caller, the scheduler and a worker."""
        files = self.out / f"{spec['name']}.spec.json", self.out / f"{spec['name']}.result.json"
        files[0].write_text(json.dumps(spec))
        files[1].unlink(missing_ok=True)
        environment = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1", **spec.get("environment", {})}
        with open(self.out / f"{spec['name']}.log", "wb") as log:
            program = [sys.executable, engine_run.__file__, *map(str, files)]
            code = subprocess.run(program, stdout=log, stderr=log, env=environment, timeout=RUN_SECONDS_MAX).returncode
        if code != 0 or not files[1].exists():
            return {"steps": [], "error": f"ended with {code}"}
        return dict(json.loads(files[1].read_text()))


def _child(spec: dict[str, Any], connection: Any, log: pathlib.Path) -> None:
    """The forked process; does not return."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)

    def ask_parent(*operation: str) -> Any:
        connection.send(("do", operation))
        return connection.recv()

    try:
        result = engine_run.run(spec, ask_parent)
    except BaseException:
        traceback.print_exc()
        lines = traceback.format_exc().strip().splitlines()
        result = {"steps": [], "error": lines[-1][:200]}
    connection.send(("result", result))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
