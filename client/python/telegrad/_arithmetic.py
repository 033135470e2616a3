"""The elementwise operators and functions of tensors, with NumPy's names.

Element types do not mix: `cast` says what is meant; only a plain number, a list or an array takes the type of the tensor
that it meets, where no fraction is lost.
"""

from __future__ import annotations

from typing import Any, Sequence, TypeVar, Union

from telegrad import _composed
from telegrad._node import Node, broadcast
from telegrad._size import Size
from telegrad.dtypes import Array, DTypeLike
from telegrad.errors import invalid

T = TypeVar("T", bound="Arithmetic")
Operand = Union[T, int, float, bool, Size, Sequence[Any], Array]


class Arithmetic(Node):
    """What a node computes element by element."""

    __slots__ = ()

    __hash__ = Node.__hash__  # which a class with __eq__ has not of itself

    def __add__(self: T, other: Operand[T]) -> T:
        return self._with("add", other)

    def __radd__(self: T, other: Operand[T]) -> T:
        return self._with("add", other, swap=True)

    def __sub__(self: T, other: Operand[T]) -> T:
        return self._with("sub", other)

    def __rsub__(self: T, other: Operand[T]) -> T:
        return self._with("sub", other, swap=True)

    def __mul__(self: T, other: Operand[T]) -> T:
        return self._with("mul", other)

    def __rmul__(self: T, other: Operand[T]) -> T:
        return self._with("mul", other, swap=True)

    def __truediv__(self: T, other: Operand[T]) -> T:
        return self._with("fdiv", other)

    def __rtruediv__(self: T, other: Operand[T]) -> T:
        return self._with("fdiv", other, swap=True)

    def __floordiv__(self: T, other: Operand[T]) -> T:
        """Of integers; 0 where `other` is 0."""
        return self._with("floordiv", other)

    def __mod__(self: T, other: Operand[T]) -> T:
        """Of integers, with the sign of `other`; 0 where that is 0."""
        return self._with("floormod", other)

    def __pow__(self: T, other: Operand[T]) -> T:
        return self._with("pow", other)

    def __and__(self: T, other: Operand[T]) -> T:
        return self._with("and", other)

    def __or__(self: T, other: Operand[T]) -> T:
        return self._with("or", other)

    def __xor__(self: T, other: Operand[T]) -> T:
        return self._with("xor", other)

    def __lshift__(self: T, other: Operand[T]) -> T:
        return self._with("shl", other)

    def __rshift__(self: T, other: Operand[T]) -> T:
        return self._with("shr", other)

    def __lt__(self: T, other: Operand[T]) -> T:
        return self._with("cmplt", other)

    def __gt__(self: T, other: Operand[T]) -> T:
        return self._with("cmplt", other, swap=True)

    def eq(self: T, other: Operand[T]) -> T:
        """Element by element, as ==; whether two names mean one node is asked with `is`."""
        return self._with("cmpeq", other)

    def __eq__(self: T, other: Any) -> T:  # type: ignore[override]
        if other is None:
            return NotImplemented
        return self._with("cmpeq", other)

    def __ne__(self: T, other: Any) -> T:  # type: ignore[override]
        if other is None:
            return NotImplemented
        return self._with("cmpne", other)

    def ne(self: T, other: Operand[T]) -> T:
        return self._with("cmpne", other)

    def __le__(self: T, other: Operand[T]) -> T:
        return (self < other) | self.eq(other)

    def __ge__(self: T, other: Operand[T]) -> T:
        return (self > other) | self.eq(other)

    def __rfloordiv__(self: T, other: Operand[T]) -> T:
        return self._with("floordiv", other, swap=True)

    def __rmod__(self: T, other: Operand[T]) -> T:
        return self._with("floormod", other, swap=True)

    def __rpow__(self: T, other: Operand[T]) -> T:
        return self._with("pow", other, swap=True)

    def __rand__(self: T, other: Operand[T]) -> T:
        return self._with("and", other, swap=True)

    def __ror__(self: T, other: Operand[T]) -> T:
        return self._with("or", other, swap=True)

    def __rxor__(self: T, other: Operand[T]) -> T:
        return self._with("xor", other, swap=True)

    def __rlshift__(self: T, other: Operand[T]) -> T:
        return self._with("shl", other, swap=True)

    def __rrshift__(self: T, other: Operand[T]) -> T:
        return self._with("shr", other, swap=True)

    def __pos__(self: T) -> T:
        return self

    def __neg__(self: T) -> T:
        return self._make("neg")

    def __invert__(self: T) -> T:
        ones = 1 if self.dtype.kind != "unsigned" else (1 << self.dtype.bits) - 1
        return self._with("xor", -1 if self.dtype.kind == "signed" else ones)

    def __abs__(self: T) -> T:
        return self if self.dtype.kind in ("unsigned", "boolean") else self.maximum(-self)

    def maximum(self: T, other: Operand[T]) -> T:
        """NaN if either is NaN."""
        return self._with("max", other)

    def minimum(self: T, other: Operand[T]) -> T:
        value = self._like("minimum", other)
        if self.dtype.is_float:
            return -((-self).maximum(-value))
        return ~((~self).maximum(~value))

    def clip(self: T, low: Operand[T] | None = None, high: Operand[T] | None = None) -> T:
        out = self if low is None else self.maximum(low)
        return out if high is None else out.minimum(high)

    def square(self: T) -> T:
        return self * self

    def exp2(self: T) -> T:
        return self._make("exp2")

    def log2(self: T) -> T:
        return self._make("log2")

    def exp(self: T) -> T:
        made: T = _composed.exp(self)
        return made

    def log(self: T) -> T:
        made: T = _composed.log(self)
        return made

    def sin(self: T) -> T:
        return self._make("sin")

    def cos(self: T) -> T:
        made: T = _composed.cos(self)
        return made

    def sqrt(self: T) -> T:
        return self._make("sqrt")

    def reciprocal(self: T) -> T:
        return self._make("recip")

    def rsqrt(self: T) -> T:
        made: T = _composed.rsqrt(self)
        return made

    def trunc(self: T) -> T:
        return self._make("trunc")

    def floor(self: T) -> T:
        return self._make("floor")

    def sigmoid(self: T) -> T:
        made: T = _composed.sigmoid(self)
        return made

    def tanh(self: T) -> T:
        made: T = _composed.tanh(self)
        return made

    def relu(self: T) -> T:
        return self.maximum(0)

    def where(self: T, yes: Operand[T], no: Operand[T]) -> T:
        """`yes` where this (bool) is true, else `no`."""
        like = next((t for t in (yes, no) if isinstance(t, Arithmetic)), None)
        if like is None:
            raise invalid("where: one of the values must be a tensor")
        values = [like._like("where", t) for t in (yes, no)]
        made: T = self.graph.op("where", *broadcast(self, *values))
        return made

    def cast(self: T, dtype: DTypeLike) -> T:
        return self._make("cast", dtype=dtype)

    astype = cast

    def bitcast(self: T, dtype: DTypeLike) -> T:
        """The same bits; where the width changes, the last axis grows or shrinks."""
        return self._make("bitcast", dtype=dtype)

    def contiguous(self: T) -> T:
        return self._make("contiguous")
