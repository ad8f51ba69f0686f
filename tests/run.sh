#!/usr/bin/env bash
# Installs, builds and runs the tests, and ends with the number passed and failed.
#   tests/run.sh         the dev build and every test: under ten minutes on two cores
#   tests/run.sh --all   and the release build, ASan+UBSan, TSan on net, node and client, ten thousand simulated clusters, a
#                        minute of each fuzz target: under forty minutes
# Safe to run twice. Results below build/PRESET/results.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=0
case ${1:-} in
  "") ;;
  --all) all=1 ;;
  -h | --help) sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) echo "usage: tests/run.sh [--all]" >&2; exit 2 ;;
esac

say() { printf '\033[1m==> [%4ds] %s\033[0m\n' "$SECONDS" "$*"; }
fail() { echo "$*" >&2; echo "0 passed, 1 failed"; exit 1; }
results=()

build() {  # build PRESET [TARGET…]
  local preset=$1; shift
  say "Building $preset"
  cmake --preset "$preset" >"build/configure-$preset.log" 2>&1 || { cat "build/configure-$preset.log" >&2; fail "configuring $preset failed"; }
  cmake --build "build/$preset" ${1:+--target "$@"} >"build/build-$preset.log" 2>&1 || { grep -E 'error|FAILED' -A5 "build/build-$preset.log" | head -n 60 >&2; fail "building $preset failed"; }
}

# Integration tests wait most of the time, so builds of what comes next run beside tests, in the scheduler's idle class:
# they get what the tests leave of the processors, and no more.
beside=
build_beside() {  # build_beside BUILD [ARGUMENT…]; await_builds: until it is done
  set -m  # a process group of its own, to end all of it
  ( chrt --idle --pid 0 "$BASHPID" || renice -n 19 "$BASHPID" >/dev/null; "$@" ) &
  beside=$!
  set +m
}
await_builds() {
  wait "$beside" || { beside=; fail "a build beside the tests failed"; }
  beside=
}
trap '[[ -z $beside ]] || kill -- "-$beside"' EXIT

run_ctest() {  # run_ctest PRESET [CTEST ARGUMENTS…]
  local preset=$1; shift
  local out=$PWD/build/$preset/results
  rm -rf "$out"; mkdir -p "$out"
  say "Testing $preset"
  GTEST_OUTPUT="json:$out/" ctest --test-dir "build/$preset" --parallel 2 --output-on-failure --no-tests=error --output-junit "$out/ctest.xml" "$@" ||
    say "Some tests of $preset failed"
  results+=("$out")
}

run_fuzz() {
  say "Fuzzing every target for ${TOKURA_FUZZ_SECONDS:-60} s"
  local out=$PWD/build/fuzz/results
  rm -rf "$out"; mkdir -p "$out"
  find build/fuzz/fuzz -maxdepth 1 -type f -executable | sort |
    xargs -P 2 -I{} tests/tools/fuzz_one.sh {} "${TOKURA_FUZZ_SECONDS:-60}" "$out"
  results+=("$out")
}

run_simulation() {
  say "Simulating ten thousand clusters"
  local out=$PWD/build/dev/results-sim
  rm -rf "$out"; mkdir -p "$out"
  if build/dev/bin/tokura-sim --seed 100000 --seeds 10000 --jobs 2 >"$out/log" 2>&1; then
    echo pass >"$out/tokura-sim.result"
  else
    grep -E '^(seed|reproduce)' "$out/log"; tail -n 30 "$out/log"; echo fail >"$out/tokura-sim.result"
  fi
  results+=("$out")
}

build_last() {
  build release  # what users build: GCC warns of other things at -O3
  build tsan unit_common unit_net unit_node unit_client integration_node
  build fuzz fuzz_targets
}

mkdir -p build
deploy/install-dependencies.sh --tests || fail "installing failed"
build dev
((all)) && build_beside build asan
run_ctest dev
if ((all)); then
  run_simulation
  await_builds
  build_beside build_last
  run_ctest asan -LE 'tidy|python'
  await_builds
  run_ctest tsan -L tsan
  run_fuzz
fi
say "Done"
exec python3 tests/tools/count.py "${results[@]}"
