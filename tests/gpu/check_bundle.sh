#!/bin/bash
# The programs of a bundle need nothing but glibc, of no later version than 2.36, and start with an empty
# environment.
set -euo pipefail
[ $# = 1 ] && [ -d "$1/bin" ] || { echo "Usage: check_bundle.sh FOLDER" >&2; exit 2; }
failed=0
for program in "$1"/bin/*; do
  name=${program##*/}
  others=$(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    grep -vxE 'libc\.so\.6|libm\.so\.6|ld-linux-x86-64\.so\.2' || true)
  [ -z "$others" ] || { echo "$name needs $others"; failed=1; }
  if readelf -d "$program" | grep -E 'RPATH|RUNPATH' >/dev/null; then echo "$name has a run path"; failed=1; fi
  newest=$(objdump -T "$program" | grep -oE 'GLIBC_[0-9.]+' | sort -Vu | tail -1)
  [ "$(printf '%s\nGLIBC_2.36\n' "$newest" | sort -V | tail -1)" = GLIBC_2.36 ] ||
    { echo "$name needs $newest"; failed=1; }
  case $name in
    telegrad-compile-worker) ;;  # speaks with the daemon only
    *_test) flag=--gtest_list_tests ;&
    *) env -i "$program" "${flag:---help}" >/dev/null || { echo "$name does not start"; failed=1; } ;;
  esac
  unset flag
done
[ "$failed" = 0 ] && echo "$(find "$1/bin" -type f | wc -l) programs need nothing but glibc"
exit "$failed"
