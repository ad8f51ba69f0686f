"""Servers, memory and names that the tests share."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tokura

LAYERS = 3
HEADS = 2
HEAD_DIM = 64
BLOCK_TOKENS = 16


class Server:
    """A server process of the build tree."""

    def __init__(self, program: str, *flags: str) -> None:
        binary = Path(os.environ["TOKURA_BIN_DIR"]) / program
        command = [str(binary), *(["up"] if program == "tokura" else []), *flags]
        self._directory = tempfile.TemporaryDirectory()
        port_file = Path(self._directory.name) / "ports"
        command += ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        command += ["--port-file", str(port_file)]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        self.ports = self._read_ports(port_file)
        self.address = self.ports["data"]

    def _read_ports(self, port_file: Path) -> dict[str, str]:
        deadline = time.monotonic() + 30
        while not port_file.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: {self.process.args}")
            time.sleep(0.01)
        return dict(line.split("=", 1) for line in port_file.read_text().split())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
        self._directory.cleanup()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Server]:
    """One coordinator and one node in one process."""
    server = Server("tokura", "--host-bytes", "256MiB")
    yield server
    server.stop()


@pytest.fixture
def node() -> Iterator[Server]:
    """A node of the test's own, to be killed."""
    server = Server("tokura-node", "--host-bytes", "64MiB")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def client(cluster: Server) -> Iterator[tokura.Client]:
    """A client of the cluster, patient: the machine may be busy."""
    with tokura.Client(
        coordinators=[cluster.address], ingest_codec="raw", progress_timeout=5.0
    ) as made:
        made.wait_ready(20)
        yield made


_count = 0


@pytest.fixture
def tokens() -> np.ndarray:
    """Tokens of a sequence that no other test has."""
    return fresh_tokens()


def fresh_tokens(blocks: int = 4) -> np.ndarray:
    global _count
    _count += 1
    return np.arange(blocks * BLOCK_TOKENS, dtype=np.uint32) + 100_000 * _count


def lookup(
    client: tokura.Client, namespace: tokura.Namespace, chain: tokura.TokenChain
) -> tokura.Match:
    """Look up until all of the chain is found: coordinators learn of blocks from the nodes, soon."""
    deadline = time.monotonic() + 20
    while len(match := client.lookup(namespace, chain)) < len(chain):
        assert time.monotonic() < deadline, f"found {len(match)} of {len(chain)} blocks"
        time.sleep(0.005)
    return match


def spec(**changes: object) -> tokura.NamespaceSpec:
    fields: dict[str, object] = {
        "model": "test",
        "dtype": "float32",
        "groups": [tokura.LayerGroup(layers=range(LAYERS), kv_heads=HEADS, k_head_dim=HEAD_DIM)],
        "block_tokens": BLOCK_TOKENS,
    }
    fields.update(changes)
    return tokura.NamespaceSpec(**fields)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def namespace() -> tokura.Namespace:
    return tokura.Namespace(spec())


class Memory:
    """Contiguous [heads, tokens, head_dim] arrays per layer, and their view."""

    def __init__(self, tokens: int, seed: int | None = None, dtype: str = "float32") -> None:
        shape = (HEADS, tokens, HEAD_DIM)
        rng = np.random.default_rng(seed)

        def make() -> np.ndarray:
            if seed is None:
                return np.zeros(shape, dtype)
            return rng.standard_normal(shape).astype(dtype)

        self.k = [make() for _ in range(LAYERS)]
        self.v = [make() for _ in range(LAYERS)]

    def view(self) -> tokura.KvView:
        return tokura.KvView.contiguous(self.k, self.v)

    def same(self, other: Memory) -> bool:
        pairs = [*zip(self.k, other.k, strict=True), *zip(self.v, other.v, strict=True)]
        return all(np.array_equal(a, b) for a, b in pairs)
