#!/usr/bin/env python3
"""Clang's analysis of mutexes over the sources that have TG_GUARDED_BY (engine/base/mutex.h), or whose classes have.

Usage: thread_safety.py ROOT [INCLUDE...]. Compiles nothing: each source is parsed with -Wthread-safety. Before that a
source with a mistake is, which has to be found. Outside of tests there is no other mutex, so that none escapes the
analysis. Exits 77 (CTest: skipped) where there is no clang.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
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
    root, includes = pathlib.Path(sys.argv[1]), sys.argv[2:]
    unseen = [f"{path.relative_to(root)}:{number}: {line.strip()}"
              for folder in FOLDERS
              for path in sorted((root / folder).rglob("*.*"))
              if path.suffix in (".h", ".cc") and not path.name.endswith("_test.cc")
              and path != root / "engine/base/mutex.h"
              for number, line in enumerate(path.read_text().splitlines(), 1) if UNSEEN.search(line)]
    if unseen:
        print("mutexes that the analysis does not see; use those of engine/base/mutex.h:\n" + "\n".join(unseen))
        return 1
    clang = next((c for c in ("clang++-19", "clang++-18", "clang++-16", "clang++") if shutil.which(c)), None)
    if clang is None:
        print("no clang is installed")
        return SKIPPED
    command = [clang, "-std=c++20", "-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-Werror",
               f"-I{root}"] + [f"-I{i}" for i in includes]
    wrong = subprocess.run(command + ["-x", "c++", "-"], input=WRONG, capture_output=True, text=True)
    if wrong.returncode == 0 or "requires holding mutex" not in wrong.stderr:
        print("a member that is read without its mutex is not found:\n" + wrong.stderr)
        return 1
    headers = [h for h in sorted(root.glob("*/*/*.h")) + sorted(root.glob("*/*/*/*.h"))
               if h.parts[-3] != "build" and h.name != "mutex.h" and "TG_GUARDED_BY" in h.read_text()]
    if not headers:
        print("no header has TG_GUARDED_BY")
        return 1
    # Beside its own source, those of its folder that include it: a class may have several.
    sources = {s for s in [*root.glob("*/*/*.cc"), *root.glob("*/*/*/*.cc")]
               if s.relative_to(root).parts[0] != "build" and "TG_GUARDED_BY" in s.read_text()}
    for header in headers:
        include = f'#include "{header.relative_to(root)}"'
        sources.update(s for s in header.parent.glob("*.cc")
                       if s == header.with_suffix(".cc") or (include in s.read_text() and not s.name.endswith("_test.cc")))

    def parse(source):
        return source, subprocess.run(command + [str(source)], capture_output=True, text=True)

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for source, found in pool.map(parse, sorted(sources)):
            failed += found.returncode != 0
            print(f"{source.relative_to(root)}: {'ok' if found.returncode == 0 else found.stderr}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
