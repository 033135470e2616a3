"""ATen's operators that move elements: views, slices, concatenation, padding, diagonals."""

from __future__ import annotations

import math
from typing import Any, Sequence

from telegrad import Tensor, cat
from telegrad._index import part_of
from telegrad._size import Size
from telegrad.torch._table import Call, Unsupported, aten
from telegrad.torch._windows import pad


@aten("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten", "_reshape_alias")
def view(c: Call, x: Tensor, *args: Any) -> Tensor:
    return x.reshape(*c.shape) if c.shape else x.reshape([])


@aten("expand")
def expand(c: Call, x: Tensor, *args: Any, **named: Any) -> Tensor:
    return x.broadcast_to(c.shape)


@aten("permute")
def permute(c: Call, x: Tensor, axes: Sequence[int]) -> Tensor:
    return x.permute(list(axes)) if axes else x


@aten("t")
def t(c: Call, x: Tensor) -> Tensor:
    return x.T


@aten("transpose")
def transpose(c: Call, x: Tensor, a: int, b: int) -> Tensor:
    return x.transpose(a, b) if x.ndim else x


def _part(x: Tensor, axis: int, item: Any) -> Tensor:
    return x[(slice(None),) * (axis % x.ndim) + (item,)]


@aten("slice")
def slice_(c: Call, x: Tensor, axis: int = 0, start: int | None = None, end: int | None = None,
           step: int = 1) -> Tensor:
    return _part(x, axis, slice(start, end, step))


@aten("select")
def select(c: Call, x: Tensor, axis: int, index: int) -> Tensor:
    return _part(x, axis, index)


