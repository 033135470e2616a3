"""HPACK (RFC 7541), as far as a gRPC stream needs it: what HTTP/2's headers look like as bytes.

What is sent refers to no table. What is received refers to none that changes, because this end allows its peer a dynamic
table of no bytes; of the static table only the values of `:status` matter here, and other fields that it names are left out.
"""

from __future__ import annotations

import functools
from typing import Iterable

_STATUSES = {8: "200", 9: "204", 10: "206", 11: "304", 12: "400", 13: "404", 14: "500"}  # of the static table
_LAST = 61  # its last entry
_EOS = 256  # a symbol that is only padding
# The length of each symbol's Huffman code (appendix B), "a" for none. The code is canonical: symbols of one length have
# numbers that follow one another, and a longer code is greater than every shorter one.
_LENGTHS = (
    "nx}}}}}}}y}}}}}}}}}}}}}}}}}}}gkkmngilkkiligggfffggggggghipgmk"
    "nghhhhhhhhhhhhhhhhhhhhhhihintnogpfgfgfgggfhhgggfghgffghhhhhplon}"
    "uwuuwwwxwxxxxxyxyywxyxxxxvwxwxxywvuwwxxvxwwyvwxxvvwvxwxxuwwwxwwx"
    "{{utwxwz{{{||{yztv{||{|yvv{{}|||uyuvwvvxwwzzyy{x{|{{|||||}|||||{"
    ""
)


class Malformed(ValueError):
    """Bytes that are no header block, or refer to a table that this end has not allowed."""


def encode(fields: Iterable[tuple[str, str]]) -> bytes:
    """A header block that no peer, and nothing between, puts into a table."""
    out = bytearray()
    for text in (part for name, value in fields for part in (None, name, value)):
        if text is None:
            out.append(0x10)  # a literal that is never indexed
        else:
            data = text.encode("utf-8")
            out += _integer(len(data), 7) + data
    return bytes(out)


def _integer(value: int, bits: int) -> bytes:
    """A number that begins in the low `bits` of a byte whose other bits are 0."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([value])
    out, value = bytearray([most]), value - most
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode(block: bytes) -> dict[str, str]:
    """The fields of a header block by their names, but for those that the static table names."""
    reader, fields = _Reader(block), {}
    while reader.at < len(block):
        first = block[reader.at]
        if first & 0x80:
            index = reader.integer(7)
            if not 0 < index <= _LAST:
                raise Malformed(f"a header with the index {index}")
            if index in _STATUSES:
                fields[":status"] = _STATUSES[index]
        elif first & 0xE0 == 0x20:
            if reader.integer(5) != 0:
                raise Malformed("a dynamic table, which this end has not allowed")
        else:
            index = reader.integer(6 if first & 0x40 else 4)
            if index > _LAST:
                raise Malformed(f"a header whose name has the index {index}")
            name = reader.text() if index == 0 else ":status" if index in _STATUSES else ""
            value = reader.text()
            if name:
                fields[name] = value
    return fields


class _Reader:
    def __init__(self, block: bytes) -> None:
        self._block, self.at = block, 0

    def _byte(self) -> int:
        if self.at == len(self._block):
            raise Malformed("a header block is cut off")
        self.at += 1
        return self._block[self.at - 1]

    def integer(self, bits: int) -> int:
        value = self._byte() & (most := (1 << bits) - 1)
        if value < most:
            return value
        for shift in range(0, 28, 7):
            byte = self._byte()
            value += (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise Malformed("a number in a header block is too large")

    def text(self) -> str:
        packed = self.at < len(self._block) and self._block[self.at] & 0x80
        size = self.integer(7)
        data = self._block[self.at:self.at + size]
        if len(data) < size:
            raise Malformed("a header block is cut off")
        self.at += size
        return (unpacked(data) if packed else data).decode("utf-8", "replace")


@functools.lru_cache(None)
def _codes() -> dict[tuple[int, int], int]:
    """Symbols by the length and the value of their codes."""
    lengths = [ord(letter) - ord("a") for letter in _LENGTHS]
    codes: dict[tuple[int, int], int] = {}
    code = length = 0
    for symbol in sorted(range(len(lengths)), key=lambda s: lengths[s]):
        code <<= lengths[symbol] - length
        length = lengths[symbol]
        codes[length, code] = symbol
        code += 1
    return codes


def unpacked(data: bytes) -> bytes:
    """Of a string that is in the Huffman code."""
    codes, out = _codes(), bytearray()
    code = length = 0
    for byte in data:
        for shift in range(7, -1, -1):
            code, length = code << 1 | byte >> shift & 1, length + 1
            symbol = codes.get((length, code))
            if symbol == _EOS or length > 30:
                raise Malformed("a string in a header block is in no Huffman code")
            if symbol is not None:
                out.append(symbol)
                code = length = 0
    if length > 7 or code != (1 << length) - 1:
        raise Malformed("a string in a header block ends in the middle of a symbol")
    return bytes(out)
