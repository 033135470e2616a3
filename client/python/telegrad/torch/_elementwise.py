"""ATen's elementwise operators, conversions and constants."""

from __future__ import annotations

import math
from typing import Any

import torch

from telegrad import Tensor, _composed
from telegrad.torch._table import Call, Unsupported, Value, aten


def _unary(function: Any) -> Any:
    return lambda c, x: function(c.tensor(x))


def _sign(x: Tensor) -> Tensor:
    return (x > 0).cast(x.dtype) - (x < 0).cast(x.dtype) if x.dtype.kind != "unsigned" else (x > 0).cast(x.dtype)


for name, function in {
        "neg": Tensor.__neg__, "exp": Tensor.exp, "exp2": Tensor.exp2, "log": Tensor.log, "log2": Tensor.log2,
        "sin": Tensor.sin, "cos": Tensor.cos, "sqrt": Tensor.sqrt, "rsqrt": Tensor.rsqrt,
        "tanh": Tensor.tanh, "sigmoid": Tensor.sigmoid, "relu": Tensor.relu, "abs": Tensor.__abs__,
        "reciprocal": Tensor.reciprocal, "sign": _sign, "bitwise_not": Tensor.__invert__}.items():
    aten(name)(_unary(function))
for name in ("expm1", "log1p", "log10", "erf", "erfc", "tan", "atan", "asin", "acos", "sinh", "cosh", "asinh", "acosh", "atanh"):
    aten(name)(_unary(getattr(_composed, name)))
aten("erfinv", "prims.erf_inv.default")(_unary(_composed.erfinv))
for name in ("atan2", "hypot"):
    aten(name)(lambda c, x, y, function=getattr(_composed, name): function(*(t.broadcast_to(c.shape) for t in c.tensors(x, y))))
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
    nearest = _composed.round_to_even
    if decimals == 0:
        return nearest(x)
    return _composed.composed(lambda x: nearest(x * scale) / scale if decimals > 0 else nearest(x / scale) * scale)(x)


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
        return _composed.floor_quotient(a, b) if rounding_mode == "floor" else (a / b).trunc() if rounding_mode else a / b
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
    return _composed.floor_remainder(a, b) if a.dtype.is_float else a % b


@aten("fmod")
def fmod(c: Call, x: Value, y: Value) -> Tensor:
    a, b = c.tensors(x, y)
    return _composed.remainder(a, b) if a.dtype.is_float else a._with("cmod", b)


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
    return abs(x).eq(math.inf) if x.dtype.is_float else x.ne(x)


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
