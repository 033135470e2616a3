"""ATen's inverse trigonometric and hyperbolic functions, distances, and pools of an adaptive size."""

from __future__ import annotations

import math
from typing import Any, Sequence

from telegrad import Tensor
from telegrad.torch._elementwise import _expm1, _log1p, _sign
from telegrad.torch._nn import _means
from telegrad.torch._table import Call, Unsupported, aten, refuse

# Of atan on [0, tan(pi / 8)], a polynomial in the square: 1 - z/3 + z^2/5 ... to z^11, below 1e-9 there.
_ATAN = [(-1) ** k / (2 * k + 1) for k in range(12)]


def _atan(x: Tensor) -> Tensor:
    """By atan(x) = pi/2 - atan(1/x), and atan(x) = pi/4 + atan((x - 1) / (x + 1))."""
    a = abs(x)
    large = a > 1 + math.sqrt(2)
    middle = a > math.sqrt(2) - 1
    t = large.where(-(a.reciprocal()), middle.where((a - 1) / (a + 1), a))
    z, none = t * t, t * 0
    p = none + _ATAN[-1]
    for factor in reversed(_ATAN[:-1]):
        p = p * z + factor
    value = t * p + large.where(none + math.pi / 2, middle.where(none + math.pi / 4, none))
    return (x < 0).where(-value, value)


def _asin(x: Tensor) -> Tensor:
    """Near 1 by the half angle, where 1 - x x would have lost its digits."""
    a = abs(x)
    far = a > 0.5
    root = ((1 - a) * 0.5).sqrt()
    t = far.where(root, a)
    inner = _atan(t / ((1 - t) * (1 + t)).sqrt())
    value = far.where(math.pi / 2 - inner * 2, inner)
    return (x < 0).where(-value, value)


def _atan2(y: Tensor, x: Tensor) -> Tensor:
    """The angle of (x, y), in (-pi, pi]."""
    ay, ax = abs(y), abs(x)
    both = ay.eq(math.inf) & ax.eq(math.inf)
    steep = ay > ax
    low, high = steep.where(ax, ay), steep.where(ay, ax)
    ratio = low / high
    t = both.where(1, (ay.eq(0) & ax.eq(0)).where(0, ratio))
    angle = _atan(t)
    angle = steep.where(math.pi / 2 - angle, angle)
    angle = _is_negative(x).where(math.pi - angle, angle)
    return _is_negative(y).where(-angle, angle)


def _is_negative(x: Tensor) -> Tensor:
    """Of its sign: -0 is."""
    return (x < 0) | (x.eq(0) & (x.reciprocal() < 0))


def _sinh(x: Tensor) -> Tensor:
    e = _expm1(abs(x))
    value = e.eq(math.inf).where(e, (e + e / (e + 1)) * 0.5)
    return (x < 0).where(-value, value)


def _cosh(x: Tensor) -> Tensor:
    e = abs(x).exp()
    return (e + e.reciprocal()) * 0.5


def _asinh(x: Tensor) -> Tensor:
    a = abs(x)
    big = a > 1e8
    b = big.where(1, a)
    value = big.where(a.log() + math.log(2), _log1p(b + b * b / ((b * b + 1).sqrt() + 1)))
    return (x < 0).where(-value, value)


def _acosh(x: Tensor) -> Tensor:
    big = x > 1e8
    b = big.where(2, x) - 1
    value = big.where(x.log() + math.log(2), _log1p(b + (b * 2 + b * b).sqrt()))
    return (x < 1).where(math.nan, value)


def _atanh(x: Tensor) -> Tensor:
    a = abs(x)
    value = _log1p(a * 2 / (1 - a)) * 0.5
    return (x < 0).where(-value, value)


for name, function in {
        "atan": _atan, "asin": _asin, "acos": lambda x: math.pi / 2 - _asin(x), "sinh": _sinh, "cosh": _cosh,
        "asinh": _asinh, "acosh": _acosh, "atanh": _atanh}.items():
    aten(name)(lambda c, x, function=function: function(c.tensor(x)))


@aten("atan2")
def atan2(c: Call, y: Tensor, x: Tensor) -> Tensor:
    return _atan2(*(t.broadcast_to(c.shape) for t in c.tensors(y, x)))


