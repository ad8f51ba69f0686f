"""A coordinator and nodes of this test, and what can be done to them."""

import http.client
import os
import pathlib
import signal
import subprocess
import threading
import time

START_SECONDS = 20.0
LEASES_SECONDS = 5.0
POLL_SECONDS = 0.002


class Server:
    """One program, started with its addresses in a port file."""

    def __init__(self, program: str, arguments: list[str], directory: pathlib.Path, name: str) -> None:
        self.name = name
        self._program = program
        self._arguments = arguments
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.data = "127.0.0.1:0"
        self.admin = "127.0.0.1:0"

    def metric(self, name: str) -> float:
        """A metric without labels, as its /metrics shows it now."""
        host, port = self.admin.rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=5.0)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))

    def start(self) -> None:
        """Start it, where it was before if it ran before, and wait until it serves."""
        ports = self._directory / f"{self.name}.ports"
        ports.unlink(missing_ok=True)
        command = [self._program, "--name", self.name, "--listen", self.data, "--admin", self.admin]
        command += ["--port-file", str(ports), *self._arguments]
        log = open(self._directory / f"{self.name}.log", "ab")
        self._process = subprocess.Popen(command, stdout=log, stderr=log)
        log.close()
        end = time.monotonic() + START_SECONDS
        while not ports.exists():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.name} does not start; see {self._directory}")
            time.sleep(0.02)
        found = dict(line.split("=", 1) for line in ports.read_text().split())
        self.data, self.admin = found["data"], found["admin"]

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop it without ending it."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)


class Trap:
    """Stops or kills one of some nodes at the moment its metrics show that it sends payload to a client."""

    def __init__(self, nodes: list[Server], operation: str) -> None:
        self._operation = operation
        self._closed = threading.Event()
        self._sent = {node.name: node.metric("tokura_node_sent_bytes_total") for node in nodes}
        self.sprung = ""
        self._thread = threading.Thread(target=self._watch, args=(nodes,), name="trap")
        self._thread.start()

    def _watch(self, nodes: list[Server]) -> None:
        while not self._closed.wait(POLL_SECONDS):
            for node in nodes:
                if node.metric("tokura_node_sent_bytes_total") > self._sent[node.name]:
                    getattr(node, self._operation)()
                    self.sprung = node.name
                    return

    def close(self) -> str:
        """Watch no more; return the name of the node that it happened to."""
        self._closed.set()
        self._thread.join()
        return self.sprung


class Cluster:
    """One coordinator and two nodes; a prefix is spread over both."""

    def __init__(self, programs: pathlib.Path, directory: pathlib.Path, host_bytes: str = "2GiB") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.coordinator = Server(
            str(programs / "tokura-coordinator"), ["--segment-blocks", "2", "--join-ramp", "0s"], directory, "c0"
        )
        self.nodes: dict[str, Server] = {}
        self._trap: Trap | None = None
        self.coordinator.start()
        node = ["--coordinator", self.coordinator.data, "--host-bytes", host_bytes, "--prefault=false"]
        node += ["--part-bytes-max", "4MiB", "--inflight-bytes-max", "64MiB"]
        for name in ("n0", "n1"):
            self.nodes[name] = Server(str(programs / "tokura-node"), node, directory, name)
            try:
                self.nodes[name].start()
            except (OSError, RuntimeError):
                self.stop()
                raise

    def do(self, operation: str, node: str = "n0") -> object:
        """Carry out what a run asks for; the answer goes back to it."""
        if operation == "heal":
            self.heal()
        elif operation == "trap":
            self._trap = Trap(list(self.nodes.values()), node)
        elif operation == "sprung":
            return self._end_trap()
        elif operation == "leases":
            return self.leases()
        elif operation in ("some_leases", "no_leases"):
            return self.wait_leases(operation == "some_leases")
        elif operation in ("pause_coordinator", "resume_coordinator"):
            getattr(self.coordinator, operation.split("_")[0])()
        elif operation == "restart_node":
            self.nodes[node].kill()
            self.nodes[node].start()
        elif operation == "restart_coordinator":
            self.coordinator.kill()
            self.coordinator.start()
        elif operation == "kill_coordinator":
            self.coordinator.kill()
        elif operation == "start_coordinator":
            self.coordinator.start()
        elif operation in ("kill", "pause", "resume", "start"):
            getattr(self.nodes[node], operation)()
        else:
            raise ValueError(operation)
        return None

    def _end_trap(self) -> str:
        trap, self._trap = self._trap, None
        return trap.close() if trap is not None else ""

    def leases(self) -> float:
        """Leases that all nodes hold."""
        return sum(node.metric("tokura_node_leases") for node in self.nodes.values())

    def wait_leases(self, some: bool) -> float:
        """Seconds until some node holds a lease, or none does: a node samples its gauge now and then. Ends at LEASES_SECONDS,
        before leases end by their age."""
        started = time.monotonic()
        while (self.leases() > 0) != some and time.monotonic() - started < LEASES_SECONDS:
            time.sleep(POLL_SECONDS)
        return time.monotonic() - started

    def heal(self) -> None:
        """Make everything run again, empty."""
        self._end_trap()
        for server in (*self.nodes.values(), self.coordinator):
            server.kill()
        self.coordinator.start()
        for server in self.nodes.values():
            server.start()

    def stop(self) -> None:
        """End all of it."""
        self._end_trap()
        for server in (*self.nodes.values(), self.coordinator):
            server.kill()
