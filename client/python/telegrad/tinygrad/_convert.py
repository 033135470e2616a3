"""tinygrad's tensor graph -> telegrad.v1.Graph.

`convert(call)` takes what tinygrad hands to its scheduler, CALL(SINK(AFTER(buffer, STORE(buffer, value))...), args...),
and gives the same computation in Telegrad's vocabulary. Both are graphs of nodes over sources, so most ops are a row
of a table. What differs, and how it is said here:

  weak types    A Python literal has no width until something concrete uses it. So types flow from the consumers down
                (_typing_rules.py) before nodes are made from the sources up, and a weak node is made once for each type
                that is asked of it.
  broadcasting  is implicit in tinygrad; here reshape and expand.
  bool          has no sum, product or maximum here: or, and, or; reductions count in u8.
  integer POW   becomes products, or a power in f64.
  buffers       may live on several devices: one slot for each. Memory of other devices (PYTHON, NPY, DISK, CPU) is a
                slot on the server's device of its number, uploaded like any other; its COPY there is nothing.
                Arguments that are views of one buffer are views of one slot.
  stores        see _storage.py.
  arange        is a sum over a triangle of ones of n * n elements in tinygrad; here IOTA.
  x / (1 + x)   becomes 1 - 1 / (1 + x), see _ratios.py.
  functions     become CALL of a TUPLE over ARGs; those that store, or whose shapes are symbolic, or that live on
                several devices, are put in place.
  device ranges (a value that depends on which device runs it) are spelled out: MSTACK of one node for each device.

Ranges, indexing and source text of custom kernels raise Unsupported.
"""

import collections
import dataclasses
import math
import typing

from tinygrad.dtype import AddrSpace, dtypes, truncate
from tinygrad.uop.ops import GroupOp, Ops, UOp

from telegrad.tinygrad import _storage as storage
from telegrad.tinygrad._graph_builder import OPS, REDUCE_KINDS, GraphBuilder
from telegrad.tinygrad._ratios import without_ratios
from telegrad.tinygrad._typing_rules import INDEX, asked_type, source_types, value_type
from telegrad.tinygrad._vocabulary import (ALU, BOOL_ALU, DTYPES, FILES, LARGEST, REDUCE, Unsupported, device_number, device_ranges, devices_of,
                                           shard_places, unsharded_dims)


class Slot(typing.NamedTuple):
  """Instance `instance` of a buffer among the arguments of the CALL."""
  buffer: UOp
  instance: int


@dataclasses.dataclass
class Converted:
  graph: object    # the message; None: there is nothing to do
  slots: list      # Slot by slot number
  variables: list  # the bound variable by variable id
  stored: set      # numbers of the slots that the graph writes
  ops: dict        # how often each op of tinygrad occurred


def convert(call):
  """The graph of a CALL as Tensor.realize hands it to the scheduler. Unsupported: something a server cannot be told."""
  module = Module(call)
  Scope(module).run(call.src[0])
  if not module.stores: return Converted(None, [], [], set(), module.ops)
  graph = module.b.to_message(module.b.op("sink", module.stores))
  return Converted(graph, list(module.slots), _variables_of(graph, list(module.variables)), set(module.last), module.ops)


def _variables_of(graph, variables):
  """Those that the graph still has, which it then numbers without gaps."""
  nodes = [node for node in graph.nodes if node.op == OPS["var"].wire]
  used = sorted({node.arg[0] for node in nodes})
  for node in nodes: node.arg[0] = used.index(node.arg[0])
  return [variables[i] for i in used]


# What no file does.
COMPUTES = GroupOp.ALU | {Ops.CAST, Ops.REDUCE}

# Through which integers numbers become shorter or unsigned ones, whose ends they then wrap around.
WRAPPED = {dtypes.uint8: "i32", dtypes.int8: "i32", dtypes.uint16: "i32", dtypes.int16: "i32", dtypes.uint32: "i64"}


