"""What an index takes of a tensor, as NumPy means it: basic indices, and one tensor of integers."""

from __future__ import annotations

from typing import Any, Protocol, Sequence

import numpy as np

from telegrad._size import Dim, Size, largest, smallest
from telegrad.errors import invalid


class Indexed(Protocol):
    """What an index needs of a tensor."""

    graph: Any
    shape: tuple[Dim, ...]

    @property
    def ndim(self) -> int: ...
    def reshape(self, *shape: Any) -> Any: ...
    def flip(self, axes: Any) -> Any: ...
    def pad(self, padding: Any) -> Any: ...
    def permute(self, order: Any) -> Any: ...
    def _make(self, op: str, *, arg: Sequence[Dim | str]) -> Any: ...


def get(x: Any, index: Any) -> Any:
    """x[index]."""
    items = _whole(x, list(index) if isinstance(index, tuple) else [index])
    out, axis = x, 0
    gathers = [i for i, item in enumerate(items) if not _is_basic(item)]
    if len(gathers) > 1:
        raise invalid("an index of several tensors or arrays; index axis after axis")
    out = _slices(out, [item if _is_basic(item) else slice(None)
                        for item in items if item is not None])
    shape: list[Dim] = []  # with None, without the axes of integers
    for item in items:
        if item is None:
            shape.append(1)
            continue
        if not _is_integer(item):
            shape.append(out.shape[axis])
        axis += 1
    out = out.reshape(shape)
    for i in gathers:
        at = sum(not _is_integer(item) for item in items[:i])
        out = _gather(out, items[i], at)
    return out


def _whole(x: Indexed, items: list[Any]) -> list[Any]:
    """With slices for what `...` and the end leave out."""
    if any(isinstance(item, (bool, np.bool_)) for item in items):
        raise invalid("an index that is a truth; choose with `where`")
    used = sum(item is not None and item is not Ellipsis for item in items)
    if used > x.ndim:
        raise invalid(f"{used} indices for the shape {list(x.shape)}")
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise invalid("an index has more than one ...")
    at = dots[0] if dots else len(items)
    return [*items[:at], *[slice(None)] * (x.ndim - used), *items[at + 1:]]


def _is_integer(item: Any) -> bool:
    return hasattr(item, "__index__") and not hasattr(item, "shape") or isinstance(item, (np.integer, Size))


def _is_basic(item: Any) -> bool:
    if item is None or isinstance(item, slice) or _is_integer(item):
        return True
    if hasattr(item, "shape") or isinstance(item, list):
        return False
    raise TypeError(f"an index that is a {type(item).__name__}")


def _slices(x: Indexed, items: list[Any]) -> Any:
    """Integers keep their axis here, of size 1."""
    arg: list[Dim] = []
    steps = []
    for item, size in zip(items, x.shape):
        if isinstance(size, Size) or _is_symbolic(item):
            first, count, step = part_of(item, size)
            arg += [first, count]
            steps.append(step)
            continue
        if isinstance(item, slice):
            places = range(size)[item]
            first = min(places[0], places[-1]) if places else 0
            count = abs(places[-1] - places[0]) + 1 if places else 0
        else:
            at = int(item)
            if not -size <= at < size:
                raise invalid(f"index {at} of an axis of {size}")
            first, count, places = at % size, 1, range(1)
        arg += [first, count]
        steps.append(places.step)
    out = x._make("shrink", arg=arg) if arg else x
    flipped = [axis for axis, step in enumerate(steps) if step < 0 and out.shape[axis] > 1]
    out = out.flip(flipped) if flipped else out
    for axis, step in enumerate(steps):
        if abs(step) > 1:
            out = _strided(out, axis, abs(step))
    return out


def _is_symbolic(item: Any) -> bool:
    return isinstance(item, Size) or isinstance(item, slice) and any(isinstance(v, Size) for v in (item.start, item.stop))


def part_of(item: Any, size: Dim) -> tuple[Dim, Dim, int]:
    """The first place, the count and the step of what an index takes of an axis, where one of them is decided by each
    run. Bounds are cut off at the axis as those of slices are, as far as the variables' bounds tell."""
    if not isinstance(item, slice):
        first = item + size if item < 0 else item
        return first, 1, 1
    step = 1 if item.step is None else int(item.step)
    if step < 0 and (item.start, item.stop) != (None, None):
        raise invalid(f"a slice from {item.start} to {item.stop} with a negative step, of an axis of size {size}")

    def cut(bound: Dim) -> Dim:
        bound = bound + size if bound < 0 else bound
        return largest(smallest(bound, size), 0)

    start = cut(0 if item.start is None else item.start)
    stop = size if item.stop is None else cut(item.stop)
    return start, largest(stop - start, 0), step


def _strided(x: Indexed, axis: int, step: int) -> Any:
    """Every `step`-th element: the first column of rows of `step`."""
    size = x.shape[axis]
    count = (size + step - 1) // step
    after = [(0, count * step - size if i == axis else 0) for i in range(x.ndim)]
    rows = x.pad(after).reshape(*x.shape[:axis], count, step, *x.shape[axis + 1:])
    arg: list[Dim] = []
    for i, n in enumerate(rows.shape):
        arg += [0, 1 if i == axis + 1 else n]
    return rows._make("shrink", arg=arg).reshape(*x.shape[:axis], count, *x.shape[axis + 1:])


def _gather(x: Indexed, item: Any, axis: int) -> Any:
    """Rows of an axis by number; a negative one counts from the end, one out of range gives 0."""
    graph = x.graph
    if not hasattr(item, "graph"):
        array = np.asarray(item)
        if array.dtype.kind not in "iu":
            raise TypeError(f"an index that is an array of {array.dtype}; integers are")
        size = x.shape[axis]
        if isinstance(size, Size):
            raise invalid(f"an index that is an array, for an axis of size {size}; use a tensor")
        if array.size and not -size <= array.min() <= array.max() < size:
            raise invalid(f"an index of {array.min()} to {array.max()} for an axis of {size}")
        item = graph.constant(array % max(size, 1), "i64")
    elif item.dtype.kind == "signed":
        item = (item < 0).where(item + x.shape[axis], item)
    order = [axis, *[a for a in range(x.ndim) if a != axis]]
    rows: Any = x.permute(order) if axis else x
    out = rows.gather(item)
    n = len(item.shape)
    back = [*range(n, n + axis), *range(n), *range(n + axis, out.ndim)]
    return out.permute(back) if axis else out
