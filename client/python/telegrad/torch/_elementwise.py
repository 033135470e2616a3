"""ATen's elementwise operators, conversions and constants."""

from __future__ import annotations

import math
from typing import Any

import torch

from telegrad import Tensor
from telegrad.torch._table import Call, Unsupported, Value, aten


def _unary(function: Any) -> Any:
    return lambda c, x: function(c.tensor(x))


def _round(x: Tensor) -> Tensor:
    """Halves to even."""
    low = x.floor()
    part = x - low
    even = (low * 0.5).floor() * 2
    tie = even.eq(low).where(low, low + 1)
    return (part < 0.5).where(low, part.eq(0.5).where(tie, low + 1))


def _sign(x: Tensor) -> Tensor:
    return (x > 0).cast(x.dtype) - (x < 0).cast(x.dtype) if x.dtype.kind != "unsigned" else (x > 0).cast(x.dtype)


def _expm1(x: Tensor) -> Tensor:
    """Near zero its series, elsewhere exp(x) - 1."""
    series = x * (x * (x * (x * (x * (1 / 120) + 1 / 24) + 1 / 6) + 0.5) + 1)
    return (abs(x) < 0.1).where(series, x.exp() - 1)


def _log1p(x: Tensor) -> Tensor:
    """log(u) x / (u - 1) where u = 1 + x as rounded: the error of u cancels (Kahan)."""
    u = x + 1
    same = u.eq(1)
    return same.where(x, u.eq(math.inf).where(u, u.log() * (x / same.where(1, u - 1))))


def _erf(x: Tensor) -> Tensor:
    """Abramowitz and Stegun, 7.1.26, to 1.5e-7, and the series near zero."""
    a = abs(x)
    t = (a * 0.3275911 + 1).reciprocal()
    p = t * (t * (t * (t * (t * 1.061405429 - 1.453152027) + 1.421413741) - 0.284496736) + 0.254829592)
    far = _sign(x) * (1 - p * (-(x * x)).exp())
    z = x * x
    near = x * ((((z * (1 / 216) - 1 / 42) * z + 0.1) * z - 1 / 3) * z + 1) * (2 / math.sqrt(math.pi))
    return (a < 0.5).where(near, far)


def _erfc(x: Tensor) -> Tensor:
    """Of a large number, too, with 7 digits (Numerical Recipes, 6.2: Chebyshev's fit of a rational argument)."""
    a = abs(x)
    t = (a * 0.5 + 1).reciprocal()
    p = t * 0.17087277 - 0.82215223
    for coefficient in (1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223):
        p = t * p + coefficient
    tail = a.eq(math.inf).where(0, t * (p - a * a).exp())
    return (x < 0).where(2 - tail, tail)


_HALF_PI = {32: (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8),  # in three parts (Cephes), of which multiples of
            64: (1.570796310901641845703125, 1.589325471229585673428e-8, 6.12323399573676588614e-17)}  # the first are exact


def _tan(x: Tensor) -> Tensor:
    """Of what remains after multiples of pi/2: sin / cos has few digits near the poles, where cos is small."""
    if x.dtype.bits < 32:
        return _tan(x.cast("f32")).cast(x.dtype)
    a, b, c = _HALF_PI[x.dtype.bits]
    turns = _round(x * (2 / math.pi))
    rest = x - turns * a - turns * b - turns * c
    near = rest.sin() / rest.cos()
    odd = (turns - (turns * 0.5).floor() * 2).ne(0)
    return (abs(x) < 8192).where(odd.where(-near.reciprocal(), near), x.sin() / x.cos())


