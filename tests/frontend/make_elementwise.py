"""Makes elementwise.safetensors.gz.

Functions of floats are computed by mpmath in 50 digits, so that the data says how far a result is
from the true value; what else there is comes from NumPy, and gradients at kinks and in saturation
from PyTorch.
"""
import mpmath as mp
import numpy as np
import torch
import torch.nn.functional as F

from make_values import BF16, Section

mp.mp.dps = 50
np.seterr(all='ignore')
s = Section('elementwise')
F32, F64, F16 = np.float32, np.float64, np.float16
INTS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan]


def true(f, special, *arrays):
    """f in 50 digits; of infinities, NaN and zeros, whose sign may count, `special` by NumPy."""
    arrays = np.broadcast_arrays(*arrays)
    wide = [a.astype(F64) for a in arrays]
    fallback = special(*wide)
    out = np.empty(arrays[0].shape, F64)
    for i in np.ndindex(out.shape):
        args = [float(a[i]) for a in wide]
        if not np.isfinite(args + [fallback[i]]).all() or 0 in args or fallback[i] == 0:
            out[i] = fallback[i]
        else:
            out[i] = float(f(*map(mp.mpf, args)))
    return out


def float_type(dtype):
    return dtype if np.dtype(dtype).kind not in 'iub' else F32


def unary(case, f, special, low, high, points=(), kinds=(F32, F64, F16, np.int16)):
    """One variant for each type: numbers in [low, high], the points, 0, infinities, NaN."""
    for dtype in kinds:
        x = np.concatenate([s.rng.uniform(low, high, 24), points, SPECIAL])
        if float_type(dtype) != dtype:
            x = np.arange(max(low, -100), min(high, 100)).astype(dtype)[:24]
        with_type = x.astype(dtype)
        s.add(case, [with_type], [true(f, special, with_type).astype(float_type(dtype))])


tiny = [1e-30, -1e-30, 1e-4, -1e-4]
unary('sqrt', mp.sqrt, np.sqrt, 0, 100, [1e-30])
unary('rsqrt', lambda x: 1 / mp.sqrt(x), lambda x: 1 / np.sqrt(x), 0.01, 100, [1e-30])
unary('reciprocal', lambda x: 1 / x, lambda x: 1 / x, -5, 5, [1e-30])
unary('exp', mp.exp, np.exp, -80, 80, tiny + [88.7, -104, 1000])
unary('exp_small', mp.exp, np.exp, -8, 8, kinds=(F32, F64, F16, BF16))
unary('exp2', lambda x: mp.mpf(2) ** x, np.exp2, -20, 20, tiny)
unary('expm1', mp.expm1, np.expm1, -2, 2, tiny + [80, -80, 0.5, -0.5, 1000])
unary('log', mp.log, np.log, 0, 100, [1e-30, 1e30, 1.001])
unary('log2', lambda x: mp.log(x) / mp.log(2), np.log2, 0, 100, [1e-30, 1.001])
unary('log10', mp.log10, np.log10, 0, 100, [1e-30, 1000, 1.001])
unary('log1p', mp.log1p, np.log1p, -0.99, 10, tiny + [-1, 1e30, -2])
unary('sin', mp.sin, np.sin, -10, 10, tiny + [1e6])
near = [float(F32(k * np.pi / 2)) for k in (1, -1, 3, 5, 101, -333, 2001)]
unary('cos', mp.cos, np.cos, -1000, 1000, tiny + near)
# Far out cos is as near to the truth as units of 1 are.
unary('cos_far', mp.cos, np.cos, -1e30, 1e30, [1e8, 1.1e8], kinds=(F32, F64))
unary('tan', mp.tan, np.tan, -10, 10, tiny + near)
unary('asin', mp.asin, np.arcsin, -1, 1, tiny + [1, -1, 0.999, 1.5])
unary('acos', mp.acos, np.arccos, -1, 1, tiny + [1, -1, 0.999, 1.5])
unary('atan', mp.atan, np.arctan, -5, 5, tiny + [1, 1e30, -1e30])
unary('sinh', mp.sinh, np.sinh, -10, 10, tiny + [1, -1, 80, 89])
unary('cosh', mp.cosh, np.cosh, -10, 10, tiny + [80, -89])
unary('tanh', mp.tanh, np.tanh, -5, 5, tiny + [0.5, -0.5, 100, -1000])
unary('asinh', mp.asinh, np.arcsinh, -5, 5, tiny + [1e30, -1e30])
unary('acosh', mp.acosh, np.arccosh, 1, 10, [1, 1.0001, 1e30, 0.5])
unary('atanh', mp.atanh, np.arctanh, -1, 1, tiny + [1, -1, 0.999, 2])
erf = lambda x: np.where(np.isfinite(x), np.tanh(x), np.sign(x))
unary('erf', mp.erf, erf, -4, 4, tiny + [1, -1, 5.9, 6, -6, 100])
sigmoid = lambda x: 1 / (1 + np.exp(-x))
unary('sigmoid', lambda x: 1 / (1 + mp.exp(-x)), sigmoid, -10, 10, [80, -80, 200, -95])

