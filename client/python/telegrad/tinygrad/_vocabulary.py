"""What is called how on both sides: tinygrad's element types, ops and devices, and Telegrad's."""

from tinygrad.dtype import dtypes
from tinygrad.uop.ops import AxisType, Ops


class Unsupported(Exception):
  """A graph that a server cannot be told."""


DTYPES = {
    dtypes.bool: "bool", dtypes.int8: "i8", dtypes.int16: "i16", dtypes.int32: "i32", dtypes.int64: "i64",
    dtypes.uint8: "u8", dtypes.uint16: "u16", dtypes.uint32: "u32", dtypes.uint64: "u64", dtypes.float16: "f16",
    dtypes.bfloat16: "bf16", dtypes.float32: "f32", dtypes.float64: "f64", dtypes.fp8e4m3: "f8e4m3fn",
    dtypes.fp8e5m2: "f8e5m2", dtypes.fp8e4m3fnuz: "f8e4m3fnuz", dtypes.fp8e5m2fnuz: "f8e5m2fnuz"}

LARGEST = {dtypes.fp8e4m3: 448.0, dtypes.fp8e5m2: 57344.0, dtypes.fp8e4m3fnuz: 240.0, dtypes.fp8e5m2fnuz: 57344.0}

ALU = {
    Ops.EXP2: "exp2", Ops.LOG2: "log2", Ops.SIN: "sin", Ops.SQRT: "sqrt", Ops.RECIPROCAL: "recip", Ops.NEG: "neg",
    Ops.TRUNC: "trunc", Ops.ADD: "add", Ops.SUB: "sub", Ops.MUL: "mul", Ops.FDIV: "fdiv", Ops.MAX: "max",
    Ops.AND: "and", Ops.OR: "or", Ops.XOR: "xor", Ops.SHL: "shl", Ops.SHR: "shr", Ops.FLOORDIV: "floordiv",
    Ops.FLOORMOD: "floormod", Ops.CDIV: "cdiv", Ops.CMOD: "cmod", Ops.POW: "pow", Ops.THREEFRY: "threefry",
    Ops.CMPLT: "cmplt", Ops.CMPEQ: "cmpeq", Ops.CMPNE: "cmpne", Ops.WHERE: "where"}
BOOL_ALU = ALU | {Ops.ADD: "or", Ops.MUL: "and", Ops.MAX: "or"}
FILES = ("DISK", "TINYFS")  # how the names of tinygrad's devices begin that are files
REDUCE = {Ops.ADD: "add", Ops.MUL: "mul", Ops.MAX: "max"}

def devices_of(device): return device if isinstance(device, tuple) else (device,)


def device_number(device):
  """TELEGRAD is 0, TELEGRAD:3 is 3; other memory (PYTHON, NPY, DISK:path) is uploaded to 0."""
  number = device.partition(":")[2]
  return int(number) if number.isdigit() else 0


def device_ranges(u):
  """The ranges in `u` that stand for the number of the device that runs it."""
  return [r for r in u.toposort() if r.op is Ops.RANGE and r.arg[-1] is AxisType.DEVICE]


def shard_places(u):
  """Where the part of each device is in the UNSHARD `u`: a number along each of its axes."""
  def at(r, instance):
    ranges = device_ranges(r)
    place = r.substitute({d: d.const_like(instance) for d in ranges}).ssimplify() if ranges else r
    if not isinstance(place, int) and not getattr(place, "op", None) is Ops.CONST: raise Unsupported(f"an UNSHARD over {r}")
    return int(place if isinstance(place, int) else place.val)
  return [tuple(at(r, i) for r in u.src[1:]) for i in range(len(u.device))]


def unsharded_dims(u, dims):
  """Of what the UNSHARD `u` makes of parts that have `dims`."""
  counts = {axis: 1 + max(p[k] for p in shard_places(u)) for k, axis in enumerate(u.arg)}
  return tuple(d * counts.get(a, 1) for a, d in enumerate(dims))
