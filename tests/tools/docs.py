#!/usr/bin/env python3
"""What the documents say of the repository is there: README.md has one line for each folder with C++
sources, in the form "- `engine/base`: ...", and for no other, and relative links lead to files, those with an anchor
to a heading.

Usage: docs.py [ROOT]
"""

import glob
import os
import re
import sys

ROW = re.compile(r"^- `((?:engine|devices|server|client)/[a-z_]+)/?`", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")
HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)


def folders(root):
    """Second-level folders of the house that hold C++ sources."""
    found = set()
    for top in ("engine", "devices", "server", "client"):
        for directory, _, files in os.walk(os.path.join(root, top)):
            parts = os.path.relpath(directory, root).split(os.sep)
            if len(parts) > 1 and any(name.endswith((".h", ".cc")) for name in files):
                found.add("/".join(parts[:2]))
    return found


def without_code(path):
    """The text of a page without its blocks of code, which have brackets and # of their own."""
    with open(path, encoding="utf-8") as file:
        return re.sub(r"```.*?```", "", file.read(), flags=re.DOTALL)


def anchors(path):
    """The anchors that GitHub gives a page's headings."""
    found = set()
    for heading in HEADING.findall(without_code(path)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)  # a link's text
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = 0
        while (f"{name}-{number}" if number else name) in found:
            number += 1
        found.add(f"{name}-{number}" if number else name)
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
        for target, anchor in LINK.findall(without_code(os.path.join(root, page))):
            path = os.path.join(root, os.path.dirname(page), target) if target else os.path.join(root, page)
            if not os.path.exists(path):
                problems.append(f"{page}: the link to {target} leads nowhere")
            elif anchor and path.endswith(".md") and anchor not in anchors(path):
                problems.append(f"{page}: {target or page} has no heading for #{anchor}")
    return problems, len(there)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "..")
    problems, count = check(os.path.abspath(root))
    print("\n".join(problems + [f"{count} folders, {len(problems)} problems"]))
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
