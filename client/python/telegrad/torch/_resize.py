"""ATen's resizing of images with antialiasing: along each axis a product with a matrix of filter weights, as in Pillow."""

from __future__ import annotations

import math
from typing import Any, Callable, Sequence

import numpy as np

from telegrad import Tensor
from telegrad._size import Size
from telegrad.torch._table import Call, Unsupported, aten


def _triangle(x: float) -> float:
    return max(1 - abs(x), 0.0)


def _cubic(x: float) -> float:
    x = abs(x)
    if x < 1:
        return (1.5 * x - 2.5) * x * x + 1
    return -0.5 * (((x - 5) * x + 8) * x - 4) if x < 2 else 0.0


def _lanczos(x: float) -> float:
    def sinc(x: float) -> float:
        return math.sin(math.pi * x) / (math.pi * x) if x else 1.0

    return sinc(x) * sinc(x / 3) if -3 <= x < 3 else 0.0


_FILTERS: dict[str, tuple[Callable[[float], float], int]] = {"bilinear": (_triangle, 1), "bicubic": (_cubic, 2), "lanczos": (_lanczos, 3)}


def _weights(c: Call, size: int, count: int, corners: bool, factor: float | None) -> Tensor:
    """[count, size]: what each of `count` pixels takes of the `size` that there are; `factor` is the caller's count / size."""
    if isinstance(size, Size) or isinstance(count, Size):
        raise Unsupported("resizing with antialiasing of images whose size each run decides")
    kernel, reach = _FILTERS[str(c.node.target).split("upsample_")[1].split("2d")[0]]
    if corners:
        step = (size - 1) / (count - 1) if count > 1 else 0.0
    else:
        step = 1 / factor if factor else size / count
    wide = max(step, 1.0)  # the filter covers what becomes one pixel
    out = np.zeros((count, size))
    for i in range(count):
        center = step * (i + 0.5)
        first = max(int(center - reach * wide + 0.5), 0)
        last = min(int(center + reach * wide + 0.5), size)
        row = [kernel((j - center + 0.5) / wide) for j in range(first, last)]
        total = sum(row)
        out[i, first:last] = [w / total for w in row] if total else row
    return c.tensor(c.graph.constant(out.astype(np.float32), "f32"))


def _matrices(c: Call, plane: Sequence[int], sizes: Sequence[int], corners: bool, factors: Sequence[float | None]) -> list[Tensor]:
    if not c.dtype.is_float:
        raise Unsupported(f"resizing of {c.dtype} with antialiasing; convert to floats")
    return [_weights(c, have, want, corners, factor) for have, want, factor in zip(plane, sizes, factors)]


@aten("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa")
def upsample(c: Call, x: Tensor, sizes: Sequence[int], corners: bool, high: float | None = None, wide: float | None = None) -> Tensor:
    rows, columns = _matrices(c, x.shape[-2:], sizes, corners, (high, wide))
    return rows @ (x @ columns.T)


@aten("_upsample_bilinear2d_aa_backward", "_upsample_bicubic2d_aa_backward", "_upsample_lanczos2d_aa_backward")
def upsample_backward(c: Call, grad: Tensor, sizes: Sequence[int], shape: Sequence[Any], corners: bool, high: float | None = None,
                      wide: float | None = None) -> Tensor:
    rows, columns = _matrices(c, shape[-2:], sizes, corners, (high, wide))
    return rows.T @ (grad @ columns)