class Module:
  """What all scopes of one conversion share."""

  def __init__(self, call):
    self.b = GraphBuilder()
    self.args = call.src[1:]
    uses = collections.Counter(_buffer_under(a) for a in self.args)
    self.shared = {b for b, n in uses.items() if n > 1}
    self.slots, self.variables = {}, {}  # Slot, bound variable -> number. No lists: == of two UOps makes a third
    self.last = {}  # slot number -> its last store
    self.stores = []
    self.ops = collections.Counter()

  def view_of_shared(self, u):
    """The argument behind the PARAM `u`, if it is a view of a buffer that other arguments are views of too."""
    arg = self.args[u.arg.slot]
    return arg if arg.op in (Ops.SHRINK, Ops.BITCAST) and _buffer_under(arg) in self.shared else None

  def param(self, u, instance):
    """Slot number and node of one instance of `u`: a PARAM of the outermost body, or the BUFFER behind several."""
    slot = Slot(self.args[u.arg.slot] if u.op is Ops.PARAM else u, instance)
    number, dims = self.slots.setdefault(slot, len(self.slots)), tuple(int(d) for d in u.max_shape)
    device = device_number(devices_of(u.device)[instance])
    return number, self.b.op("param", arg=(number, device, *dims), dtype=DTYPES[u.dtype], dims=dims)

  def variable(self, u):
    number = self.variables.setdefault(self.args[u.arg.slot], len(self.variables))
    low, high = u.arg.vmin_vmax
    return self.b.op("var", arg=(number, low, high, u.arg.multiple_of or 1), dtype="i64")


def _buffer_under(arg):
  while arg.op in (Ops.SHRINK, Ops.BITCAST): arg = arg.src[0]
  return arg


