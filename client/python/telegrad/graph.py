"""Graphs of tensor operations, as the server takes them.

    g = Graph()
    x = g.input("x", (4,))
    w = g.state("w", init=np.ones(4, np.float32))
    g.output("y", x * w + 1)
    g.store(w, w - 0.1 * x)

A graph is nodes in the order in which they were made; equal nodes are one. Its slots are the
buffers that a run binds: inputs, outputs, and state that stays on the server between runs. Values
read the state that a run begins with; stores take effect at its end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Sequence

import numpy as np

from telegrad import _infer
from telegrad import _messages as messages
from telegrad import _size
from telegrad._node import Number
from telegrad._size import Dim, Size, highest
from telegrad._tables import GRAPH_FORM
from telegrad.dtypes import Array, DType, DTypeLike, as_array, dtype, num_elements
from telegrad.errors import invalid
from telegrad.tensor import Tensor


@dataclass(frozen=True)
class Slot:
    """A buffer that a run of a graph binds."""

    name: str
    role: str  # "input", "output", "state", "weight" or "constant"
    dtype: DType
    shape: tuple[Dim, ...]
    init: Array | None = field(default=None, compare=False, repr=False)  # of state

    @property
    def nbytes(self) -> int:
        """Where its size is one that each run decides, those of the largest."""
        return self.dtype.nbytes(num_elements([highest(size) for size in self.shape]))

    @property
    def is_fixed(self) -> bool:
        return all(isinstance(size, int) for size in self.shape)


@dataclass(frozen=True)
class Variable:
    """An integer that each run gives: a multiple of `multiple` in [min, max]."""

    name: str
    id: int
    min: int
    max: int
    multiple: int
    used: bool = True  # by the graph; servers take no values of others


class Graph:
    """A graph in the making. Its tensors compute nothing here."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.variables: list[Variable] = []
        self._nodes: list[Tensor] = []
        self._known: dict[tuple[Any, ...], Tensor] = {}
        self._params: dict[str, Tensor] = {}
        self._current: dict[int, Tensor] = {}  # by slot: what it holds after its stores
        self._stores: list[Tensor] = []
        self._sizes: dict[Size, Tensor] = {}
        self._used: set[int] = set()

    def op(self, name: str, *src: Tensor | Number, arg: Sequence[Dim | str] = (),
           dtype: DTypeLike | None = None, real: float | None = None) -> Tensor:
        """A node by the op's name in docs/ops.md.

        `arg` are its argument words, `dtype` its element type if it is one of the ops that are told
        it; `real` is the value of a const of a float type. Numbers become constants of the type of
        the first source that is a tensor.
        """
        row = _infer.OP.get(name)
        if row is None:
            raise invalid(f"there is no op {name!r}; docs/ops.md lists them")
        sources = self._sources(name, src)
        given = None if dtype is None else _dtype(dtype)
        words = _infer.words(row, arg)
        sizes = tuple(self._node_of(size) for size in _infer.symbols(words))
        key = (name, given, tuple(s.index for s in sources), tuple(words),
               None if real is None else real.hex())
        if key not in self._known:
            kind, shape = _infer.infer(row, given, sources, words)
            node = Tensor(self, len(self._nodes), name, kind, shape, sources + sizes, tuple(words), real,
                          _infer.instances(row, sources, words))
            self._nodes.append(node)
            self._known[key] = node
        return self._known[key]

    def _sources(self, name: str, src: Sequence[Tensor | Number]) -> tuple[Tensor, ...]:
        like = next((s.dtype for s in src if isinstance(s, Tensor) and s.dtype), None)
        out = []
        for s in src:
            if not isinstance(s, Tensor):
                if like is None:
                    raise invalid(f"{name}: at least one source must be a tensor")
                s = self.const(s, like)
            if s.graph is not self:
                raise invalid(f"{name}: a source is of another graph")
            out.append(s)
        return tuple(out)

    def _node_of(self, size: Dim) -> Tensor:
        """A size as a scalar i64, one node for equal sizes."""
        if isinstance(size, int):
            return self.op("const", dtype="i64", arg=(size,))
        if size not in self._sizes:
            total: Tensor | None = None
            for atoms, coefficient in size.terms:
                product = None if coefficient == 1 and atoms else self._node_of(coefficient)
                for atom in atoms:
                    node = self._atom(atom)
                    product = node if product is None else self.op("mul", product, node)
                assert product is not None
                total = product if total is None else self.op("add", total, product)
            assert total is not None
            self._sizes[size] = total
        return self._sizes[size]

    def _atom(self, atom: _size.Atom) -> Tensor:
        if atom.op == "var":
            v = self.variables[atom.args[0]]
            return self.op("var", arg=(v.id, v.min, v.max, v.multiple))
        return self.op(atom.op, *(self._node_of(a) for a in atom.args))

    def const(self, value: Number | Size, dtype: DTypeLike = "f32") -> Tensor:
        """A scalar."""
        kind = _dtype(dtype)
        if isinstance(value, Size):
            node = self._node_of(value)
            return node if kind.name == "i64" else self.op("cast", node, dtype=kind)
        if kind.is_float:
            rounded = _round(float(value), kind)
            return self.op("const", dtype=kind, real=rounded)
        number = int(value)
        if number != value:
            raise invalid(f"const: {value} is no {kind}")
        low = -(1 << kind.bits - 1) if kind.kind == "signed" else 0
        high = (1 if kind.kind == "boolean" else (1 << kind.bits) - 1) + low
        if not low <= number <= high:
            raise invalid(f"const: {number} is not from {low} to {high}, the range of {kind}")
        word = number - (1 << 64) if number >= 1 << 63 else number
        return self.op("const", dtype=kind, arg=(word,))

    def full(self, shape: Sequence[Dim], value: Number, dtype: DTypeLike = "f32") -> Tensor:
        return self.const(value, dtype).broadcast_to(shape)

    def arange(self, n: Dim, dtype: DTypeLike = "i64") -> Tensor:
        """0, 1, ... n-1 of an integer type."""
        return self.op("iota", arg=(n,), dtype=dtype)

    def param(self, slot: int, shape: Sequence[int], dtype: DTypeLike = "f32",
              device: int = 0) -> Tensor:
        """A buffer by its number, for callers that bind buffers by position; see `input`."""
        return self.op("param", arg=(slot, device, *shape), dtype=dtype)

    def input(self, name: str, shape: Sequence[Dim], dtype: DTypeLike = "f32",
              device: int = 0) -> Tensor:
        """A slot that each run reads; `device` is a number that a run gives a meaning."""
        return self._slot(name, "input", dtype, shape, None, device)

    def state(self, name: str, shape: Sequence[int] | None = None, dtype: DTypeLike | None = None,
              init: Any = None, device: int = 0) -> Tensor:
        """A slot that stays on the server between runs. It begins as `init`, or as zeros."""
        if init is None:
            if shape is None:
                raise invalid(f"state {name!r} needs a shape or an initial value")
            return self._slot(name, "state", dtype or "f32", shape, None, device)
        array, kind = as_array(init, dtype)
        if shape is not None and tuple(shape) != array.shape:
            raise invalid(f"state {name!r}: the initial value has shape {list(array.shape)}, "
                          f"expected {list(shape)}")
        return self._slot(name, "state", kind, array.shape, array, device)

    def output(self, name: str, value: Tensor, device: int = 0) -> None:
        """A slot that each run writes."""
        if value.op in ("store", "sink", "tuple", "call", "loop"):
            raise invalid(f"output {name!r}: a {value.op} is not a value")
        self.store(self._slot(name, "output", value.dtype, value.shape, None, device), value)

    def _slot(self, name: str, role: str, dtype: DTypeLike, shape: Sequence[Dim],
              init: Array | None, device: int) -> Tensor:
        if name in self._params:
            raise invalid(f"there is a slot named {name!r} already")
        kind = _dtype(dtype)
        slot = Slot(name, role, kind, tuple(shape), init)
        if role == "state" and not slot.is_fixed:
            raise invalid(f"state {name!r} of {kind}{list(shape)}: what stays between runs has one size; take a part of it")
        if slot.is_fixed:
            view = param = self.param(len(self.slots), shape, kind, device)  # type: ignore[arg-type]
        else:  # its elements are the first of a buffer for the most that there can be
            most = num_elements([highest(size) for size in slot.shape])
            param = self.param(len(self.slots), (most,), kind, device)
            part = self.op("shrink", param, arg=(0, _size.product(slot.shape)))
            view = self.op("reshape", part, arg=slot.shape)  # always there: it says the shape (plan_sizes.h)
        self.slots.append(slot)
        self._params[name] = param
        return view

    def store(self, target: Tensor, value: Tensor | Number) -> Tensor:
        """Writes a slot, or a view of one, after the stores to it before; gives what it then holds.

        Everything else made of `target` keeps reading what the slot held when the run began.
        """
        views = []
        slot = target
        while slot.op in ("reshape", "permute", "flip", "shrink"):
            views.append(slot)
            slot = slot.src[0]
        if slot.op not in ("param", "after"):
            raise invalid(f"store: a {slot.op} is not a slot, nor a view of one")
        param = slot.src[0] if slot.op == "after" else slot
        current = self._current.get(param.arg[0], param)
        place = current
        for view in reversed(views):
            place = self.op(view.op, place, arg=view.arg)
        if not isinstance(value, Tensor):
            value = self.const(value, target.dtype)
        effect = self.op("store", place, value.broadcast_to(target.shape) if value.shape else value)
        if effect.src[1].dtype != target.dtype:
            raise invalid(f"store: a value of {effect.src[1].dtype} into {target.dtype}; cast it")
        self._stores.append(effect)
        before = current.src[1:] if current.op == "after" else ()
        after = self.op("after", param, *before, effect)
        self._current[param.arg[0]] = after
        return after

    def constant(self, value: Any, dtype: DTypeLike | None = None) -> Tensor:
        """An array that the graph always has: uploaded with a program's first run."""
        array, kind = as_array(value, dtype)
        if array.ndim == 0 and not (kind.is_float and not kind.native):
            number: Any = array.item()
            return self.const(number, kind)
        number = sum(slot.role == "constant" for slot in self.slots)
        return self._slot(f"constant {number}", "constant", kind, array.shape, array.copy(), 0)

    def variable(self, name: str, min: int, max: int, multiple: int = 1) -> Tensor:
        """A scalar i64 that each run gives."""
        number = self._variable(name, min, max, multiple)
        return self.op("var", arg=(number, min, max, multiple))

    def size(self, name: str, min: int, max: int, multiple: int = 1) -> Size:
        """A variable as a size: of an input's shape, or of what is made of it. A run takes it from the shapes of its
        inputs. Memory is for the largest."""
        if not 0 <= min <= max:
            raise invalid(f"size {name!r}: from {min} to {max}")
        return _size.variable(self._variable(name, min, max, multiple), name, min, max)

    def _variable(self, name: str, min: int, max: int, multiple: int) -> int:
        if any(v.name == name for v in self.variables):
            raise invalid(f"there is a variable named {name!r} already")
        self.variables.append(Variable(name, len(self.variables), min, max, multiple))
        return len(self.variables) - 1

    def message(self) -> messages.Graph:
        """The nodes that the stores need."""
        if not self._stores:
            raise invalid("the graph stores nothing; give it an output")
        live = [False] * len(self._nodes)
        for effect in self._stores:
            live[effect.index] = True
        for node in reversed(self._nodes):
            if live[node.index]:
                for s in node.src:
                    live[s.index] = True
        self._used = {node.arg[0] for node in self._nodes if live[node.index] and node.op == "var"}
        out = messages.Graph(form=GRAPH_FORM)
        place: dict[int, int] = {}
        for node in self._nodes:
            if live[node.index]:
                place[node.index] = len(out.nodes)
                out.nodes.append(_node(node, [place[s.index] for s in node.src]))
        sink = [place[effect.index] for effect in self._stores]
        out.root = len(out.nodes)
        out.nodes.append(messages.Node(op=_infer.OP["sink"].wire, src=sink))
        return out

    def sent_variables(self) -> list[Variable]:
        """The variables of the graph as it was last serialized."""
        return [replace(v, used=v.id in self._used) for v in self.variables]

    def serialize(self) -> bytes:
        """The graph as bytes (a telegrad.v1.Graph), which `put` takes as well."""
        return self.message().encode()

    def __repr__(self) -> str:
        slots = ", ".join(f"{s.role} {s.name}: {s.dtype}{list(s.shape)}" for s in self.slots)
        return f"<Graph of {len(self._nodes)} nodes; {slots or 'no slots'}>"


_dtype = dtype  # where a parameter has the name


def _node(node: Tensor, src: list[int]) -> messages.Node:
    given = node.dtype is not None and _infer.OP[node.op].type_rule == "given"
    row = _infer.OP[node.op]
    return messages.Node(op=row.wire, src=src, arg=_infer.encoded(row, node.arg),
                         dtype=node.dtype.wire if given and node.dtype else 0,
                         real=0.0 if node.real is None else node.real)


def _round(value: float, kind: DType) -> float:
    """The value of the type that is nearest: the server takes no other."""
    if kind.name == "f64" or math.isnan(value) or math.isinf(value) or value == 0:
        return value
    if kind.bits == 8 or kind.is_packed:  # few enough to try all
        codes = kind.to_float32(np.arange(1 << kind.bits, dtype=np.uint8).view(kind.numpy))
        finite = codes[np.isfinite(codes)].astype(np.float64)
        return float(finite[np.argmin(np.abs(finite - value))])
    return float(kind.to_float32(as_array(value, kind)[0]).astype(np.float64).item())
