#!/usr/bin/env python3
"""Writes telegrad/_tables.py: ops, element types and constants of the wire, as the C++ sources say.

Usage: make_tables.py [--check]
  --check  writes nothing; fails if the file is not what would be written
"""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TARGET = os.path.join(HERE, "telegrad", "_tables.py")

HEAD = '''"""Facts of the server, which make_tables.py takes from its sources; a test compares."""

from typing import NamedTuple


class OpRow(NamedTuple):
    """An op that a client may use; engine/ir/ops.def says what each column means."""

    name: str
    wire: int
    min_src: int
    max_src: int  # -1: any number
    arg: str
    elements: str
    type_rule: str
    shape_rule: str


class DTypeRow(NamedTuple):
    """An element type; engine/types/dtypes.def says what each column means."""

    name: str
    wire: int
    bits: int
    kind: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    specials: str
    numpy: str  # empty: NumPy has no such type


'''


def source(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def rows(path, macro):
    """The arguments of each MACRO(...) line, as text; strings without their quotes."""
    for line in source(path).splitlines():
        found = re.match(rf"{macro}\((.*)\)\s*$", line)
        if found:
            cells = re.findall(r'\s*("(?:[^"\\]|\\.)*"|[^,]+?)\s*(?:,|$)', found.group(1))
            yield [cell[1:-1] if cell.startswith('"') else cell for cell in cells]


def snake(name):
    """kFirstShape -> first_shape."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[1:]).lower()


def literal(row):
    return "(" + ", ".join(f'"{v}"' if isinstance(v, str) else repr(v) for v in row) + ")"


def ops():
    for row in rows("engine/ir/ops.def", "OP"):
        _, name, wire, min_src, max_src, arg, _, *rules, levels, _ = row
        if "T" in levels.split("|"):
            yield (name, int(wire), int(min_src), int(max_src), snake(arg), *map(snake, rules))


def dtypes():
    for row in rows("engine/types/dtypes.def", "DTYPE"):
        _, name, wire, bits, kind, exponent, mantissa, bias, specials, numpy, _, _ = row
        yield (name, int(wire), int(bits), snake(kind), int(exponent), int(mantissa), int(bias),
               snake(specials), numpy)


def arg_names(array):
    """The names of an enum that is an argument word, in the order of their values."""
    found = re.search(rf"{array}\[\] = \{{([^}}]*)\}}", source("engine/ir/op.cc"))
    return tuple(re.findall(r'"(\w+)"', found.group(1)))


def constant(path, name):
    text = re.search(rf"constexpr \w+ {name} = ([^;]+);", source(path)).group(1)
    return eval(text.replace("'", ""), {"__builtins__": {}})  # numbers of our own sources


def transport():
    names = [("PROTOCOL_MIN", "kProtocolMin"), ("PROTOCOL_MAX", "kProtocolMax"),
             ("GRAPH_FORM_MIN", "kGraphFormMin"), ("GRAPH_FORM_MAX", "kGraphFormMax"),
             ("MAX_MESSAGE_BYTES", "kMaxMessageBytes")]
    for ours, theirs in names:
        yield ours, constant("proto/transport.h", theirs)
    yield "GRAPH_FORM", constant("engine/wire/graph_codec.h", "kGraphForm")


def table(name, kind, values):
    lines = [f"{name}: tuple[{kind}, ...] = ("]
    lines += [f"    {kind}{literal(row)}," for row in values]
    return lines + [")", ""]


def text():
    lines = [f"{name} = {value}" for name, value in transport()] + [""]
    lines += [f"{name} = {arg_names(array)!r}".replace("'", '"') for name, array in
              [("REDUCE_KINDS", "kReduceNames"), ("SCATTER_KINDS", "kScatterNames")]] + [""]
    lines += table("DTYPES", "DTypeRow", dtypes())
    lines += table("OPS", "OpRow", ops())
    return HEAD + "\n".join(lines).rstrip() + "\n"


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    wanted = text()
    if not sys.argv[1:]:
        with open(TARGET, "w", encoding="utf-8") as file:
            file.write(wanted)
    else:
        with open(TARGET, encoding="utf-8") as file:
            if file.read() != wanted:
                sys.exit("telegrad/_tables.py is out of date; run client/python/make_tables.py")


if __name__ == "__main__":
    main()
