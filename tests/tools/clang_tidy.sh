#!/bin/bash
# Checks that clang-tidy, with the checks of .clang-tidy, finds nothing in the named sources, or in those that
# differ from main. Needs clang-tidy-19 and minutes, so it is not among the tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [ "${1:-}" = --help ]; then
  echo "Usage: tests/tools/clang_tidy.sh [FILE.cc]..."
  echo "Runs clang-tidy-19 on these sources (default: those that differ from the branch main)."
  exit 0
fi
files=("$@")
if [ ${#files[@]} -eq 0 ]; then
  mapfile -t files < <(git diff --name-only --diff-filter=d main...HEAD -- '*.cc')
fi
[ ${#files[@]} -gt 0 ] || { echo "nothing to check"; exit 0; }
# A unity build has no command for a single source, and GCC's options are not Clang's.
cmake --preset dev -B build/tidy -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_C_COMPILER=clang-19 >/dev/null
ninja -C build/tidy telegrad_proto >/dev/null
clang-tidy-19 -p build/tidy --quiet "${files[@]}"
echo "${#files[@]} sources"
