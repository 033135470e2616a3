#!/bin/bash
# Process replay: compare.sh OLD NEW [--lists] runs two builds of program_digests and prints the
# programs that differ, by graph, target and kernel. A change that is said to keep behaviour prints
# none. --lists adds lists of moves next to the chosen ones, and takes minutes.
#
#   tests/replay/compare.sh /tmp/program_digests.before build/release/tests/replay/program_digests
set -euo pipefail
usage() {
  echo "Usage: tests/replay/compare.sh OLD NEW [--lists]"
  echo "Runs two builds of program_digests and prints the programs that differ; exits 1 where any does."
}
case "${1:-}" in --help | -h) usage; exit 0 ;; esac
[ $# = 2 ] || [ "${3:-}" = --lists ] || { usage >&2; exit 2; }
old=$(realpath "$1") new=$(realpath "$2")
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$old" "${@:3}" >"$work/old"
"$new" "${@:3}" >"$work/new"
if diff "$work/old" "$work/new" >"$work/difference"; then
  echo "all $(wc -l <"$work/new") programs are the same"
else
  cat "$work/difference"
  echo "$(grep -c '^>' "$work/difference") of $(wc -l <"$work/new") programs differ" >&2
  exit 1
fi
