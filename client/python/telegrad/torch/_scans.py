"""Running maxima and sums of exponentials along an axis: for each place a reduction over all places before it, which the
server fuses, so that an axis of n elements takes n n steps and no memory for them. A long axis takes log n steps of n each.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Sequence

from telegrad import Tensor, _composed
from telegrad._size import highest
from telegrad.torch._long_rows import LONG, running
from telegrad.torch._order import MOST_STEPS
from telegrad.torch._table import Call, Unsupported, aten, lowest


def _prefixes(c: Call, x: Tensor, axis: int) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """The rows along the axis with one more axis for the place; which elements are in its prefix; and what puts a result's axes
    back in order."""
    at, n = axis % x.ndim, x.shape[axis]
    if highest(n * x.size) > MOST_STEPS:
        raise Unsupported(f"{x.size} elements in rows of {n} take more than {MOST_STEPS:.0e} steps")
    order = [*[a for a in range(x.ndim) if a != at], at]
    place = c.graph.arange(n)
    back = [order.index(a) for a in range(x.ndim)]
    return x.permute(order).unsqueeze(-2), place.reshape(1, n) <= place.reshape(n, 1), lambda out: out.permute(back)


def _extremes(c: Call, x: Tensor, axis: int, sign: int) -> list[Tensor]:
    """The largest (`sign` 1) or smallest so far, and the last place that has it. NaN counts as either."""
    if not x.ndim:
        return [x, c.graph.const(0, "i64")]
    kind = x.dtype
    if kind.kind == "boolean":
        x = x.cast("u8")
    if _is_long(x, axis):
        best, places = _long_extremes(c, x, axis % x.ndim, sign)
        return [best.cast(kind), places]
    rows, before, back = _prefixes(c, x, axis)
    worst = lowest(x, sign)
    numbers = rows.ne(rows).where(worst, rows) if x.dtype.is_float else rows
    best = before.where(numbers, worst)
    best = best.max(-1) if sign > 0 else best.min(-1)
    hit = rows.eq(best.unsqueeze(-1))
    if x.dtype.is_float:
        nan = (before & rows.ne(rows)).any(-1)
        hit = nan.unsqueeze(-1).where(rows.ne(rows), hit)
        best = nan.where(math.nan, best)
    places = (before & hit).where(c.graph.arange(x.shape[axis]), -1).max(-1)
    return [back(best).cast(kind), back(places)]


def _is_long(x: Tensor, axis: int) -> bool:
    n = x.shape[axis]
    return isinstance(n, int) and n > LONG


def _long_extremes(c: Call, x: Tensor, axis: int, sign: int) -> Sequence[Tensor]:
    def combine(earlier: Sequence[Tensor], later: Sequence[Tensor]) -> Sequence[Tensor]:
        a, b = earlier[0], later[0]
        stays = a > b if sign > 0 else a < b
        if x.dtype.is_float:
            stays = b.eq(b) & (stays | a.ne(a))
        return [stays.where(old, new) for old, new in zip(earlier, later)]

    n = x.shape[axis]
    place = c.graph.arange(n).reshape([n if a == axis else 1 for a in range(x.ndim)])
    return running([x, place.broadcast_to(x.shape)], axis, combine)


@aten("cummax")
def cummax(c: Call, x: Tensor, axis: int) -> list[Tensor]:
    return _extremes(c, x, axis, 1)


@aten("cummin")
def cummin(c: Call, x: Tensor, axis: int) -> list[Tensor]:
    return _extremes(c, x, axis, -1)


@aten("logcumsumexp")
def logcumsumexp(c: Call, x: Tensor, axis: int) -> Tensor:
    if not x.ndim:
        return x
    if _is_long(x, axis):
        return _composed.composed(lambda x: running([x], axis % x.ndim, _log_sums)[0])(x)
    rows, before, back = _prefixes(c, x, axis)
    most = before.where(rows, -math.inf).max(-1, True)
    base = abs(most).eq(math.inf).where(0, most)  # the logarithm of a sum that is 0 or infinite needs none
    return back((before.where((rows - base).exp(), 0).sum(-1, True).log() + base).squeeze(-1))


def _log_sums(earlier: Sequence[Tensor], later: Sequence[Tensor]) -> Sequence[Tensor]:
    """The logarithms of e^a + e^b."""
    a, b = earlier[0], later[0]
    apart = a.eq(b).where(0, abs(a - b))  # 0 of two infinities
    return [a.maximum(b) + _composed.log1p((-apart).exp())]
