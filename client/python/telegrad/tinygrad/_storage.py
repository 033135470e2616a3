"""Stores, and values after stores.

In tinygrad a STORE writes any view of a buffer, and AFTER(view, STORE...) reads a view once the stores are done. Here a
store names its target as a view of a param after the stores before it, so that all stores to a slot stand in one order,
and an AFTER is of a whole param. So the views between a buffer and a node are walked down to the buffer and put back.

What no store can write through is undone on the value instead: BITCAST by the opposite bitcast; UNSHARD by each
device's part; PAD (which strided slices make) by cutting the padding off. Where that leaves elements of the target
unnamed, and where the value is Invalid (which a store leaves alone), the target's own elements are stored again.
"""

import functools

from tinygrad.dtype import dtypes
from tinygrad.uop.ops import GroupOp, Ops

from telegrad.tinygrad._vocabulary import DTYPES, Unsupported, devices_of, shard_places, unsharded_dims

_VIEWS = GroupOp.Movement | {Ops.BITCAST, Ops.UNSHARD, Ops.MSELECT}


def _walk(scope, u):
  """(views between a buffer and `u`, innermost first, each with its scope; the buffer: a PARAM of the outermost body or
  a BUFFER among its arguments; stores on the way by slot number). None: `u` is no view of a buffer."""
  steps, effects = [], {}
  while True:
    effects = scope.effects.get(u, {}) | effects
    if u.op in _VIEWS: steps.append((scope, u))
    elif u.op is Ops.PARAM and scope.args is not None:
      scope, u = scope.parent, scope.args[u.arg.slot]
      continue
    elif u.op is Ops.PARAM and not scope.own:
      shared = scope.module.view_of_shared(u)
      if shared is None: return steps[::-1], u, effects
      u = shared
      continue
    elif u.op is Ops.BUFFER: return steps[::-1], u, effects
    elif u.op is not Ops.AFTER: return None
    u = u.src[0]


def read(scope, u):
  """The view `u` of a buffer after the stores that it waits for; None if it is no such view."""
  walk = _walk(scope, u)
  if walk is None: return None
  steps, base, effects = walk
  if 0 in base.max_shape: return None
  instances = []
  for i in range(len(devices_of(base.device))):
    number, param = scope.module.param(base, i)
    instances.append(_after(scope.b, param, effects.get(number)))
  x = scope.on_devices(instances)
  for inner, step in steps: x = inner.view(step, x)
  return x


def _after(b, param, store):
  return param if store is None else b.op("after", (param, store), dtype=param.dtype, dims=param.dims)


def wait(scope, u):
  """`u` waits for what its sources wait for."""
  merged = {}
  for s in u.src:
    for number, store in scope.effects.get(s, {}).items():
      if number not in merged or merged[number].id < store.id: merged[number] = store
  scope.effects[u] = merged


def after(scope, u, dt):
  wait(scope, u)
  value = read(scope, u)
  return scope.get(u.src[0], dt) if value is None else value


def store(scope, u, dt):
  """One store for each device that has a part of the target."""
  target, value = u.src
  walk = _walk(scope, target)
  if walk is None: raise Unsupported(f"a store to {target.op}")
  steps, base, _ = walk
  if value.base.is_invalid or 0 in base.max_shape:  # there is nothing to write
    scope.effects[u] = {}
    return None
  first = steps[0][1] if steps else None
  instances = range(len(devices_of(base.device)))
  if first is not None and first.op is Ops.MSELECT: instances, steps = [first.arg], steps[1:]
  x = scope.b.broadcast(scope.get(value, target.dtype), scope.get(target, target.dtype).dims)
  scope.effects[u] = {}
  for i in instances:
    part = scope.select(x, i) if isinstance(value.device, tuple) else x
    mask = _valid(scope, value)
    if mask is not None: mask = scope.b.broadcast(mask, x.dims)
    if mask is not None and isinstance(value.device, tuple): mask = scope.select(mask, i)
    place, part, mask = _place(scope, base, i, steps, part, mask)
    if mask is not None: part = scope.b.alu("where", [mask, part, place])
    effect = scope.b.op("store", (place, part))
    number = scope.module.param(base, i)[0]
    scope.module.last[number] = scope.effects[u][number] = effect
    scope.module.stores.append(effect)
  return None


