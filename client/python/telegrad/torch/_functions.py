"""ATen's distances, pools of an adaptive size, and assertions."""

from __future__ import annotations

import math
from typing import Any, Sequence

from telegrad import Tensor
from telegrad.torch._elementwise import _sign
from telegrad.torch._nn import _means
from telegrad.torch._table import Call, Unsupported, aten, refuse

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
