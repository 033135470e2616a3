"""Sorting and the largest elements, and the operators made of them.

In a short row, an element's place in order is how many elements come before it: a sum over comparisons, which the server
fuses, so that an axis of n elements takes n n steps and no memory for them. _long_rows.py has the order of longer ones.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from telegrad import Tensor
from telegrad._size import highest
from telegrad.torch._long_rows import LONG, places_in_order, taken
from telegrad.torch._shapes import _part
from telegrad.torch._table import Call, Unsupported, aten, kind

MOST_STEPS = 1 << 34


def _before(a: Tensor, b: Tensor, descending: bool) -> tuple[Tensor, Tensor]:
    """Whether `a` comes before `b`, and whether they are equal; NaN is the largest."""
    if a.dtype.kind == "boolean":
        a, b = a.cast("u8"), b.cast("u8")
    first = a > b if descending else a < b
    same = a.eq(b)
    if a.dtype.is_float:
        nan_a, nan_b = a.ne(a), b.ne(b)
        first = first | (nan_a & ~nan_b if descending else nan_b & ~nan_a)
        same = same | (nan_a & nan_b)
    return first, same


def _sorted(c: Call, x: Tensor, axis: int, descending: bool) -> list[Tensor]:
    """Values in order, and where they were; equal ones keep their order."""
    if not x.ndim:
        return [x, c.graph.const(0, "i64")]
    at, n = axis % x.ndim, x.shape[axis]
    if isinstance(n, int) and n > LONG:
        return _first(x, at, descending, n)
    steps = highest(n * x.size)
    if steps > MOST_STEPS:
        raise Unsupported(f"sorting {x.size // max(n, 1)} rows of {n} elements takes {steps:.0e} steps, more than "
                          f"{MOST_STEPS:.0e}")
    order = [*[a for a in range(x.ndim) if a != at], at]
    rows = x.permute(order)
    place = c.graph.arange(n)
    mine, other = rows.unsqueeze(-1), rows.unsqueeze(-2)
    first, same = _before(other, mine, descending)
    earlier = place.reshape(1, n) < place.reshape(n, 1)
    rank = (first | (same & earlier)).cast("i64").sum(-1)
    count = math.prod(rows.shape[:-1])
    flat = (rank.reshape(count, n) + (c.graph.arange(count) * n).reshape(count, 1)).flatten()
    numbers = place.reshape(1, n).broadcast_to((count, n)).flatten()
    back = [order.index(a) for a in range(x.ndim)]
    out = []
    for source in (rows.flatten(), numbers):
        empty = c.graph.const(0, source.dtype).broadcast_to((count * n,)).contiguous()
        out.append(empty.scatter(flat, source, "set").reshape(*rows.shape).permute(back))
    return out


def _first(x: Tensor, at: int, descending: bool, keep: int) -> list[Tensor]:
    """The first values in order along a long axis, and where they were."""
    order = [*[a for a in range(x.ndim) if a != at], at]
    back = [order.index(a) for a in range(x.ndim)]
    rows = x.permute(order)
    matrix = rows.reshape(math.prod(rows.shape[:-1]), rows.shape[-1])
    places = places_in_order(matrix, descending, keep).contiguous()
    return [t.reshape(*rows.shape[:-1], keep).permute(back) for t in (taken(matrix, places), places)]


@aten("sort")
def sort(c: Call, x: Tensor, *args: Any, **named: Any) -> list[Tensor]:
    if str(c.node.target).endswith(".stable"):  # (x, *, stable, dim, descending)
        axis, descending = named.get("dim", -1), named.get("descending", False)
    else:
        axis, descending = (args + (-1, False)[len(args):])[:2]
    return _sorted(c, x, named.get("dim", axis), named.get("descending", descending))


@aten("topk")
def topk(c: Call, x: Tensor, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> list[Tensor]:
    if not x.ndim:
        return _sorted(c, x, axis, largest)
    if isinstance(x.shape[axis], int) and x.shape[axis] > LONG and k > 0:
        return _first(x, axis % x.ndim, largest, k)
    return [_part(t, axis, slice(0, k)) for t in _sorted(c, x, axis, largest)]


@aten("kthvalue")
def kthvalue(c: Call, x: Tensor, k: int, axis: int = -1, keep: bool = False) -> list[Tensor]:
    """The k-th smallest, and where it is."""
    if not x.ndim:
        return _sorted(c, x, axis, False)
    found = [_part(t, axis, slice(k - 1, k)) for t in _sorted(c, x, axis, False)]
    return found if keep else [t.squeeze(axis) for t in found]


@aten("mode")
def mode(c: Call, x: Tensor, axis: int = -1, keep: bool = False) -> list[Tensor]:
    """What occurs most often along an axis, the least of several such, and where it is last."""
    if not x.ndim:
        return [x, c.graph.const(0, "i64")]
    at, n = axis % x.ndim, x.shape[axis]
    order = [*[a for a in range(x.ndim) if a != at], at]
    rows = x.permute(order)
    count = rows.unsqueeze(-1).eq(rows.unsqueeze(-2)).cast("i64").sum(-1)
    place = c.graph.arange(n)
    often = count.eq(count.max(-1, True))
    first, same = _before(rows.unsqueeze(-2), rows.unsqueeze(-1), False)
    beaten = (often.unsqueeze(-2) & first).any(-1)  # there is a smaller one that occurs as often
    where = (often & ~beaten).where(place, -1).max(-1, True)
    value = place.eq(where).where(rows, 0).sum(-1, True) if x.dtype.kind != "boolean" else (place.eq(where) & rows).any(-1, True)
    back = [order.index(a) for a in range(x.ndim)]
    found = [t.cast(kind_).permute(back) for t, kind_ in ((value, x.dtype), (where, where.dtype))]
    return found if keep else [t.squeeze(at) for t in found]


@aten("masked_scatter")
def masked_scatter(c: Call, x: Tensor, mask: Tensor, src: Tensor) -> Tensor:
    """Where the mask is true, the next element of `src`."""
    shape = c.shape
    m = mask.broadcast_to(shape).flatten()
    place = m.cast("i64").cumsum(0) - 1
    return m.where(src.flatten().gather(place), x.broadcast_to(shape).flatten()).reshape(*shape)


@aten("searchsorted", "bucketize")
def searchsorted(c: Call, *args: Any, right: bool = False, side: str | None = None, **named: Any) -> Tensor:
    """How many of the boundaries, which are in order, are before a value."""
    edges, x = args[:2] if "searchsorted" in str(c.node.target) else (args[1], args[0])
    if named.get("sorter") is not None or edges.ndim != 1:
        raise Unsupported("boundaries in several rows, or in another order")
    met = torch.promote_types(*(a.meta["val"].dtype for a in c.node.args[:2] if isinstance(a, torch.fx.Node)))
    a, b = edges.cast(kind(met)), c.tensor(x, kind(met)).unsqueeze(-1)
    before = (a <= b) if right or side == "right" else (a < b)
    return before.cast(c.dtype).sum(-1)


@aten("median")
def median(c: Call, x: Tensor, axis: int | None = None, keep: bool = False) -> Any:
    """The lower of the two in the middle; NaN where there is one."""
    rows = x.flatten() if axis is None else x
    at = -1 if axis is None else axis
    values, places = _sorted(c, rows, at, False)
    n = rows.shape[at] if rows.ndim else 1
    if not rows.ndim:
        raise Unsupported("the median of a scalar")
    middle = c.graph.const((n - 1) // 2, "i64")
    if rows.dtype.is_float:
        count = rows.ne(rows).cast("i64").sum(at, True)
        middle = count.ne(0).where(n - count, middle)  # the first of them, which all come last
    at = at % rows.ndim
    number = c.graph.arange(n).reshape([n if a == at else 1 for a in range(rows.ndim)])
    hit = number.eq(middle).broadcast_to(rows.shape)
    picked = [hit.where(t, 0).sum(at, keep) for t in (values, places)]
    if rows.dtype.is_float:
        nan = rows.ne(rows).any(at, keep)
        picked[0] = nan.where(math.nan, hit.where(values.ne(values).where(0, values), 0).sum(at, keep))
    return picked[0] if axis is None else picked
