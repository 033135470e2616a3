#!/bin/bash
# gpu_suite.sh over the fake driver, from a folder that is laid out as the bundle is, and without a GPU.
# Usage: suite_test.sh FAKE_LIBRARY PROGRAM...
set -uo pipefail
library=$1
shift
suite=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/gpu_suite.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
ln -s "$(dirname "$suite")/../programs" "$work/programs"
for program in "$@"; do ln -s "$program" "$work/bin/"; done
cp "$suite" "$work/"
fail() { echo "suite_test: $*"; cat "$work/out" "$work"/log/*.log 2>/dev/null | tail -60; exit 1; }

env -i PATH=/usr/bin:/bin TELEGRAD_CUDA_LIBRARY="$library" TELEGRAD_GPU_GRAPHS=5 "$work/gpu_suite.sh" \
  >"$work/out" 2>/dev/null || fail "exit $?"
cat "$work/out"
for line in '^what  *result' '^nv_probe ' '^device conformance ' '^graphs against the CPU  *passed' \
  '^kernels against the reference  *passed *25 tests' \
  '^daemon offers the GPU  *passed .*CUDA:0' '^elementwise add, f32  *measured ' \
  '^matmul bf16 64 .*cuBLAS: not measured' '^launch in a replay .*bare CUDA graph'; do
  grep -q "$line" "$work/out" || fail "no line like $line"
done

env -i PATH=/usr/bin:/bin TELEGRAD_CUDA_LIBRARY=/nowhere/libcuda.so.1 "$work/gpu_suite.sh" >"$work/out" ||
  fail "without a GPU: exit $?"
grep -q '^gpu_suite: no GPU on this machine' "$work/out" || fail "without a GPU it does not say so"
env -i PATH=/usr/bin:/bin "$work/gpu_suite.sh" --nonsense >"$work/out" 2>&1
[ $? = 2 ] || fail "a wrong argument is taken"