def _erfinv(x: Tensor) -> Tensor:
    """To a few units in the last place of f32: M. Giles, Approximating the erfinv function (GPU Computing Gems, 2012)."""
    w = -((1 - x) * (1 + x)).log()
    central = w < 5
    near, far = w - 2.5, central.where(9, w).sqrt() - 3
    p, q = near * 2.81022636e-08 + 3.43273939e-07, far * -0.000200214257 + 0.000100950558
    for a, b in ((-3.5233877e-06, 0.00134934322), (-4.39150654e-06, -0.00367342844), (0.00021858087, 0.00573950773),
                 (-0.00125372503, -0.0076224613), (-0.00417768164, 0.00943887047), (0.246640727, 1.00167406),
                 (1.50140941, 2.83297682)):
        p, q = p * near + a, q * far + b
    value = central.where(p, q) * x
    return abs(x).eq(1).where(x * math.inf, value)


for name, function in {
        "neg": Tensor.__neg__, "exp": Tensor.exp, "exp2": Tensor.exp2, "log": Tensor.log, "log2": Tensor.log2,
        "sin": Tensor.sin, "cos": Tensor.cos, "sqrt": Tensor.sqrt, "rsqrt": Tensor.rsqrt,
        "tanh": Tensor.tanh, "sigmoid": Tensor.sigmoid, "relu": Tensor.relu, "abs": Tensor.__abs__,
        "reciprocal": Tensor.reciprocal, "sign": _sign, "expm1": _expm1, "log1p": _log1p,
        "erf": _erf, "tan": _tan,
        "log10": lambda x: x.log2() * math.log10(2), "bitwise_not": Tensor.__invert__}.items():
    aten(name)(_unary(function))
aten("erfc")(_unary(_erfc))
aten("erfinv", "prims.erf_inv.default")(_unary(_erfinv))
for name, function in {"floor": Tensor.floor, "ceil": lambda x: -(-x).floor(), "trunc": Tensor.trunc}.items():  # an integer is whole
    aten(name)(lambda c, x, function=function: function(x) if x.dtype.is_float else x)
for name, function in {
        "add": lambda a, b: a | b if a.dtype.kind == "boolean" else a + b,
        "mul": lambda a, b: a & b if a.dtype.kind == "boolean" else a * b,
        "maximum": Tensor.maximum, "minimum": Tensor.minimum,
        "bitwise_and": Tensor.__and__, "bitwise_or": Tensor.__or__, "bitwise_xor": Tensor.__xor__}.items():
    def _binary(c: Call, x: Value, y: Value, alpha: Any = 1, function: Any = function) -> Tensor:
        a, b = c.tensors(x, y)
        return function(a, b if alpha == 1 else b * alpha)

    aten(name)(_binary)
for name, method in {"eq": "eq", "ne": "ne", "lt": "__lt__", "le": "__le__", "gt": "__gt__", "ge": "__ge__"}.items():
    def _comparison(c: Call, x: Value, y: Value, method: str = method) -> Tensor:
        a, b = c.common(x, y)
        if a.dtype.kind == "boolean":
            a, b = a.cast("u8"), b.cast("u8")
        return getattr(a, method)(b).broadcast_to(c.shape)

    aten(name)(_comparison)
for name, method in {"logical_and": "__and__", "logical_or": "__or__", "logical_xor": "__xor__"}.items():
    aten(name)(lambda c, x, y, method=method: getattr(_truth(x), method)(_truth(y)))


def _truth(x: Tensor) -> Tensor:
    return x if x.dtype.kind == "boolean" else x.ne(0)


@aten("round")
def round_(c: Call, x: Tensor, decimals: int = 0) -> Tensor:
    """To so many digits behind the point; of negative many, to tens, hundreds and so on."""
    if not x.dtype.is_float:
        if decimals < 0:
            raise Unsupported(f"an integer to tens ({decimals} digits)")
        return x
    scale = 10.0 ** abs(decimals)
    return _round(x) if decimals == 0 else _round(x * scale) / scale if decimals > 0 else _round(x / scale) * scale


@aten("angle")
def angle(c: Call, x: Tensor) -> Tensor:
    """Of a real number: 0 or pi."""
    x = c.tensor(x)
    return x.ne(x).where(x, (x < 0).where(math.pi, c.full(0)))


@aten("logical_not")
def logical_not(c: Call, x: Tensor) -> Tensor:
    return ~_truth(x)


