"""Which element type each source of a tinygrad node is wanted in.

A Python literal in a tinygrad program is weak: it has no width until something concrete uses it. The rules here are
those of tinygrad's own lowering (uop/weak.py), said from the consumer's side: a node that is to be made as type `dt`
wants source i as `source_types(u, dt)[i]`.
"""

from tinygrad.dtype import AddrSpace, dtypes, least_upper_dtype
from tinygrad.uop.ops import GroupOp, Ops

INDEX = dtypes.int64  # of dims and variables


def is_weak(u):
  """Whether `u` takes the type that its consumer wants."""
  return u.dtype in dtypes.weaks or u.base.is_invalid


def asked_type(s, want):
  """The type in which `s` is made for a consumer that wants `want`."""
  return want if is_weak(s) else s.dtype


def default_dtype(u):
  """The type of a weak value that nothing asks for."""
  if u.dtype not in dtypes.weaks: return u.dtype
  if u.dtype is dtypes.weakfloat: return dtypes.default_float
  return dtypes.long if u.overflows(dtypes.int32) else dtypes.int32


def value_type(u):
  """The type of an argument of a function: a variable counts."""
  return INDEX if u.addrspace is AddrSpace.ALU else default_dtype(u)


def source_types(u, dt):
  """For each source: the type wanted, or None where it is no value (the dims of a movement, the body of a function)."""
  if u.op in GroupOp.Comparison: return [_common(u.src)] * 2
  if u.op is Ops.CAST: return [_cast_source(u)]
  if u.op in GroupOp.ALU:
    # A weak value is computed at least as wide as it would be on its own.
    work = least_upper_dtype(dt, default_dtype(u)) if u.dtype in dtypes.weaks else dt
    return [dtypes.bool, work, work] if u.op is Ops.WHERE else [work] * len(u.src)
  if u.op is Ops.BITCAST: return [default_dtype(u.src[0])]
  if u.op is Ops.STORE: return [u.src[0].dtype] * 2
  if u.op in GroupOp.Movement or u.op in (Ops.UNSHARD, Ops.REDUCE): return [dt] + [None] * (len(u.src) - 1)
  if u.op in (Ops.FUNCTION, Ops.CALL): return [None] + [value_type(s) for s in u.src[1:]]
  if u.op in (Ops.SINK, Ops.TUPLE, Ops.GETTUPLE): return [default_dtype(s) for s in u.src]
  if u.op in (Ops.PARAM, Ops.CONST): return [None] * len(u.src)
  return [dt if s.dtype is not dtypes.void else dtypes.void for s in u.src]


def _common(src):
  """The type in which operands meet: literals follow the others, unless they are of a stronger kind."""
  values = [s for s in src if not s.base.is_invalid] or list(src)
  met = least_upper_dtype(*(s.dtype for s in values))
  return met if met not in dtypes.weaks else least_upper_dtype(*(default_dtype(s) for s in values))


def _cast_source(u):
  s, own = u.src[0], default_dtype(u.src[0])
  if s.dtype not in dtypes.weaks or u.dtype in dtypes.weaks: return own
  if s.op is Ops.CONST: return u.dtype
  same_kind = dtypes.is_float(s.dtype) == dtypes.is_float(u.dtype) and u.dtype is not dtypes.bool
  return least_upper_dtype(u.dtype, own) if same_kind else own
