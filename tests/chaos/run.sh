#!/bin/bash
# The chaos tests at full size: a million operations over connections that are cut at random points, a million by
# way of a front while workers are killed, 100,000 sessions opened and closed, and 1,000 that are idle. Needs the
# release build; loopback only. The seed of a failure is printed; TELEGRAD_CHAOS_SEED repeats it.
set -euo pipefail

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  cat <<END
Usage: tests/chaos/run.sh [OPERATIONS [CYCLES]]

Runs the chaos tests of the release build.
  OPERATIONS  number of operations over connections that are cut (default 1000000)
  CYCLES      number of sessions that are opened and closed (default 100000)
The environment variable TELEGRAD_CHAOS_SEED repeats a failure whose seed was printed.
END
  exit 0
fi
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export TELEGRAD_CHAOS_OPERATIONS=${1:-1000000} TELEGRAD_CHAOS_CYCLES=${2:-100000}
exec build/release/tests/chaos/chaos_test