@aten("sub")
def sub(c: Call, x: Value, y: Value, alpha: Any = 1) -> Tensor:
    a, b = c.tensors(x, y)
    return a - (b if alpha == 1 else b * alpha)


@aten("rsub")
def rsub(c: Call, x: Value, y: Value, alpha: Any = 1) -> Tensor:
    return sub(c, y, x, alpha)


@aten("div", "true_divide")
def div(c: Call, x: Value, y: Value, rounding_mode: str | None = None) -> Tensor:
    a, b = c.tensors(x, y)
    if a.dtype.is_float:
        quotient = a / b
        return {None: quotient, "floor": quotient.floor(), "trunc": quotient.trunc()}[rounding_mode]
    return a // b if rounding_mode == "floor" else a._with("cdiv", b)


@aten("bitwise_left_shift", "__lshift__")
def left_shift(c: Call, x: Value, y: Value) -> Tensor:
    """By so many bits as an integer lacks: 0."""
    a, b = c.tensors(x, y)
    return _within(a, b).where(a << b, 0)


@aten("bitwise_right_shift", "__rshift__")
def right_shift(c: Call, x: Value, y: Value) -> Tensor:
    """By so many bits as an integer lacks: its sign."""
    a, b = c.tensors(x, y)
    return _within(a, b).where(a >> b, -(a < 0).cast(a.dtype) if a.dtype.kind == "signed" else 0)


def _within(x: Tensor, bits: Tensor) -> Tensor:
    return (bits >= 0) & (bits < x.dtype.bits)


@aten("signbit")
def signbit(c: Call, x: Tensor) -> Tensor:
    """Also of -0 and of NaN."""
    if x.dtype.is_float:
        return (x.bitcast(f"i{x.dtype.bits}") < 0).cast(c.dtype)
    return (x < 0).cast(c.dtype) if x.dtype.kind == "signed" else c.full(0)


for name, function in {"max": Tensor.maximum, "min": Tensor.minimum}.items():
    def _of_numbers(c: Call, x: Value, y: Value, function: Any = function) -> Tensor:
        """The other one where one is NaN."""
        a, b = c.tensors(x, y)
        return a.ne(a).where(b, b.ne(b).where(a, function(a, b))) if a.dtype.is_float else function(a, b)

    aten(f"f{name}")(_of_numbers)


@aten("hypot")
def hypot(c: Call, x: Value, y: Value) -> Tensor:
    """Without squares that are too large or too small; infinite where either is, whatever the other."""
    a, b = (abs(t) for t in c.tensors(x, y))
    large, small = a.maximum(b), a.minimum(b)
    ratio = small / large.eq(0).where(1, large)
    infinite = a.eq(math.inf) | b.eq(math.inf)
    return infinite.where(math.inf, large * (ratio * ratio + 1).sqrt())


@aten("prims.fma.default")
def fma(c: Call, x: Value, y: Value, z: Value) -> Tensor:
    a, b, d = c.tensors(x, y, z)
    return a * b + d


@aten("floor_divide")
def floor_divide(c: Call, x: Value, y: Value) -> Tensor:
    return div(c, x, y, "floor")


@aten("remainder")
def remainder(c: Call, x: Value, y: Value) -> Tensor:
    a, b = c.tensors(x, y)
    return a - (a / b).floor() * b if a.dtype.is_float else a % b


@aten("fmod")
def fmod(c: Call, x: Value, y: Value) -> Tensor:
    a, b = c.tensors(x, y)
    return a - (a / b).trunc() * b if a.dtype.is_float else a._with("cmod", b)


@aten("pow")
def power(c: Call, x: Value, y: Value) -> Tensor:
    if isinstance(y, (int, float)) and y in (0, 1, 2, 3, 4):
        a = c.tensor(x)
        return {0: lambda: c.full(1), 1: lambda: a, 2: lambda: a * a, 3: lambda: a * a * a,
                4: lambda: (a * a).square()}[int(y)]()
    if isinstance(y, (int, float)) and y in (0.5, -0.5, -1):
        a = c.tensor(x)
        return a.sqrt() if y == 0.5 else a.reciprocal() if y == -1 else a.rsqrt()
    a, b = c.tensors(x, y)
    return a ** b if a.dtype.is_float else _integer_power(a, b)


