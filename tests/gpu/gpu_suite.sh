#!/bin/bash
# Runs the GPU tests and benchmarks that lie beside this script, and prints one table. Needs bash, glibc
# 2.36 or later and, to have something to run on, an NVIDIA GPU with its driver; no network.
set -uo pipefail

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  cat <<END
Usage: gpu_suite.sh [--tests | --bench]
Runs the GPU tests and benchmarks and prints a table: the name of each, its result, and for a benchmark its
figure, ratio and goal. Their output is in the folder log beside this script. A machine without an NVIDIA GPU
is reported as such.
  --tests  run the tests only
  --bench  run the benchmarks only
TELEGRAD_CUDA_LIBRARY is the driver library to use (default libcuda.so.1).
Exits 0 if nothing failed and no goal was missed, or there is no GPU; 1 otherwise; 2 for wrong usage.
END
  exit 0
fi
case "${1:-}" in
  "") what="tests bench" ;;
  --tests | --bench) what=${1#--} ;;
  *) echo "gpu_suite.sh: unknown argument $1" >&2; exit 2 ;;
esac

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
log=$here/log
mkdir -p "$log" || exit 1
# Paths of the sources, for what reads data of theirs, do not exist here; nothing below needs them.
cd "$log" || exit 1
library=${TELEGRAD_CUDA_LIBRARY:-libcuda.so.1}
smoke=()
[ "$library" = libcuda.so.1 ] || smoke=(--smoke)  # another library is a fake one, an interpreter

rows=()
failed=0
row() { rows+=("$(printf '%-34s %-8s %s' "$1" "$2" "${3:-}")"); }

# gtest NAME PROGRAM [FILTER]: the counts that GoogleTest prints; the first reason where all is skipped.
gtest() {
  local name=$1 program=$2 out=$log/${1// /_}.log status=0 passed skipped
  echo "== $name" >&2
  timeout 900 "$here/bin/$program" ${3:+--gtest_filter="$3"} >"$out" 2>&1 || status=$?
  passed=$(grep -c '^\[       OK \]' "$out")
  skipped=$(grep -c '^\[  SKIPPED \] .* (' "$out")
  if [ "$status" -ne 0 ]; then
    failed=1
    row "$name" FAILED "exit $status, $passed passed; see log/$(basename "$out")"
  elif [ "$passed" -eq 0 ]; then
    row "$name" skipped "$(grep -A1 -m1 'Skipped$' "$out" | tail -1)"
  else
    row "$name" passed "$passed tests, $skipped skipped"
  fi
}

run_tests() {
  local status=0
  echo "== bring-up without libcuda" >&2
  timeout 300 "$here/bin/nv_probe" >"$log/nv_probe.log" 2>&1 || status=$?
  case $status in
    0) if grep -q '^no NVIDIA' "$log/nv_probe.log"; then
         row nv_probe skipped "$(tail -1 "$log/nv_probe.log")"
       else
         row nv_probe passed "$(grep -c '\] ok ' "$log/nv_probe.log") steps"
       fi ;;
    3) row nv_probe skipped "$(grep -m1 -o 'driver [0-9].*refused' "$log/nv_probe.log")" ;;
    # A finding about raw access, which nothing else here needs: shown, and no failure of the suite.
    *) row nv_probe finding "$(grep -m1 'FAILED' "$log/nv_probe.log" || echo "exit $status")" ;;
  esac
  gtest "device conformance" gpu_test '*/cuda'
  TELEGRAD_CUDA=$library TELEGRAD_PROGRAMS=$here/programs \
    gtest "kernels against the reference" gpu_test '*OnCuda.*'
  gtest "graphs against the CPU" gpu_test 'GpuGraphs.*'
  daemon
}

# A daemon with the GPU, asked over the wire what it has.
daemon() {
  echo "== daemon" >&2
  local out=$log/daemon.log pid address
  mkfifo "$log/address.$$" || return
  "$here/bin/telegradd" --listen 127.0.0.1:0 --cuda-library "$library" >"$log/address.$$" 2>"$out" &
  pid=$!
  read -r -t 60 _ _ address <"$log/address.$$"
  rm -f "$log/address.$$"
  if TELEGRAD_ADDRESS=${address:-none} timeout 60 "$here/bin/telegrad" devices >"$log/devices.log" 2>&1 &&
    grep -q CUDA:0 "$log/devices.log"; then
    row "daemon offers the GPU" passed "$(grep -m1 CUDA:0 "$log/devices.log")"
  else
    failed=1
    row "daemon offers the GPU" FAILED "see log/devices.log and log/daemon.log"
  fi
  kill -TERM "$pid" 2>/dev/null
  wait "$pid" 2>/dev/null
}

# The goal of a benchmark, as a ratio; none for most.
goal() {
  case "$1" in
    "elementwise add, f32" | "sums of rows, f32") echo 0.8 ;;
    "matmul bf16 8192") echo 0.3 ;;
  esac
}

run_bench() {
  echo "== benchmarks" >&2
  local status=0 peer="" peer_says="not measured: no python3"
  timeout 1200 "$here/bin/gpu_bench" --cuda-library "$library" ${smoke[@]+"${smoke[@]}"} \
    >"$log/gpu_bench.log" 2>"$log/gpu_bench.err" || status=$?
  if [ "$status" -ne 0 ]; then
    failed=1
    row benchmarks FAILED "exit $status: $(tail -1 "$log/gpu_bench.err")"
  fi
  if [ ${#smoke[@]} -gt 0 ]; then
    peer_says="not measured: the library is a fake one"
  elif command -v python3 >/dev/null; then
    timeout 300 python3 "$here/torch_matmul.py" >"$log/torch.log" 2>&1
    peer_says=$(grep -m1 '^not measured' "$log/torch.log" || tail -1 "$log/torch.log")
  fi
  local name figure unit ratio of wanted result
  while IFS=$'\t' read -r name figure unit ratio of; do
    [ -n "$unit" ] || continue
    if [[ $name == matmul* ]]; then
      peer=$(awk -F'\t' -v name="$name" '$1 == name {print $2}' "$log/torch.log" 2>/dev/null)
      if [ -n "$peer" ]; then
        ratio=$(awk -v a="$figure" -v b="$peer" 'BEGIN {printf "%.3f", a / b}')
        of="cuBLAS through PyTorch ($peer)"
      else
        of="cuBLAS: $peer_says"
      fi
    fi
    wanted=$(goal "$name") result=measured
    if [ -n "$wanted" ] && [ "$ratio" != - ] && [ ${#smoke[@]} -eq 0 ]; then
      result=reached
      awk -v a="$ratio" -v b="$wanted" 'BEGIN {exit !(a < b)}' && { result=MISSED; failed=1; }
      of="$of, goal $wanted"
    fi
    row "$name" "$result" "$(printf '%8s %-8s %6s %s' "$figure" "$unit" "$ratio" "${of:+x $of}")"
  done <"$log/gpu_bench.log"
}

# Is there a GPU at all? The benchmark's own opening says, and why not.
opened=$("$here/bin/gpu_bench" --cuda-library "$library" --smoke 2>&1 | grep -m1 'nothing to measure')
if [ -n "$opened" ]; then
  echo "gpu_suite: no GPU on this machine, nothing was run (${opened#*nothing to measure: })"
  exit 0
fi
[[ $what == *tests* ]] && run_tests
[[ $what == *bench* ]] && run_bench

printf '\n%-34s %-8s %s\n' what result detail
printf '%s\n' "${rows[@]}"
exit "$failed"
