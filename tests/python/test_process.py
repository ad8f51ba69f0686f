"""What a process may do to a client: fork, exit, be interrupted, bring another UCX."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import tokura
from conftest import Server


def run(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )


def test_an_open_client_does_not_hold_up_the_exit(cluster: Server) -> None:
    done = run(
        """
        import sys, tokura
        client = tokura.Client(coordinators=[sys.argv[1]])
        client.wait_ready(20)
        ns = tokura.Namespace(tokura.NamespaceSpec(model="m", dtype="float32",
            groups=[tokura.LayerGroup(layers=[0], kv_heads=1, k_head_dim=64)]))
        future = client.start_lookup(ns, tokura.TokenChain(ns, range(640)))
        future.add_done_callback(lambda f: None)
        print("end")
        """,
        cluster.address,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_importing_starts_no_thread_and_allows_forks(cluster: Server) -> None:
    done = run(
        """
        import os, sys, threading, tokura
        assert len(os.listdir("/proc/self/task")) == 1
        child = os.fork()
        if child == 0:
            with tokura.Client(coordinators=[sys.argv[1]]) as client:
                client.wait_ready(20)
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        cluster.address,
    )
    assert (done.stdout, done.stderr) == ("7\n", "")


def test_a_child_of_a_process_with_a_client_is_refused(cluster: Server) -> None:
    done = run(
        """
        import os, sys, warnings, tokura
        warnings.simplefilter("ignore")
        client = tokura.Client(coordinators=[sys.argv[1]])
        client.wait_ready(20)
        ns = tokura.Namespace(tokura.NamespaceSpec(model="m", dtype="float32",
            groups=[tokura.LayerGroup(layers=[0], kv_heads=1, k_head_dim=64)]))
        chain = tokura.TokenChain(ns, range(64))
        future = client.start_lookup(ns, chain)
        future.add_done_callback(lambda done: None)  # which starts a thread
        future.result(20)
        child = os.fork()
        if child == 0:
            calls = [lambda: tokura.Client(coordinators=[sys.argv[1]]),
                     lambda: client.lookup(ns, chain), lambda: client.wait_ready(),
                     lambda: client.set_nodes([]), lambda: client.metrics_text()]
            refused = 0
            for call in calls:
                try:
                    call()
                except tokura.FailedPrecondition as error:
                    refused += "forked from" in error.message
            client.close()
            sys.exit(refused)  # with all that an interpreter does at its end
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(len(client.lookup(ns, chain)))
        """,
        cluster.address,
    )
    assert (done.stdout, done.stderr) == ("5\n0\n", "")


def test_ctrl_c_ends_a_blocking_call() -> None:
    done = run(
        """
        import os, signal, threading, time, tokura
        client = tokura.Client(nodes=["127.0.0.1:1"])
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        begin = time.monotonic()
        try:
            client.wait_ready(60)
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - begin < 30)
        """
    )
    assert done.stdout == "interrupted True\n"


OTHER_UCX = """
#include <stdlib.h>
void ucp_get_version(unsigned* major, unsigned* minor, unsigned* release) {
  *major = 1; *minor = 7; *release = 0;
}
"""


@pytest.fixture
def other_ucx(tmp_path: Path) -> Path:
    """A library that passes for UCX 1.7."""
    source = tmp_path / "ucp.c"
    source.write_text(OTHER_UCX)
    library = tmp_path / "libucp.so.0"
    soname = "-Wl,-soname,libucp.so.0"
    subprocess.run(["cc", "-shared", "-fPIC", soname, "-o", library, source], check=True)
    return library


LOAD = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
import tokura
print(tokura.UCX_VERSION)
"""


def test_another_ucx_in_the_process_is_told(other_ucx: Path) -> None:
    done = run(LOAD, str(other_ucx))
    assert done.returncode == 1
    assert f"loaded UCX 1.7 ({other_ucx})" in done.stderr
    assert f"carries UCX {tokura.UCX_VERSION}" in done.stderr


def test_another_ucx_under_another_name_is_a_warning(other_ucx: Path) -> None:
    renamed = other_ucx.with_name("libucp-1234abcd.so.0")
    code = OTHER_UCX
    source = other_ucx.with_name("renamed.c")
    source.write_text(code)
    soname = f"-Wl,-soname,{renamed.name}"
    subprocess.run(["cc", "-shared", "-fPIC", soname, "-o", renamed, source], check=True)
    done = run(LOAD, str(renamed))
    assert (done.returncode, done.stdout) == (0, f"{tokura.UCX_VERSION}\n")
    assert "RuntimeWarning: this process has loaded UCX 1.7" in done.stderr


def test_the_wheel_uses_the_ucx_it_carries() -> None:
    done = run(
        """
        import tokura
        client = tokura.Client(nodes=["127.0.0.1:1"])
        lines = open("/proc/self/maps").read().splitlines()
        print(*sorted({line.split()[-1] for line in lines if "libuc" in line}), sep="\\n")
        """
    )
    package = str(Path(tokura.__file__).parent / "_lib")
    paths = done.stdout.split()
    assert len(paths) >= 5  # with transports
    assert all(path.startswith(package) for path in paths)


def test_the_library_exports_what_its_header_declares() -> None:
    library = Path(tokura.__file__).parent / "_lib" / "libtokura.so.1"
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    )
    symbols = {line.split()[-1].split("@")[0] for line in listed.stdout.splitlines()}
    header = Path(os.environ["TOKURA_SOURCE_DIR"], "client-lib/include/tokura.h").read_text()
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    declared = set(re.findall(r"^[^#(]*?\b(tokura_\w+)\(", header, flags=re.MULTILINE))
    assert declared
    assert symbols - {"TOKURA_1"} == declared


def test_the_example_shares_a_prefix(node: Server) -> None:
    example = Path(os.environ["TOKURA_SOURCE_DIR"], "client-lib/examples/share_prefix.py")
    done = subprocess.run(
        [sys.executable, example, node.address],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "stored 4 of 4 blocks, found 4, read 4: same values\n"
    assert (done.returncode, done.stderr) == (0, "")
