"""Names in anonymous namespaces are unique within a library.

The release preset compiles several sources of a library as one (cmake/unity.cmake). A library is of the
sources in one folder, and of the rooms below a folder that has rooms. Two of its sources
may then not define the same name, whichever group they fall into; the compiler would only tell about names
that meet in one group today. Overloaded functions are allowed: only a name that is a type, a constant or an
alias in one of the sources collides, or a function with the same parameter list.

Usage: unique_names.py ROOT. Prints each collision as FOLDER: NAME: SOURCES and exits with 1 if there is one.
"""

import collections
import pathlib
import re
import sys

TYPE = re.compile(r"^(?:template *<.*> *)?(?:struct|class|enum class|enum) (\w+)(?: [:{]| final| *$)|^using (\w+) =")
FUNCTION = re.compile(r"^(?:[\w:<>,*&\[\] ]+[ *&])(\w+)(\([^{;]*)")
CONSTANT = re.compile(r"^(?:inline |static )*const(?:expr|init)? .*?(\w+)(?:\[\w*\])? *(?:=|\{)")


def definitions(text):
    """Yields (name, signature) of what a source defines at the top level of anonymous namespaces."""
    inside = False
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if line == "namespace {":
            inside = True
        elif line == "}  // namespace":
            inside = False
        elif inside and line[:1].isalpha():
            if match := TYPE.match(line):
                yield match.group(1) or match.group(2), ""
            elif match := CONSTANT.match(line):
                yield match.group(1), ""
            elif match := FUNCTION.match(line):
                head = match.group(2)
                while ")" not in head and number + 1 < len(lines):
                    number += 1
                    head += " " + lines[number].strip()
                parameters = head[1 : head.rfind(")")]
                types = re.sub(r"\w+(?=\s*(?:,|$))", "", parameters)
                yield match.group(1), "(" + "".join(types.split()) + ")"


HEADER_TYPE = re.compile(r"^(?:struct|class|enum class|enum) (\w+)(?: final)?(?: :.*)? \{", re.M)


def hidden_types(sources, headers):
    """Yields (name, source) where a source's anonymous namespace has the name of a type in one of the headers: the next
    source of the group then finds the wrong one of the two."""
    types = {name for text in headers for name in HEADER_TYPE.findall(text)}
    for source, text in sources.items():
        for name, _ in definitions(text):
            if name in types:
                yield name, source


def collisions(sources):
    """sources: {name: text} of one library. Returns {name: [sources]} of what collides."""
    where = collections.defaultdict(lambda: collections.defaultdict(set))
    for source, text in sources.items():
        for name, signature in definitions(text):
            where[name][signature].add(source)
    out = {}
    for name, signatures in where.items():
        users = set().union(*signatures.values())
        if len(users) > 1 and ("" in signatures or any(len(s) > 1 for s in signatures.values())):
            out[name] = sorted(users)
    return out


def library(folder):
    """The folder whose library the sources in `folder` belong to: the nearest with a CMakeLists.txt."""
    while not (folder / "CMakeLists.txt").exists():
        folder = folder.parent
    return folder


def main():
    root = pathlib.Path(sys.argv[1])
    folders = collections.defaultdict(dict)
    for top in ("engine", "devices", "server", "client", "tests/fakes"):
        for path in sorted((root / top).rglob("*.cc")):
            if not path.name.endswith("_test.cc") and path.name != "main.cc" and "examples" not in path.parts:
                folder = library(path.parent)
                folders[folder][str(path.relative_to(folder))] = path.read_text()
    found = 0
    for folder, sources in sorted(folders.items()):
        headers = [path.read_text() for path in folder.rglob("*.h") if library(path.parent) == folder]
        for name, source in sorted(set(hidden_types(sources, headers))):
            print(f"{folder.relative_to(root)}: {name} is a type of a header and a name in {source}")
            found += 1
    for folder, sources in sorted(folders.items()):
        for name, users in sorted(collisions(sources).items()):
            print(f"{folder.relative_to(root)}: {name} is defined by {' and '.join(users)}")
            found += 1
    if found:
        print("Give each its own name: the release preset compiles sources of one library together.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
