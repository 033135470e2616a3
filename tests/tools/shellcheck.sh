#!/bin/bash
# Checks that shellcheck finds nothing in any script of the tree, and that no pipe ends in grep -q. Exits with 77 where
# it is not installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
command -v shellcheck >/dev/null || { echo "shellcheck is not installed"; exit 77; }
mapfile -d '' scripts < <(find . \( -path ./build -o -name '.?*' \) -prune -o -name '*.sh' -print0)
scripts+=(deploy/debian/*)
[ ${#scripts[@]} -gt 10 ] || { echo "found only ${#scripts[@]} scripts" >&2; exit 1; }
shellcheck -x "${scripts[@]}"
# grep -q exits at the first match. SIGPIPE may then end the program that writes to it, and with pipefail the whole pipe
# counts as failed.
if grep -nE '[|] *grep (-[a-zA-Z]+ )*-[a-zA-Z]*q' "${scripts[@]}" /dev/null; then
  echo "these pipes may fail although grep finds something: use grep ... >/dev/null" >&2
  exit 1
fi
echo "${#scripts[@]} scripts"