class Scope:
  """One body: the outermost one, a function put in place (`args` in `parent`), or a function of its own (`own`)."""

  def __init__(self, module, parent=None, args=None, own=False):
    self.module, self.b, self.parent, self.args, self.own = module, module.b, parent, args, own
    self.values = {}   # (node, type) -> Value; those of TUPLE and FUNCTION are lists
    self.has_invalid = True  # whether a value of the body may be Invalid
    self.effects = {}  # node -> {slot number: the last store to it that the node waits for}

  def run(self, root):
    root = self.root = without_ratios(root)
    order = list(root.toposort(enter_calls=False))
    self.has_invalid = any(u.op is Ops.CONST and u.is_invalid for u in order)
    asked = {root: {root.dtype: None}}
    for u in reversed(order):
      if u.op is Ops.BUFFER and u.addrspace is AddrSpace.ALU and u in asked:  # not only in the shape that a PARAM says
        raise Unsupported(f"the variable {u.arg.name} is unbound; give it a value with bind")
      for dt in asked.get(u, ()):
        for s, want in self.demands(u, dt): asked.setdefault(s, {})[want] = None
    for u in order:
      self.module.ops[u.op.name] += u in asked
      for dt in asked.get(u, ()): self.values[u, dt] = self.make(u, dt)
    return self.values[root, root.dtype]

  def demands(self, u, dt):
    """The sources that `u`, made as `dt`, needs, each with the type it is made in."""
    for s, want in zip(u.src, source_types(u, dt)):
      if want is not None: yield s, asked_type(s, want)
    for arg in _shape_args(u):
      for d in _dims(arg):
        if d.op is not Ops.CONST and not device_ranges(d): yield d, INDEX

  def get(self, s, want):
    value = self.values[s, asked_type(s, want)]
    return value if want is dtypes.void else self.b.cast(value, DTYPES[want])

  def sources(self, u, dt): return [self.get(s, w) for s, w in zip(u.src, source_types(u, dt)) if w is not None]

  def dims(self, arg, instance=0):
    """The dims that a source of a movement stands for, on one device."""
    def dim(d):
      if d.op is Ops.CONST: return d.val
      if ranges := device_ranges(d): return int(d.substitute({r: r.const_like(instance) for r in ranges}).ssimplify())
      return self.b.size(self.values[d, INDEX], int(d.vmin), int(d.vmax))
    return tuple(map(dim, _dims(arg)))

  # --- nodes ---

  def make(self, u, dt):
    if u.op in COMPUTES and isinstance(u.device, str) and u.device.startswith(FILES):
      raise NotImplementedError(f"{u.op.name.lower()} on {u.device}: files hold numbers and compute nothing; move the tensor first, with to(device)")
    if u.op in GroupOp.Unary | {Ops.BITCAST} and u.src[0].base.is_invalid:  # whatever it is, it is not stored
      return self.b.broadcast(self.b.const(DTYPES[dt], 0), tuple(map(int, u.shape)))
    if u.op in GroupOp.ALU: return self.alu(u, dt)
    if u.op in GroupOp.Movement or u.op in (Ops.UNSHARD, Ops.BITCAST): return self.view(u, self.sources(u, dt)[0])
    if u.op is Ops.BUFFER: raise Unsupported("a buffer that no graph has filled, of a custom kernel: a server takes graphs, no code of clients")
    if u.op not in HANDLERS: raise Unsupported(str(u.op))
    return HANDLERS[u.op](self, u, dt)

  def alu(self, u, dt):
    src = self.sources(u, dt)
    comparison = u.op in GroupOp.Comparison
    if u.op is Ops.POW and dtypes.is_int(dt): return self.integer_power(*src, exponent=u.src[1])
    if dt in LARGEST and u.op in ALU and not comparison and u.op not in (Ops.WHERE, Ops.MAX):  # in f32, rounded once
      return self.saturated(self.b.alu(ALU[u.op], [self.b.cast(x, "f32") for x in src]), dt)
    name = (BOOL_ALU if src[-1].dtype == "bool" else ALU).get(u.op)
    if name is None: raise Unsupported(str(u.op))
    value = self.b.alu(name, src, "bool" if comparison else None)
    return value if comparison else self.b.cast(value, DTYPES[dt])

  def cast(self, u, dt):
    x = self.sources(u, dt)[0]
    if dt in WRAPPED and x.dtype in ("f16", "bf16", "f32", "f64"): x = self.b.cast(x, WRAPPED[dt])  # as processors do, not at the end
    if dt not in LARGEST or x.dtype in (DTYPES[dt], "bool"): return self.b.cast(x, DTYPES[dt])
    if not x.dtype.startswith(("f", "bf")): x = self.b.cast(x, "f32")
    if x.dtype not in ("f16", "bf16", "f32", "f64"): x = self.b.cast(x, "f32")
    return self.saturated(x, dt)

  def saturated(self, x, dt):
    # Numbers too large become the largest one, in tinygrad; infinities stay what they are.
    most, least = (self.b.const(x.dtype, sign * LARGEST[dt]) for sign in (1.0, -1.0))
    infinity, none = (self.b.const(x.dtype, v) for v in (math.inf, -math.inf))
    for bound, beyond, edge in ((most, [most, x], [x, infinity]), (least, [x, least], [none, x])):
      cut = self.b.alu("and", [self.b.alu("cmplt", beyond, "bool"), self.b.alu("cmplt", edge, "bool")])
      x = self.b.alu("where", [cut, bound, x])
    return self.b.cast(x, DTYPES[dt])

  def integer_power(self, x, e, exponent):
    """There is no power of integers here: products for a literal exponent, else in f64, to the nearest."""
    b = self.b
    if exponent.op is Ops.CONST and exponent.val >= 0:
      result, square, left = b.const(x.dtype, 1), x, exponent.val
      while left > 0:
        if left & 1: result = b.alu("mul", [result, square])
        square, left = b.alu("mul", [square, square]), left >> 1
      return b.broadcast(result, x.dims)
    power = b.alu("pow", [b.cast(x, "f64"), b.cast(e, "f64")])
    nearest = b.alu("floor", [b.alu("add", [power, b.const("f64", 0.5)])])
    negative = b.alu("cmplt", [e, b.const(e.dtype, 0)], "bool")
    return b.cast(b.alu("where", [negative, power, nearest]), x.dtype)

  def const(self, u, dt):
    value = 0 if u.is_invalid else u.val
    if dtypes.is_float(dt): value = truncate.get(dt, float)(float(value))
    elif dtypes.is_bool(dt): value = int(bool(value))
    else: value = truncate[dt](int(value))
    if dt is dtypes.uint64 and value >= 1 << 63: value -= 1 << 64
    return self.b.const(DTYPES[dt], value)

  def param(self, u, dt):
    if self.args is not None:
      arg = self.args[u.arg.slot]
      return self.b.cast(self.parent.get(arg, value_type(arg)), DTYPES[dt])
    if 0 in u.max_shape and u.addrspace is not AddrSpace.ALU: return self.b.broadcast(self.b.const(DTYPES[u.dtype], 0), self.dims_of(u))
    if self.own:
      dims = tuple(int(d) for d in u.shape)
      return self.b.op("arg", arg=(u.arg.slot, device_number(u.device), *dims), dtype=DTYPES[u.dtype], dims=dims)
    if u.addrspace is AddrSpace.ALU: return self.b.cast(self.module.variable(u), DTYPES[dt])
    return storage.read(self, u)

  def dims_of(self, u):
    if not all(isinstance(d, int) for d in u.shape): raise Unsupported("a buffer without elements whose shape has variables")
    return tuple(u.shape)

  def on_devices(self, instances):
    if len(instances) == 1: return instances[0]
    return self.b.op("mstack", instances, dtype=instances[0].dtype, dims=instances[0].dims)

  def select(self, x, instance): return self.b.op("mselect", (x,), (instance,), x.dtype, x.dims)

  def view(self, u, x, instance=None):
    """The movement `u` of `x`, which is on all devices, or what one of them has where `instance` says which."""
    b = self.b
    if instance is None and any(device_ranges(a) for a in _shape_args(u)):
      return self.on_devices([self.view(u, self.select(x, i), i) for i in range(len(u.device))])
    instance = instance or 0
    if u.op is Ops.RESHAPE: return b.reshape(x, self.dims(u.src[1], instance))
    if u.op is Ops.EXPAND: return b.broadcast(x, self.dims(u.src[1], instance) + x.dims)
    if u.op is Ops.PERMUTE: return b.permute(x, u.marg)
    if u.op is Ops.FLIP: return b.flip(x, tuple(a for a, flipped in enumerate(u.marg) if flipped))
    if u.op is Ops.PAD: return b.box("pad", x, *(self.dims(a, instance) for a in u.src[1:]))
    if u.op is Ops.SHRINK: return b.box("shrink", x, *(self.dims(a, instance) for a in u.src[1:]))
    if u.op is Ops.BITCAST: return b.bitcast(x, DTYPES[u.dtype])
    if u.op is Ops.MSELECT: return self.select(x, u.arg)
    if u.op is Ops.UNSHARD:
      places = shard_places(u)
      if len(u.arg) != 1 or places != [(i,) for i in range(len(places))]: return self.assembled(u, x, places)
      return b.op("unshard", (x,), u.arg, x.dtype, unsharded_dims(u, x.dims))
    raise Unsupported(f"a view through {u.op}")

  def assembled(self, u, x, places):
    """The UNSHARD `u` over several axes, or in another order than the devices': copies of all parts, side by side."""
    numbers = tuple(map(device_number, u.device))
    parts = {p: self.b.op("copy", (self.select(x, i),), numbers, x.dtype, x.dims)
             for i, p in reversed(list(enumerate(places)))}
    for k in reversed(range(len(u.arg))):  # the last axis first, so that what is left of a place are those before it
      rows = {}
      for p in sorted(parts): rows.setdefault(p[:k], []).append(parts[p])
      parts = {p: self.b.cat(row, u.arg[k]) for p, row in rows.items()}
    return parts[()]

  def reduce(self, u, dt):
    if (count := _triangle(u)) is not None:
      c, n = count
      name = DTYPES[dt] if dtypes.is_int(dt) else "i64"
      index = self.b.alu("add", [self.b.op("iota", arg=(n,), dtype=name, dims=(n,)), self.b.const(name, 1)])
      return self.b.alu("mul", [self.b.cast(index, DTYPES[dt]), self.const(c, dt)])
    x, axes = self.sources(u, dt)[0], tuple(range(u.arg[1]))
    if x.dtype != "bool": return self.b.reduce(REDUCE[u.arg[0]], x, axes)
    kind = "mul" if u.arg[0] is Ops.MUL else "max"
    return self.b.cast(self.b.reduce(kind, self.b.cast(x, "u8"), axes), "bool")

  def copy(self, u, dt):
    x, source, to = self.sources(u, dt)[0], u.src[0].device, u.arg
    if source == to or (source is None and isinstance(to, str)): return x
    if isinstance(source, tuple):
      if isinstance(to, tuple):
        if list(map(device_number, source)) == list(map(device_number, to)): return x
        raise Unsupported(f"COPY from the devices {source} to the devices {to}")
      x, source = self.select(x, 0), source[0]
    return self.on_device(x, source, to)

  def allreduce(self, u, dt):
    """The server's ALLREDUCE sums what each device has of a value, which of an UNSHARD is all of it. In tinygrad the
    devices' shards are summed, and the result is sharded as they were."""
    shards, (kind, to), source = u.src[0], u.arg, u.src[0].device
    unshard = shards if shards.op is Ops.UNSHARD else None
    if unshard is None and any(s.op is Ops.UNSHARD for s in shards.toposort(enter_calls=False)):
      raise Unsupported("ALLREDUCE of what is computed from an UNSHARD; realize its source first")
    x = self.sources(u, dt)[0] if unshard is None else self.sources(unshard, dt)[0]
    x = self.b.op("allreduce", (x,), (REDUCE_KINDS.index(REDUCE[kind]),), x.dtype, x.dims)
    if unshard is not None: x = self.view(unshard, x)
    numbers = lambda devices: tuple(map(device_number, devices_of(devices)))
    if numbers(to) == numbers(source): return x
    if isinstance(to, tuple): raise Unsupported("ALLREDUCE to other devices")
    return self.on_device(self.select(x, 0), source[0], to)

  def on_device(self, x, source, to):
    """`x`, which is on the device `source` (none: a constant), on `to`, which may be several."""
    numbers = tuple(map(device_number, devices_of(to)))
    if source is not None and numbers == (device_number(source),): return x
    return self.b.op("copy", (x,), numbers, x.dtype, x.dims)

  def unary(self, name, u, dt):
    x = self.sources(u, dt)[0]
    return self.b.op(name, (x,), dtype=x.dtype, dims=x.dims)

  # --- functions ---

  def function(self, u, dt):
    if not _can_be_called(u.src[0], u.src[1:]): return self.in_place(u, dt)
    values = Scope(self.module, own=True).run(u.src[0])
    call = self.b.op("call", [self.b.op("tuple", values), *self.sources(u, dt)])
    return [self.b.op("gettuple", (call,), (i,), v.dtype, v.dims) for i, v in enumerate(values)]

  def in_place(self, u, dt):
    if u.op is Ops.CALL and (u.src[0].op is not Ops.SINK or u.src[0].arg is not None):
      name = getattr(u.src[0].arg, "name", "")
      raise Unsupported(f"custom kernel {name}: a server takes graphs, no code of clients")
    inner = Scope(self.module, parent=self, args=u.src[1:])
    result = inner.run(u.src[0])
    self.effects[u] = inner.effects.get(inner.root, {})
    return result

  def wait(self, u, dt):
    storage.wait(self, u)
    return self.sources(u, dt)


