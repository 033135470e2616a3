#!/usr/bin/env python3
"""Is it checked which mutex guards what? Clang does so in every build of the tree (-Wthread-safety); this finds what it
would not see.

Usage: thread_safety.py ROOT COMPILER FLAGS. Outside of tests there has to be no mutex but those of engine/base/mutex.h,
and the build's compiler, with the build's flags, has to refuse a member that is read without its mutex. Exits 77
(CTest: skipped) where another compiler than Clang builds the tree.
"""

import pathlib
import re
import shlex
import subprocess
import sys

SKIPPED = 77
FOLDERS = ("client", "devices", "engine", "proto", "server")
UNSEEN = re.compile(r"std::(recursive_|shared_|timed_|recursive_timed_|shared_timed_)?mutex\b")
WRONG = """
#include "engine/base/mutex.h"
struct Counter {
  int Get() { return n; }
  telegrad::Mutex mutex;
  int n TG_GUARDED_BY(mutex) = 0;
};
"""


def main():
    root, compiler, flags = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    unseen = [f"{path.relative_to(root)}:{number}: {line.strip()}"
              for folder in FOLDERS
              for path in sorted((root / folder).rglob("*.*"))
              if path.suffix in (".h", ".cc") and not path.name.endswith("_test.cc")
              and path != root / "engine/base/mutex.h"
              for number, line in enumerate(path.read_text().splitlines(), 1) if UNSEEN.search(line)]
    if unseen:
        print("mutexes that the analysis does not see; use those of engine/base/mutex.h:\n" + "\n".join(unseen))
        return 1
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    if "clang" not in version:
        print(f"{compiler} does not check mutexes; Clang does")
        return SKIPPED
    command = [compiler, *shlex.split(flags), "-std=c++20", "-fsyntax-only", f"-I{root}", "-x", "c++", "-"]
    wrong = subprocess.run(command, input=WRONG, capture_output=True, text=True)
    if wrong.returncode == 0 or "requires holding mutex" not in wrong.stderr:
        print(f"a member that is read without its mutex is not refused by {shlex.join(command)}:\n{wrong.stderr}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
