#!/bin/bash
# Builds the daemon of an earlier commit beside this tree, and runs the tests in which it is the
# front of this one's daemon, and the server behind it.
set -euo pipefail

usage() {
  cat <<END
Usage: tests/remote/previous.sh [--commit COMMIT] [--build FOLDER] [--help]

  --commit COMMIT  the earlier one (default: that of tests/remote/previous_release)
  --build FOLDER   of the programs of this tree (default build/release)
The sources and programs of the earlier commit are kept in build/previous. Exits 77 where this
repository does not have the commit, as a shallow clone does not.
END
}

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
commit=$(grep -v '^#' tests/remote/previous_release)
build=build/release
while [ $# -gt 0 ]; do
  case "$1" in
    --commit) commit=${2:-}; shift ;;
    --build) build=${2:-}; shift ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

if ! commit=$(git rev-parse --verify --quiet "$commit^{commit}"); then
  echo "previous.sh: this repository does not have the commit of tests/remote/previous_release"
  exit 77
fi
if [ ! -x "$build/tests/remote/remote_test" ]; then
  echo "previous.sh: $build/tests/remote/remote_test is not there; build it, or name its folder by --build" >&2
  exit 2
fi

home=build/previous
if [ "$(cat $home/commit 2>/dev/null)" != "$commit" ]; then
  rm -rf $home
  mkdir -p $home/source
  git archive "$commit" | tar -x -C $home/source
  (cd $home/source && cmake --preset release && cmake --build --preset release --target telegradd \
    telegrad-compile-worker telegrad-device-worker)
  echo "$commit" >$home/commit
fi
daemon=$PWD/$home/source/build/release/server/telegradd
echo "previous.sh: this tree's daemon with $("$daemon" --version), commit $commit"
TELEGRADD_PREVIOUS=$daemon "$build/tests/remote/remote_test" --gtest_filter='PreviousRelease.*'
