"""ATen's reductions and running sums."""

from __future__ import annotations

import math
from typing import Any

from telegrad import Tensor, _composed
from telegrad._size import highest
from telegrad.torch._elementwise import _truth
from telegrad.torch._shapes import _part
from telegrad.torch._table import Call, Value, aten
from telegrad.torch._windows import pad


def _axes(x: Tensor, axes: Any) -> list[int]:
    if axes is None or axes == []:
        return list(range(x.ndim))
    return [axes] if isinstance(axes, int) else list(axes)


def _reduced(x: Tensor, how: str, axes: Any, keep: bool) -> Tensor:
    wide = x.cast("f32") if x.dtype.is_float and x.dtype.bits < 32 and how != "max" else x
    return wide.reduce(how, _axes(x, axes), keep).cast(x.dtype) if x.ndim else x


@aten("sum")
def sum_(c: Call, x: Tensor, axes: Any = None, keep: bool = False, **named: Any) -> Tensor:
    return _reduced(c.tensor(x), "add", axes, keep)


@aten("prod")
def prod(c: Call, x: Tensor, axes: Any = None, keep: bool = False, **named: Any) -> Tensor:
    return _reduced(c.tensor(x), "mul", axes, keep)


@aten("mean")
def mean(c: Call, x: Tensor, axes: Any = None, keep: bool = False, **named: Any) -> Tensor:
    """Of 16-bit floats the sum may be larger than their largest number."""
    x = c.tensor(x)
    wide = x.cast("f32") if x.dtype.bits < 32 else x
    return (_reduced(wide, "add", axes, keep) / math.prod(x.shape[a] for a in _axes(x, axes))).cast(x.dtype)


@aten("var")
def var(c: Call, x: Tensor, axes: Any = None, correction: float | None = 1, keepdim: bool = False) -> Tensor:
    return x.var(_axes(x, axes), 1 if correction is None else correction, keepdim)


@aten("var_mean")
def var_mean(c: Call, x: Tensor, axes: Any = None, correction: float | None = 1,
             keepdim: bool = False) -> list[Tensor]:
    return [var(c, x, axes, correction, keepdim), mean(c, x, axes, keepdim)]


@aten("amax")
def amax(c: Call, x: Tensor, axes: Any = (), keep: bool = False) -> Tensor:
    return _reduced(x, "max", list(axes) if axes else None, keep)


@aten("amin")
def amin(c: Call, x: Tensor, axes: Any = (), keep: bool = False) -> Tensor:
    return x.min(_axes(x, list(axes) if axes else None), keep)


@aten("max")
def max_(c: Call, x: Tensor, axis: Any = None, keep: bool = False) -> Value:
    if isinstance(axis, Tensor):
        return x.maximum(axis)
    if axis is None:
        return x.max()
    return [x.max(axis, keep), x.argmax(axis, keep)]


@aten("min")
def min_(c: Call, x: Tensor, axis: Any = None, keep: bool = False) -> Value:
    if isinstance(axis, Tensor):
        return x.minimum(axis)
    if axis is None:
        return x.min()
    return [x.min(axis, keep), x.argmin(axis, keep)]


@aten("argmax")
def argmax(c: Call, x: Tensor, axis: int | None = None, keep: bool = False) -> Tensor:
    return x.argmax(axis, keep)


@aten("argmin")
def argmin(c: Call, x: Tensor, axis: int | None = None, keep: bool = False) -> Tensor:
    return x.argmin(axis, keep)


@aten("any")
def any_(c: Call, x: Tensor, axes: Any = None, keep: bool = False) -> Tensor:
    return c.tensor(_truth(x).any(_axes(x, axes), keep) if x.ndim else _truth(x))  # of bytes a byte


@aten("all")
def all_(c: Call, x: Tensor, axes: Any = None, keep: bool = False) -> Tensor:
    return c.tensor(_truth(x).all(_axes(x, axes), keep) if x.ndim else _truth(x))


@aten("cumsum")
def cumsum(c: Call, x: Tensor, axis: int, **named: Any) -> Tensor:
    return _composed.composed(lambda x: x.cumsum(axis))(c.tensor(x)) if x.ndim else c.tensor(x)


@aten("cumprod")
def cumprod(c: Call, x: Tensor, axis: int, **named: Any) -> Tensor:
    """As Tensor.cumsum, with ones where the sum has zeros."""
    return _composed.composed(lambda x: _products(x, axis % x.ndim))(c.tensor(x)) if x.ndim else c.tensor(x)


def _products(out: Tensor, at: int) -> Tensor:
    n, shift = out.shape[at], 1
    while shift < highest(n):
        widths = [(shift if i == at else 0, 0) for i in range(out.ndim)]
        if isinstance(n, int):
            before = pad(_part(out, at, slice(0, n - shift)), widths, 1)
        else:  # the shift may be longer than the axis
            before = _part(pad(out, widths, 1), at, slice(0, n))
        out = out * before
        shift *= 2
    return out
