"""ATen's operators with indices that are data: embedding, index, gather, scatter."""

from __future__ import annotations

import math
from typing import Any, Sequence

import torch

from telegrad import Tensor, stack
from telegrad.torch._elementwise import _truth
from telegrad.torch._shapes import _part
from telegrad.torch._table import Call, Unsupported, Value, aten


def _wrapped(index: Tensor, size: int) -> Tensor:
    return (index < 0).where(index + size, index) if index.dtype.kind == "signed" else index.cast("i64")


@aten("embedding")
def embedding(c: Call, table: Tensor, index: Tensor, *args: Any) -> Tensor:
    return table.gather(index)


@aten("index_select")
def index_select(c: Call, x: Tensor, axis: int, index: Tensor) -> Tensor:
    return x.broadcast_to(c.shape) if not x.ndim else _part(x, axis, index)


def _places(x: Tensor, indices: Sequence[Tensor | None]) -> tuple[list[int], Tensor, tuple[int, ...]]:
    """Axes that are indexed, in order; row numbers where they are one axis, in front; the index's shape."""
    used = [a for a, index in enumerate(indices) if index is not None]
    if any(indices[a].dtype.kind == "boolean" for a in used):  # type: ignore[union-attr]
        raise Unsupported("an index that is a mask, whose result has no fixed shape; use torch.where")
    flat: Tensor | None = None
    for a in used:
        index = _wrapped(indices[a].cast("i64"), x.shape[a])  # type: ignore[union-attr]
        flat = index if flat is None else flat * x.shape[a] + index
    assert flat is not None
    return used, flat, flat.shape


@aten("index")
def index_(c: Call, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    used, rows, shape = _places(x, indices)
    rest = [a for a in range(x.ndim) if a not in used]
    flat = x.permute([*used, *rest]).reshape(math.prod(x.shape[a] for a in used), *[x.shape[a] for a in rest])
    out = flat.gather(rows)
    n = len(shape)
    if used == list(range(used[0], used[0] + len(used))):  # neighbours: what they give takes their place
        before = used[0]
        return out.permute([*range(n, n + before), *range(n), *range(n + before, out.ndim)]) if before else out
    return out


@aten("index_put", "_unsafe_index_put")
def index_put(c: Call, x: Tensor, indices: Sequence[Tensor | None], values: Tensor,
              accumulate: bool = False) -> Tensor:
    if len(indices) == 1 and (mask := indices[0]) is not None and mask.dtype.kind == "boolean" and values.size == 1:
        value = c.tensor(values).reshape([])  # one number, wherever the mask of the first axes is true
        return mask.reshape(*mask.shape, *[1] * (x.ndim - mask.ndim)).broadcast_to(x.shape).where(x + value if accumulate else value, x)
    used, rows, shape = _places(x, indices)
    rest = [a for a in range(x.ndim) if a not in used]
    order = [*used, *rest]
    front = x.permute(order)
    flat = front.reshape(math.prod(front.shape[:len(used)]), *front.shape[len(used):])
    before = used[0] if used == list(range(used[0], used[0] + len(used))) else 0
    sizes = [x.shape[a] for a in rest]
    src = c.tensor(values).broadcast_to((*sizes[:before], *shape, *sizes[before:]))
    if before:  # the index's axes to the front, as they are in `flat`
        n = len(shape)
        src = src.permute([*range(before, before + n), *range(before), *range(before + n, src.ndim)])
    out = flat.scatter(rows, src, "add" if accumulate else "set").reshape(*front.shape)
    return out.permute([order.index(a) for a in range(x.ndim)])


aten("_unsafe_index")(index_)


def _linear(x: Tensor, axis: int, index: Tensor) -> Tensor:
    """For each element of `index`, of which each place differs from its own along `axis` alone: its number in x."""
    index = index.cast("i64")
    total = index * math.prod(x.shape[axis + 1:])
    for a, size in enumerate(index.shape):
        if a != axis and size != 1:
            place = x.graph.arange(size) * math.prod(x.shape[a + 1:])
            total = total + place.reshape([size if i == a else 1 for i in range(index.ndim)])
    return total


@aten("gather")
def gather(c: Call, x: Tensor, axis: int, index: Tensor, **named: Any) -> Tensor:
    if not x.ndim:
        return x.broadcast_to(c.shape)
    return x.flatten().gather(_linear(x, axis % x.ndim, index))


_REDUCE = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "add": "add", "multiply": "mul", "mean": "add"}


_NEUTRAL = {"add": 0, "mul": 1, "max": -math.inf, "min": math.inf}


@aten("scatter", "scatter_add", "scatter_reduce")
def scatter(c: Call, x: Tensor, axis: int, index: Tensor, src: Value, reduce: str | None = None,
            include_self: bool = True, **named: Any) -> Tensor:
    how = "add" if str(c.node.target).startswith("aten.scatter_add") else _REDUCE[reduce] if reduce else "set"
    if not x.ndim:
        x, index, src = x.reshape(1), index.reshape(1), src.reshape(1) if isinstance(src, Tensor) else src
    rows = c.tensor(src)
    rows = rows[tuple(slice(0, n) for n in index.shape)] if rows.ndim else rows.broadcast_to(index.shape)
    place = _linear(x, axis % x.ndim, index).flatten()
    flat = x.flatten()
    ones = c.tensor(1).broadcast_to(place.shape)
    hits = c.tensor(0).broadcast_to(flat.shape).contiguous().scatter(place, ones, "add")
    if not include_self:
        neutral = _NEUTRAL[how]
        if how in ("max", "min") and not x.dtype.is_float:
            raise Unsupported(f"{reduce} of integers without the tensor itself")
        flat = hits.ne(0).where(neutral, flat)
    out = flat.scatter(place, rows.flatten(), how)
    if reduce == "mean":
        count = (hits + 1 if include_self else hits).maximum(1)
        out = out / count if x.dtype.is_float else out // count
    return out.reshape(*c.shape)


@aten("put")
def put(c: Call, x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Into the elements in their order, whatever the shape."""
    place = _wrapped(index.cast("i64"), x.size).flatten()
    return x.flatten().scatter(place, source.flatten(), "add" if accumulate else "set").reshape(*x.shape)


@aten("nonzero_static")
def nonzero_static(c: Call, x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The places of the first `size` elements that are not zero."""
    if not x.ndim or not size:
        return c.full(fill_value)
    true = _truth(x).flatten()
    rank = true.cast("i64").cumsum(0) - 1
    place = c.graph.const(-1, "i64").broadcast_to((size,)).contiguous().scatter(
        true.where(rank, size), c.graph.arange(true.shape[0]), "set")  # what is outside is skipped
    found, out, step = place >= 0, [], 1
    for n in reversed(x.shape):
        out.insert(0, found.where(place // step % n, fill_value))
        step *= n
    return stack(out, 1)
