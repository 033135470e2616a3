#!/bin/bash
# Line coverage of the floors behind admission by the corpus of the admit target and mutants of it,
# with clang's source-based coverage. Fails below the goal.
set -euo pipefail

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  echo "Usage: tests/fuzz/coverage.sh [MUTANTS]   (default 0: the corpus alone)"
  exit 0
fi
mutants=${1:-0}
goal=80  # percent of the lines of each folder
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=build/coverage
flags="-fprofile-instr-generate -fcoverage-mapping"
cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_COMPILER=clang-19 \
  -DCMAKE_CXX_COMPILER=clang++-19 -DTELEGRAD_SERVER=OFF -DCMAKE_CXX_FLAGS="$flags" >/dev/null
cmake --build $build --target admit_fuzz
LLVM_PROFILE_FILE=$build/admit.profraw $build/tests/fuzz/admit_fuzz tests/fuzz/corpus/admit "$mutants"
llvm-profdata-19 merge -sparse $build/admit.profraw -o $build/admit.profdata
status=0
for folder in engine/schedule engine/lowering; do
  llvm-cov-19 report $build/tests/fuzz/admit_fuzz -instr-profile=$build/admit.profdata $folder/*.cc
  percent=$(llvm-cov-19 export -summary-only $build/tests/fuzz/admit_fuzz \
    -instr-profile=$build/admit.profdata $folder/*.cc |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["data"][0]["totals"]["lines"]["percent"])')
  printf '%s: %.1f%% of the lines, goal %d%%\n' "$folder" "$percent" "$goal"
  awk "BEGIN { exit !($percent < $goal) }" && status=1
done
exit $status
