#!/usr/bin/env bash
# From a clone to a running cache in one command:
#   deploy/quickstart.sh               install what is missing, build, run the demo, leave a node running
#   deploy/quickstart.sh --build-only  install and build only
#   deploy/quickstart.sh --stop        stop the node that an earlier run left
# Safe to run twice. Programs land in build/release/bin.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

run=build/run
bin=build/release/bin
say() { printf '\033[1m==> %s\033[0m\n' "$*"; }

stop_node() {  # returns 0 when a node was stopped
  [[ -f $run/node.pid ]] || return 1
  local pid
  pid=$(<"$run/node.pid")
  # The number may belong to another program by now.
  if [[ -d /proc/$$ ]] && ! grep -qs '^tokura' "/proc/$pid/comm"; then
    rm -f "$run/node.pid"
    return 1
  fi
  kill -TERM "$pid" 2>/dev/null
  for _ in $(seq 100); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$pid" 2>/dev/null
  rm -f "$run/node.pid"
  return 0
}

start_node() {  # start_node LISTEN ADMIN
  rm -f "$run/ports"
  setsid "$bin/tokura" up --listen "$1" --admin "$2" --host-bytes "${TOKURA_HOST_BYTES:-1GiB}" \
    --port-file "$run/ports" >"$run/node.out" 2>"$run/node.log" </dev/null &
  local pid=$!
  for _ in $(seq 300); do
    if [[ -s $run/ports ]]; then
      echo "$pid" >"$run/node.pid"
      return 0
    fi
    kill -0 "$pid" 2>/dev/null || return 1
    sleep 0.1
  done
  kill -KILL "$pid" 2>/dev/null || true
  return 1
}

case ${1:-} in
  "" | --build-only) ;;
  --stop)
    if stop_node; then say "The node has stopped."; else say "No node was running."; fi
    exit 0
    ;;
  -h | --help) sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) echo "usage: deploy/quickstart.sh [--build-only|--stop]" >&2; exit 2 ;;
esac

deploy/install-dependencies.sh
say "Building release into build/release (a few minutes the first time)"
cmake --preset release ${TOKURA_UCX_ROOT:+-DTOKURA_UCX_ROOT="$TOKURA_UCX_ROOT"} >build/configure-release.log ||
  { cat build/configure-release.log >&2; exit 1; }
cmake --build build/release
[[ ${1:-} == --build-only ]] && { say "Built: $(ls $bin | tr '\n' ' ')"; exit 0; }

mkdir -p "$run"
say "Demo: workers share the KV of a real model's prompts through a cache node"
"$bin/tokura" demo

stop_node || true
say "Starting a node that stays"
start_node 127.0.0.1:7421 127.0.0.1:7422 || start_node 127.0.0.1:0 127.0.0.1:0 || {
  echo "The node did not start:" >&2
  tail -n 20 "$run/node.log" >&2
  exit 1
}
data=$(sed -n 's/^data=//p' "$run/ports")
admin=$(sed -n 's/^admin=//p' "$run/ports")
node=$(sed -n 's/^node=//p' "$run/ports")
cat <<TEXT

A cache node is running (process $(<"$run/node.pid"), log $run/node.log).
  clients connect to    ${node:-$data}
  metrics               http://$admin/metrics
  health, readiness     http://$admin/healthz  http://$admin/readyz
  version               http://$admin/version

Try:   $bin/tokura put  --node ${node:-$data} --kv tests/data/kv/prefix.kvcap --block-tokens 16
       $bin/tokura stat --node ${node:-$data}
Stop:  deploy/quickstart.sh --stop
TEXT