def _place(scope, base, instance, steps, x, mask):
  """The part of the target on one device, and the value and mask for it."""
  number, place = scope.module.param(base, instance)
  place = _after(scope.b, place, scope.module.last.get(number))
  blocked = next((k for k, (_, s) in enumerate(steps) if s.op in (Ops.BITCAST, Ops.UNSHARD, Ops.PAD)), len(steps))
  places = [place]
  for inner, step in steps:
    shape = places[-1] if step.op is not Ops.UNSHARD else None
    places.append(inner.view(step, shape, instance) if shape is not None else _unsharded(step, places[-1]))
  for k in range(len(steps) - 1, blocked - 1, -1):
    inner, step = steps[k]
    x, mask = _undo(inner, step, x, mask, places[k], instance)
  return places[blocked], x, mask


def _unsharded(step, x):
  """Only the dims of what UNSHARD makes of a part: no such view of one device's buffer exists."""
  return type(x)(x.id, x.dtype, unsharded_dims(step, x.dims))


def _undo(scope, step, x, mask, source, instance):
  """What to store to `source`, the source of the view `step`, so that the view becomes `x` where `mask` is true."""
  b, dims = scope.b, source.dims
  if step.op is Ops.RESHAPE: undo = lambda v: b.reshape(v, dims)
  elif step.op is Ops.PERMUTE: undo = lambda v: b.permute(v, tuple(map(step.marg.index, range(len(step.marg)))))
  elif step.op is Ops.FLIP: undo = lambda v: scope.view(step, v)
  elif step.op is Ops.PAD:
    offsets = scope.dims(step.src[1], instance)
    undo = lambda v: b.box("shrink", v, offsets, dims)
  elif step.op is Ops.UNSHARD:
    place = dict(zip(step.arg, shard_places(step)[instance]))
    offsets = tuple(place.get(a, 0) * d for a, d in enumerate(dims))
    undo = lambda v: b.box("shrink", v, offsets, dims)
  elif step.op is Ops.BITCAST:
    if mask is not None: raise Unsupported("a partial store through BITCAST")
    undo = lambda v: b.bitcast(v, source.dtype)
  elif step.op is Ops.SHRINK:
    offsets = scope.dims(step.src[1], instance)
    if mask is None and dims != x.dims: mask = b.expand(b.reshape(b.const("bool", 1), (1,) * len(x.dims)), x.dims)
    undo = lambda v: b.box("pad", v, offsets, dims)
  else: raise Unsupported(f"a store through {step.op}")
  return undo(x), None if mask is None else undo(mask)


def _valid(scope, root):
  """Where a value is not Invalid; None if it is valid everywhere."""
  if not scope.has_invalid: return None
  b, masks = scope.b, {}
  for u in root.toposort(gate=lambda u: u.op not in (Ops.AFTER, Ops.PARAM, Ops.CONTIGUOUS), enter_calls=False):
    of_src = [masks.get(s) for s in u.src]
    if u.op is Ops.CONST and u.is_invalid: masks[u] = b.const("bool", 0)
    elif all(m is None for m in of_src): continue
    elif u.op is Ops.WHERE:
      masks[u] = b.alu("where", [scope.get(u.src[0], dtypes.bool), *(m or b.const("bool", 1) for m in of_src[1:])])
      if of_src[0] is not None: masks[u] = b.alu("and", [of_src[0], masks[u]])
    elif u.op is Ops.REDUCE: masks[u] = b.cast(b.reduce("mul", b.cast(of_src[0], "u8"), tuple(range(u.arg[1]))), "bool")
    elif u.op is Ops.BITCAST and (u.src[0].base.is_invalid or u.dtype.itemsize == u.src[0].dtype.itemsize): masks[u] = of_src[0]
    elif u.op is Ops.PAD:
      true = b.const("bool", 1)
      masks[u] = b.alu("xor", [true, scope.view(u, b.alu("xor", [true, of_src[0]]))])
    elif u.op in GroupOp.Movement: masks[u] = scope.view(u, of_src[0])
    elif u.op in GroupOp.ALU or u.op is Ops.CAST:
      masks[u] = functools.reduce(lambda x, y: b.alu("and", [x, y]), [m for m in of_src if m is not None])
    else: raise Unsupported(f"Invalid through {u.op}")
  return masks.get(root)
