#!/bin/bash
# Measures the two commands of the README in a fresh Debian system, from a clean copy of the tree and without a compiler
# cache. Prints both times.
set -euo pipefail

usage() {
  cat <<END
Usage: deploy/fresh.sh [--suite bookworm|trixie]... [--only quickstart|tests] [--help]

Makes a fresh Debian with debootstrap (as root), copies the last commit into it, and runs there
  ./deploy/quickstart.sh, then ./tests/run.sh
and prints the time of each. The time of downloading packages is printed separately. Their output is kept in
build/fresh/SUITE.COMMAND.log.
  --suite NAME  Debian release (default: bookworm, which is Debian 12, and trixie, 13, where its archive answers)
  --only NAME   run only one of the two commands
END
}

die() {
  echo "fresh: error: $*" >&2
  exit 1
}

suites=() only=''
while [ $# -gt 0 ]; do
  case "$1" in
    --suite) [ $# -ge 2 ] || die "--suite needs a value"; suites+=("$2"); shift ;;
    --only) [ $# -ge 2 ] || die "--only needs a value"; only=$2; shift ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done
[[ $only =~ ^(|quickstart|tests)$ ]] || die "--only $only: expected quickstart or tests"

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=deploy/debian-root.sh
source deploy/debian-root.sh
work=$(mktemp -d)
trap drop_roots EXIT
if [ ${#suites[@]} -eq 0 ]; then
  suites=(bookworm)
  if suite_reachable trixie; then suites+=(trixie); else echo "fresh: the archive of trixie does not answer"; fi
fi

figures=()
# timed SUITE NAME COMMAND...
timed() {
  local suite=$1 name=$2 start=$SECONDS status=0
  shift 2
  in_root "$suite" "$@" >"build/fresh/$suite.$name.log" 2>&1 || status=$?
  figures+=("$(printf '%-10s %-12s %6d s  exit code %d' "$suite" "$name" $((SECONDS - start)) "$status")")
  echo "${figures[-1]}"
  if [ "$status" -ne 0 ]; then
    tail -n 40 "build/fresh/$suite.$name.log" >&2
    return 1
  fi
}

mkdir -p build/fresh
failed=0
for suite in "${suites[@]}"; do
  make_root "$suite"
  mkdir "$work/$suite/telegrad"
  git archive HEAD | tar -x -C "$work/$suite/telegrad"
  run=(sh -c 'cd /telegrad && exec "$@"' sh)
  timed "$suite" packages "${run[@]}" deploy/dependencies.sh || { failed=1; continue; }
  if [ "$only" != tests ]; then timed "$suite" quickstart "${run[@]}" deploy/quickstart.sh || failed=1; fi
  if [ "$only" != quickstart ]; then timed "$suite" tests "${run[@]}" tests/run.sh || failed=1; fi
done
printf '\n== %d cores, load %s\n' "$(nproc)" "$(cut -d' ' -f1 /proc/loadavg)"
printf '%s\n' "${figures[@]}"
exit "$failed"
