#!/bin/bash
# Builds what the benchmarks need and measures. Prints one Markdown table, a row for each benchmark, and exits
# non-zero where a goal is not met. Where it may, it raises the priority of everything that it measures, so
# that other work on the machine disturbs less.
set -euo pipefail

usage() {
  cat <<END
Usage: tests/bench/run.sh [--turns N] [--no-build] [--list] [NAME...]

Builds the release preset and measures the benchmarks with these names (default: all) and their peers.
  --turns N   number of pairs of turns, of Telegrad and of its peer, for each benchmark (default: its own)
  --no-build  measure what was built before
  --list      print the names of all benchmarks and measure nothing
Exits 1 where a goal is not met.
END
}

build=true
arguments=()
while [ $# -gt 0 ]; do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --no-build) build=false ;;
    --list) build=false; arguments+=("$1") ;;
    *) arguments+=("$1") ;;
  esac
  shift
done

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if $build; then
  {
    deploy/dependencies.sh
    cmake --preset release
    ninja -C build/release telegradd telegrad telegrad_bench operations_bench serving_bench frontend_bench onnx_bench simplify_bench nets_bench rewrite_bench replay_bench start_bench isolation_bench front_bench delay_proxy echo_server echo_client matmul_loops
  } >&2
fi

# Priority belongs to the scheduler's group of a session: plain nice has no effect between sessions. The
# new session no longer hears the terminal's Ctrl-C, so it is passed on.
setsid -w bash -c '{ echo -20 >/proc/self/autogroup; } 2>/dev/null || true; exec "$@"' _ \
  python3 -B tests/bench/bench.py "${arguments[@]}" &
pid=$!
trap 'kill -TERM "$pid" 2>/dev/null' INT TERM HUP
status=0
wait "$pid" || status=$?
exit "$status"