for dtype in (F32, F64, F16, BF16) + INTS + (bool,):
    wide = s.rng.uniform(-100, 100, 12)
    x = np.concatenate([wide, SPECIAL]) if np.dtype(dtype).kind not in 'iub' else wide
    if np.dtype(dtype).kind == 'u':
        x = abs(x)
    x = x.astype(dtype)
    if np.dtype(dtype).kind in 'iu':
        x[:3] = [0, np.iinfo(dtype).min, np.iinfo(dtype).max]
    if dtype != bool:
        s.add('neg', [x], [-x])
        s.add('sign', [x], [np.sign(x.astype(F64)).astype(dtype)])
    else:
        s.add('neg', [x], [~x])
        s.add('sign', [x], [x])
    s.add('abs', [x], [np.abs(x)])
    s.add('square', [x], [x * x])
halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, -0.49999997, -0.5000001, 1e30, 3.7,
                   -3.7, 8388609.0, 0.99999994] + SPECIAL)
for dtype in (F32, F64, F16, np.int32, np.uint8):
    x = halves.astype(dtype) if np.dtype(dtype).kind == 'f' else np.arange(5, dtype=dtype)
    for case, f in (('floor', np.floor), ('ceil', np.ceil), ('trunc', np.trunc), ('round', np.round)):
        s.add(case, [x], [f(x).astype(dtype)])
for dtype in (F32, F64, F16, BF16, np.int16):
    x = np.array([1, -1, 65000, 0] if dtype == np.int16 else [1, -1, 65000, 0] + SPECIAL).astype(dtype)
    w = x.astype(F64)
    s.add('is_nan', [x], [np.isnan(w)])
    s.add('is_inf', [x], [np.isinf(w), np.isposinf(w), np.isneginf(w)])
    s.add('is_finite', [x], [np.isfinite(w)])
    s.add('logical_not', [x], [w == 0])
for dtype in INTS + (bool,):
    x = s.rng.integers(0, 2 if dtype == bool else 127, 6).astype(dtype)
    s.add('bitwise_not', [x], [~x])
s.add('cast', [np.array([1.9, -1.9, 300, -300, np.nan, np.inf], F32)],
      [np.array([1, -1, 300, -300, 0, 2**31 - 1], np.int32)])
s.add('cast', [np.array([1, 0, 2], np.int32)], [np.array([1, 0, 2], np.int32)])
x = s.normal((3, 4), F32)
s.add('bitcast', [x], [x.view(np.int32), x.view(np.int16), x.view(np.int64)])