def _triangle(u):
  """(the constant, n) if `u` is the sum along the rows of a triangle of a constant, as arange makes it; else None."""
  if u.arg[0] is not Ops.ADD or u.arg[1] != 1 or len(u.shape) != 1 or not isinstance(n := u.shape[0], int) or n < 2:
    return None
  steps, x = [], u.src[0]
  while x.op in GroupOp.Movement:
    if not all(isinstance(d, int) for d in (*x.shape, *x.src[0].shape)): return None
    if x.op in (Ops.EXPAND, Ops.PAD, Ops.SHRINK): steps.append((x.op, x.shape, x.marg if x.op is not Ops.EXPAND else None))
    elif x.op is Ops.PERMUTE: steps.append((x.op, tuple(x.marg), None))
    elif x.op is not Ops.RESHAPE: return None
    elif _long(x.shape) != _long(x.src[0].shape): steps.append((x.op, x.shape, None))
    x = x.src[0]
  if x.op is not Ops.CONST or x.is_invalid: return None
  while [s[:2] for s in steps[:2]] == [(Ops.PERMUTE, (1, 0))] * 2: del steps[:2]
  m = 2 * n - 1
  want = [(Ops.SHRINK, (n, n)), (Ops.RESHAPE, (n, 2 * n)), (Ops.SHRINK, (2 * n * n,)),
          (Ops.RESHAPE, ((n + 1) * m,)), (Ops.EXPAND, (n + 1, m)), (Ops.PAD, (m,)), (Ops.EXPAND, (n,))]
  if [s[:2] for s in steps] != want: return None
  (shrunk, cut, padded) = (steps[0][2], steps[2][2], steps[5][2])
  if any(b for b, _ in _bounds(shrunk)) or any(b for b, _ in _bounds(cut)) or _bounds(padded)[0][0] != n - 1: return None
  return x, n


