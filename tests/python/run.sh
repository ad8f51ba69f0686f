#!/usr/bin/env bash
# Installs the Python package into a virtual environment below a build directory, around its libtokura, and tests it there: the
# types by mypy, the rest by pytest against servers of the build.
#   tests/python/run.sh BUILD_DIR [PYTEST ARGUMENT…]
# Safe to run twice; what has not changed is not built again.
set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
root=$(realpath "$here/../..")
(($#)) || { sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
build=$(realpath "$1"); shift
work=$build/python
venv=$work/venv

if ! cmp -s "$here/requirements.txt" "$venv/.requirements"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$venv/.requirements"
fi
log=$work/install.log
if ! "$venv/bin/pip" install -v --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall \
    -C build-dir="$work/build" -C cmake.define.TOKURA_LIBRARY="$build/lib/libtokura.so" "$root/client-lib/python" >"$log" 2>&1; then
  tail -n 40 "$log" >&2
  exit 1
fi

# Not in the package's directory, whose sources Python would import instead of what was installed.
cd "$work"
export MYPY_CACHE_DIR=$work/mypy
"$venv/bin/mypy" --config-file "$root/client-lib/python/pyproject.toml" "$root/client-lib/python/tokura"

export TOKURA_SOURCE_DIR=$root TOKURA_BIN_DIR=$build/bin UCX_HANDLE_ERRORS=none UCX_WARN_UNUSED_ENV_VARS=n
exec "$venv/bin/python" -B -m pytest -q -p no:cacheprovider --tb=short --rootdir="$here" "$here" "$@"