# Several operands, which broadcast.
FLOATS = (F32, F64, F16)
for dtype in FLOATS + (np.int8, np.int32, np.int64, np.uint8, np.uint64, bool):
    if np.dtype(dtype).kind == 'f':
        a, b = s.normal((3, 1), dtype), s.normal((4,), dtype)
        a[0, 0], b[0] = np.inf, np.nan
    elif dtype == bool:
        a, b = np.array([[True], [False]]), np.array([True, False])
    else:
        info = np.iinfo(dtype)
        a = np.array([[info.min], [info.max], [5]], dtype)
        b = np.array([info.max, 1, 7, 3], dtype)
    s.add('add', [a, b], [a + b])
    s.add('mul', [a, b], [a * b])
    s.add('maximum', [a, b], [np.maximum(a, b)])
    s.add('minimum', [a, b], [np.minimum(a, b)])
    s.add('compare', [a, b], [a < b, a <= b, a > b, a >= b, a == b, a != b])
    s.add('where', [a, b], [np.where(a == a.flat[0], a, b)])
    if dtype != bool:
        s.add('sub', [a, b], [a - b])
    quotient = a / b if np.dtype(dtype).kind == 'f' else a.astype(F32) / b.astype(F32)
    s.add('div', [a, b], [quotient.astype(float_type(dtype))])
    if np.dtype(dtype).kind != 'f':
        s.add('bits', [a, b], [a & b, a | b, a ^ b])
    s.add('logical', [a, b], [np.logical_and(a, b), np.logical_or(a, b), np.logical_xor(a, b)])
s.add('maximum', [np.zeros((0, 3), F32), np.ones((1, 3), F32)], [np.zeros((0, 3), F32)])
s.add('maximum', [F32(2), F32(3)], [F32(3)])
for pair in ((np.int32, F32), (np.uint8, np.int8), (np.uint32, np.int64), (F16, BF16)):
    a, b = np.array([3, 5]).astype(pair[0]), np.array([2, 7]).astype(pair[1])
    types = {F32: F32, np.int8: np.int16, np.int64: np.int64, BF16: F32}
    s.add('promote', [a, b], [(a.astype(F64) + b.astype(F64)).astype(types[pair[1]])])
for dtype in (np.int32, np.uint8, np.int64, bool):
    a = np.array([0, 1] if dtype == bool else [0, 1, 100], dtype)
    w = np.int32 if dtype == bool else dtype
    s.add('numbers', [a], [a.astype(w) + w(2), w(3) - a.astype(w), (a + 0.5).astype(F32),
                           (a / 4).astype(F32), a < 1])


def trunc_div(a, b):
    q = np.zeros_like(a)
    for i in np.ndindex(a.shape):
        x, y = int(a[i]), int(b[i])
        q[i] = 0 if y == 0 else np.array(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
                                         ).astype(a.dtype)
    return q


