"""The table of ATen's operators, and what a function of it gets.

Each operator is a function in a table, by the name of its packet ("add" for aten.add.Tensor). It gets a
Call, which knows what torch says of the result, and the arguments with tensors in place of nodes.
_elementwise.py and its neighbours fill the table.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Sequence

import torch

import telegrad
from telegrad import Graph, Tensor
from telegrad._size import Dim, Size
from telegrad.dtypes import DType

DTYPES = {torch.bool: "bool", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32",
          torch.int64: "i64", torch.uint8: "u8", torch.float16: "f16", torch.bfloat16: "bf16",
          torch.float32: "f32", torch.float64: "f64"}
Value = Any  # Tensor, number, Size, or a list of them
Draw = Callable[[Callable[[Any], Any]], torch.Tensor]  # is told what symbolic sizes are in the call
Operator = Callable[..., Value]
TABLE: dict[str, Operator] = {}
REFUSED: dict[str, str] = {}  # why
PRIMITIVES = {f"prims.{name}.default" for name in (
    "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil cos cosh div eq erf erfc exp "
    "exp2 expm1 floor fmax fmin fmod ge gt hypot isfinite le log log10 log1p log2 lt maximum minimum mul ne neg pow reciprocal "
    "remainder round rsqrt sign signbit sin sinh sqrt sub tan tanh trunc where").split()}


class Unsupported(RuntimeError):
    """A program that Telegrad has no graph for, because of `node` where it is one operator."""

    node: torch.fx.Node | None = None


def aten(*names: str) -> Callable[[Operator], Operator]:
    """Puts a function into the table."""
    def put(function: Operator) -> Operator:
        for name in names:
            assert name not in TABLE, name
            TABLE[name] = function
        return function

    return put


def refuse(why: str, *names: str) -> None:
    REFUSED.update(dict.fromkeys(names, why))


def packet_of(op: Any) -> str:
    """An operator's name without its overload."""
    name = str(op)
    return name.split(".")[1] if name.startswith("aten.") else name


def kind(dtype: torch.dtype) -> DType:
    if dtype not in DTYPES:
        raise Unsupported(f"element type {dtype}; there are {', '.join(map(str, DTYPES))}")
    return telegrad.dtype(DTYPES[dtype])


class Call:
    """One call of an operator."""

    def __init__(self, graph: Graph, node: torch.fx.Node, draws: list[Draw], size: Callable[[Any], Any],
                 asserted: list[tuple[Tensor, str]]) -> None:
        self.graph, self.node, self._draws, self.size, self._asserted = graph, node, draws, size, asserted

    @property
    def results(self) -> Sequence[Any]:
        value = self.node.meta["val"]
        return value if isinstance(value, (tuple, list)) else [value]

    @property
    def dtype(self) -> DType:
        """Of the first result."""
        return kind(self.results[0].dtype)

    @property
    def shape(self) -> tuple[Dim, ...]:
        return tuple(map(self.size, self.results[0].shape))

    def tensor(self, value: Value, like: DType | None = None) -> Tensor:
        """A tensor of a type, that of the result unless said."""
        like = like or self.dtype
        if isinstance(value, Tensor):
            return value.cast(like) if value.dtype != like else value
        return self.graph.const(_clamped(value, like), like)

    def tensors(self, *values: Value) -> list[Tensor]:
        return [self.tensor(value) for value in values]

    def common(self, *values: Value) -> list[Tensor]:
        """Of the type in which torch has these operands meet."""
        metas = [a.meta["val"] if isinstance(a, torch.fx.Node) else a
                 for a in self.node.args[:len(values)]]
        metas = [0 if isinstance(m, torch.SymInt) else 0.5 if isinstance(m, torch.SymFloat) else m for m in metas]
        met = metas[0].dtype
        for meta in metas[1:]:
            met = torch.result_type(metas[0], meta)
        return [self.tensor(value, kind(met)) for value in values]

    def drawn(self, draw: Draw, meta: torch.Tensor | None = None) -> Tensor:
        """An input that this process draws before each run, in the order of the graph."""
        meta = self.results[0] if meta is None else meta
        self._draws.append(draw)
        return self.graph.input(f"r{len(self._draws) - 1}", tuple(map(self.size, meta.shape)), kind(meta.dtype))

    def asserts(self, condition: Tensor, message: str) -> None:
        """A run in which the condition, one element, is false ends with the message, as torch's error."""
        self._asserted.append((condition, message))

    def full(self, value: float, shape: Sequence[int] | None = None) -> Tensor:
        return self.tensor(value).broadcast_to(self.shape if shape is None else shape)


def lowest(x: Tensor, sign: int = 1) -> Any:
    """The number that no element of a tensor of this type is below, or with -1 above."""
    if x.dtype.is_float:
        return -sign * math.inf
    low = -(1 << x.dtype.bits - 1) if x.dtype.kind == "signed" else 0
    return low if sign > 0 else low + (1 << x.dtype.bits) - 1


def _clamped(value: Any, like: DType) -> Any:
    """A number as the type has it: torch wraps integers, and truncates what is to be one."""
    if isinstance(value, Size):
        return value
    if like.is_float:
        return float(value)
    if like.kind == "boolean":
        return bool(value)
    if isinstance(value, float):
        low = -(1 << like.bits - 1) if like.kind == "signed" else 0
        return int(min(max(value, low), low + (1 << like.bits) - 1))
    wrapped = int(value) & (1 << like.bits) - 1
    return wrapped - (1 << like.bits) if like.kind == "signed" and wrapped >> like.bits - 1 else wrapped
