"""A graph some of whose operators torch runs: those that have no graph on the server (linear algebra, FFT, complex numbers).

The operators are in the order of the program, as random numbers and writes to arguments need it. What lies between
those that torch runs is a program of the server's each.
"""

from __future__ import annotations

import itertools
import operator
import warnings
from typing import Any, Callable, NamedTuple, Sequence

import torch
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from telegrad.torch._kept import bring, host
from telegrad.torch._table import DTYPES, Unsupported

_told: set[str] = set()  # operators of which a warning was given


class _Step(NamedTuple):
    """Neighbours of one kind."""

    program: Any  # None: torch runs the nodes
    nodes: Sequence[Node]
    inputs: Sequence[Node]
    outputs: Sequence[Node]


class Parts:
    """Called as a graph is: with its arguments, for a list of its results. `make` gives a program for a graph, or raises
    Unsupported, with the node that torch has to run instead."""

    def __init__(self, module: GraphModule, make: Callable[[GraphModule], Any]) -> None:
        self._module = module
        self._order = _with_items(module.graph.nodes)
        here = {node for node in self._order if _is_foreign(module, node)}
        while True:
            try:
                self.steps = self._split(here, make)
                break
            except Unsupported as error:
                if error.node is None or error.node in here or error.node not in self._order:
                    raise
                here.add(error.node)
        self._arguments = [node for node in module.graph.nodes if node.op == "placeholder"]
        (self._results,) = [node.args[0] for node in module.graph.nodes if node.op == "output"]
        self._dead = self._last_uses()
        for node in self._order:
            if node in here and isinstance(node.target, torch._ops.OpOverload) and str(node.target) not in _told:
                _told.add(str(node.target))
                warnings.warn(f"{node.target} has no graph on Telegrad's server, so torch runs it in this process, and its operands "
                              f"and results travel{_line(node)}", stacklevel=2)

    def __call__(self, *args: Any) -> list[Any]:
        values = dict(zip(self._arguments, args))
        for step, dead in zip(self.steps, self._dead):
            if step.program is None:
                self._here(step.nodes, values)
            else:
                values.update(zip(step.outputs, step.program(*(values[node] for node in step.inputs))))
            for node in dead:
                values.pop(node, None)
        return [self._value(result, values) if isinstance(result, Node) else result for result in self._results]

    def _here(self, nodes: Sequence[Node], values: dict[Node, Any]) -> None:
        with torch.no_grad():
            for node in nodes:
                args, named = torch.fx.map_arg((node.args, node.kwargs), lambda n: self._value(n, values))
                values[node] = node.target(*args, **named)  # type: ignore[operator]

    def _value(self, node: Node, values: dict[Node, Any]) -> Any:
        value = _attribute(self._module, node) if node.op == "get_attr" else values[node]
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_inference():
            bring(host(), value)
        return value

    def _split(self, here: set[Node], make: Callable[[GraphModule], Any]) -> list[_Step]:
        steps = []
        for is_here, group in itertools.groupby(self._order, lambda node: _source(node) in here):
            nodes = list(group)
            own = set(nodes)
            inputs = [node for node in dict.fromkeys(n for node in nodes for n in node.all_input_nodes) if node not in own and node.op != "get_attr"]
            outputs = [node for node in nodes if any(user not in own for user in node.users)]
            steps.append(_Step(None if is_here else self._program(nodes, inputs, outputs, make), nodes, inputs, outputs))
        return steps

    def _program(self, nodes: Sequence[Node], inputs: Sequence[Node], outputs: Sequence[Node], make: Callable[[GraphModule], Any]) -> Any:
        graph, copies = torch.fx.Graph(), {}
        for node in inputs:
            copies[node] = graph.placeholder(node.name)
            copies[node].meta = node.meta
        for node in nodes:
            for constant in node.all_input_nodes:
                if constant.op == "get_attr" and constant not in copies:
                    copies[constant] = graph.node_copy(constant)
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[node] for node in outputs))
        try:
            return make(GraphModule(self._module, graph))
        except Unsupported as error:
            error.node = next((node for node, copy in copies.items() if copy is error.node), None)
            raise

    def _last_uses(self) -> list[list[Node]]:
        """After each step, the values that no later one reads."""
        read = {node for node in self._results if isinstance(node, Node)}
        dead: list[list[Node]] = []
        for step in reversed(self.steps):
            used = {*step.nodes, *(n for node in step.nodes for n in node.all_input_nodes)}
            dead.append([node for node in used if node not in read])
            read |= used
        return dead[::-1]


def _with_items(nodes: Any) -> list[Node]:
    """What computes, in order, with the parts of a result (getitem) directly behind it."""
    order: list[Node] = []
    for node in nodes:
        if node.op == "call_function" and node.target is not operator.getitem:
            order.append(node)
            behind = [node]
            while behind:
                parts = [user for user in behind.pop(0).users if user.target is operator.getitem]
                order += parts
                behind += parts
    return order


def _source(node: Node) -> Node:
    """What a part of a result, or a part of a part, is a part of."""
    while node.target is operator.getitem:
        node = node.all_input_nodes[0]
    return node


def _is_foreign(module: GraphModule, node: Node) -> bool:
    """Whether a type or a layout of an operand or a result is none of the server's, a size is symbolic, or an operand is a graph (of
    torch.cond and its kind)."""
    values = [_attribute(module, n) if n.op == "get_attr" else n.meta.get("val") for n in node.all_input_nodes]
    leaves = tree_leaves([values, node.meta.get("val")])
    return any(isinstance(leaf, (torch.SymInt, torch.nn.Module)) or isinstance(leaf, torch.Tensor) and
               (leaf.dtype not in DTYPES or leaf.layout is not torch.strided or any(isinstance(size, torch.SymInt) for size in leaf.shape)) for leaf in leaves)


def _attribute(module: GraphModule, node: Node) -> Any:
    value: Any = module
    for name in str(node.target).split("."):
        value = getattr(value, name)
    return value


def _line(node: Node) -> str:
    """Of the model's code."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    files = [line for line in lines if line.startswith('File "')]
    return f" (at {files[-1]})" if files else ""
