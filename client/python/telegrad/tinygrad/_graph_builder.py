"""Builds graphs node by node, as the converters of tinygrad and PyTorch make them.

Unlike telegrad.Graph it knows symbolic dims, and leaves the rules of types and shapes to the server:
`dtype` and `dims` are what the caller knows a node to have. Op names, numbers and element types are
those of telegrad._tables.
"""

from __future__ import annotations

import dataclasses

from telegrad import _messages as messages
from telegrad._tables import DTYPES as DTYPE_ROWS
from telegrad._tables import GRAPH_FORM, REDUCE_KINDS
from telegrad._tables import OPS as OP_ROWS

OPS = {row.name: row for row in OP_ROWS}
DTYPES = {row.name: row for row in DTYPE_ROWS}


MAX_ELEMENTS = 1 << 48  # of one tensor (engine/types/limits.h)
_ANY = (-(1 << 63), (1 << 63) - 1)


def _corners(f):
  def rule(x, y):
    values = [f(a, b) for a in x for b in y]
    return min(values), max(values)
  return rule


def _floordiv(x, y): return _corners(lambda a, b: a // b)(x, y) if y[0] > 0 or y[1] < 0 else _ANY


_RANGES = {
    "add": _corners(lambda a, b: a + b), "sub": _corners(lambda a, b: a - b), "mul": _corners(lambda a, b: a * b),
    "neg": lambda x: (-x[1], -x[0]), "max": lambda x, y: (max(x[0], y[0]), max(x[1], y[1])), "floordiv": _floordiv,
    "floormod": lambda x, y: (0, y[1] - 1) if y[0] > 0 else (y[0] + 1, 0) if y[1] < 0 else _ANY, "cmplt": lambda *_: (0, 1), "cmpne": lambda *_: (0, 1),
    "cmpeq": lambda *_: (0, 1), "where": lambda c, x, y: (min(x[0], y[0]), max(x[1], y[1])), "cast": lambda x: x}


@dataclasses.dataclass(frozen=True)
class Value:
  """A node: its number, its element type's name, its dims. A dim is an int, or the Value of a scalar i64."""
  id: int
  dtype: str = ""
  dims: tuple = ()


def words_of(dims):
  """The argument words of dims, and the sources that the symbolic ones among them name, from source `first` on."""
  def encode(first):
    symbols = dedup(d for d in dims if isinstance(d, Value))
    return tuple(-1 - (first + symbols.index(d)) if isinstance(d, Value) else d for d in dims), symbols
  return encode


def dedup(values): return list(dict.fromkeys(values))


class GraphBuilder:
  """A graph under construction; equal nodes are one node."""

  def __init__(self):
    self.nodes = []  # (op, dtype, sources, argument words)
    self._ids = {}
    self._parts = {}  # shrinks to a symbolic size: their source and offsets
    self._ranges = {}  # of scalar i64 and bool nodes: (lowest, highest)

  def op(self, name, src=(), arg=(), dtype="", dims=()):
    """`dtype` and `dims` are what the op's rules give; `dtype` travels only where the op does not imply it."""
    key = (name, dtype, tuple(s.id for s in src), tuple(map(repr, arg)))  # repr tells -0.0 from 0.0, and nan is nan
    if key not in self._ids:
      self._ids[key] = len(self.nodes)
      self.nodes.append((OPS[name], dtype, key[2], tuple(arg)))
      if dims == () and dtype in ("i64", "bool"): self._ranges[self._ids[key]] = self._range(name, key[2], arg)
    return Value(self._ids[key], dtype, tuple(dims))

  def _range(self, name, src, arg):
    """Between which numbers a scalar of i64 or bool lies, as the server will find it from its sources."""
    rule = _RANGES.get(name)
    if name == "const": return int(arg[0]), int(arg[0])
    if name == "var" and not src: return int(arg[1]), int(arg[2])
    if rule is None: return _ANY
    low, high = rule(*(self._ranges.get(s, _ANY) for s in src))
    return (low, high) if _ANY[0] <= low and high <= _ANY[1] else _ANY

  def size(self, x, low, high):
    """The scalar `x` as a size: a server takes no node as one whose lowest value, as far as it can tell, is below 0, or
    whose highest is beyond its limit. `low` and `high` are what the caller knows."""
    if x.id not in self._ranges: return x
    least, most = self._ranges[x.id]
    if least < 0: x = self.alu("max", [x, self.const("i64", max(low, 0))])
    if most > MAX_ELEMENTS: x = self.alu("neg", [self.alu("max", [self.alu("neg", [x]), self.const("i64", -high)])])
    return x

  # What a caller wants to say; each leaves out what would do nothing.

  def const(self, dtype, value): return self.op("const", arg=(value,), dtype=dtype)

  def cast(self, x, dtype): return x if x.dtype == dtype else self.op("cast", (x,), dtype=dtype, dims=x.dims)

  def bitcast(self, x, dtype):
    """The bits as another type; where the width changes, the last axis does."""
    if x.dtype == dtype: return x
    dims, old, new = x.dims, DTYPES[x.dtype].bits, DTYPES[dtype].bits
    if old != new: dims = (*dims[:-1], dims[-1] * old // new)
    return self.op("bitcast", (x,), dtype=dtype, dims=dims)

  def reshape(self, x, dims):
    if tuple(dims) == x.dims: return x
    arg, extra = words_of(dims)(1)
    return self.op("reshape", (x, *extra), arg, x.dtype, dims)

  def expand(self, x, dims):
    if tuple(dims) == x.dims: return x
    arg, extra = words_of(dims)(1)
    return self.op("expand", (x, *extra), arg, x.dtype, dims)

  def broadcast(self, x, dims):
    """`x` as `dims`, aligned on the right as in NumPy."""
    return self.expand(self.reshape(x, (1,) * (len(dims) - len(x.dims)) + x.dims), dims)

  def box(self, name, x, offsets, sizes):
    """pad or shrink: offset and size of the result for each axis. A part of a part of symbolic size is a part of the
    whole: as in tinygrad, what a captured call left beyond the size that it was captured with can be read."""
    if not any(o != 0 for o in offsets) and tuple(sizes) == x.dims: return x
    if name == "shrink" and x.id in self._parts:
      base, before = self._parts[x.id]
      both = tuple(self._sum(a, b) for a, b in zip(before, offsets))
      ints = [(o, n, d) for o, n, d in zip(both, sizes, base.dims) if all(isinstance(v, int) for v in (o, n, d))]
      if all(o + n <= d for o, n, d in ints): return self.box("shrink", base, both, sizes)
    part = self._box(name, x, offsets, sizes)
    if name == "shrink" and any(isinstance(d, Value) for d in sizes): self._parts[part.id] = (x, tuple(offsets))
    return part

  def _sum(self, a, b):
    if isinstance(a, int) and isinstance(b, int): return a + b
    if a == 0 or b == 0: return b if a == 0 else a
    return self.alu("add", [v if isinstance(v, Value) else self.const("i64", v) for v in (a, b)])

  def _box(self, name, x, offsets, sizes):
    arg, extra = words_of([w for pair in zip(offsets, sizes) for w in pair])(1)
    return self.op(name, (x, *extra), arg, x.dtype, sizes)

  def permute(self, x, axes):
    if list(axes) == list(range(len(axes))): return x
    return self.op("permute", (x,), axes, x.dtype, tuple(x.dims[a] for a in axes))

  def flip(self, x, axes): return self.op("flip", (x,), axes, x.dtype, x.dims) if axes else x

  def alu(self, name, src, dtype=None):
    """An elementwise op on sources that broadcast as in NumPy; scalars stay scalars."""
    rank = max(len(s.dims) for s in src)
    aligned = [(1,) * (rank - len(s.dims)) + s.dims for s in src]
    dims = tuple(next((d for d in column if d != 1), 1) for column in zip(*aligned))
    src = [s if s.dims == () else self.broadcast(s, dims) for s in src]
    return self.op(name, src, dtype=dtype or src[-1].dtype, dims=dims)

  def reduce(self, kind, x, axes):
    """Folds axes, which go away."""
    if not axes: return x
    kept = tuple(1 if a in axes else d for a, d in enumerate(x.dims))
    folded = self.op("reduce", (x,), (REDUCE_KINDS.index(kind), *axes), x.dtype, kept)
    return self.reshape(folded, tuple(d for a, d in enumerate(x.dims) if a not in axes))

  def stack(self, src):
    """The sources one after another along a new first axis."""
    return self.cat([self.reshape(s, (1, *s.dims)) for s in src], 0)

  def cat(self, rows, axis):
    if len(rows) == 1: return rows[0]
    dims = tuple(sum(r.dims[a] for r in rows) if a == axis else d for a, d in enumerate(rows[0].dims))
    return self.op("cat", rows, (axis,), rows[0].dtype, dims)

  def to_message(self, root):
    """The whole graph; the nodes that `root` does not need are left out."""
    needed = {root.id}
    for i in range(root.id, -1, -1):
      if i in needed: needed.update(self.nodes[i][2])
    position = {old: new for new, old in enumerate(sorted(needed))}
    graph = messages.Graph(form=GRAPH_FORM, root=position[root.id])
    for old in sorted(needed):
      row, dtype, src, arg = self.nodes[old]
      node = messages.Node(op=row.wire, src=[position[s] for s in src])
      if row.type_rule == "given": node.dtype = DTYPES[dtype].wire
      if row.name == "const" and DTYPES[dtype].kind == "float": node.real = float(arg[0])
      else: node.arg = [int(a) for a in arg]
      graph.nodes.append(node)
    return graph
