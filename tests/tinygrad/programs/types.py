"""Element types: casts, bitcasts, arithmetic and reductions in each."""
import numpy as np
from tinygrad import Tensor, dtypes
from . import backward, floats, forward, ints

_INTS = [dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64]
_FLOATS = [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64]
_FP8 = [dtypes.fp8e4m3, dtypes.fp8e5m2]


def _name(dtype): return {dtypes.half: "half"}.get(dtype, str(dtype).split(".")[-1])
def _f(dtype, *shape): return lambda: floats(*(shape or (3, 4)), low=-4, high=4, dtype=dtype)
def _i(dtype, *shape): return lambda: ints(*(shape or (3, 4)), low=0, high=100, dtype=dtype)


def _casts(source):
  def fn(x): return [x.cast(d) for d in [dtypes.bool, *_INTS, *_FLOATS] if d is not source]
  return fn


def _bits(value, dtype): return Tensor(np.array(value, dtype=dtype))


PROGRAMS = {
    **{f"casts_from_{_name(d)}": forward(_casts(d), _i(d)) for d in _INTS},
    **{f"casts_from_{_name(d)}": forward(_casts(d), lambda d=d: floats(3, 4, low=0, high=100, dtype=d)) for d in _FLOATS},
    "casts_from_bool": forward(_casts(dtypes.bool), lambda: Tensor([True, False])),
    **{f"arithmetic_{_name(d)}": forward(lambda x, y: (x + y, x * y, x - y, x.maximum(y), x < y, x == y), _i(d), _i(d)) for d in _INTS},
    **{f"arithmetic_{_name(d)}": forward(lambda x, y: (x + y, x * y, x - y, x.maximum(y), x < y, x / (y.abs() + 1)), _f(d), _f(d))
       for d in _FLOATS + _FP8},
    **{f"divmod_{_name(d)}": forward(lambda x, y: (x // (y + 1), x % (y + 1)), _i(d), _i(d)) for d in _INTS},
    **{f"bits_{_name(d)}": forward(lambda x, y: (x & y, x | y, x ^ y, ~x), _i(d), _i(d)) for d in _INTS},
    **{f"reduce_{_name(d)}": forward(lambda x: (x.sum(axis=1), x.max(axis=0), x.min()), _i(d)) for d in _INTS},
    **{f"reduce_{_name(d)}": forward(lambda x: (x.sum(axis=1), x.max(axis=0), x.mean()), _f(d)) for d in _FLOATS},
    **{f"math_{_name(d)}": forward(lambda x: (x.exp2(), x.sin(), x.abs().sqrt(), (x.abs() + 1).log2(), (x.abs() + 1).reciprocal()), _f(d))
       for d in _FLOATS},
    **{f"matmul_{_name(d)}": backward(lambda x, y: x @ y, _f(d, 2, 3), _f(d, 3, 2)) for d in _FLOATS},
    **{f"softmax_{_name(d)}": forward(lambda x: x.softmax(), _f(d)) for d in _FLOATS},
    **{f"cast_backward_{_name(d)}": backward(lambda x, d=d: x.cast(d).exp2(), _f(dtypes.float32)) for d in (dtypes.half, dtypes.bfloat16)},
    **{f"cast_to_{_name(d)}": forward(lambda x, d=d: x.cast(d).cast(dtypes.float32), _f(dtypes.float32)) for d in _FP8},
    **{f"pad_where_{_name(d)}": forward(lambda x: (x > 1).where(x, 2).pad(((1, 0), (0, 1))), _f(d)) for d in _FP8 + [dtypes.half]},
    "promote_int_float": forward(lambda x, y: x + y, _i(dtypes.int32), _f(dtypes.half)),
    "promote_uint8_int8": forward(lambda x, y: x + y, _i(dtypes.uint8), _i(dtypes.int8)),
    "promote_half_bfloat16": forward(lambda x, y: x * y, _f(dtypes.half), _f(dtypes.bfloat16)),
    "promote_bool": forward(lambda x, y: (x > 0) + y, _f(dtypes.float32), _i(dtypes.int16)),
    "int_to_float_functions": forward(lambda x: (x.sqrt(), x.exp2().log(), x / 3), lambda: ints(3, 4, low=1, high=9)),
    "literal_types": forward(lambda x: (x + 300, x * 2, x / 2, (x > 3).where(1, 2.5)), _i(dtypes.uint8)),
    "narrowing": forward(lambda x: (x.cast(dtypes.int8), x.cast(dtypes.uint8), x.cast(dtypes.int16)), lambda: ints(12, low=-70000, high=70000)),
    "wrap_int8": forward(lambda x: (x * x, x + 100), lambda: ints(12, low=-128, high=127, dtype=dtypes.int8)),
    "wrap_uint32": forward(lambda x: x * 2654435761, lambda: ints(6, low=0, high=1 << 30, dtype=dtypes.uint32)),
    "wide_int64": forward(lambda x: x * 6364136223846793005 + 1442695040888963407, lambda: ints(6, dtype=dtypes.int64)),
    "bitcast_float_int": forward(lambda x: x.bitcast(dtypes.int32), _f(dtypes.float32)),
    "bitcast_int_float": forward(lambda x: (x + 0x3f800000).bitcast(dtypes.float32), lambda: ints(3, 4, low=0, high=1 << 22)),
    "bitcast_half": forward(lambda x: (x + x).bitcast(dtypes.uint16), _f(dtypes.half)),
    "bitcast_bfloat16": forward(lambda x: x.bitcast(dtypes.bfloat16), lambda: ints(4, low=0x3f00, high=0x4100, dtype=dtypes.uint16)),
    "bitcast_double": forward(lambda x: x.bitcast(dtypes.uint64), _f(dtypes.float64)),
    "bitcast_narrower": forward(lambda x: x.bitcast(dtypes.uint8) + 1, _f(dtypes.float32, 2, 3)),
    "bitcast_wider": forward(lambda x: (x + 0).bitcast(dtypes.uint32) + 1, lambda: ints(2, 8, low=0, high=256, dtype=dtypes.uint8)),
    "bitcast_wider_64": forward(lambda x: (x * 3).bitcast(dtypes.int64), lambda: ints(3, 4)),
    "bitcast_realized": lambda: (floats(2, 4).contiguous().realize().bitcast(dtypes.uint8) + 1).realize(),
    "bitcast_assign": lambda: bitcast_assign(),
    "subnormal_half": forward(lambda x: x.cast(dtypes.half) + 1e-7, lambda: floats(8, low=-1e-6, high=1e-6)),
    "overflow_half": forward(lambda x: (x.cast(dtypes.half) * 300, x.cast(dtypes.half)), lambda: floats(8, low=-70000, high=70000)),
    "float64_math": forward(lambda x: (x.exp(), x.sin(), x.abs().log()), _f(dtypes.float64)),
    "float_to_int_round_trip": forward(lambda x: x.cast(dtypes.int32).cast(dtypes.float32), _f(dtypes.float32)),
    "bool_to_float": forward(lambda x: (x > 0).cast(dtypes.half) * 1.5, _f(dtypes.float32)),
}


def bitcast_assign():
  x = floats(4).contiguous().realize()
  x.bitcast(dtypes.int32).assign(ints(4, low=0x3f800000, high=0x40000000)).realize()
