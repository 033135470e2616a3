"""Writes captured graphs for captures.h. All numbers are little-endian u32, except where it says otherwise.

  file    "TGCAP001", length of the body, the body as a zlib stream
  body    number of records, records
  record  name, graph (a telegrad.v1.Graph), variables, slots
  name, graph, bytes   length, that many bytes
  variables            how many, for each its value (i64)
  slots                how many, for each: wire number of its dtype, 1 if the graph stores to it, bytes before,
                       and, where it stores, bytes after
"""

import dataclasses
import struct
import zlib

MAGIC = b"TGCAP001"


@dataclasses.dataclass
class SlotRecord:
  dtype: int
  before: bytes
  after: bytes | None  # None: not stored to


@dataclasses.dataclass
class Record:
  name: str
  graph: bytes
  variables: list
  slots: list


def _u32(n): return struct.pack("<I", n)
def _bytes(b): return _u32(len(b)) + b


def encode(records):
  out = [_u32(len(records))]
  for r in records:
    out += [_bytes(r.name.encode()), _bytes(r.graph), _u32(len(r.variables))]
    out += [struct.pack("<q", v) for v in r.variables]
    out.append(_u32(len(r.slots)))
    for s in r.slots:
      out += [_u32(s.dtype), _u32(s.after is not None), _bytes(s.before)]
      if s.after is not None: out.append(_bytes(s.after))
  return b"".join(out)


def write(path, records):
  body = encode(records)
  path.write_bytes(MAGIC + _u32(len(body)) + zlib.compress(body, 9))
