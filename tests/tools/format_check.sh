#!/bin/bash
# Every C++ source is formatted as .clang-format says. Fixing: clang-format-19 -i FILE...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mapfile -d '' files < <(find . \( -path ./build -o -name '.?*' \) -prune -o \( -name '*.h' -o -name '*.cc' \) -print0)
[ ${#files[@]} -gt 0 ] || { echo "found no sources" >&2; exit 1; }
clang-format-19 --dry-run -Werror --ferror-limit=1 "${files[@]}"
echo "${#files[@]} files are formatted"
