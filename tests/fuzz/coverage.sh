#!/bin/bash
# Line coverage of the floors behind admission by inputs of the admit target, as clang counts it in
# the preset `fuzz`. Fails below the goal.
set -euo pipefail

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  cat <<END
Usage: tests/fuzz/coverage.sh [CORPUS...]

Prints which share of the lines of engine/schedule and engine/lowering the inputs in the folders CORPUS reach
(default: tests/fuzz/corpus/admit), and fails where it is below the goal.
END
  exit 0
fi
goal=80  # percent of the lines of each folder
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
inputs=("$@")
[ ${#inputs[@]} -gt 0 ] || inputs=(tests/fuzz/corpus/admit)
cmake --preset fuzz >/dev/null
cmake --build build/fuzz --target admit_fuzz
program=build/fuzz/tests/fuzz/admit_fuzz
profile=build/fuzz/admit.profdata
LLVM_PROFILE_FILE=build/fuzz/admit.profraw "$program" -runs=0 -max_len=16384 "${inputs[@]}" \
  2>&1 | grep -E '^inputs|cov:' | tail -n 4
llvm-profdata-19 merge -sparse build/fuzz/admit.profraw -o "$profile"
status=0
for folder in engine/schedule engine/lowering; do
  sources=()
  for file in "$folder"/*.cc; do
    [[ $file == *_test.cc ]] || sources+=("$file")
  done
  llvm-cov-19 report "$program" -instr-profile="$profile" "${sources[@]}"
  percent=$(llvm-cov-19 export -summary-only "$program" -instr-profile="$profile" "${sources[@]}" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["data"][0]["totals"]["lines"]["percent"])')
  printf '%s: %.1f%% of the lines, goal %d%%\n' "$folder" "$percent" "$goal"
  if awk "BEGIN { exit !($percent < $goal) }"; then status=1; fi
done
exit $status
