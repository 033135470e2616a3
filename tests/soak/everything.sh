#!/bin/bash
# Everything at once, for a long time: two daemons serve models over gRPC, HTTP and shared memory, and sessions, while
# clients, workers, compilers and the server behind are killed, models come and go, and the configuration is read again.
# The program is everything_test, whose short form CTest runs.
set -euo pipefail

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  cat <<END
Usage: tests/soak/everything.sh [SECONDS]

Loads two daemons for SECONDS (default 1800) with everything that clients do while parts of them are killed, and fails
where an answer is wrong, an error names no cause that is allowed, or memory, descriptors, threads or anything that is
charged to a tenant is left. TELEGRAD_BUILD names the build (default build/release), TELEGRAD_SOAK_SEED a seed.
END
  exit 0
fi
seconds=${1:-1800}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "everything.sh: SECONDS is $seconds, expected a number above 0" >&2; exit 2; }
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
TELEGRAD_SOAK_SECONDS=$seconds exec "${TELEGRAD_BUILD:-build/release}/tests/soak/everything_test"
