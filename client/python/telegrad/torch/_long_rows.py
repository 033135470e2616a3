"""Stable orders of long rows, and running results along them, in about n log n steps.

The orders are those of engine/frontend/ops/sort.cc, where the ideas are explained. What is sorted are integers of 64 bits, an
element's place in the order of its type above its position: they are all different, so that any sort of them is stable.
"""

from __future__ import annotations

import math
from typing import Callable, Sequence

from telegrad import Tensor
from telegrad._size import Dim
from telegrad.torch._shapes import _part

LONG = 1024  # elements of a row up to which counting, which takes n n steps, is as fast
_RUN = 256  # elements that are sorted by counting in a longer row
_LOWEST, _UNIT, _MOST = 1 << 31, 1 << 32, (1 << 63) - 1
_SEGMENTED, _SHORTEST = 128, 4  # elements of a row from which segments of it pay, and of a segment
_SECOND_PADDING = 1 << 30  # begins what segments are filled up with, so that it is not what runs are filled up with


def places_in_order(x: Tensor, descending: bool, keep: int) -> Tensor:
    """The positions [rows, keep] i64 of the first elements in order of each row of x [rows, n]; NaN is the largest."""
    key = _order_key(x)
    if descending:
        key = key ^ -1
    if x.dtype.bits < 64:
        return _places(key, keep)
    low = _places((key & (_UNIT - 1)) - _LOWEST, x.shape[1])
    return taken(low, _places(taken(key >> 32, low), keep))


def taken(x: Tensor, places: Tensor) -> Tensor:
    """Of each row of x [rows, n] the elements at these places [rows, m]."""
    return x.flatten().gather(places + _numbers(x, x.shape[0], 1) * x.shape[1])


def _numbers(x: Tensor, count: Dim, trailing: int) -> Tensor:
    return x.graph.arange(count).reshape(count, *[1] * trailing)


def _order_key(x: Tensor) -> Tensor:
    """Integers in the order of x, of 32 bits or, of types of 64 bits, of 64, as i64. -0 equals 0."""
    if not x.dtype.is_float:
        return x.cast("i64") - (_LOWEST if x.dtype.kind == "unsigned" and x.dtype.bits == 32 else 0)
    wide = x.dtype.bits == 64
    v = x if wide else x.cast("f32")
    bits = v.eq(0).where(0, v).bitcast("i64" if wide else "i32").cast("i64")
    most = _MOST if wide else _LOWEST - 1
    return v.eq(v).where((bits < 0).where(bits ^ most, bits), most)


def _places(key: Tensor, keep: int) -> Tensor:
    """Positions of the smallest keys of 32 bits."""
    return _sorted_rows(key * _UNIT + key.graph.arange(key.shape[1]), keep, 1) & (_UNIT - 1)


def _sorted_rows(x: Tensor, keep: int, span: int) -> Tensor:
    """[rows, n] of distinct i64 -> [rows, keep], the smallest in order. The lower half of an element of column i is a position from
    i * span up to (i + 1) * span. Each of those that are wanted is in one of the `keep` segments with the smallest least elements."""
    rows, n = x.shape
    length = round(math.sqrt(n // keep))
    if n < _SEGMENTED or length < _SHORTEST or n >= _SECOND_PADDING:
        return _sorted_whole(x, keep)
    segments = -(-n // length)
    every = _lengthened(x, segments * length, _SECOND_PADDING).contiguous()
    least = every.reshape(rows, segments, length).min(2).contiguous()
    best = _sorted_rows(least, keep, span * length)
    number = (best & (_UNIT - 1)) // (span * length) + _numbers(x, rows, 1) * segments
    few = every.reshape(rows * segments, length).gather(number)
    return _sorted_whole(few.reshape(rows, keep * length), keep)


def _lengthened(x: Tensor, n: int, start: int) -> Tensor:
    """Rows made longer, by numbers above all that sort, which are different for other starts."""
    have = x.shape[1]
    if have == n:
        return x
    place = x.graph.arange(n)
    return (place < have).where(x.pad([(0, 0), (0, n - have)]), _MOST - start - place)


def _sorted_whole(x: Tensor, keep: int) -> Tensor:
    """All of [rows, n] or fewer of its smallest, in order: runs are sorted, and pairs of runs merged until one is left."""
    rows, n = x.shape
    runs = 1
    if n > LONG:
        while -(-n // runs) > _RUN:
            runs *= 2
    length = -(-n // runs)
    x = _lengthened(x, runs * length, 0).reshape(rows, runs, length)
    x = _counted(x, min(keep, length))  # what is behind the first `keep` of a run is behind those of the row
    while runs > 1:
        runs //= 2
        n = x.shape[2]
        x = _merged(x.reshape(rows, runs, 2, n), min(keep, 2 * n))
    return x.reshape(rows, x.shape[2])[:, :keep]


def _counted(x: Tensor, keep: int) -> Tensor:
    """[rows, runs, n] -> [rows, runs, keep]: an element's place is the number of those below it."""
    rows, runs = x.shape[:2]
    below = (x.unsqueeze(-2) < x.unsqueeze(-1)).cast("i32").sum(-1)
    row = x.graph.arange(rows * runs).reshape(rows, runs, 1)
    place = (below < keep).where(below.cast("i64") + row * keep, -1)
    empty = x.graph.const(0, "i64").broadcast_to((rows * runs * keep,)).contiguous()
    return empty.scatter(place.contiguous().flatten(), x.flatten(), "set").reshape(rows, runs, keep)


def _merged(x: Tensor, keep: int) -> Tensor:
    """[rows, pairs, 2, n] of sorted runs a and b -> [rows, pairs, keep]. Among the first o of a merged row are i of a and o - i of b,
    where i is the least with a[i] > b[o - 1 - i]; it is found by bisection."""
    rows, pairs, _, n = x.shape
    shape = (rows, pairs, keep)
    flat = x.contiguous().flatten()
    begin = (x.graph.arange(rows * pairs).reshape(rows, pairs, 1) * (2 * n)).broadcast_to(shape)
    o = x.graph.arange(keep).broadcast_to(shape)
    most, i = o.minimum(n), (o - n).maximum(0)
    step = 1 << n.bit_length() - 1
    while step:
        after = i + step
        a, b = flat.gather(begin + after - 1), flat.gather(begin + n + o - after)
        i = ((after <= most) & (a < b)).where(after, i)
        step //= 2
    j = o - i
    a, b = flat.gather(begin + i), flat.gather(begin + n + j)
    return ((i < n) & ((j >= n) | (a < b))).where(a, b)


def running(values: Sequence[Tensor], axis: int, combine: Callable[[Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]) -> Sequence[Tensor]:
    """For each place of an axis what an associative function makes of all up to it: combine(earlier, later) of values that belong
    together. Each step doubles how many a place has."""
    n = values[0].shape[axis]
    place = values[0].graph.arange(n).reshape([n if a == axis else 1 for a in range(values[0].ndim)])
    shift = 1
    while shift < n:
        widths = [(shift if a == axis else 0, 0) for a in range(values[0].ndim)]
        earlier = [_part(v, axis, slice(0, n - shift)).pad(widths) for v in values]
        values = [(place < shift).where(old, new).contiguous() for old, new in zip(values, combine(earlier, values))]
        shift *= 2
    return values
