"""An FX graph of ATen operators -> telegrad.Graph."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from telegrad import Graph, Tensor
from telegrad.torch import (_elementwise, _functions, _groups, _indices, _nn, _order,  # noqa: F401  (they fill the table)
                            _random, _reductions, _resize, _scans, _shapes, _special)
from telegrad.torch._sizes import Bounds, Sizes
from telegrad.torch._table import PRIMITIVES, REFUSED, TABLE, Call, Draw, Unsupported, Value, kind, packet_of


def operators() -> list[str]:
    """The names of all ATen operators that have a graph."""
    return sorted(TABLE)


def refused() -> dict[str, str]:
    """The names of operators that are refused, and why."""
    return dict(sorted(REFUSED.items()))


def known() -> set[str]:
    """Those that have a graph, and those that are refused for a reason."""
    return {*operators(), *REFUSED}


class Argument(NamedTuple):
    """A result that is an argument, as it is: that of placeholder `number`."""

    number: int


class Lowered:
    """A graph, with an input "x<i>" for each placeholder that is a tensor, an input "r<i>" for what `draws[i]` draws, and
    an output "y<i>" for each result that is a tensor; `results` says for the others what they are: None or a number. An
    output "m<i>" is what placeholder i, a tensor, is to become: where the graph writes its arguments. Symbolic sizes are
    variables of the graph, between `bounds`. Of the results from `kept_from` on, which the backward pass gets, those that are
    arguments are no outputs, but an Argument. Where `asserts`, an output "t<i>" is a byte, 0 where the run is to end with the
    error `asserted[i]`."""

    def __init__(self, module: torch.fx.GraphModule, bounds: Bounds = {}, asserts: bool = True, kept_from: int | None = None) -> None:
        self.graph = Graph()
        self.size = Sizes(self.graph, bounds)
        self.inputs: list[int] = []  # of the placeholders
        self.draws: list[Draw] = []
        self.results: list[Any] = []  # torch.Tensor metas, Argument, None, numbers, symbolic or not
        self.mutated: dict[int, Any] = {}  # by placeholder: what torch says of it
        conditions: list[tuple[Tensor, str]] = []
        self._kept_from = kept_from
        self._conditions = conditions
        self._values: dict[torch.fx.Node, Value] = {}
        self._places: dict[torch.fx.Node, int] = {}
        number = 0
        for node in module.graph.nodes:
            try:
                number += self._node(module, node, number)
            except Unsupported as error:
                error.node = node
                raise
        self.asserted = [message for _, message in conditions] if asserts else []
        for i in range(len(self.asserted)):
            self.graph.output(f"t{i}", conditions[i][0].reshape(1).cast("u8"))
        self.program: Any = None

    def _node(self, module: torch.fx.GraphModule, node: torch.fx.Node, number: int) -> bool:
        """Whether it is a placeholder; it has this number, then."""
        if node.op == "placeholder":
            self._placeholder(node, number)
        elif node.op == "get_attr":
            self._values[node] = self._attribute(module, node.target)  # type: ignore[arg-type]
        elif node.op == "call_function" and node.target is torch.ops.aten.copy_.default:
            self._mutation(node)
        elif node.op == "call_function":
            self._values[node] = self._call(node)
        elif node.op == "output":
            self._output(node)
        return node.op == "placeholder"

    def _placeholder(self, node: torch.fx.Node, number: int) -> None:
        meta = node.meta.get("val")
        self._places[node] = number
        if isinstance(meta, torch.Tensor):
            self._values[node] = self.graph.input(f"x{number}", self.size.of_shape(meta.shape), kind(meta.dtype))
            self.inputs.append(number)
        elif isinstance(meta, torch.SymInt):
            self._values[node] = self.size(meta)

    def _mutation(self, node: torch.fx.Node) -> None:
        """torch writes arguments at the graph's end, each once."""
        target, value = node.args[0], self._map(node.args[1])
        place = self._places.get(target)  # type: ignore[arg-type]
        if place is None or place in self.mutated:
            raise Unsupported(f"a write in place to what is not an argument{_where(node)}")
        meta = target.meta["val"]  # type: ignore[union-attr]
        new = self._call_of(node).tensor(value, kind(meta.dtype))
        self._values[node] = new = new.broadcast_to(self.size.of_shape(meta.shape))
        self.graph.output(f"m{place}", new)
        self.mutated[place] = meta

    def _attribute(self, module: torch.fx.GraphModule, name: str) -> Tensor:
        value: Any = module
        for part in name.split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor):
            raise Unsupported("a graph as an operand")  # of torch.cond and its kind
        with unset_fake_temporarily():  # a tensor that the model's code makes of numbers
            if value.dtype is torch.bfloat16:
                return self.graph.constant(value.float().numpy(), "f32").cast("bf16")
            return self.graph.constant(value.detach().numpy(), kind(value.dtype))

    def _map(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return self._values[value]
        if isinstance(value, (list, tuple)):
            return [self._map(v) for v in value]
        return value

    def _call_of(self, node: torch.fx.Node) -> Call:
        return Call(self.graph, node, self.draws, self.size, self._conditions)

    def _call(self, node: torch.fx.Node) -> Value:
        meta, args = node.meta.get("val"), self._map(node.args)
        if isinstance(meta, (torch.SymInt, torch.SymBool)):
            return self.size(meta)  # computed from sizes, by torch
        if isinstance(meta, torch.SymFloat):
            return self._real(node, args)
        if node.target is operator.getitem:
            return args[0][args[1]]
        name = str(node.target)
        packet = packet_of(name)
        # What torch's own decompositions leave as a primitive takes what the operator of the name takes.
        function = TABLE.get(packet) or (TABLE.get(name.split(".")[1]) if name in PRIMITIVES else None)
        if packet in REFUSED:
            raise Unsupported(f"{name}{_operands(node)}: {REFUSED[packet]}{_where(node)}; {_REMEDY}")
        if function is None:
            raise Unsupported(f"{name}{_operands(node)} is an operator that Telegrad has no graph for{_where(node)}; "
                              f"docs/pytorch.md lists those that there are; {_REMEDY}")
        try:
            out = function(self._call_of(node), *args, **{name: self._map(v) for name, v in node.kwargs.items()})
        except Unsupported as error:
            raise Unsupported(f"{name}{_operands(node)}: {error}{_where(node)}; {_REMEDY}") from None
        except Exception as error:  # noqa: BLE001  (torch runs what this package does not know how to compute)
            raise Unsupported(f"{name}{_operands(node)}: {type(error).__name__}: {error}{_where(node)}; {_REMEDY}") from error
        self._check(node, out)
        return out

    def _real(self, node: torch.fx.Node, args: Any) -> Tensor:
        """A real number computed from sizes, as a scalar."""
        function = _REAL.get(node.target)  # type: ignore[arg-type]
        if function is None:
            raise Unsupported(f"{node.target} of sizes{_where(node)}")
        out: Tensor = function(*(a if isinstance(a, Tensor) else self.graph.const(a, "f64") for a in args))
        return out

    def _check(self, node: torch.fx.Node, out: Value) -> None:
        """What torch says of a result must be so."""
        meta = node.meta.get("val")
        metas = meta if isinstance(meta, (list, tuple)) else [meta]
        for value, want in zip(out if isinstance(out, (list, tuple)) else [out], metas):
            if not isinstance(value, Tensor) or not isinstance(want, torch.Tensor):
                continue
            if value.shape != self.size.of_shape(want.shape) or value.dtype != kind(want.dtype):
                raise Unsupported(f"{node.target} gave {value.dtype}{list(value.shape)}, torch says "
                                  f"{want.dtype}{list(want.shape)}{_where(node)}")

    def _output(self, node: torch.fx.Node) -> None:
        for i, result in enumerate(node.args[0]):
            place = self._places.get(result) if isinstance(result, torch.fx.Node) else None
            if place in self.inputs and place not in self.mutated and self._kept_from is not None and i >= self._kept_from:
                self.results.append(Argument(place))  # a copy of each parameter would be made in each step
            elif isinstance(result, torch.fx.Node) and not isinstance(self._values[result], Tensor):
                self.results.append(result.meta["val"])
            elif isinstance(result, torch.fx.Node):
                self.graph.output(f"y{i}", self._values[result])
                self.results.append(result.meta["val"])
            else:
                self.results.append(result)


_REAL = {operator.truediv: operator.truediv, operator.mul: operator.mul, operator.add: operator.add,
         operator.sub: operator.sub, operator.pow: operator.pow, operator.neg: operator.neg, torch.sym_float: lambda a: a,
         torch.sym_sqrt: Tensor.sqrt}  # type: ignore[attr-defined]


_REMEDY = "keep it out of the compiled part with torch.compiler.disable"


def _operands(node: torch.fx.Node) -> str:
    """The element types and shapes of a call's tensors, for errors."""
    metas = [a.meta.get("val") for a in node.all_input_nodes]
    shown = [f"{str(m.dtype).removeprefix('torch.')}{list(m.shape)}" for m in metas if isinstance(m, torch.Tensor)]
    return f" of {', '.join(shown)}" if shown else ""


def _where(node: torch.fx.Node) -> str:
    """The line of the model's code."""
    trace = (node.meta.get("stack_trace") or "").strip().splitlines()
    files = [line.strip() for line in trace if line.strip().startswith('File "')]
    return f" (at {files[-1]})" if files else ""