@aten("cat")
def cat_(c: Call, tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    parts = [c.tensor(part) for part in tensors if part.shape != (0,) or c.shape == (0,)]
    return cat(parts, axis)


@aten("stack")
def stack(c: Call, tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    at = axis % len(c.shape)
    return cat([c.tensor(part).unsqueeze(at) for part in tensors], at)


@aten("split", "split_with_sizes")
def split(c: Call, x: Tensor, sizes: Any, axis: int = 0) -> list[Tensor]:
    out, start = [], 0
    for result in c.results:
        size = c.size(result.shape[axis])
        out.append(_part(x, axis, slice(start, start + size)))
        start += size
    return out


@aten("unbind")
def unbind(c: Call, x: Tensor, axis: int = 0) -> list[Tensor]:
    return [_part(x, axis, i) for i in range(x.shape[axis])]


@aten("flip")
def flip(c: Call, x: Tensor, axes: Sequence[int]) -> Tensor:
    return x.flip(*axes) if axes else x


@aten("repeat")
def repeat(c: Call, x: Tensor, times: Sequence[int]) -> Tensor:
    shape = (1,) * (len(times) - x.ndim) + x.shape
    ones_ = [d for size in shape for d in (1, size)]
    wide = [d for n, size in zip(times, shape) for d in (n, size)]
    return x.reshape(ones_).broadcast_to(wide).reshape(*c.shape)


@aten("constant_pad_nd")
def constant_pad_nd(c: Call, x: Tensor, widths: Sequence[int], value: float = 0) -> Tensor:
    pairs = [(widths[i], widths[i + 1]) for i in range(0, len(widths), 2)][::-1]
    return pad(x, [(0, 0)] * (x.ndim - len(pairs)) + pairs, value)


@aten("slice_scatter")
def slice_scatter(c: Call, x: Tensor, src: Tensor, axis: int = 0, start: int | None = None,
                  end: int | None = None, step: int = 1) -> Tensor:
    at = axis % x.ndim
    if src.shape == x.shape:  # the whole
        return c.tensor(src)
    if isinstance(x.shape[at], Size) or isinstance(start, Size) or isinstance(end, Size):
        return _written_part(c, x, c.tensor(src), at, slice(start, end, step))
    places = range(x.shape[at])[slice(start, end, step)]
    return _scatter_along(c, x, at, c.graph.constant([*places], "i64"), src, "set")


@aten("select_scatter")
def select_scatter(c: Call, x: Tensor, src: Tensor, axis: int, index: int) -> Tensor:
    at = axis % x.ndim
    return _scatter_along(c, x, at, c.graph.constant([index % x.shape[at]], "i64"), src.unsqueeze(at), "set")


def _written_part(c: Call, x: Tensor, src: Tensor, axis: int, item: slice) -> Tensor:
    """`src` in place of a part whose size each run decides."""
    first, count, step = part_of(item, x.shape[axis])
    if step != 1:
        raise Unsupported(f"a write to every element number {step} of an axis of size {x.shape[axis]}")
    size = x.shape[axis]
    wide = src.pad([(first, size - first - count) if a == axis else (0, 0) for a in range(x.ndim)])
    place = c.graph.arange(size).reshape([size if a == axis else 1 for a in range(x.ndim)])
    return ((place < first) | (place >= first + count)).where(x, wide)


def _scatter_along(c: Call, x: Tensor, axis: int, index: Tensor, rows: Tensor, how: str) -> Tensor:
    """Rows of an axis, by a list of numbers."""
    order = [axis, *[a for a in range(x.ndim) if a != axis]]
    back = [order.index(a) for a in range(x.ndim)]
    return x.permute(order).scatter(index, c.tensor(rows).permute(order), how).permute(back)


def _diagonal(x: Tensor, n: int, offset: int, first: int, second: int) -> tuple[list[int], Tensor, Tensor]:
    """The axes with those two in front, the tensor so with these as one, and where in it the diagonal is."""
    a, b = first % x.ndim, second % x.ndim
    place = x.graph.arange(n)
    at = (place + max(-offset, 0)) * x.shape[b] + place + max(offset, 0)
    order = [a, b, *[i for i in range(x.ndim) if i not in (a, b)]]
    front = x.permute(order)
    return order, front.reshape(front.shape[0] * front.shape[1], *front.shape[2:]), at


@aten("diagonal")
def diagonal(c: Call, x: Tensor, offset: int = 0, first: int = 0, second: int = 1) -> Tensor:
    _, flat, at = _diagonal(x, c.shape[-1], offset, first, second)
    return flat.gather(at).permute([*range(1, flat.ndim), 0])


@aten("diagonal_scatter")
def diagonal_scatter(c: Call, x: Tensor, src: Tensor, offset: int = 0, first: int = 0, second: int = 1) -> Tensor:
    order, flat, at = _diagonal(x, src.shape[-1], offset, first, second)
    rows = c.tensor(src).permute([src.ndim - 1, *range(src.ndim - 1)])
    out = flat.scatter(at, rows, "set").reshape(*[x.shape[a] for a in order])
    return out.permute([order.index(a) for a in range(x.ndim)])


@aten("as_strided")
def as_strided(c: Call, x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Tensor:
    """By the strides that torch says the source has; its elements have no gaps between them."""
    meta = c.node.args[0].meta["val"]  # type: ignore[union-attr]
    strides = [c.size(s) for s in meta.stride()]
    order = sorted(range(x.ndim), key=lambda a: (-strides[a], a))
    flat = x.permute(order).flatten() if x.ndim else x.reshape(1)
    order = sorted(range(len(size)), key=lambda a: (-stride[a], a))
    if not offset and math.prod(size) == x.size and _is_dense([size[a] for a in order], [stride[a] for a in order]):
        return flat.reshape(*[size[a] for a in order]).permute([order.index(a) for a in range(len(size))])
    place = c.graph.const(offset or 0, "i64").broadcast_to(tuple(size))
    for a, (n, step) in enumerate(zip(size, stride)):
        place = place + (c.graph.arange(n) * step).reshape([n if i == a else 1 for i in range(len(size))])
    return flat.gather(place)


def _is_dense(size: Sequence[int], stride: Sequence[int]) -> bool:
    step = 1
    for n, s in zip(reversed(size), reversed(stride)):
        if n != 1 and s != step:
            return False
        step *= n
    return True
