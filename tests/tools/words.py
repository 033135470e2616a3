#!/usr/bin/env python3
"""Docs, help texts and messages describe programs and data in the field's words: a process has exited, it is not
"gone"; REDUCE reduces, it does not fold; and no program knows, believes, wants or remembers. Prints a line for each
such word, with the one to use, and exits 1 if there is one.

It reads README.md and all pages below docs outside of code spans and blocks, the comments of proto/telegrad/v1, and in the sources
of programs (.cc, .h and .def, without tests) the string literals of at least two words.

Usage: words.py [ROOT]
"""

import glob
import os
import re
import sys

WORDS = [
    (r"gone", "use exited, ended, removed or destroyed"),
    (r"(?:folds?|folded) (?:\w+ )?(?:over|to one|axes|axis|elements|lanes)", "use reduces, reduced"),
    (r"dies|died|death|dying", "use exits, exited, exit"),
    (r"knows?|knew|believes?|wants?|remembers?|forgets?|forgotten|pretends?|hears?|heard",
     "programs do none of this; say what they have, support, require, keep or receive"),
    (r"speaks?|spoke", "use supports, uses"),
    (r"nobody|somebody|everybody|anybody|whoever|someone|everyone|anyone", "name the process, user, tenant or caller"),
    (r"gives? up|given up|gave up", "use stops, abandons, closes"),
    (r"mended|mends", "use fixed"),
]
CHECKS = [(re.compile(rf"\b(?:{words})\b", re.IGNORECASE), use) for words, use in WORDS]
LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')
SOURCES = ("engine", "server", "client", "devices")


def prose(text):
    """The text of a page with code blanked out, so that line numbers stay."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group(0))
    text = re.sub(r"^```.*?^```", blank, text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`]*`", blank, text)


def literals(text):
    """The string literals of a source, each with its line; those without a space are names, not sentences."""
    for number, line in enumerate(text.split("\n"), 1):
        code = re.sub(r"//.*", "", LITERAL.sub(lambda m: "\0" * len(m.group(0)), line))
        if line.lstrip().startswith("#include"):
            continue
        for match in LITERAL.finditer(line[:len(code)]):
            if " " in match.group(0).strip('" '):
                yield number, match.group(0)


def texts(root):
    """(path, line, text) of everything that people read."""
    for path in [os.path.join(root, "README.md")] + sorted(glob.glob(f"{root}/docs/**/*.md", recursive=True)):
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(prose(file.read()).split("\n"), 1):
                yield os.path.relpath(path, root), number, line
    for path in sorted(glob.glob(f"{root}/proto/telegrad/v1/*.proto")):
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file.read().split("\n"), 1):
                yield os.path.relpath(path, root), number, line.partition("//")[2]
    for top in SOURCES:
        for directory, _, names in sorted(os.walk(os.path.join(root, top))):
            for name in sorted(names):
                if not name.endswith((".cc", ".h", ".def")) or "_test." in name or name.startswith("test_"):
                    continue
                path = os.path.join(directory, name)
                with open(path, encoding="utf-8") as file:
                    for number, literal in literals(file.read()):
                        yield os.path.relpath(path, root), number, literal


def check(root):
    found, count = [], 0
    for path, number, text in texts(root):
        count += 1
        for pattern, use in CHECKS:
            for match in pattern.finditer(text):
                found.append(f"{path}:{number}: \"{match.group(0)}\": {use}")
    return found, count


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "..")
    found, count = check(os.path.abspath(root))
    print("\n".join(found + [f"{count} texts, {len(found)} findings"]))
    return 1 if found or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
