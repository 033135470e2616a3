#!/bin/bash
# Builds everything and runs every test through CTest. Sanitizers, fuzzing,
# soak and chaos at full size run only with --full.
set -uo pipefail

usage() {
  cat <<END
Usage: tests/run.sh [--full [--fuzz SECONDS] [--soak SECONDS]] [-j JOBS] [--help]

Installs missing packages, builds the release preset, runs its tests and makes Debian packages in build/packages.
  --full   also run the packages and the quickstart in a fresh Debian (as root, with debootstrap),
           20,000 random lists of moves, soak, races on OpenCL, all captured graphs and ONNX cases on fake HIP and CUDA,
           OpenCL and fake raw NVIDIA devices, networks on fake HIP and CUDA, the GPU bundle, an earlier commit's daemon beside
           this one's, chaos at full size, the tsan and asan (with UBSan) presets and fuzzing, which takes hours on two
           cores
  --fuzz SECONDS  time for which --full runs each fuzz target (default 60)
  --soak SECONDS  time for which --full runs the soak test (default 300)
  --everything SECONDS  time for which --full runs the soak of everything together (default 300)
  -j JOBS         number of tests that run at a time (default 2)
Exits 0 only if everything was built and every test passed.
END
}

full=false
jobs=2
fuzz_seconds=60
soak_seconds=300
everything_seconds=300
while [ $# -gt 0 ]; do
  case "$1" in
    --full) full=true ;;
    --fuzz) fuzz_seconds=${2:-}; shift ;;
    --soak) soak_seconds=${2:-}; shift ;;
    --everything) everything_seconds=${2:-}; shift ;;
    -j) jobs=${2:-}; shift ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done
for number in "$jobs" "$fuzz_seconds" "$soak_seconds" "$everything_seconds"; do
  [[ $number =~ ^[1-9][0-9]*$ ]] || { usage >&2; exit 2; }
done

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# step NAME COMMAND... runs a command, says how it went, and keeps that line for the summary.
summary=()
failed=0
step() {
  local name=$1 start=$SECONDS result=ok status=0
  shift
  printf '\n== %s: %s\n' "$name" "$*"
  "$@" || status=$?
  case $status in
    0) ;;
    77) result=skipped ;;  # it has said why
    *) result="FAILED (exit $status)"; failed=1 ;;
  esac
  summary+=("$(printf '%-18s %-18s %5d s' "$name" "$result" $((SECONDS - start)))")
  printf '== %s, %d s since the start\n' "${summary[-1]}" "$SECONDS"
  return "$status"
}

finish() {
  printf '\n== summary\n'
  printf '%s\n' "${summary[@]}"
  exit "$failed"
}

build() {  # PRESET
  step "configure $1" cmake --preset "$1" && step "build $1" cmake --build --preset "$1"
}

# Tests that fail beside others run once more, one at a time: a test that hangs on the machine's load is told from one
# that is broken. The summary names those that only passed then, since each is a defect of the test or of what it tests.
tests() {  # PRESET CTEST_ARGUMENT...
  local preset=$1 log=build/$1/Testing/Temporary/LastTestsFailed.log
  shift
  step "test $preset" run_twice "$preset" "$@"
  if [ -s "$log.first" ]; then
    summary+=("failed at first in $preset: $(cut -d: -f2 "$log.first" | sort -u | tr '\n' ' ')")
  fi
}

# shellcheck disable=SC2317  # called by step
run_twice() {  # PRESET CTEST_ARGUMENT...
  local preset=$1 log=build/$1/Testing/Temporary/LastTestsFailed.log
  shift
  rm -f "$log" "$log.first"
  ctest --preset "$preset" -j "$jobs" "$@" && return
  [ -s "$log" ] || return 1
  cp "$log" "$log.first"
  printf '\n== failed, once more by itself: %s\n' "$(cut -d: -f2 "$log.first" | tr '\n' ' ')"
  ctest --preset "$preset" --rerun-failed -j 1 "$@"
}

step packages deploy/dependencies.sh || finish
build release && tests release --no-tests=error
# What a continuous integration keeps: build/packages.
step "debian packages" deploy/package.sh
if $full; then
  if [ "$(id -u)" -eq 0 ] && command -v debootstrap >/dev/null; then
    step "install packages" tests/install/packages.sh
    step "fresh debian" deploy/fresh.sh --only quickstart
  else
    summary+=("install packages and fresh debian: skipped, they need root and debootstrap")
  fi
  # What takes longest comes last.
  step "random moves" env TELEGRAD_CASES=20000 build/release/tests/conformance/random_moves_test
  step "race mutants" env TELEGRAD_CASES=1200 build/release/tests/conformance/race_mutants_test
  step soak tests/soak/run.sh "$soak_seconds"
  step faults tests/soak/faults.sh
  step everything tests/soak/everything.sh "$everything_seconds"
  step "opencl races" tests/opencl/races.sh build/release/tests/opencl/graphs_on_opencl_test
  step "captures on hip" env TELEGRAD_HIP_EVERY=1 build/release/tests/amdgpu/captures_on_hip_test
  step "onnx on hip" env TELEGRAD_HIP_EVERY=1 build/release/tests/amdgpu/onnx_on_hip_test
  step "graphs on cuda" env TELEGRAD_CUDA_EVERY=1 build/release/tests/nvptx/graphs_on_cuda_test
  step "unusual graphs" env TELEGRAD_CASES=15 build/release/tests/devices/unusual_graphs_test
  step "networks on cuda" env TELEGRAD_CUDA_EVERY=1 build/release/tests/nvptx/networks_on_cuda_test
  step "graphs on nv" env TELEGRAD_NV_EVERY=1 build/release/tests/nv/graphs_on_nv_test
  step "graphs on opencl" env TELEGRAD_OPENCL_EVERY=1 build/release/tests/opencl/graphs_on_opencl_test
  step "refusing drivers" env TELEGRAD_REFUSING_EVERY=1 build/release/tests/devices/refusing_test
  step "networks on hip" env TELEGRAD_HIP_EVERY=1 build/release/tests/amdgpu/networks_on_hip_test
  step "gpu bundle" tests/gpu/run.sh
  step "earlier release" tests/remote/previous.sh
  step chaos tests/chaos/run.sh
  build tsan && tests tsan --no-tests=error
  build asan && tests asan --no-tests=error
  step fuzz tests/fuzz/run.sh "$fuzz_seconds"
fi
finish
