#!/bin/bash
# Runs captured graphs on Oclgrind, an OpenCL device that interprets kernels and looks for data races, accesses outside
# of buffers and reads of what was never written. Prints what it found and exits 1 if that is anything.
set -euo pipefail

usage() {
  cat <<END
Usage: tests/opencl/races.sh [--every N] TEST_PROGRAM

TEST_PROGRAM is graphs_on_opencl_test of a build, for instance build/release/tests/opencl/graphs_on_opencl_test.
  --every N  run each N-th of the captured graphs (default 1)
Exits 77 where Oclgrind is not installed.
END
}

every=1
case "${1:-}" in
  --every) every=${2:-}; shift 2 ;;
  --help | -h) usage; exit 0 ;;
esac
[[ $# -eq 1 && $every =~ ^[1-9][0-9]*$ ]] || { usage >&2; exit 2; }
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
library=/usr/lib/oclgrind/liboclgrind-rt.so
if [ ! -e "$library" ]; then
  echo "races: Oclgrind is not installed (apt-get install oclgrind)" >&2
  exit 77
fi

# Oclgrind reads programs into one context of LLVM, which crashes where two threads do so at once. On one processor the
# kernels of a graph are compiled and loaded by one thread.
processors=$(taskset -cp $$)
processors=${processors##*: }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
TELEGRAD_OPENCL=$library TELEGRAD_OPENCL_INEXACT=1 TELEGRAD_OPENCL_EVERY=$every \
  OCLGRIND_BUILD_OPTIONS=-cl-opt-disable OCLGRIND_DATA_RACES=1 OCLGRIND_LOG=$log OCLGRIND_MAX_ERRORS=100 \
  taskset -c "${processors%%[,-]*}" "$1" --gtest_filter='CapturesOnOpenCl.*'
if [ -s "$log" ]; then
  cat "$log"
  echo "races: Oclgrind found something" >&2
  exit 1
fi
echo "races: none found"
