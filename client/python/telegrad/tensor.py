"""Tensor: a node of a graph, with NumPy's operators and names.

Shapes broadcast as NumPy's do. Element types do not mix: `cast` says what is meant; only a plain
number takes the type of the tensor that it meets.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Sequence, Union

from telegrad.dtypes import DType, DTypeLike
from telegrad.errors import invalid

if TYPE_CHECKING:
    from telegrad.graph import Graph

Number = Union[int, float, bool]
Axes = Union[int, Sequence[int], None]


class Tensor:
    """One value (or effect) of a graph."""

    __slots__ = ("graph", "index", "op", "_dtype", "shape", "src", "arg", "real", "instances")
    __array_ufunc__ = None  # array + tensor is an error, not an array of tensors

    def __init__(self, graph: Graph, index: int, op: str, dtype: DType | None,
                 shape: tuple[int, ...], src: tuple[Tensor, ...], arg: tuple[int, ...],
                 real: float | None, instances: int) -> None:
        self.graph, self.index, self.op, self._dtype = graph, index, op, dtype
        self.shape, self.src, self.arg, self.real = shape, src, arg, real
        self.instances = instances  # on how many devices

    @property
    def dtype(self) -> DType:
        """None of nodes without a value, such as stores."""
        return self._dtype  # type: ignore[return-value]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __repr__(self) -> str:
        return f"<Tensor {self.op} {self.dtype}{list(self.shape)}>"

    def _make(self, op: str, *src: Tensor | Number, arg: Sequence[int | str] = (),
              dtype: DTypeLike | None = None) -> Tensor:
        return self.graph.op(op, self, *src, arg=arg, dtype=dtype)

    def _with(self, op: str, other: Tensor | Number, swap: bool = False) -> Tensor:
        """An op of two, broadcast; a number has this tensor's type."""
        if not isinstance(other, Tensor):
            if not isinstance(other, (int, float)) and not hasattr(other, "__index__"):
                raise TypeError(f"{op}: {type(other).__name__} is no tensor and no number; arrays "
                                "are inputs or state of a graph")
            other = self.graph.const(other, self.dtype)
        a, b = _broadcast(self, other)
        return self.graph.op(op, b, a) if swap else self.graph.op(op, a, b)

    # Elementwise.

    def __add__(self, other: Tensor | Number) -> Tensor:
        return self._with("add", other)

    def __radd__(self, other: Number) -> Tensor:
        return self._with("add", other, swap=True)

    def __sub__(self, other: Tensor | Number) -> Tensor:
        return self._with("sub", other)

    def __rsub__(self, other: Number) -> Tensor:
        return self._with("sub", other, swap=True)

    def __mul__(self, other: Tensor | Number) -> Tensor:
        return self._with("mul", other)

    def __rmul__(self, other: Number) -> Tensor:
        return self._with("mul", other, swap=True)

    def __truediv__(self, other: Tensor | Number) -> Tensor:
        return self._with("fdiv", other)

    def __rtruediv__(self, other: Number) -> Tensor:
        return self._with("fdiv", other, swap=True)

    def __floordiv__(self, other: Tensor | Number) -> Tensor:
        """Of integers; 0 where `other` is 0."""
        return self._with("floordiv", other)

    def __mod__(self, other: Tensor | Number) -> Tensor:
        """Of integers, with the sign of `other`; 0 where that is 0."""
        return self._with("floormod", other)

    def __pow__(self, other: Tensor | Number) -> Tensor:
        return self._with("pow", other)

    def __and__(self, other: Tensor | Number) -> Tensor:
        return self._with("and", other)

    def __or__(self, other: Tensor | Number) -> Tensor:
        return self._with("or", other)

    def __xor__(self, other: Tensor | Number) -> Tensor:
        return self._with("xor", other)

    def __lshift__(self, other: Tensor | Number) -> Tensor:
        return self._with("shl", other)

    def __rshift__(self, other: Tensor | Number) -> Tensor:
        return self._with("shr", other)

    def __lt__(self, other: Tensor | Number) -> Tensor:
        return self._with("cmplt", other)

    def __gt__(self, other: Tensor | Number) -> Tensor:
        return self._with("cmplt", other, swap=True)

    def eq(self, other: Tensor | Number) -> Tensor:
        """Element by element; == compares nodes, as of any object."""
        return self._with("cmpeq", other)

    def ne(self, other: Tensor | Number) -> Tensor:
        return self._with("cmpne", other)

    def __le__(self, other: Tensor | Number) -> Tensor:
        return (self < other) | self.eq(other)

    def __ge__(self, other: Tensor | Number) -> Tensor:
        return (self > other) | self.eq(other)

    def __neg__(self) -> Tensor:
        return self._make("neg")

    def __invert__(self) -> Tensor:
        ones = 1 if self.dtype.kind != "unsigned" else (1 << self.dtype.bits) - 1
        return self._with("xor", -1 if self.dtype.kind == "signed" else ones)

    def __abs__(self) -> Tensor:
        return self.maximum(-self)

    def maximum(self, other: Tensor | Number) -> Tensor:
        """NaN if either is NaN."""
        return self._with("max", other)

    def minimum(self, other: Tensor | Number) -> Tensor:
        if not isinstance(other, Tensor):
            other = self.graph.const(other, self.dtype)
        if self.dtype.is_float:
            return -((-self).maximum(-other))
        return ~((~self).maximum(~other))

    def exp2(self) -> Tensor:
        return self._make("exp2")

    def log2(self) -> Tensor:
        return self._make("log2")

    def exp(self) -> Tensor:
        return (self * (1 / math.log(2))).exp2()

    def log(self) -> Tensor:
        return self.log2() * math.log(2)

    def sin(self) -> Tensor:
        return self._make("sin")

    def cos(self) -> Tensor:
        return (self + math.pi / 2).sin()

    def sqrt(self) -> Tensor:
        return self._make("sqrt")

    def reciprocal(self) -> Tensor:
        return self._make("recip")

    def trunc(self) -> Tensor:
        return self._make("trunc")

    def floor(self) -> Tensor:
        return self._make("floor")

    def sigmoid(self) -> Tensor:
        return ((-self).exp() + 1).reciprocal()

    def tanh(self) -> Tensor:
        return (self * 2).sigmoid() * 2 - 1

    def relu(self) -> Tensor:
        return self.maximum(0)

    def where(self, yes: Tensor | Number, no: Tensor | Number) -> Tensor:
        """`yes` where this (bool) is true, else `no`."""
        like = next((t for t in (yes, no) if isinstance(t, Tensor)), None)
        if like is None:
            raise invalid("where: one of the values must be a tensor")
        values = [t if isinstance(t, Tensor) else self.graph.const(t, like.dtype)
                  for t in (yes, no)]
        return self.graph.op("where", *_broadcast(self, *values))

    def cast(self, dtype: DTypeLike) -> Tensor:
        return self._make("cast", dtype=dtype)

    def bitcast(self, dtype: DTypeLike) -> Tensor:
        """The same bits; where the width changes, the last axis grows or shrinks."""
        return self._make("bitcast", dtype=dtype)

    def contiguous(self) -> Tensor:
        return self._make("contiguous")

    # Shapes.

    def reshape(self, *shape: Any) -> Tensor:
        """One size may be -1."""
        dims = list(_flat(shape))
        if dims.count(-1) == 1:
            known = math.prod(d for d in dims if d != -1)
            if known == 0 or self.size % known:
                raise invalid(f"reshape: {list(self.shape)} does not become {dims}")
            dims[dims.index(-1)] = self.size // known
        return self if tuple(dims) == self.shape else self._make("reshape", arg=dims)

    def broadcast_to(self, shape: Sequence[int]) -> Tensor:
        shape = tuple(shape)
        if shape == self.shape:
            return self
        if len(shape) < self.ndim:
            raise invalid(f"{list(self.shape)} does not broadcast to {list(shape)}")
        x = self.reshape((1,) * (len(shape) - self.ndim) + self.shape)
        if any(have not in (1, want) for have, want in zip(x.shape, shape)):
            raise invalid(f"{list(self.shape)} does not broadcast to {list(shape)}")
        return x if x.shape == shape else x._make("expand", arg=shape)

    def permute(self, *axes: Any) -> Tensor:
        return self._make("permute", arg=[_axis(a, self.ndim) for a in _flat(axes)])

    def transpose(self, first: int = -1, second: int = -2) -> Tensor:
        axes = list(range(self.ndim))
        a, b = _axis(first, self.ndim), _axis(second, self.ndim)
        axes[a], axes[b] = b, a
        return self.permute(axes)

    @property
    def T(self) -> Tensor:
        """All axes reversed."""
        return self.permute(list(reversed(range(self.ndim))))

    def flip(self, *axes: Any) -> Tensor:
        return self._make("flip", arg=[_axis(a, self.ndim) for a in _flat(axes)])

    def unsqueeze(self, axis: int) -> Tensor:
        at = _axis(axis, self.ndim + 1)
        return self.reshape(self.shape[:at] + (1,) + self.shape[at:])

    def squeeze(self, axis: int) -> Tensor:
        at = _axis(axis, self.ndim)
        if self.shape[at] != 1:
            raise invalid(f"squeeze: axis {axis} of {list(self.shape)} has not size 1")
        return self.reshape(self.shape[:at] + self.shape[at + 1:])

    def pad(self, widths: Sequence[tuple[int, int]]) -> Tensor:
        """Zeros around: (before, after) for each axis."""
        if len(widths) != self.ndim:
            raise invalid(f"pad: {len(widths)} widths for the shape {list(self.shape)}")
        arg = []
        for size, (before, after) in zip(self.shape, widths):
            arg += [before, before + size + after]
        return self._make("pad", arg=arg)

    def __getitem__(self, index: Any) -> Tensor:
        """Integers and slices with a step of 1 or -1; `gather` takes an index tensor."""
        items = index if isinstance(index, tuple) else (index,)
        if Ellipsis in items:
            at = items.index(Ellipsis)
            rest = self.ndim - len(items) + 1
            items = items[:at] + (slice(None),) * rest + items[at + 1:]
        if len(items) > self.ndim:
            raise invalid(f"{len(items)} indices for the shape {list(self.shape)}")
        arg: list[int] = []
        dropped, flipped = [], []
        for axis, (item, size) in enumerate(zip(items, self.shape)):
            offset, count = _part(item, size)
            arg += [offset, count]
            if not isinstance(item, slice):
                dropped.append(axis)
            elif item.step == -1:
                flipped.append(axis)
        for size in self.shape[len(items):]:
            arg += [0, size]
        out = self._make("shrink", arg=arg)
        out = out.flip(flipped) if flipped else out
        return out.reshape([size for i, size in enumerate(out.shape) if i not in dropped])

    # Reductions.

    def reduce(self, kind: str, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """`kind` is "add", "mul" or "max"; no axis: all."""
        axes = range(self.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
        wanted = sorted(_axis(a, self.ndim) for a in axes)
        out = self._make("reduce", arg=[kind, *wanted])
        if keepdims:
            return out
        return out.reshape([size for i, size in enumerate(self.shape) if i not in wanted])

    def sum(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        return self.reduce("add", axis, keepdims)

    def prod(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        return self.reduce("mul", axis, keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        return self.reduce("max", axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        if self.dtype.is_float:
            return -((-self).max(axis, keepdims))
        return ~((~self).max(axis, keepdims))

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        total = self.sum(axis, keepdims)
        return total * (total.size / max(self.size, 1))

    def softmax(self, axis: int = -1) -> Tensor:
        powers = (self - self.max(axis, keepdims=True)).exp()
        return powers / powers.sum(axis, keepdims=True)

    def __matmul__(self, other: Tensor) -> Tensor:
        """A broadcast product, summed over the inner axis; f16 and bf16 sum in f32."""
        if self.ndim == 0 or other.ndim == 0:
            raise invalid("matmul: a scalar has no axis to sum over")
        a = self.unsqueeze(0) if self.ndim == 1 else self
        b = other.unsqueeze(1) if other.ndim == 1 else other
        if a.shape[-1] != b.shape[-2]:
            raise invalid(f"matmul: {list(self.shape)} and {list(other.shape)}: {a.shape[-1]} and "
                          f"{b.shape[-2]} terms")
        narrow = self.dtype.is_float and self.dtype.bits < 32
        if narrow and self.dtype == other.dtype:
            a, b = a.cast("f32"), b.cast("f32")
        out = (a.unsqueeze(-2) * b.transpose().unsqueeze(-3)).sum(-1)
        out = out.cast(self.dtype) if narrow else out
        out = out.squeeze(-1) if other.ndim == 1 else out
        return out.squeeze(-1 if other.ndim == 1 else -2) if self.ndim == 1 else out

    # Access by index.

    def gather(self, index: Tensor) -> Tensor:
        """self[index[...], ...]: rows of axis 0; an index out of range gives 0."""
        return self._make("gather", index)

    def scatter(self, index: Tensor, rows: Tensor, kind: str = "set") -> Tensor:
        """`rows` combined into the rows of axis 0 that `index` names.

        `kind` is "set", "add", "mul", "min" or "max"; an index out of range is skipped.
        """
        return self._make("scatter", index, rows, arg=[kind])


def cat(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """One after another along an axis."""
    if not tensors:
        raise invalid("cat: no tensors")
    first = tensors[0]
    return first.graph.op("cat", *tensors, arg=[_axis(axis, first.ndim)])


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The same along a new axis."""
    return cat([t.unsqueeze(axis) for t in tensors], axis)


def _flat(values: Sequence[Any]) -> Sequence[int]:
    return tuple(values[0] if len(values) == 1 and not hasattr(values[0], "__index__") else values)


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise invalid(f"axis {axis} of a shape of rank {rank}")
    return axis % rank


def _part(item: Any, size: int) -> tuple[int, int]:
    """Offset and size of what an index takes of an axis."""
    if not isinstance(item, slice):
        at = int(item)
        if not -size <= at < size:
            raise invalid(f"index {at} of an axis of {size}")
        return at % size, 1
    if item.step not in (None, 1, -1):
        raise invalid(f"a slice with step {item.step}; only 1 and -1")
    places = range(size)[item]
    return (min(places[0], places[-1]) if places else 0), len(places)


def _broadcast(*tensors: Tensor) -> list[Tensor]:
    """Of one shape; scalars stay scalars where another has a shape: ops take them so."""
    rank = max(t.ndim for t in tensors)
    shape = [1] * rank
    for t in tensors:
        for i, size in enumerate(t.shape, rank - t.ndim):
            if size != 1:
                if shape[i] not in (1, size):
                    shapes = " and ".join(str(list(t.shape)) for t in tensors)
                    raise invalid(f"shapes {shapes} do not broadcast")
                shape[i] = size
    return [t if t.ndim == 0 else t.broadcast_to(shape) for t in tensors]
