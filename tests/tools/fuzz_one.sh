#!/usr/bin/env bash
# fuzz_one.sh PROGRAM SECONDS RESULTS: runs one fuzz target on a copy of its seeds and writes RESULTS/NAME.result.
set -u
program=$1 seconds=$2 results=$3
name=$(basename "$program")
corpus=$(mktemp -d)
trap 'rm -rf "$corpus"' EXIT
seeds=$(dirname "${BASH_SOURCE[0]}")/../fuzz/corpus/${name#fuzz_}
[[ -d $seeds ]] && cp -r "$seeds/." "$corpus/"
[[ $name == fuzz_part_header ]] && cp "$(dirname "${BASH_SOURCE[0]}")"/../golden/kernels/*.part "$corpus/"
if "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$results/$name-" "$corpus" >"$results/$name.log" 2>&1; then
  echo pass >"$results/$name.result"
  echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$results/$name.log") runs, no finding"
else
  echo fail >"$results/$name.result"
  echo "$name FAILED:"
  tail -n 25 "$results/$name.log"
fi
