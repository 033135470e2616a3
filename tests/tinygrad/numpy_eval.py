"""Evaluates a telegrad.v1.Graph with NumPy: a check of the converter that shares nothing with Telegrad's C++.

A value is one array for each device that it is on; what is on none (constants, arithmetic on them) is on all. Floats
under 32 bits, which NumPy lacks, are computed in f32 and rounded by tinygrad's own tables."""

import struct

import numpy as np
from tinygrad.dtype import dtypes, truncate, fp8_to_float, float_to_fp8

from telegrad.tinygrad import _vocabulary as vocabulary
from telegrad.tinygrad._graph_builder import DTYPES, OPS

_OPS = {row.wire: name for name, row in OPS.items()}
_DTYPES = {row.wire: name for name, row in DTYPES.items()}
_TINY = {name: dtype for dtype, name in vocabulary.DTYPES.items()}
_NUMPY = {"bool": np.bool_, "f16": np.float16, "f32": np.float32, "f64": np.float64} | {
    f"{k}{n}": np.dtype(f"{k}{n // 8}").type for k in "iu" for n in (8, 16, 32, 64)}
_FOLDS = [np.add, np.multiply, np.maximum]


def storage_type(dtype): return _NUMPY.get(dtype, np.float32)


def rounded(x, dtype):
  if dtype in _NUMPY or x.size == 0: return np.asarray(x).astype(storage_type(dtype))
  return np.vectorize(truncate[_TINY[dtype]], otypes=[np.float32])(np.asarray(x, np.float32))


def from_bytes(data, dtype):
  if dtype in _NUMPY: return np.frombuffer(data, _NUMPY[dtype]).copy()
  if dtype == "bf16": return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
  return np.array([fp8_to_float(b, _TINY[dtype]) for b in data], np.float32)


def to_bytes(x, dtype):
  if dtype in _NUMPY: return np.ascontiguousarray(x).tobytes()
  if dtype == "bf16": return (np.ascontiguousarray(x).view(np.uint32) >> 16).astype(np.uint16).tobytes()
  return bytes(float_to_fp8(float(v), _TINY[dtype]) for v in x.reshape(-1))


def _threefry(x, key):
  """Threefry-2x32, 20 rounds (Salmon et al., Parallel random numbers: as easy as 1, 2, 3)."""
  m = np.uint64(0xffffffff)
  x0, x1, k0, k1 = x & m, x >> np.uint64(32), key & m, key >> np.uint64(32)
  k = [k0, k1, k0 ^ k1 ^ np.uint64(0x1BD11BDA)]
  x0, x1 = (x0 + k[0]) & m, (x1 + k[1]) & m
  for i in range(5):
    for r in [(13, 15, 26, 6), (17, 29, 16, 24)][i % 2]:
      x0 = (x0 + x1) & m
      x1 = x0 ^ (((x1 << np.uint64(r)) | (x1 >> np.uint64(32 - r))) & m)
    x0, x1 = (x0 + k[(i + 1) % 3]) & m, (x1 + k[(i + 2) % 3] + np.uint64(i + 1)) & m
  return x0 | (x1 << np.uint64(32))


def _shift(left):
  def fn(x, y):
    bits = x.dtype.itemsize * 8
    inside = (y >= 0) & (y < bits)
    amount = np.where(inside, y, bits - 1 if not left else 0).astype(x.dtype)
    r = x << amount if left else x >> amount
    return r if not left and np.issubdtype(x.dtype, np.signedinteger) else np.where(inside, r, 0).astype(x.dtype)
  return fn


def _guarded(fn): return lambda x, y: np.where(y == 0, 0, fn(x, np.where(y == 0, 1, y))).astype(x.dtype)


