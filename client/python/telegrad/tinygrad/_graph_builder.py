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

  def op(self, name, src=(), arg=(), dtype="", dims=()):
    """`dtype` and `dims` are what the op's rules give; `dtype` travels only where the op does not imply it."""
    key = (name, dtype, tuple(s.id for s in src), tuple(map(repr, arg)))  # repr tells -0.0 from 0.0, and nan is nan
    if key not in self._ids:
      self._ids[key] = len(self.nodes)
      self.nodes.append((OPS[name], dtype, key[2], tuple(arg)))
    return Value(self._ids[key], dtype, tuple(dims))

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
    """pad or shrink: offset and size of the result for each axis."""
    if not any(o != 0 for o in offsets) and tuple(sizes) == x.dims: return x
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
    rows = [self.reshape(s, (1, *s.dims)) for s in src]
    if len(rows) == 1: return rows[0]
    return self.op("cat", rows, (0,), rows[0].dtype, (len(rows), *rows[0].dims[1:]))

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
