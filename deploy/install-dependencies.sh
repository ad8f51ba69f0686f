#!/usr/bin/env bash
# Installs what building Tokura needs and this machine lacks: Debian packages, and UCX below build/ucx.
#   deploy/install-dependencies.sh [--tests | --ucx-only]     --tests: also what tests/run.sh needs; --ucx-only: no packages
# Safe to run twice; does nothing where everything is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\033[1m==> %s\033[0m\n' "$*"; }

packages=(
  g++ cmake ninja-build ccache pkg-config git ca-certificates python3 python3-pip python3-venv python3-dev
  libabsl-dev libprotobuf-dev protobuf-compiler libspdlog-dev libyaml-cpp-dev libcpp-httplib-dev libcli11-dev
  nlohmann-json3-dev libisal-dev libssl-dev prometheus-cpp-dev zlib1g-dev
)
for argument in "$@"; do
  case $argument in
    --ucx-only) packages=() ;;
    --tests) packages+=(libgtest-dev libgmock-dev clang libclang-rt-14-dev clang-format clang-tidy procps) ;;
    *) echo "usage: deploy/install-dependencies.sh [--tests | --ucx-only]" >&2; exit 2 ;;
  esac
done

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if ((${#missing[@]})); then
  if ((EUID != 0)); then
    echo "These packages are missing: ${missing[*]}" >&2
    echo "Run this script as root, or: sudo apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  say "Installing ${#missing[@]} Debian packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  log=$(mktemp)
  if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "apt-get failed; the whole log is in $log" >&2
    exit 1
  fi
  rm -f "$log"
fi

# A site with its own UCX (RDMA) builds with -DTOKURA_UCX_ROOT=… and skips the wheel.
if [[ -z ${TOKURA_UCX_ROOT:-} ]]; then
  stamp=build/ucx/.requirements
  if ! cmp -s deploy/ucx-requirements.txt "$stamp"; then
    say "Installing UCX (pinned by hash) into build/ucx"
    rm -rf build/ucx
    mkdir -p build/ucx
    python3 -m pip install -q --no-deps --no-compile --require-hashes --root-user-action=ignore \
      --disable-pip-version-check --target build/ucx -r deploy/ucx-requirements.txt
    cp deploy/ucx-requirements.txt "$stamp"
  fi
fi
