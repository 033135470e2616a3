"""Tensor: a node of a graph, with NumPy's operators and names. Shapes broadcast as NumPy's do.

_node.py has what a node refuses, _arithmetic.py the elementwise operators; here are shapes, reductions and access by index.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, Sequence, Union

from telegrad import _index
from telegrad._arithmetic import Arithmetic
from telegrad._arithmetic import Operand as AnyOperand
from telegrad._composed import composed
from telegrad._size import Dim, Size, highest, product
from telegrad.errors import invalid

Operand = AnyOperand["Tensor"]
Axes = Union[int, Sequence[int], None]


class Tensor(Arithmetic):
    """One value (or effect) of a graph."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Tensor:
        """NumPy's functions of tensors make nodes: np.exp(x), array + x."""
        make = _UFUNCS.get(ufunc.__name__)
        if make is None or method != "__call__" or named:
            raise TypeError(f"np.{ufunc.__name__} is not for tensors; the methods of Tensor are")
        first = next(i for i in inputs if isinstance(i, Tensor))
        values = [first._like(ufunc.__name__, i) for i in inputs]
        out: Tensor = make(*values)
        return out

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar has no length")
        if isinstance(self.shape[0], Size):
            raise TypeError(f"the length {self.shape[0]} is decided by each run")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        """Along axis 0."""
        return iter([self[i] for i in range(len(self))])

    # Shapes.

    def reshape(self, *shape: Any) -> Tensor:
        """One size may be -1."""
        dims = list(_flat(shape))
        if dims.count(-1) == 1:
            known = product(d for d in dims if d != -1)
            if known == 0 or self.size % known:
                raise invalid(f"reshape: {list(self.shape)} does not become {dims}")
            dims[dims.index(-1)] = self.size // known
        return self if tuple(dims) == self.shape else self._make("reshape", arg=dims)

    def broadcast_to(self, shape: Sequence[Dim]) -> Tensor:
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

    def flatten(self, first: int = 0, last: int = -1) -> Tensor:
        """The axes from `first` to `last` as one; a scalar becomes one element."""
        if not self.shape:
            return self.reshape(1)
        a, b = _axis(first, self.ndim), _axis(last, self.ndim)
        return self.reshape(*self.shape[:a], product(self.shape[a:b + 1]), *self.shape[b + 1:])

    def pad(self, widths: Sequence[tuple[Dim, Dim]]) -> Tensor:
        """Zeros around: (before, after) for each axis."""
        if len(widths) != self.ndim:
            raise invalid(f"pad: {len(widths)} widths for the shape {list(self.shape)}")
        arg: list[Dim] = []
        for size, (before, after) in zip(self.shape, widths):
            arg += [before, before + size + after]
        return self._make("pad", arg=arg)

    def __getitem__(self, index: Any) -> Tensor:
        """Integers, slices with any step, None, `...`, and one tensor of integers, which gathers."""
        part: Tensor = _index.get(self, index)
        return part

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

    def any(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """Whether an element is not zero."""
        return self.ne(0).cast("u8").max(axis, keepdims).cast("bool")

    def all(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """Whether no element is zero."""
        return ~self.eq(0).any(axis, keepdims)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Where the largest element is, the first of several, as i64; of all elements without `axis`."""
        x = self.flatten() if axis is None else self
        at = _axis(-1 if axis is None else axis, x.ndim)
        n = x.shape[at]
        if n == 0:
            raise invalid(f"argmax: axis {at} of {list(self.shape)} is empty")
        down = self.graph.const(n, "i64") - self.graph.arange(n)  # n at the first element, 1 at the last
        down = down.reshape([n if i == at else 1 for i in range(x.ndim)])
        largest = x.eq(x.max(at, keepdims=True))
        if x.dtype.is_float:
            largest = largest | x.ne(x)  # NaN counts as the largest
        first = n - largest.where(down.broadcast_to(x.shape), 0).max(at, keepdims=True)
        if axis is None:
            return first.reshape([1] * self.ndim if keepdims else [])
        return first if keepdims else first.squeeze(at)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        return (-self if self.dtype.is_float else ~self).argmax(axis, keepdims)

    def var(self, axis: Axes = None, ddof: float = 0, keepdims: bool = False) -> Tensor:
        """The mean square of what differs from the mean; divided by `ddof` less than the elements."""
        return self._wide(lambda x: x._var(axis, ddof, keepdims))

    def _var(self, axis: Axes, ddof: float, keepdims: bool) -> Tensor:
        total, count = (self - self.mean(axis, keepdims=True)).square().sum(axis, keepdims), self._count(axis)
        if isinstance(count, int):
            return total / max(count - ddof, 0)
        if ddof != int(ddof):
            raise invalid(f"var: {ddof} less than a number of elements that each run decides; an integer is wanted")
        return total / max(count - int(ddof), 0)

    def std(self, axis: Axes = None, ddof: float = 0, keepdims: bool = False) -> Tensor:
        return self._wide(lambda x: x._var(axis, ddof, keepdims).sqrt())

    def cumsum(self, axis: int) -> Tensor:
        """Sums of an element and all before it, in about log2(n) additions of shifted copies."""
        at, out, shift = _axis(axis, self.ndim), self, 1
        n = self.shape[at]
        widths: list[tuple[Dim, Dim]] = [(0, 0)] * self.ndim
        while shift < highest(n):
            widths[at] = (shift, 0)
            if isinstance(n, int):
                before = out[(slice(None),) * at + (slice(0, n - shift),)].pad(widths)
            else:  # the shift may be longer than the axis
                before = out.pad(widths)[(slice(None),) * at + (slice(0, n),)]
            out = out + before
            shift *= 2
        return out

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        return self._wide(lambda x: x.sum(axis, keepdims) / x._count(axis))

    def _wide(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """A function of this tensor; of 16-bit floats computed in f32, where sums are not infinite."""
        made: Tensor = composed(function)(self)
        return made

    def _count(self, axis: Axes) -> Dim:
        """How many elements a reduction over these axes makes one of."""
        axes = range(self.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
        return product(self.shape[_axis(a, self.ndim)] for a in axes)

    def softmax(self, axis: int = -1) -> Tensor:
        return self._wide(lambda x: x._softmax(axis))

    def _softmax(self, axis: int) -> Tensor:
        powers = (self - self.max(axis, keepdims=True)).exp()
        return powers / powers.sum(axis, keepdims=True)

    def __rmatmul__(self, other: Operand) -> Tensor:
        return self._like("matmul", other) @ self

    def __matmul__(self, other: Operand) -> Tensor:
        """A broadcast product, summed over the inner axis; f16 and bf16 sum in f32."""
        other = self._like("matmul", other)
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

        `kind` is "set", "add", "mul", "min" or "max"; an index out of range is skipped. A sum of bools is true where one is, as NumPy's,
        and a product where all are.
        """
        if self.dtype.kind == "boolean" and kind in _OF_BOOLS:
            return self.cast("u8").scatter(index, rows.cast("u8"), _OF_BOOLS[kind]).cast("bool")
        return self._make("scatter", index, rows, arg=[kind])


def cat(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """One after another along an axis."""
    if not tensors:
        raise invalid("cat: no tensors")
    first = tensors[0]
    at = _axis(axis, first.ndim)
    if all(isinstance(t.shape[at], int) for t in tensors):
        joined: Tensor = first.graph.op("cat", *tensors, arg=[at])
        return joined
    total: Dim = sum(t.shape[at] for t in tensors)
    place = first.graph.arange(total).reshape([total if i == at else 1 for i in range(first.ndim)])
    out: Tensor | None = None  # each behind the others, chosen by the number of the place
    start: Dim = 0
    for t in tensors:
        rest = total - start - t.shape[at]
        part = t.pad([(start, rest) if i == at else (0, 0) for i in range(t.ndim)])
        out = part if out is None else (place < start).where(out, part)
        start = start + t.shape[at]
    assert out is not None
    return out


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The same along a new axis."""
    return cat([t.unsqueeze(axis) for t in tensors], axis)


def _flat(values: Sequence[Any]) -> Sequence[Any]:
    is_dim = len(values) == 1 and (isinstance(values[0], Size) or hasattr(values[0], "__index__"))
    return tuple(values[0] if len(values) == 1 and not is_dim else values)


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise invalid(f"axis {axis} of a shape of rank {rank}")
    return axis % rank


_OF_BOOLS = {"add": "max", "max": "max", "mul": "min", "min": "min"}

_UFUNCS: dict[str, Any] = {
    "add": Tensor.__add__, "subtract": Tensor.__sub__, "multiply": Tensor.__mul__,
    "divide": Tensor.__truediv__, "true_divide": Tensor.__truediv__, "matmul": Tensor.__matmul__,
    "floor_divide": Tensor.__floordiv__, "remainder": Tensor.__mod__, "power": Tensor.__pow__,
    "bitwise_and": Tensor.__and__, "bitwise_or": Tensor.__or__, "bitwise_xor": Tensor.__xor__,
    "left_shift": Tensor.__lshift__, "right_shift": Tensor.__rshift__, "less": Tensor.__lt__,
    "less_equal": Tensor.__le__, "greater": Tensor.__gt__, "greater_equal": Tensor.__ge__,
    "equal": Tensor.eq, "not_equal": Tensor.ne, "maximum": Tensor.maximum,
    "minimum": Tensor.minimum, "negative": Tensor.__neg__, "absolute": Tensor.__abs__,
    "invert": Tensor.__invert__, "exp": Tensor.exp, "exp2": Tensor.exp2, "log": Tensor.log,
    "log2": Tensor.log2, "sin": Tensor.sin, "cos": Tensor.cos, "sqrt": Tensor.sqrt,
    "square": Tensor.square, "tanh": Tensor.tanh, "floor": Tensor.floor, "trunc": Tensor.trunc,
    "reciprocal": Tensor.reciprocal}
