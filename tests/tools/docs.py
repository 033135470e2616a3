#!/usr/bin/env python3
"""What the documents say of the repository is there: README.md has one line for each folder with C++
sources, in the form "- `engine/base`: ...", and for no other, and relative links lead to files.

Usage: docs.py [ROOT]
"""

import glob
import os
import re
import sys

ROW = re.compile(r"^- `((?:engine|devices|server|client)/[a-z_]+)/?`", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def folders(root):
    """Second-level folders of the house that hold C++ sources."""
    found = set()
    for top in ("engine", "devices", "server", "client"):
        for directory, _, files in os.walk(os.path.join(root, top)):
            parts = os.path.relpath(directory, root).split(os.sep)
            if len(parts) > 1 and any(name.endswith((".h", ".cc")) for name in files):
                found.add("/".join(parts[:2]))
    return found


def check(root):
    problems = []
    with open(os.path.join(root, "README.md"), encoding="utf-8") as file:
        named = ROW.findall(file.read())
    there = folders(root)
    problems += [f"README.md: `{name}` has more than one line" for name in set(named)
                 if named.count(name) > 1]
    problems += [f"README.md: there is no folder `{name}`" for name in sorted(set(named) - there)]
    problems += [f"README.md: no line for folder `{name}`" for name in sorted(there - set(named))]
    pages = ["README.md"] + [os.path.relpath(p, root) for p in glob.glob(f"{root}/docs/**/*.md", recursive=True)]
    for page in pages:
        with open(os.path.join(root, page), encoding="utf-8") as file:
            text = re.sub(r"```.*?```", "", file.read(), flags=re.DOTALL)  # code has brackets of its own
        for target in LINK.findall(text):
            if not os.path.exists(os.path.join(root, os.path.dirname(page), target)):
                problems.append(f"{page}: the link to {target} leads nowhere")
    return problems, len(there)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "..")
    problems, count = check(os.path.abspath(root))
    print("\n".join(problems + [f"{count} folders, {len(problems)} problems"]))
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