@aten("_cdist_forward")
def cdist(c: Call, x: Tensor, y: Tensor, p: float, mode: Any = None) -> Tensor:
    """Distances of all pairs of rows."""
    apart = abs(x.unsqueeze(-2) - y.unsqueeze(-3))
    return _norm(apart, p)


@aten("_pdist_forward")
def pdist(c: Call, x: Tensor, p: float = 2) -> Tensor:
    """Of the pairs above the diagonal."""
    n = x.shape[0]
    full = _norm(abs(x.unsqueeze(1) - x.unsqueeze(0)), p).flatten()
    return full.gather(c.graph.constant([i * n + j for i in range(n) for j in range(i + 1, n)], "i64"))


def _norm(apart: Tensor, p: float) -> Tensor:
    if p == 0:
        return apart.ne(0).cast(apart.dtype).sum(-1)
    if p == math.inf:
        return apart.max(-1)
    if p == 1:
        return apart.sum(-1)
    return (apart * apart).sum(-1).sqrt() if p == 2 else (apart ** p).sum(-1) ** (1 / p)


@aten("_cdist_backward")
def cdist_backward(c: Call, grad: Tensor, x: Tensor, y: Tensor, p: float, distance: Tensor) -> Tensor:
    return _norm_backward(grad, x.unsqueeze(-2) - y.unsqueeze(-3), p, distance)


@aten("_pdist_backward")
def pdist_backward(c: Call, grad: Tensor, x: Tensor, p: float, distance: Tensor) -> Tensor:
    """As of all pairs; a row has no distance from itself, which an index beyond the end says."""
    n = x.shape[0]
    pairs = n * (n - 1) // 2
    number = {(i, j): k for k, (i, j) in enumerate((i, j) for i in range(n) for j in range(i + 1, n))}
    place = c.graph.constant([[number.get((min(i, j), max(i, j)), pairs) for j in range(n)] for i in range(n)], "i64")
    return _norm_backward(grad.gather(place), x.unsqueeze(1) - x.unsqueeze(0), p, distance.gather(place))


def _norm_backward(grad: Tensor, apart: Tensor, p: float, distance: Tensor) -> Tensor:
    """The gradient of the first rows: `apart` is [..., rows, others, n], the other two are without its last axis."""
    far, each = distance.unsqueeze(-1), grad.unsqueeze(-1)
    zero = far.eq(0)
    if p == 0:
        return (apart * 0).sum(-2)
    if p == 1:
        part = _sign(apart) * each
    elif p == math.inf:
        part = abs(apart).eq(far).where(_sign(apart) * each, 0)
    elif p == 2:
        part = zero.where(0, apart * each / zero.where(1, far))
    else:
        size = abs(apart)
        power = size.eq(0).where(0, size.eq(0).where(1, size) ** (p - 1))
        part = zero.where(0, _sign(apart) * power * each / zero.where(1, far) ** (p - 1))
    return part.sum(-2)


@aten("_adaptive_avg_pool3d_backward")
def adaptive_avg_pool3d_backward(c: Call, grad: Tensor, x: Tensor) -> Tensor:
    for axis in range(x.ndim - 3, x.ndim):
        grad = (grad.transpose(axis, -1) @ _means(c, x.shape[axis], grad.shape[axis])).transpose(axis, -1)
    return grad


@aten("_adaptive_avg_pool3d")
def adaptive_avg_pool3d(c: Call, x: Tensor, sizes: Sequence[int]) -> Tensor:
    """A product with a matrix for each axis, whose rows have the mean's factors."""
    for axis, size in zip(range(x.ndim - 3, x.ndim), sizes):
        x = (x.transpose(axis, -1) @ _means(c, x.shape[axis], size).T).transpose(axis, -1)
    return x


@aten("_assert_async")
def assert_async(c: Call, condition: Tensor, message: str = "an assertion on the values of a tensor failed") -> Tensor:
    truth = condition if condition.dtype.kind == "boolean" else condition.ne(0)
    c.asserts(truth, message)
    return truth


refuse("complex numbers", "_fft_c2r", "_fft_r2c", "_fft_c2c", "view_as_real", "view_as_complex", "complex")
refuse("the memory of a tensor is to have another size; make a new tensor with reshape, or a part of this one", "resize", "resize_")
refuse("a value of a tensor is wanted while the graph is made; compute with the tensor, or keep the line out of the "
       "compiled part", "_local_scalar_dense", "item")
