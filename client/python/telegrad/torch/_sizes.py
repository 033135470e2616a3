"""torch's symbolic integers as sizes of a graph, and what they are in a call.

A symbol of torch becomes a variable of the graph. Memory on the server is for the largest size, so a program is for sizes
up to the next power of two, or up to the bound that torch was told; larger ones have a program of their own.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

import sympy
import torch

from telegrad import Graph
from telegrad._size import Dim, floordiv, floormod, largest, smallest
from telegrad.torch._table import Unsupported

Bounds = Mapping[str, tuple[int, int]]  # of symbols

_OPERATIONS: dict[str, Callable[..., Dim]] = {
    "FloorDiv": floordiv, "CleanDiv": floordiv, "Mod": floormod, "PythonMod": floormod, "Max": largest, "Min": smallest,
    "ModularIndexing": lambda a, divisor, modulus: floormod(floordiv(a, divisor), modulus)}


class Sizes:
    """Sizes of one graph, of which each symbol is a variable."""

    def __init__(self, graph: Graph, bounds: Bounds) -> None:
        self._graph, self._bounds = graph, bounds
        self._sent: list[tuple[int, str]] | None = None
        self._known: dict[sympy.Expr, Dim] = {}

    def __call__(self, value: Any) -> Any:
        """A symbolic integer as a Size; all else as it is."""
        if isinstance(value, torch.SymInt):
            return self._of(value.node.expr)
        if isinstance(value, (torch.SymFloat, torch.SymBool)):
            raise Unsupported(f"a {type(value).__name__}, which is computed from sizes")
        return value

    def of_shape(self, shape: Sequence[Any]) -> tuple[Dim, ...]:
        return tuple(map(self, shape))

    def variables(self, symbols: Mapping[str, int]) -> dict[int, int]:
        """The variables of a run, by their numbers."""
        if not symbols:
            return {}
        if self._sent is None:  # the graph has been serialized by now, and stays as it is
            self._sent = [(v.id, v.name) for v in self._graph.sent_variables() if v.used]
        return {number: symbols[name] for number, name in self._sent}

    def _of(self, expr: sympy.Expr) -> Dim:
        if expr not in self._known:
            self._known[expr] = self._make(expr)
        return self._known[expr]

    def _make(self, expr: sympy.Expr) -> Dim:
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            name = str(expr)
            if name not in self._bounds:
                raise Unsupported(f"the size {name} is not a size of an argument")
            return self._graph.size(name, *self._bounds[name])
        parts = [self._of(part) for part in expr.args]
        if expr.is_Add or expr.is_Mul:
            out: Dim = 0 if expr.is_Add else 1
            for part in parts:
                out = out + part if expr.is_Add else out * part
            return out
        if expr.is_Pow and isinstance(parts[1], int) and parts[1] > 0:
            out = 1
            for _ in range(parts[1]):
                out = out * parts[0]
            return out
        operation = _OPERATIONS.get(type(expr).__name__)
        if operation is None:
            raise Unsupported(f"the size {expr}")
        out = parts[0]
        if type(expr).__name__ in ("Max", "Min"):  # of any number
            for part in parts[1:]:
                out = operation(out, part)
            return out
        return operation(*parts)


class Symbols:
    """Where the arguments of a graph have its symbols."""

    def __init__(self, metas: Sequence[Any]) -> None:
        self._places: dict[str, tuple[int, int | None]] = {}  # argument, and axis where it is a tensor
        self._ranges: dict[str, tuple[int, int | None]] = {}
        for i, meta in enumerate(metas):
            if isinstance(meta, torch.SymInt):
                self._note(meta, i, None)
            elif isinstance(meta, torch.Tensor):
                for axis, size in enumerate(meta.shape):
                    self._note(size, i, axis)

    def _note(self, value: Any, argument: int, axis: int | None) -> None:
        if not isinstance(value, torch.SymInt) or not value.node.expr.is_Symbol:
            return
        name = str(value.node.expr)
        if name in self._places:
            return
        self._places[name] = (argument, axis)
        known = value.node.shape_env.var_to_range.get(value.node.expr)
        low = int(known.lower) if known is not None and is_number(known.lower) else 0
        high = int(known.upper) if known is not None and is_number(known.upper) else None
        self._ranges[name] = (max(low, 0), high)

    def values(self, args: Sequence[Any]) -> dict[str, int]:
        return {name: int(args[i] if axis is None else args[i].shape[axis]) for name, (i, axis) in self._places.items()}

    def bounds(self, values: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """Those of the program for these values."""
        out = {}
        for name, value in values.items():
            low, high = self._ranges[name]
            if value < low:
                raise Unsupported(f"the size {name} is {value}; torch said at least {low}")
            upper = 1 << max(value - 1, 1).bit_length()
            out[name] = (low, upper if high is None or high > 4 * upper else max(high, value))
        return out


def is_number(bound: Any) -> bool:
    return isinstance(bound, int) or bool(getattr(bound, "is_Integer", False)) and abs(int(bound)) < 1 << 48


def real(value: Any, symbols: Mapping[str, int]) -> Any:
    """What torch says of a shape, a stride or a number, with the symbols' values in it."""
    if isinstance(value, (list, tuple)):
        return tuple(real(v, symbols) for v in value)
    if not isinstance(value, torch.SymInt):
        return value
    expr = value.node.expr
    return int(expr.subs({s: symbols[str(s)] for s in expr.free_symbols}))


