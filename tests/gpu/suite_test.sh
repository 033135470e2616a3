#!/bin/bash
# gpu_suite.sh over the fake driver, from a folder that is laid out as the bundle is, and without a GPU;
# that it goes on where it was ended; and what compare.py says of its results.
# Usage: suite_test.sh FAKE_LIBRARY PROGRAM...
set -uo pipefail
library=$1
shift
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
ln -s "$here/../programs" "$work/programs"
for program in "$@"; do ln -s "$program" "$work/bin/"; done
cp "$here/gpu_suite.sh" "$work/"
fail() { echo "suite_test: $*"; cat "$work/out" "$work/err" "$work"/log/*.log 2>/dev/null | tail -60; exit 1; }
suite() {
  env -i PATH=/usr/bin:/bin TELEGRAD_CUDA_LIBRARY="$library" TELEGRAD_GPU_GRAPHS=5 "$work/gpu_suite.sh" "$@" \
    >"$work/out" 2>"$work/err"
}
compare() { python3 "$here/compare.py" "$@" >"$work/out" 2>&1; }

# One shard, then all of them: the first is not run again.
suite --shard probe || fail "--shard probe: exit $?"
grep -q '^nv_probe ' "$work/out" || fail "no line of the probe"
[ "$(grep -c '' "$work/log/probe.tsv")" = 1 ] || fail "the probe has not one row"
suite || fail "exit $?"
cat "$work/out"
for line in '^what  *result' '^nv_probe ' '^device conformance ' '^graphs against the CPU  *passed' \
  '^kernels against the reference  *passed *25 tests' \
  '^daemon offers the GPU  *passed .*CUDA:0' '^digits trained over gRPC  *skipped *the library is a fake one' '^elementwise add, f32  *measured ' '^layer norm of rows' \
  '^matmul bf16 64 .*PyTorch.*: not measured' '^attention bf16 32 causal  *measured' '^a token of GPT-2' \
  '^launch in a replay .*bare CUDA graph' '^sums: k_[0-9a-f]*  *measured .* 1 launches, 768 flops, 6144 bytes'; do
  grep -q "$line" "$work/out" || fail "no line like $line"
done
grep -q '^== probe: has ended before' "$work/err" || fail "the probe ran twice"

# A shard that was ended half way has no results and runs again, and so does all with --fresh.
mv "$work/log/probe.tsv" "$work/log/probe.part"
suite --tests || fail "--tests: exit $?"
grep -q '^== kernels: has ended before' "$work/err" || fail "it does not go on where it was"
grep -q '^== probe: [0-9]* s' "$work/err" || fail "what was ended half way does not run again"
suite --shard probe --fresh || fail "--fresh: exit $?"
grep -q '^== probe: [0-9]* s' "$work/err" || fail "--fresh does not run it again"

# On the fake, an interpreter, no time is what is predicted; but rows are the same, and work too.
results=$work/log/results.json
python3 - "$results" <<'END' || fail "results.json"
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
assert {row["shard"] for row in rows} == {"conformance", "kernels", "benchmarks", "profile", "probe"}, rows
add = next(row for row in rows if row["name"] == "elementwise add, f32")
assert add["result"] == "measured" and add["figure"] > 0 and add["ratio"] > 0 and add["unit"] == "GB/s", add
END
compare "$results" "$results"
[ $? = 1 ] || fail "a prediction that is far off is no finding"
grep -q '^sums: k_[0-9a-f]*: takes .* times what is predicted' "$work/out" || fail "compare.py names no kernel"
sed -e 's/768 flops/769 flops/' -e 's/"device conformance"/"nothing"/' "$results" >"$work/other.json"
compare "$results" "$work/other.json"
grep -q '768 flops, 6144 bytes and 1 launches, 769 flops' "$work/out" || fail "other work is no difference"
grep -q 'conformance: nothing: only in the second run' "$work/out" || fail "another row is no difference"
compare "$work/gpu_suite.sh"
[ $? = 2 ] || fail "compare.py takes what is no result"

rm -r "$work/log"
env -i PATH=/usr/bin:/bin TELEGRAD_CUDA_LIBRARY=/nowhere/libcuda.so.1 "$work/gpu_suite.sh" >"$work/out" ||
  fail "without a GPU: exit $?"
grep -q '^gpu_suite: no GPU on this machine' "$work/out" || fail "without a GPU it does not say so"
suite --nonsense
[ $? = 2 ] || fail "a wrong argument is taken"
suite --shard nonsense
[ $? = 2 ] || fail "a wrong shard is taken"
