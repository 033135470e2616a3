#!/bin/bash
# Builds the libFuzzer targets (clang, ASan, UBSan) and runs each for a while. Findings are left in
# build/fuzz/findings and make it fail.
set -euo pipefail

all=(wire text admit files image onnx callers local bulk service inference http)
if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  cat <<END
Usage: tests/fuzz/run.sh [SECONDS [TARGET...]]

Builds the preset fuzz and runs each TARGET for SECONDS (default 60). Inputs that make a target fail are written to
build/fuzz/findings.
Targets (default: all): ${all[*]}
END
  exit 0
fi
seconds=${1:-60}
targets=("${@:2}")
[ ${#targets[@]} -gt 0 ] || targets=("${all[@]}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cmake --preset fuzz
cmake --build build/fuzz --target "${targets[@]/%/_fuzz}"
mkdir -p build/fuzz/findings
status=0
for name in "${targets[@]}"; do
  mkdir -p "build/fuzz/corpus/$name"
  log=build/fuzz/$name.log
  if "build/fuzz/tests/fuzz/${name}_fuzz" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 \
    -max_len=16384 -artifact_prefix="build/fuzz/findings/$name-" "build/fuzz/corpus/$name" \
    "tests/fuzz/corpus/$name" >"$log" 2>&1; then
    result=ok
  else
    result=FINDING
    status=1
    tail -n 30 "$log"
  fi
  runs=$(grep -oE '^#[0-9]+' "$log" | tail -n 1 | tr -d '#')
  edges=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1)
  echo "fuzz $name: ${runs:-0} executions in $seconds s, $edges: $result"
  grep '^inputs:' "$log" | sed 's/^/  /' || true
done
exit $status
