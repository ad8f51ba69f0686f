#!/usr/bin/env bash
# From a clone to a running cache in one command:
#   deploy/quickstart.sh               install what is missing, build, run the demo, leave a cluster running
#   deploy/quickstart.sh --build-only  install and build only
#   deploy/quickstart.sh --stop        stop the cluster that an earlier run left
# The cluster: a coordinator and two nodes of TOKURA_HOST_BYTES (512MiB) each, on loopback.
# Safe to run twice. Programs land in build/release/bin.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

run=build/run
bin=build/release/bin
servers="node-1 node-0 coordinator"  # in the order of stopping: nodes tell the coordinator that they leave
say() { printf '\033[1m==> %s\033[0m\n' "$*"; }

stop_server() {  # stop_server NAME: returns 0 when it was running
  local pid_file=$run/$1.pid pid
  [[ -f $pid_file ]] || return 1
  pid=$(<"$pid_file")
  # The number may belong to another program by now.
  if [[ -d /proc/$$ ]] && ! grep -qs '^tokura' "/proc/$pid/comm"; then
    rm -f "$pid_file"
    return 1
  fi
  kill -TERM "$pid" 2>/dev/null
  for _ in $(seq 100); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$pid" 2>/dev/null
  rm -f "$pid_file"
  return 0
}

stop_cluster() {  # returns 0 when something was running
  local name stopped=1
  for name in $servers; do
    if stop_server "$name"; then stopped=0; fi
  done
  return $stopped
}

start_server() {  # start_server NAME PROGRAM FLAGS…: waits until it serves
  local name=$1 program=$2
  shift 2
  rm -f "$run/$name.ports"
  setsid "$bin/$program" --name "$name" --port-file "$run/$name.ports" "$@" \
    >"$run/$name.out" 2>"$run/$name.log" </dev/null &
  local pid=$!
  for _ in $(seq 300); do
    if [[ -s $run/$name.ports ]]; then
      echo "$pid" >"$run/$name.pid"
      return 0
    fi
    kill -0 "$pid" 2>/dev/null || return 1
    sleep 0.1
  done
  kill -KILL "$pid" 2>/dev/null || true
  return 1
}

port() { sed -n "s/^$2=//p" "$run/$1.ports"; }  # port SERVER data|admin

start_cluster() {
  # The usual ports where they are free, else any.
  start_server coordinator tokura-coordinator --listen 127.0.0.1:7420 --admin 127.0.0.1:7430 --join-ramp 0s ||
    start_server coordinator tokura-coordinator --listen 127.0.0.1:0 --admin 127.0.0.1:0 --join-ramp 0s || return 1
  local i
  for i in 0 1; do
    set -- --coordinator "$(port coordinator data)" --host-bytes "${TOKURA_HOST_BYTES:-512MiB}"
    start_server "node-$i" tokura-node --listen "127.0.0.1:742$((i + 1))" --admin "127.0.0.1:743$((i + 1))" "$@" ||
      start_server "node-$i" tokura-node --listen 127.0.0.1:0 --admin 127.0.0.1:0 "$@" || return 1
  done
}

case ${1:-} in
  "" | --build-only) ;;
  --stop)
    if stop_cluster; then say "The cluster has stopped."; else say "No cluster was running."; fi
    exit 0
    ;;
  -h | --help) sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) echo "usage: deploy/quickstart.sh [--build-only|--stop]" >&2; exit 2 ;;
esac

deploy/install-dependencies.sh
say "Building release into build/release (a few minutes the first time)"
cmake --preset release ${TOKURA_UCX_ROOT:+-DTOKURA_UCX_ROOT="$TOKURA_UCX_ROOT"} >build/configure-release.log ||
  { cat build/configure-release.log >&2; exit 1; }
cmake --build build/release
[[ ${1:-} == --build-only ]] && { say "Built: $(ls $bin | tr '\n' ' ')"; exit 0; }

mkdir -p "$run"
say "Demo: workers share the KV of a real model's prompts through cache nodes that come and go"
"$bin/tokura" demo

stop_cluster || true
say "Starting a cluster that stays: a coordinator and two nodes"
start_cluster || {
  echo "A server did not start:" >&2
  tail -n 20 "$run"/*.log >&2
  stop_cluster || true
  exit 1
}
data=$(port coordinator data)
cat <<TEXT

A coordinator and two cache nodes are running (logs in $run).
  clients connect to    $data
  metrics               http://$(port coordinator admin)/metrics (coordinator)
                        http://$(port node-0 admin)/metrics  http://$(port node-1 admin)/metrics (nodes)
  health, readiness     /healthz and /readyz, version: /version, on the same ports

Try:   $bin/tokura nodes --coordinator $data
       $bin/tokura put   --coordinator $data --kv tests/data/kv/prefix.kvcap --block-tokens 16
       $bin/tokura stat  --coordinator $data
Stop:  deploy/quickstart.sh --stop
TEXT
