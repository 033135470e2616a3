"""A captured JIT as few runs: the graphs of calls that follow each other become one graph.

Each graph reads what the graphs before it left in a buffer, so where one of them has stored to a slot, later
readers of the slot get AFTER(param, store) in place of the param. A buffer that only these calls know, and that is
stored once and whole before it is read, is no slot any more: its readers get the value itself, and the server
decides whether it is stored at all.

Two calls stay apart where they have different views of one buffer of which one is written, or call different
variables by one name.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tinygrad.uop.ops import Ops, UOp

from telegrad import _messages as messages
from telegrad._tables import GRAPH_FORM
from telegrad.tinygrad._graph_builder import OPS
from telegrad.tinygrad._program import Program, Slot, Work

_WIRE = {name: row.wire for name, row in OPS.items()}
MOST_NODES = 1 << 15  # of a merged graph


def merged(linear: UOp, held: set[UOp]) -> UOp:
    """The LINEAR with each row of calls that are ours as one; `held` are buffers that others read."""
    rows: list[Any] = []  # calls of others, and lists of calls of ours
    for call in linear.src:
        work = call.src[0].arg if call.src[0].op is Ops.CUSTOM_FUNCTION else None
        if not isinstance(work, Work):
            rows.append(call)
        elif rows and isinstance(rows[-1], _Row) and rows[-1].takes(call, work):
            rows[-1].add(call, work)
        else:
            rows.append(_Row())
            rows[-1].add(call, work)
    uses: dict[UOp, int] = {}
    for row in rows:
        for buffer in row.bases if isinstance(row, _Row) else _buffers(*row.src[1:]):
            uses[buffer] = uses.get(buffer, 0) + 1
    held = held | {buffer for buffer, n in uses.items() if n > 1}
    return linear.replace(src=tuple(row.call(held) if isinstance(row, _Row) else row for row in rows))


def _buffers(*args: UOp) -> set[UOp]:
    return {u for arg in args for u in arg.toposort() if u.op is Ops.BUFFER}


def _key(arg: UOp, slot: Slot) -> tuple[UOp, int, bool]:
    return arg, slot.instance, slot.base


class _Row:
    def __init__(self) -> None:
        self.calls: list[tuple[UOp, Work]] = []
        self.bases: set[UOp] = set()
        self._views: dict[UOp, set[Any]] = {}  # of each buffer
        self._written: set[UOp] = set()
        self._names: dict[str, tuple[int, ...]] = {}  # the words of each variable
        self._nodes = 0

    def takes(self, call: UOp, work: Work) -> bool:
        graph = messages.Graph.decode(work.program.graph)
        if self._nodes + len(graph.nodes) > MOST_NODES:
            return False
        if any(self._names.get(name, words) != words for name, words in _variables(graph, work).items()):
            return False
        for arg, slot in zip(call.src[1:], work.program.slots):
            for buffer in _buffers(arg):
                other = self._views.get(buffer, set()) - {_view(arg, slot)}
                if other and (slot.stored or buffer in self._written):
                    return False
        return True

    def add(self, call: UOp, work: Work) -> None:
        graph = messages.Graph.decode(work.program.graph)
        self.calls.append((call, work))
        self._nodes += len(graph.nodes)
        self._names.update(_variables(graph, work))
        for arg, slot in zip(call.src[1:], work.program.slots):
            for buffer in _buffers(arg):
                self.bases.add(buffer)
                self._views.setdefault(buffer, set()).add(_view(arg, slot))
                if slot.stored:
                    self._written.add(buffer)

    def call(self, held: set[UOp]) -> UOp:
        if len(self.calls) == 1:
            return self.calls[0][0]
        return _Merge(self.calls, held).call()


def _view(arg: UOp, slot: Slot) -> Any:
    """What of a buffer a slot is. The devices of one argument have a part each."""
    return arg, slot.base


def _variables(graph: messages.Graph, work: Work) -> dict[str, tuple[int, ...]]:
    return {work.names[node.arg[0]]: tuple(node.arg[1:]) for node in graph.nodes if node.op == _WIRE["var"]}


class _Merge:
    def __init__(self, calls: list[tuple[UOp, Work]], held: set[UOp]) -> None:
        self.held = held
        self.nodes: list[messages.Node] = []
        self.slots: dict[Any, int] = {}
        self.rows: list[tuple[UOp, Slot]] = []  # by slot
        self.params: dict[int, int] = {}  # slot -> node
        self.now: dict[int, int] = {}  # slot -> the node that has what it holds
        self.names: list[str] = []
        self.stores: list[int] = []
        for call, work in calls:
            self._take(call, work)
        self.devices = max(work.program.devices for _, work in calls)

    def _add(self, node: messages.Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _take(self, call: UOp, work: Work) -> None:
        graph = messages.Graph.decode(work.program.graph)
        place: dict[int, int] = {}
        raw: dict[int, int] = {}  # params -> slots
        stored: dict[int, int] = {}  # slot -> its last store
        for i, node in enumerate(graph.nodes):
            if node.op == _WIRE["param"]:
                raw[i] = self._slot(call, work, node)
                place[i] = self.now[raw[i]]
            elif node.op == _WIRE["var"]:
                place[i] = self._variable(node, work)
            elif node.op == _WIRE["sink"]:
                for s in node.src:
                    self.stores.append(place[s])
                    stored[_target(graph, s, raw)] = place[s]
            else:
                src = [place[s] for s in node.src]
                if node.op == _WIRE["after"] and node.src[0] in raw:
                    src[0] = self.params[raw[node.src[0]]]
                place[i] = self._add(dataclasses.replace(node, src=src))
        for slot, store in stored.items():
            self.now[slot] = self._add(messages.Node(op=_WIRE["after"], src=[self.params[slot], store]))

    def _slot(self, call: UOp, work: Work, node: messages.Node) -> int:
        slot, arg = work.program.slots[node.arg[0]], call.src[1 + node.arg[0]]
        key = (*_key(arg, slot), tuple(node.arg[1:]), node.dtype)
        if key not in self.slots:
            self.slots[key] = len(self.rows)
            self.rows.append((arg, slot))
            number = self.slots[key]
            self.params[number] = self.now[number] = self._add(
                dataclasses.replace(node, arg=[number, *node.arg[1:]]))
        number = self.slots[key]
        if slot.stored:
            self.rows[number] = (arg, slot)
        return number

    def _variable(self, node: messages.Node, work: Work) -> int:
        name = work.names[node.arg[0]]
        if name not in self.names:
            self.names.append(name)
        return self._add(dataclasses.replace(node, arg=[self.names.index(name), *node.arg[1:]]))

    def _private(self) -> dict[int, int]:
        """Slots that need not be: slot -> the one store to it, of the whole buffer, which all readers come after."""
        stores: dict[int, list[int]] = {}
        read: set[int] = set()
        of = {node: slot for slot, node in self.params.items()}  # and reshapes of them
        for i, node in enumerate(self.nodes):
            if node.op == _WIRE["reshape"] and len(node.src) == 1 and node.src[0] in of:
                of[i] = of[node.src[0]]
                continue
            for k, s in enumerate(node.src):
                if s not in of:
                    continue
                if node.op == _WIRE["store"] and k == 0:
                    stores.setdefault(of[s], []).append(i)
                elif node.op != _WIRE["after"] or k > 0:
                    read.add(of[s])
        afters = [n for n in self.nodes if n.op == _WIRE["after"]]
        out = {}
        for slot, found in stores.items():
            arg, _ = self.rows[slot]
            whole = arg.op is Ops.BUFFER and arg not in self.held and isinstance(arg.device, str)
            ordered = all(list(n.src[1:]) == found for n in afters if n.src[0] == self.params[slot])
            if whole and len(found) == 1 and slot not in read and ordered:
                out[slot] = found[0]
        return out

    def call(self) -> UOp:
        private = self._private()
        gone = {self.params[slot]: store for slot, store in private.items()}
        for i, node in enumerate(self.nodes):
            if node.op == _WIRE["after"] and node.src[0] in gone:
                value = self.nodes[gone[node.src[0]]].src[1]
                dims = self.nodes[node.src[0]].arg[2:]
                self.nodes[i] = messages.Node(op=_WIRE["reshape"], src=[value], arg=list(dims))
        kept = [slot for slot in range(len(self.rows)) if slot not in private]
        number = {slot: i for i, slot in enumerate(kept)}
        roots = [s for s in dict.fromkeys(self.stores) if s not in gone.values()]
        live = set(roots)
        for i in range(len(self.nodes) - 1, -1, -1):
            if i in live:
                live.update(self.nodes[i].src)
        place: dict[int, int] = {}
        graph = messages.Graph(form=GRAPH_FORM)
        for i, node in enumerate(self.nodes):
            if i in live:
                place[i] = len(graph.nodes)
                arg = [number[node.arg[0]], *node.arg[1:]] if node.op == _WIRE["param"] else node.arg
                src = [place[s] for s in node.src]
                graph.nodes.append(dataclasses.replace(node, src=src, arg=arg))
        graph.root = len(graph.nodes)
        graph.nodes.append(messages.Node(op=_WIRE["sink"], src=[place[s] for s in roots]))
        slots = tuple(dataclasses.replace(self.rows[slot][1], argument=i) for slot, i in number.items())
        program = Program(graph.encode(), slots, tuple(range(len(self.names))), self.devices)
        body = UOp(Ops.CUSTOM_FUNCTION, arg=Work(program, tuple(self.names)))
        return body.call(*(self.rows[slot][0] for slot in kept))


def _target(graph: messages.Graph, store: int, raw: dict[int, int]) -> int:
    """The slot that a store writes."""
    at = store
    while at not in raw:
        at = graph.nodes[at].src[0]
    return raw[at]
