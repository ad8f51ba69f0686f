"""Which UCX the process has loaded, before the extension brings its own."""

from __future__ import annotations

import ctypes
import os
import warnings
from pathlib import Path

_HERE = Path(__file__).parent / "_lib"


def _version(path: str) -> str:
    """Version of the libucp at ``path``, "1.22"."""
    major, minor, release = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
    library = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
    library.ucp_get_version(ctypes.byref(major), ctypes.byref(minor), ctypes.byref(release))
    return f"{major.value}.{minor.value}"


def _loaded() -> set[str]:
    """Files of UCX's top library that are mapped into this process."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    paths = {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}
    return {path for path in paths if os.path.basename(path).startswith("libucp")}


def check(built: str) -> None:
    """Refuse, with both versions, when the extension would get another UCX than it was built for.

    The loader gives one process one library of a name: a libucp.so.0 that is there already is the
    one that the extension gets. Copies under other names (of wheels that rename theirs) stay apart
    and are only worth a warning.
    """
    for path in sorted(_loaded()):
        if Path(path).parent == _HERE:
            continue
        try:
            version = _version(path)
        except (OSError, AttributeError):
            version = "unknown"
        if version == built:
            continue
        if os.path.basename(path).startswith("libucp.so.0"):
            raise ImportError(
                f"this process has loaded UCX {version} ({path}), but tokura was built for and"
                f" carries UCX {built}: import tokura before what loads the other one, or build"
                " tokura for it (TOKURA_UCX_ROOT)"
            )
        warnings.warn(
            f"this process has loaded UCX {version} ({path}) besides tokura's UCX {built};"
            " settings in UCX_* variables apply to both",
            RuntimeWarning,
            stacklevel=3,
        )
