"""ATen's products, convolutions and pools."""

from __future__ import annotations

import math
from typing import Any, Sequence

from telegrad import Tensor
from telegrad.torch import _windows
from telegrad.torch._table import Call, Unsupported, aten, lowest, refuse


@aten("mm", "bmm", "matmul", "mv", "dot")
def product(c: Call, a: Tensor, b: Tensor) -> Tensor:
    return a @ b


@aten("addmm", "baddbmm", "addmv")
def sum_and_product(c: Call, x: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    total = a @ b if alpha == 1 else (a @ b) * alpha
    return total if beta == 0 else total + (x if beta == 1 else x * beta)


@aten("addbmm")
def sum_of_products(c: Call, x: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    wide, tall = a.permute(1, 0, 2).flatten(1, 2), b.flatten(0, 1)  # the sum over all matrices is one product
    return sum_and_product(c, x, wide, tall, beta, alpha)


@aten("_trilinear")
def trilinear(c: Call, a: Tensor, b: Tensor, d: Tensor, new_a: Sequence[int], new_b: Sequence[int], new_d: Sequence[int],
              summed: Sequence[int], unroll: int = 1) -> Tensor:
    """The product of three tensors with new axes, summed over axes."""
    for axes, place in ((new_a, 0), (new_b, 1), (new_d, 2)):
        for axis in sorted(axes):
            a, b, d = (t.unsqueeze(axis) if i == place else t for i, t in enumerate((a, b, d)))
    return (a * b * d).sum(list(summed))


def _axes(x: Tensor, w: Tensor, stride: Any, padding: Any, dilation: Any) -> list[_windows.Axis]:
    return _windows.axes_of(x.shape[2:], w.shape[2:], stride, padding, dilation)


def _transposed_axes(sizes: Sequence[int], y: Tensor, w: Tensor, stride: Any, padding: Any,
                     dilation: Any) -> list[_windows.Axis]:
    """Of the convolution of which this one, of the input y, is the transpose; `sizes` are the result's."""
    axes = _windows.axes_of(sizes, w.shape[2:], stride, padding, dilation)
    if [a.count for a in axes] != list(y.shape[2:]):
        raise Unsupported("a transposed convolution with more output padding than its stride")
    return axes


@aten("convolution")
def convolution(c: Call, x: Tensor, w: Tensor, bias: Tensor | None, stride: Any, padding: Any,
                dilation: Any, transposed: bool, output_padding: Any, groups: int) -> Tensor:
    if transposed:
        y = _windows.conv_to_input(x, w, _transposed_axes(c.shape[2:], x, w, stride, padding, dilation), groups)
    else:
        y = _windows.conv(x, w, _axes(x, w, stride, padding, dilation), groups)
    return y if bias is None else y + bias.reshape(1, -1, *[1] * (x.ndim - 2))


@aten("convolution_backward")
def convolution_backward(c: Call, grad: Tensor, x: Tensor, w: Tensor, bias: Any, stride: Any, padding: Any,
                         dilation: Any, transposed: bool, output_padding: Any, groups: int,
                         mask: Sequence[bool]) -> list[Tensor | None]:
    if transposed:
        axes = _transposed_axes(grad.shape[2:], x, w, stride, padding, dilation)
        of_x = lambda: _windows.conv(grad, w, axes, groups)  # noqa: E731
        of_w = lambda: _windows.conv_to_weight(grad, x, axes, groups)  # noqa: E731
    else:
        axes = _axes(x, w, stride, padding, dilation)
        of_x = lambda: _windows.conv_to_input(grad, w, axes, groups)  # noqa: E731
        of_w = lambda: _windows.conv_to_weight(x, grad, axes, groups)  # noqa: E731
    of_bias = lambda: grad.sum([0, *range(2, grad.ndim)])  # noqa: E731
    return [make() if wanted else None for make, wanted in zip((of_x, of_w, of_bias), mask)]


@aten("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool(c: Call, x: Tensor, kernel: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,),
             ceil: bool = False) -> list[Tensor]:
    """The largest of each window, and its number in its plane; of several the first."""
    n = len(kernel) if len(kernel) > 1 else x.ndim - (1 if x.ndim in (3, 4) and len(c.shape) == 3 else 2)
    plane = x.shape[x.ndim - n:]
    axes = _windows.axes_of(plane, kernel, stride, padding, dilation, ceil)
    values = _windows.windows(x, axes, lowest(x))
    inner = list(range(-n, 0))
    largest = values.max(inner, keepdims=True)
    hit = values.eq(largest) | values.ne(values)
    size = math.prod(plane)
    left = (size - c.graph.arange(size)).reshape(*plane)  # places to the end; padding has none
    distance = _windows.windows(left, axes)
    first = hit.where(distance.broadcast_to(values.shape), 0).max(inner)
    return [largest.reshape(*c.shape), (size - first).reshape(*c.shape)]


@aten("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(c: Call, x: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """The largest of each part of a plane or a volume, and its number in it; of several the first."""
    n = len(sizes)
    plane = x.shape[x.ndim - n:]
    inside = None
    for axis, (size, count) in enumerate(zip(plane, sizes)):
        shape = [1] * (2 * n)
        shape[axis], shape[n + axis] = count, size
        part = _parts(c, size, count).reshape(*shape)
        inside = part if inside is None else inside & part
    assert inside is not None
    values = inside.where(x.reshape(*x.shape[:x.ndim - n], *[1] * n, *plane), lowest(x))
    axes = list(range(-n, 0))
    largest = values.max(axes, keepdims=True)
    hit = inside & (values.eq(largest) | values.ne(values))
    number = math.prod(plane)
    left = (number - c.graph.arange(number)).reshape(*plane)
    first = hit.where(left, 0).max(axes)
    return [largest.reshape(*c.shape), (number - first).reshape(*c.shape)]


def _parts(c: Call, n: int, count: int) -> Tensor:
    """Whether each of n places is in each of `count` parts: from floor(i n / count) to ceil((i + 1) n / count)."""
    place, part = c.graph.arange(n).reshape(1, n), c.graph.arange(count).reshape(count, 1)
    return (place >= part * n // count) & (place < ((part + 1) * n + count - 1) // count)


@aten("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward")
def adaptive_max_pool_backward(c: Call, grad: Tensor, x: Tensor, indices: Tensor) -> Tensor:
    axes = 2 if "2d" in str(c.node.target) else 3
    return max_pool_backward(c, grad, x, (1,) * axes, (), (), (), False, indices)


@aten("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def max_pool_backward(c: Call, grad: Tensor, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any,
                      ceil: bool, indices: Tensor) -> Tensor:
    n = len(kernel)
    size = math.prod(x.shape[x.ndim - n:])
    planes = math.prod(x.shape[:x.ndim - n])
    base = (c.graph.arange(planes) * size).reshape(planes, 1)
    place = (indices.reshape(planes, -1) + base).flatten()
    flat = c.full(0, (planes * size,)).contiguous()
    return flat.scatter(place, grad.flatten(), "add").reshape(*x.shape)


def _average(c: Call, x: Tensor, axes: Sequence[_windows.Axis], count_pads: bool, divisor: int | None) -> Tensor:
    """By how much each window's sum is divided."""
    if divisor:
        return c.tensor(float(divisor))
    total = c.tensor(1.0)
    for i, a in enumerate(axes):
        ones = c.full(1.0, (a.size + 2 * a.before,) if count_pads else (a.size,))
        if count_pads:
            a = a._replace(size=a.size + 2 * a.before, before=0, after=a.after - a.before)
        column = _windows.windows(ones, [a]).sum(-1)
        total = total * column.reshape([a.count if j == i else 1 for j in range(len(axes))])
    return total


@aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(c: Call, x: Tensor, kernel: Any, stride: Any = (), padding: Any = (0,), ceil: bool = False,
             count_pads: bool = True, divisor: int | None = None) -> Tensor:
    n = int(str(c.node.target).split("avg_pool")[1][0])
    axes = _windows.axes_of(x.shape[x.ndim - n:], kernel, stride, padding, [1], ceil)
    total = _windows.windows(x, axes).sum(list(range(-n, 0)))
    return total / _average(c, x, axes, count_pads, divisor)


@aten("avg_pool2d_backward", "avg_pool3d_backward")
def avg_pool_backward(c: Call, grad: Tensor, x: Tensor, kernel: Any, stride: Any, padding: Any, ceil: bool,
                      count_pads: bool, divisor: int | None) -> Tensor:
    n = len(kernel)
    axes = _windows.axes_of(x.shape[x.ndim - n:], kernel, stride, padding, [1], ceil)
    each = grad / _average(c, x, axes, count_pads, divisor)
    sizes = [a.kernel for a in axes]
    return _windows.sum_windows(each.reshape(*each.shape, *[1] * n).broadcast_to((*each.shape, *sizes)), axes)


@aten("_adaptive_avg_pool2d_backward")
def adaptive_backward(c: Call, grad: Tensor, x: Tensor) -> Tensor:
    """A product with the matrix of each axis, whose row has the mean's factors of one output."""
    rows, columns = (_means(c, n, out) for n, out in zip(x.shape[-2:], grad.shape[-2:]))
    return rows.T @ grad @ columns


def _means(c: Call, size: int, count: int) -> Tensor:
    rows = []
    for i in range(count):
        begin, end = i * size // count, -(-(i + 1) * size // count)
        rows.append([1 / (end - begin) if begin <= j < end else 0.0 for j in range(size)])
    return c.tensor(c.graph.constant(rows, "f32"))


refuse("the result's shape depends on values; use torch.where", "nonzero", "masked_select")
