#!/usr/bin/env python3
"""No text file of the repository holds unfinished-work marks, trailing whitespace, tabs in sources, merge
conflict marks, or a missing newline at its end. Prints a line for each and exits 1 if there is one.

Usage: marks.py [ROOT]
"""

import os
import re
import sys

TEXT = (".h", ".cc", ".def", ".proto", ".py", ".sh", ".md", ".cmake", ".txt", ".json", ".yaml", ".yml")
NAMES = ("LICENSE", "NOTICE", ".gitignore", ".clang-format", "run")
CHECKS = [
    # Spelled in pieces, so that this file passes its own check.
    (re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK")) + r")\b"),
     "an unfinished-work mark"),
    (re.compile(r"[ \t\r]+$"), "trailing whitespace"),
    (re.compile(r"^(<{7} |={7}$|>{7} )"), "a merge conflict mark"),
]
TAB = re.compile(r"\t")


def texts(root):
    for directory, subdirectories, files in os.walk(root):
        subdirectories[:] = sorted(d for d in subdirectories if d not in (".git", "build", ".cache"))
        for name in sorted(files):
            if name.endswith(TEXT) or name in NAMES:
                yield os.path.join(directory, name)


def check(root):
    found = []
    count = 0
    for path in texts(root):
        count += 1
        shown = os.path.relpath(path, root)
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        if text and not text.endswith("\n"):
            found.append(f"{shown}: no newline at the end")
        for number, line in enumerate(text.split("\n"), 1):
            for pattern, what in CHECKS:
                if pattern.search(line):
                    found.append(f"{shown}:{number}: {what}")
            if path.endswith((".h", ".cc", ".def", ".proto", ".py")) and TAB.search(line):
                found.append(f"{shown}:{number}: a tab")
    return found, count


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "..")
    found, count = check(os.path.abspath(root))
    for line in found:
        print(line)
    print(f"{count} files, {len(found)} findings")
    return 1 if found or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
