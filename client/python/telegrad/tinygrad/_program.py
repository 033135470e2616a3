"""Converted graphs, as they are kept, named in tinygrad's graphs, and pickled with a captured JIT."""

from __future__ import annotations

import dataclasses
import functools
import hashlib

from tinygrad.uop.ops import Ops

from telegrad.tinygrad._convert import convert
from telegrad.tinygrad._graph_builder import OPS
from telegrad.tinygrad._vocabulary import device_number, devices_of


@dataclasses.dataclass(frozen=True)
class Slot:
    argument: int  # of the call
    instance: int  # of a buffer on several devices
    base: bool  # the argument is a view, and this the buffer under it
    nbytes: int
    stored: bool
    device: int = 0  # its number in the graph


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    graph: bytes
    slots: tuple[Slot, ...]
    variables: tuple[int, ...]  # arguments, by variable id
    devices: int  # how many device numbers it names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and vars_of(self) == vars_of(other)

    def __hash__(self) -> int:
        return hash(self.digest)

    @functools.cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(self.graph).digest()


def vars_of(program: Program) -> tuple:
    return program.graph, program.slots, program.variables, program.devices


@dataclasses.dataclass(frozen=True)
class Work:
    """The argument of a CUSTOM_FUNCTION: a program, and what the variables are called in this call."""

    program: Program
    names: tuple[str, ...]

    def __repr__(self) -> str:
        return f"telegrad {self.program.digest.hex()} {self.names}"


_converted: dict[tuple, Program | None] = {}


def program_of(call) -> Program | None:
    """The program of a CALL of tinygrad's, made once for equal graphs; None: there is nothing to do.

    Its slots and variables name the call's arguments by number.
    """
    args = call.src[1:]
    key = (call.src[0].key, _layout(args))
    if key not in _converted:
        _converted[key] = _make(call)
    return _converted[key]


def _layout(args) -> tuple:
    """What a conversion depends on besides the body: which arguments are views of one buffer, and where."""
    bases: dict = {}
    views = []
    for arg in args:
        chain = []
        while arg.op in (Ops.SHRINK, Ops.BITCAST):
            chain.append((arg.op.name, str(arg.dtype), arg.marg if arg.op is Ops.SHRINK else None))
            arg = arg.src[0]
        number = bases.setdefault(arg, len(bases))
        # Where a view begins matters only if the buffer has others.
        views.append((number, tuple(chain)))
    shared = {n for n in range(len(bases)) if sum(number == n for number, _ in views) > 1}
    return tuple((n, chain if n in shared else bool(chain)) for n, chain in views)


def _make(call) -> Program | None:
    converted = convert(call)
    if converted.graph is None:
        return None
    args = call.src[1:]
    place = {arg: i for i, arg in reversed(list(enumerate(args)))}
    slots = []
    for number, s in enumerate(converted.slots):
        base = s.buffer not in place
        argument = next(i for i, a in enumerate(args) if _under(a) is s.buffer) if base \
            else place[s.buffer]
        size = s.buffer.max_numel() * s.buffer.dtype.itemsize
        device = device_number(devices_of(s.buffer.device)[s.instance])
        slots.append(Slot(argument, s.instance, base, size, number in converted.stored, device))
    graph = converted.graph
    return Program(graph.encode(), tuple(slots), tuple(place[v] for v in converted.variables),
                   _devices(graph))


def _under(arg):
    while arg.op in (Ops.SHRINK, Ops.BITCAST):
        arg = arg.src[0]
    return arg


def _devices(graph) -> int:
    param, arg, copy = (OPS[name].wire for name in ("param", "arg", "copy"))
    numbers = {0}
    for node in graph.nodes:
        if node.op in (param, arg):
            numbers.add(node.arg[1])
        elif node.op == copy:
            numbers.update(node.arg)
    return max(numbers) + 1