def _long(shape): return [d for d in shape if d != 1]


def _bounds(marg): return [(int(a), int(b)) for a, b in marg]


def _shape_args(u): return u.src[1:] if u.op in (Ops.RESHAPE, Ops.EXPAND, Ops.PAD, Ops.SHRINK) else ()


def _dims(arg): return arg.src if arg.op is Ops.STACK else (arg,)


def _can_be_called(body, args):
  """Whether a body has a meaning of its own: values of known shape on one device, and no effect."""
  nodes = body.toposort(enter_calls=False)
  if any(n.op in (Ops.STORE, Ops.AFTER, Ops.CALL) or isinstance(n.device, tuple) for n in nodes): return False
  if any(n.op is Ops.PARAM and n.device is None for n in nodes): return False  # which devices, its arguments say
  if any(isinstance(a.device, tuple) or a.addrspace is AddrSpace.ALU for a in args): return False
  return all(isinstance(d, int) for n in nodes if n.op is Ops.PARAM for d in n.shape)


HANDLERS = {
    Ops.CONST: Scope.const, Ops.PARAM: Scope.param, Ops.REDUCE: Scope.reduce, Ops.COPY: Scope.copy,
    Ops.ALLREDUCE: Scope.allreduce, Ops.FUNCTION: Scope.function, Ops.CALL: Scope.in_place,
    Ops.STORE: storage.store, Ops.AFTER: storage.after, Ops.SINK: Scope.wait, Ops.TUPLE: Scope.wait,
    Ops.CAST: Scope.cast,
    Ops.STACK: lambda s, u, dt: s.b.stack(s.sources(u, dt)),
    Ops.MSTACK: lambda s, u, dt: s.on_devices(s.sources(u, dt)),
    Ops.MSELECT: lambda s, u, dt: s.select(s.sources(u, dt)[0], u.arg),
    Ops.CONTIGUOUS: lambda s, u, dt: s.unary("contiguous", u, dt),
    Ops.DETACH: lambda s, u, dt: s.unary("detach", u, dt),
    Ops.CONTIGUOUS_BACKWARD: lambda s, u, dt: s.sources(u, dt)[0],
    Ops.GETTUPLE: lambda s, u, dt: s.values[u.src[0], dtypes.void][u.arg]}