def _integer_power(base: Tensor, exponent: Tensor) -> Tensor:
    """By squares; it wraps. To a negative power only 1 and -1 are not 0."""
    signed = base.dtype.kind == "signed"
    negative = exponent < 0
    left = negative.where(0, exponent) if signed else exponent
    one = out = base.eq(base).cast(base.dtype)
    square = base
    for _ in range(base.dtype.bits - signed):
        out = (left & 1).ne(0).where(out * square, out)
        square, left = square * square, left >> 1
    if not signed:
        return out
    odd = (exponent & 1).ne(0)
    return negative.where(base.eq(1).where(one, base.eq(-1).where(odd.where(-one, one), 0)), out)


@aten("clamp")
def clamp(c: Call, x: Tensor, low: Value = None, high: Value = None) -> Tensor:
    out = c.tensor(x)
    if low is not None:
        out = out.maximum(c.tensor(low))
    return out if high is None else out.minimum(c.tensor(high))


@aten("clamp_min")
def clamp_min(c: Call, x: Tensor, low: Value) -> Tensor:
    return clamp(c, x, low)


@aten("clamp_max")
def clamp_max(c: Call, x: Tensor, high: Value) -> Tensor:
    return clamp(c, x, None, high)


@aten("where")
def where(c: Call, condition: Tensor, x: Value, y: Value) -> Tensor:
    return condition.where(*c.tensors(x, y)).broadcast_to(c.shape)


@aten("masked_fill")
def masked_fill(c: Call, x: Tensor, mask: Tensor, value: Value) -> Tensor:
    return where(c, mask, value, x)


@aten("isnan")
def isnan(c: Call, x: Tensor) -> Tensor:
    return x.ne(x)


@aten("isinf")
def isinf(c: Call, x: Tensor) -> Tensor:
    return abs(x).eq(math.inf)


@aten("_to_copy", "to", "_prims.convert_element_type", "prims.convert_element_type.default")
def to_copy(c: Call, x: Tensor, *args: Any, **named: Any) -> Tensor:
    if named.get("device") not in (None, torch.device("cpu")):
        raise Unsupported(f"a tensor on {named['device']}; tensors are on the CPU in torch")
    if x.dtype.is_float and not c.dtype.is_float and c.dtype.kind != "boolean":
        whole = x.trunc()
        if c.dtype.bits == 32 or c.dtype.bits == 64:
            return whole.cast(c.dtype)
        return (abs(whole) < 2.0 ** 31).where(whole.cast("i32"), 0).cast(c.dtype)  # shorter ones wrap, as in torch
    return _truth(x) if c.dtype.kind == "boolean" else c.tensor(x)


@aten("clone", "alias", "detach", "contiguous", "lift_fresh_copy", "lift_fresh", "view_of", "copy")
def same(c: Call, x: Tensor, *args: Any, **named: Any) -> Tensor:
    return c.tensor(args[0]).broadcast_to(c.shape) if args and isinstance(args[0], Tensor) else x


# --- made of nothing ---


@aten("full", "full_like", "scalar_tensor", "new_full")
def full(c: Call, first: Any, *rest: Any, **named: Any) -> Tensor:
    return c.full(rest[-1] if rest else first)


@aten("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided",
      "empty_permuted")
def zeros(c: Call, *args: Any, **named: Any) -> Tensor:
    return c.full(0)


@aten("ones", "ones_like", "new_ones")
def ones(c: Call, *args: Any, **named: Any) -> Tensor:
    return c.full(1)


@aten("arange", "prims.iota.default")
def arange(c: Call, *args: Any, **named: Any) -> Tensor:
    start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else 1)
    if "step" in named:
        start, step = named["start"], named["step"]
    return c.tensor(c.graph.arange(c.shape[0])) * step + start