for dtype in (np.int8, np.int32, np.int64, np.uint8, np.uint32):
    info = np.iinfo(dtype)
    a = np.repeat(np.array([info.min, info.max, 7, 0, info.max - 3], dtype), 5)
    b = np.tile(np.array([3, 1, 0, info.max, info.min or 5], dtype), 5)
    s.add('floor_div', [a, b], [a // b])
    s.add('floor_mod', [a, b], [a % b])
    t = trunc_div(a, b)
    s.add('trunc_div', [a, b], [t])
    s.add('trunc_mod', [a, b], [np.where(b == 0, 0, a - t * b).astype(dtype)])
    e = np.tile(np.array([0, 1, 2, 5, info.max], dtype), 5)
    s.add('pow_int', [a, e], [a ** e])
    bits = np.tile(np.array([0, 1, 5, info.bits, info.bits + 1], dtype), 5)
    s.add('shift', [a, bits], [a << bits, a >> bits])
minus = np.array([-1, -2, -3, -1], np.int32)
s.add('pow_negative', [np.array([1, -1, -1, 7], np.int32), minus], [np.array([1, 1, -1, 0], np.int32)])
s.add('pow_number', [np.array([-2, 3, 7], np.int8)],
      [np.array([-2, 3, 7], np.int8) ** 3, np.array([0, 0, 0], np.int8), np.ones(3, np.int8)])
s.add('shift', [np.array([-5, 5, 5], np.int32), np.array([-1, -1, 40], np.int32)],
      [np.zeros(3, np.int32), np.array([-1, 0, 0], np.int32)])
for dtype in FLOATS:
    a = np.array([1, -1, 7.5, -7.5, 5, -5, 5, -5, 0, 1, np.inf, np.nan, 1e4, 3.3], dtype)
    b = np.array([0.1, 0.1, 2, 2, np.inf, np.inf, -np.inf, -np.inf, 3, 0, 1, 1, 3, -0.7], dtype)
    s.add('floor_div', [a, b], [a // b])
    s.add('floor_mod', [a, b], [a % b])
    s.add('trunc_div', [a, b], [np.trunc(a / b)])
    s.add('trunc_mod', [a, b], [np.fmod(a, b)])
a = s.rng.uniform(-1e8, 1e8, 32)
b = s.rng.uniform(0.01, 3, 32)
for dtype in (F32, F64):
    s.add('trunc_mod', [a.astype(dtype), b.astype(dtype)], [np.fmod(a.astype(dtype), b.astype(dtype))])
power = lambda x, y: np.power(x, y)
for dtype in (F32, F64, F16):
    a = np.concatenate([s.rng.uniform(0.1, 5, 12), [-2, -2, 0, 0, np.inf, 1, np.nan, -2]]).astype(dtype)
    b = np.concatenate([s.rng.uniform(-4, 4, 12), [3, 0.5, 0, -1, -1, np.nan, 0, -2]]).astype(dtype)
    s.add('pow', [a, b], [true(lambda x, y: mp.power(x, y), power, a, b).astype(dtype)])
    x = np.array([0.5, 2, 3, 9, 1e-3], dtype)
    w = x.astype(F64)
    s.add('pow_root', [x], [(w**k).astype(dtype) for k in (1, 2, 3, 0.5, -1, 2.5)])


def binary(case, f, special, a, b):
    for dtype in FLOATS:
        x, y = np.array(a).astype(dtype), np.array(b).astype(dtype)
        s.add(case, [x, y], [true(f, special, x, y).astype(dtype)])


inf, nan = np.inf, np.nan
r = list(s.rng.uniform(-3, 3, 16))
q = list(s.rng.uniform(-3, 3, 16))
binary('log_add_exp', lambda a, b: mp.log(mp.exp(a) + mp.exp(b)), np.logaddexp,
       r + [inf, inf, -inf, -inf, nan, 1, 800, 1], q + [inf, -inf, -inf, 1, 1, nan, 800, -900])
binary('hypot', lambda a, b: mp.sqrt(a * a + b * b), np.hypot,
       r + [inf, nan, 0, 3, 1e30, 1e-30, 0], q + [nan, 1, 0, 0, 1e30, 1e-30, 2])
binary('atan2', mp.atan2, np.arctan2,
       r + [0, -0.0, 0, -0.0, 1, -1, inf, inf, -inf, inf, 1, 1, 0, nan, 2, 1e-30],
       q + [0, 0, -0.0, -0.0, 0, 0, inf, -inf, -inf, 1, inf, -inf, -1, 1, 2, 1e30])
for dtype in FLOATS:
    a, b = np.array(r + [0, -0.0, nan], dtype), np.array(q + [-0.0, 1, -1], dtype)
    s.add('copy_sign', [a, b], [np.copysign(a, b), 1 / np.copysign(dtype(0), b)])
s.add('copy_sign', [np.array([1, -2], np.int32), np.array([-3, 4], np.int32)],
      [np.array([-1, 2], F32), np.array([-inf, inf], F32)])
for dtype in (F32, F64):
    a = np.array([1, 1, 1, inf, inf, nan, nan, 0, 1e5], dtype)
    b = np.array([1, 1 + 2e-5, 1 + 5e-6, inf, -inf, nan, 1, 1e-9, 1e5 + 0.5], dtype)
    s.add('is_close', [a, b], [np.isclose(a, b), np.isclose(a, b, 1e-2, 0), np.isclose(a, b, equal_nan=True)])
s.add('is_close', [np.array([2**40, 1, 7]), np.array([2**40, 2, 7])],
      [np.array([1, 0, 1], bool), np.array([1, 0, 1], bool), np.array([1, 0, 1], bool)])
for dtype in FLOATS:
    a, b, w = s.normal((3, 1), dtype), s.normal((4,), dtype), s.normal((3, 4), dtype)
    s.add('lerp', [a, b, w], [a + w * (b - a)])
    x = np.concatenate([s.normal(8, dtype, 3), np.array(SPECIAL, dtype)])
    s.add('clamp', [x], [np.clip(x, -1, 2), np.maximum(x, dtype(0.5)), np.minimum(x, dtype(0.5))])
    s.add('clamp_tensors', [x, np.array([-1.0], dtype), np.array([1.0], dtype)], [np.clip(x, dtype(-1), dtype(1))])
for dtype in (np.int8, np.uint8, np.int64):
    x = np.array([np.iinfo(dtype).min, 0, 1, 2, 5, np.iinfo(dtype).max], dtype)
    wide = x.astype(object)
    s.add('clamp', [x], [np.clip(wide, -1, 2).astype(dtype), np.maximum(x.astype(F32), F32(0.5)),
                         np.minimum(x.astype(F32), F32(0.5))])
x = s.normal((2, 3), F32)
s.add('masked_fill', [x, np.array([True, False, True])], [np.where([True, False, True], F32(-7), x)])

# Activations: PyTorch's values and gradients, at kinks and far out too.
grid = np.concatenate([s.rng.uniform(-6, 6, 16), [-120.0, 120.0, -30.0, 30.0, 1e-3, -1e-3]])


def activation(case, f, points=grid, kinds=(F32, F64)):
    for dtype in kinds:
        s.add_torch(case, f, points.astype(dtype))
    x = s.rng.uniform(-4, 4, 16).astype(F16)
    y = f(torch.from_numpy(x.astype(F64))).numpy()
    s.add(case, [x], [y.astype(F16)])


activation('relu', F.relu, np.concatenate([grid, [0.0]]))
activation('relu6', F.relu6)
activation('log_sigmoid', F.logsigmoid)
activation('hard_sigmoid', lambda x: (x / 6 + 0.5).clamp(0, 1))  # PyTorch's own 1/6 is an f32
activation('hard_swish', F.hardswish)
activation('hard_tanh', F.hardtanh)
activation('leaky_relu', lambda x: F.leaky_relu(x, 0.2))
activation('elu', lambda x: F.elu(x, 1.5))
activation('celu', lambda x: F.celu(x, 1.5))
activation('selu', F.selu)
activation('gelu', F.gelu)
activation('gelu_tanh', lambda x: F.gelu(x, approximate='tanh'))
activation('quick_gelu', lambda x: x * torch.sigmoid(1.702 * x))
activation('silu', F.silu)
activation('softplus', lambda x: torch.logaddexp(x * 2, torch.zeros_like(x)) / 2)
activation('softsign', F.softsign, np.concatenate([grid, [0.0]]))
activation('mish', F.mish)
for dtype in (F32, F64):
    s.add_torch('prelu', lambda x, w: F.prelu(x, w.reshape(3)), s.normal((2, 3, 4), dtype),
                s.normal((3, 1), dtype))
    s.add_torch('glu', lambda x: F.glu(x, 1), s.normal((2, 4, 3), dtype))
    # Gradients where a naive formula has none.
    for case, f in (('abs_gradient', torch.abs), ('sigmoid_gradient', torch.sigmoid),
                    ('cos_gradient', torch.cos), ('tanh_gradient', torch.tanh),
                    ('expm1_gradient', torch.expm1), ('log1p_gradient', torch.log1p)):
        points = {'log1p_gradient': [0, 1e-6, 5, -0.9], 'cos_gradient': [0, 1e-6, 1.5707964, 100]}
        default = [0, 1e-6, -1e-6, 120, -120, 0.5, -0.5]
        if case == 'expm1_gradient':
            default = [0, 1e-6, -1e-6, 20, -120, 0.5, -0.5]
        s.add_torch(case, f, np.array(points.get(case, default), dtype))
    s.add_torch('log_add_exp_gradient', torch.logaddexp, np.array([1, 2, -np.inf, 100], dtype),
                np.array([1, -300, 3, 100.5], dtype))
    s.add_torch('pow_gradient', lambda x: x ** 2, np.array([0, -2, 3], dtype))
    s.add_torch('mod_gradient', torch.remainder, np.array([5.5, -5.5, 7], dtype),
                np.array([2, 2, -3.5], dtype))
s.save()
