"""A node of a graph: what every tensor has, whatever its operators are, and what it refuses.

A node has no values, so what would need them (its truth, a number of it, an array of it) is a TypeError that says how to
get them.
"""

from __future__ import annotations

from typing import Any, Protocol, Sequence, TypeVar, Union

import numpy as np

from telegrad._size import Dim, Size, product
from telegrad.dtypes import Array, DType, DTypeLike
from telegrad.errors import invalid

Number = Union[int, float, bool]
N = TypeVar("N", bound="Node")


class NodeMaker(Protocol):
    """What a node needs of its graph; telegrad.Graph is one."""

    def op(self, name: str, *src: Any, arg: Sequence[Dim | str] = (), dtype: DTypeLike | None = None) -> Any: ...
    def const(self, value: Number | Size, dtype: DTypeLike = "f32") -> Any: ...
    def constant(self, value: Any, dtype: DTypeLike | None = None) -> Any: ...
    def arange(self, n: Dim, dtype: DTypeLike = "i64") -> Any: ...


class Node:
    """One value (or effect) of a graph, without operators."""

    __slots__ = ("graph", "index", "op", "_dtype", "shape", "src", "arg", "real", "instances")
    __array_priority__ = 1000.0

    def __init__(self, graph: NodeMaker, index: int, op: str, dtype: DType | None, shape: tuple[Dim, ...],
                 src: tuple[Any, ...], arg: tuple[Any, ...], real: float | None, instances: int) -> None:
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
    def size(self) -> Dim:
        return product(self.shape)

    def __repr__(self) -> str:
        return f"<Tensor {self.op} {self.dtype}{list(self.shape)}>"

    def _make(self: N, op: str, *src: Any, arg: Sequence[Dim | str] = (), dtype: DTypeLike | None = None) -> N:
        made: N = self.graph.op(op, self, *src, arg=arg, dtype=dtype)
        return made

    def _with(self: N, op: str, other: Any, swap: bool = False) -> N:
        """An op of two, broadcast; a number or an array has this tensor's type."""
        a, b = broadcast(self, self._like(op, other))
        made: N = self.graph.op(op, b, a) if swap else self.graph.op(op, a, b)
        return made

    def _like(self: N, op: str, other: Any) -> N:
        """Another operand as a tensor of this one's type."""
        if isinstance(other, Node):
            return other  # type: ignore[return-value]
        array = isinstance(other, np.ndarray)
        if not array and (isinstance(other, (int, float, Size)) or hasattr(other, "__index__")):
            number: N = self.graph.const(other, self.dtype)
            return number
        if not isinstance(other, (np.ndarray, np.generic, list, tuple)):
            raise TypeError(f"{op}: {type(other).__name__} is not a tensor, a number or an array")
        values = np.asarray(other)
        if values.dtype.kind == "f" and not self.dtype.is_float and self.dtype.kind != "boolean":
            raise TypeError(f"{op}: an array of {values.dtype} meets a tensor of {self.dtype}; "
                            "cast one of them")
        made: N = self.graph.constant(values, self.dtype)
        return made

    # What a node has not: values.

    def _no_values(self, what: str) -> TypeError:
        return TypeError(f"{self!r} has no {what}: it is a node of a graph, computed by a run. "
                         "Store it as an output, run the graph and read that")

    def __bool__(self) -> bool:
        raise self._no_values("truth (for a choice between tensors there is `where`)")

    def __int__(self) -> int:
        raise self._no_values("number")

    def __float__(self) -> float:
        raise self._no_values("number")

    def __array__(self, *args: Any, **named: Any) -> Array:
        raise self._no_values("array")

    def __contains__(self, value: object) -> bool:
        raise self._no_values("elements to look among")


def broadcast(*tensors: Any) -> list[Any]:
    """Of one shape; scalars stay scalars where another has a shape: ops take them so."""
    rank = max(t.ndim for t in tensors)
    shape: list[Dim] = [1] * rank
    for t in tensors:
        for i, size in enumerate(t.shape, rank - t.ndim):
            if size != 1:
                if shape[i] not in (1, size):
                    shapes = " and ".join(str(list(t.shape)) for t in tensors)
                    raise invalid(f"shapes {shapes} do not broadcast")
                shape[i] = size
    return [t if t.ndim == 0 else t.broadcast_to(shape) for t in tensors]