_ALU = {
    "neg": np.negative, "exp2": np.exp2, "log2": np.log2, "sin": np.sin, "sqrt": np.sqrt, "recip": lambda x: 1 / x,
    "trunc": np.trunc, "floor": np.floor, "add": np.add, "sub": np.subtract, "mul": np.multiply, "fdiv": np.divide,
    "max": np.maximum, "cmplt": np.less, "cmpeq": np.equal, "cmpne": np.not_equal, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "shl": _shift(True), "shr": _shift(False), "pow": np.power,
    "floordiv": _guarded(np.floor_divide), "floormod": _guarded(np.mod), "cmod": _guarded(np.fmod),
    "cdiv": _guarded(lambda x, y: (x - np.fmod(x, y)) // y), "threefry": _threefry, "where": np.where}


class _Run:
  def __init__(self, graph, slots, variables):
    self.graph, self.slots, self.variables = graph, slots, variables  # slots: (dtype, flat array) by number
    self.stored = {}

  def all(self):
    frames = {}
    for i, n in enumerate(self.graph.nodes): frames[i] = self.node(i, n, frames)
    return self.stored

  def node(self, i, n, values, args=None):
    """(dtype, {device or None: array}, sizes of devices in order)."""
    op, arg = _OPS[n.op], list(n.arg)
    src = [values.get(s) for s in n.src]
    given = _DTYPES.get(n.dtype)
    if op == "const": return given, {None: rounded(np.array(n.real if n.real or not arg else arg[0]).astype(
        np.float64 if given[0] in "fb" and given != "bool" else np.int64), given)}
    if op == "iota": return given, {None: np.arange(arg[0]).astype(_NUMPY[given])}
    if op == "var": return "i64", {None: np.int64(self.variables[arg[0]])}
    if op == "param":
      dtype, x = self.slots[arg[0]]
      return dtype, {arg[1]: x.reshape(arg[2:])}
    if op == "arg": return args[arg[0]] if args is not None else None
    if op in ("tuple", "sink"): return src
    # The nodes of a body have values only in a call.
    if any(s is None for s in (src[1:] if op == "call" else src)): return None
    if op == "call": return self.call(n.src[0], src[1:])
    if op == "gettuple": return src[0][arg[0]]
    if op == "store": return self.store(n, src)
    if op == "after": return src[0][0], {d: self.state(n.src[1]) for d in src[0][1]}
    if op == "copy": return src[0][0], {d: next(iter(src[0][1].values())) for d in arg}
    if op == "mstack": return src[0][0], {d: x for s in src for d, x in s[1].items()}
    if op == "mselect":
      d = list(src[0][1])[arg[0]]
      return src[0][0], {d: src[0][1][d]}
    if op == "unshard": return src[0][0], self.everywhere(src[0][1], lambda xs: np.concatenate(xs, arg[0]))
    if op == "allreduce": return src[0][0], self.everywhere(src[0][1], lambda xs: _FOLDS[arg[0]].reduce(xs))
    dtype = {"cast": given, "bitcast": given}.get(op, "bool" if op.startswith("cmp") else src[-1][0] if op in _ALU else src[0][0])
    devices = next((list(s[1]) for s in src if None not in s[1]), [None])
    out = {}
    for d in devices:
      xs = [s[1].get(d, s[1].get(None)) for s in src]
      with np.errstate(all="ignore"): out[d] = rounded(self.one(op, xs, arg, src[0][0], dtype), dtype)
    return dtype, out

  @staticmethod
  def everywhere(instances, fold): return {d: fold(list(instances.values())) for d in instances}

  @staticmethod
  def one(op, xs, arg, source, dtype):
    x = xs[0]
    word = lambda w: int(xs[-w - 1]) if w < 0 else w
    if op in _ALU: return _ALU[op](*xs)
    if op == "reshape": return x.reshape([word(w) for w in arg])
    if op == "expand": return np.broadcast_to(x, [word(w) for w in arg])
    if op == "permute": return x.transpose(arg)
    if op == "flip": return np.flip(x, arg)
    if op in ("pad", "shrink"):
      offsets, sizes = [word(w) for w in arg[::2]], [word(w) for w in arg[1::2]]
      out = np.zeros(sizes, x.dtype)
      if op == "pad": out[tuple(slice(o, o + s) for o, s in zip(offsets, x.shape))] = x
      else:
        part = x[tuple(slice(o, o + s) for o, s in zip(offsets, sizes))]
        out[tuple(slice(0, s) for s in part.shape)] = part
      return out
    if op == "cat": return np.concatenate(xs, arg[0])
    if op == "reduce": return _FOLDS[arg[0]].reduce(x, tuple(arg[1:]), keepdims=True, initial=None if arg[0] == 2 else [0, 1][arg[0]])
    if op in ("contiguous", "detach"): return x
    if op == "bitcast":
      bits = to_bytes(x, source)
      out = from_bytes(bits, dtype)
      a, b = len(bits) // max(x.size, 1), len(bits) // max(out.size, 1)
      return out.reshape(x.shape if a == b else (*x.shape[:-1], x.shape[-1] * a // b))
    if op == "cast":
      if dtype[0] in "iu" and source[0] in "fb" and source != "bool":
        x = np.nan_to_num(np.trunc(np.asarray(x, np.float64)), nan=0, posinf=2.0**70, neginf=-2.0**70)
        info = np.iinfo(_NUMPY[dtype])
        inside = np.clip(x, float(info.min), np.nextafter(float(info.max) + 1, 0) if info.bits == 64 else float(info.max))
        return inside.astype(_NUMPY[dtype])
      return x != 0 if dtype == "bool" else x
    raise NotImplementedError(op)

  def call(self, body, args):
    needed = {body}
    for i in range(body, -1, -1):
      n = self.graph.nodes[i]
      if i in needed: needed.update(n.src[1:] if _OPS[n.op] == "call" else n.src)
    values = {}
    for i in sorted(needed): values[i] = self.node(i, self.graph.nodes[i], values, args)
    return values[body]

  def state(self, store): return self.after_store[store]

  def store(self, n, src):
    """Runs the target's views on element numbers to learn where to write."""
    chain, u = [], n.src[0]
    while _OPS[self.graph.nodes[u].op] != "param":
      node = self.graph.nodes[u]
      if _OPS[node.op] != "after": chain.append(node)
      u = node.src[0]
    slot, _, *dims = self.graph.nodes[u].arg
    dtype, start = self.slots[slot]
    places = np.arange(int(np.prod(dims)), dtype=np.int64).reshape(dims)
    for node in reversed(chain):
      extra = [np.int64(next(iter(self.values[s][1].values()))) for s in node.src[1:]]
      places = self.one(_OPS[node.op], [places, *extra], list(node.arg), "i64", "i64")
    x = self.stored.get(slot, start).copy()
    value = next(iter(src[1][1].values()))
    x.reshape(-1)[places.reshape(-1)] = np.broadcast_to(value, places.shape).reshape(-1)
    self.stored[slot] = x
    return ("stored", slot, x.reshape(dims))


def evaluate(graph, slots, variables):
  """The slots that the graph stores to, as arrays by number."""
  run = _Run(graph, slots, variables)
  run.values, run.after_store = {}, {}
  for i, n in enumerate(graph.nodes):
    run.values[i] = run.node(i, n, run.values)
    if _OPS[n.op] == "store": run.after_store[i] = run.values[i][2]
  return run.stored
