"""What both clients say of memory on the server, and how programs bind it."""

from __future__ import annotations

from typing import Any, Callable, Generic, Iterable, Mapping, Sequence, TypeVar, Union

from telegrad import _messages as messages
from telegrad import _runs, dtypes
from telegrad._size import highest
from telegrad.dtypes import DType
from telegrad.errors import Code, TelegradError, invalid
from telegrad.graph import Graph, Slot, Variable

MAX_INLINE_MODEL = 16 << 20  # bytes; a larger one is uploaded first
_ROLES = {messages.Role.INPUT: "input", messages.Role.OUTPUT: "output",
          messages.Role.WEIGHT: "weight"}


class BufferBase:
    """A buffer of a session: flat memory on a device, seen as an array of a type and shape."""

    def __init__(self, session: Any, handle: int, shape: Sequence[int], dtype: DType,
                 device: str) -> None:
        self.session, self.handle, self.device = session, handle, device
        self.shape, self.dtype = tuple(shape), dtype

    @property
    def nbytes(self) -> int:
        return self.dtype.nbytes(dtypes.num_elements(self.shape))

    def check(self, array: dtypes.Array) -> None:
        if array.shape != self.shape:
            raise invalid(f"an array of {list(array.shape)} for {self!r}")

    def __repr__(self) -> str:
        where = f" on {self.device}" if self.device else ""
        return f"<Buffer {self.handle}: {self.dtype}{list(self.shape)}{where}>"


B = TypeVar("B", bound=BufferBase)
Handles = Iterable[Union[int, BufferBase]]


def handles_of(buffers: Handles) -> list[int]:
    return [b.handle if isinstance(b, BufferBase) else b for b in buffers]


def handles_beyond(count: int) -> int:
    """The first handle of the weights of import number `count`: far from all others."""
    return (1 << 62) + (count << 32)


class ProgramBase(Generic[B]):
    """A graph that the server has, with the buffers bound to its slots."""

    def __init__(self, session: Any, digest: bytes, slots: Sequence[Slot],
                 variables: Sequence[Variable] = (), aliases: Mapping[str, str] = {}) -> None:
        self.session, self.hash = session, digest
        self.slots = tuple(slots)
        self.variables = {v.name: v for v in variables}
        self.buffers: dict[str, B] = {}
        self._by_name = {slot.name: slot for slot in slots}
        self._aliases = dict(aliases)  # what the model calls a slot
        self._shapes: dict[str, tuple[int, ...]] = {}  # of inputs whose size each run decides, as they were given
        self._values: dict[int, int] = {}  # of the variables, in the last run
        self.guards: tuple[str, ...] = ()  # inputs for whose values alone this is
        self._run_shapes: dict[str, str] = {}  # of outputs whose shape each run decides: its slot
        self._fixed: dict[str, Any] = {}  # outputs that are always the same

    def learn(self, result: messages.ImportResult) -> None:
        """What the server says of a model that it has imported."""
        self.guards = tuple(result.guards)
        for value in result.outputs:
            for element in value.elements:
                if element.kind == messages.ModelElementKind.STRINGS and not value.sequence:
                    self._fixed[value.name] = dtypes.strings(element.strings, element.dims)
                if element.kind != messages.ModelElementKind.TENSOR or element.shape_slot == 0:
                    continue
                if max(element.slot, element.shape_slot - 1) >= len(self.slots):
                    raise TelegradError(Code.INTERNAL, "the server names a slot that is none")
                self._run_shapes[self.slots[element.slot].name] = (
                    self.slots[element.shape_slot - 1].name)

    def results(self, read: Mapping[str, dtypes.Array]) -> dict[str, Any]:
        """Outputs as a run has left them, those whose shape it decides cut to it."""
        out = dict(read)
        for name, shape in self._run_shapes.items():
            if name in read and shape in read:
                out[name] = read[name][tuple(slice(0, int(n)) for n in read[shape])]
        for shape in self._run_shapes.values():
            out.pop(shape, None)
        return {**out, **self._fixed}

    def slot(self, name: str) -> Slot:
        slot = self._by_name.get(self._aliases.get(name, name))
        if slot is None:
            raise invalid(f"there is no slot {name!r}; there are {', '.join(self._by_name)}")
        return slot

    def names(self, role: str) -> list[str]:
        """Of the slots of a role: "input", "output", "state", "weight" or "constant"."""
        return [slot.name for slot in self.slots if slot.role == role]

    def bind(self, name: str, buffer: B) -> None:
        """Lets a slot be this buffer, such as the state of another program."""
        slot = self.slot(name)
        if not slot.is_fixed:
            raise invalid(f"a buffer for slot {slot.name!r}, whose size each run decides; give it an array")
        if buffer.dtype != slot.dtype or buffer.shape != slot.shape:
            raise invalid(f"{buffer!r} for slot {slot.name!r}, expected {slot.dtype}"
                          f"{list(slot.shape)}")
        self.buffers[slot.name] = buffer

    def check_inputs(self) -> None:
        """Each must have been given a value or a buffer by now."""
        for name in self.names("input"):
            if name not in self.buffers:
                raise invalid(f"input {name!r} has no value")

    def handles(self) -> list[int]:
        """Of all slots, in order. They must be bound."""
        missing = [slot.name for slot in self.slots if slot.name not in self.buffers]
        if missing:
            raise invalid(f"slot {missing[0]!r} has no buffer yet")
        return [self.buffers[slot.name].handle for slot in self.slots]

    def values(self, variables: Mapping[str, int]) -> dict[int, int]:
        """The variables of a run, by id: those given, and those that are sizes of its inputs."""
        self._values = _runs.solved(self.slots, self._shapes, self.variables, variables)
        return {v.id: self._values[v.id] for v in self.variables.values() if v.used}

    def room(self, slot: Slot) -> tuple[int, ...]:
        """The shape of a slot's buffer, which has room for the largest run."""
        if slot.is_fixed:
            return _runs.shape_of(slot.shape, {})
        return (dtypes.num_elements([highest(size) for size in slot.shape]),)

    def sized(self, slot: Slot, value: Any) -> memoryview:
        """What an array writes into a slot whose size each run decides."""
        array, _ = dtypes.as_array(value, slot.dtype)
        if array.ndim != len(slot.shape):
            raise invalid(f"input {slot.name!r} is {list(array.shape)}, expected {list(slot.shape)}")
        data = dtypes.to_bytes(array, slot.dtype)
        if len(data) > slot.nbytes:
            raise invalid(f"input {slot.name!r} is {list(array.shape)}, expected {list(slot.shape)} of at most {slot.nbytes} bytes")
        self._shapes[slot.name] = array.shape
        return data

    def sink(self, slot: Slot) -> dtypes.Sink:
        """For what the last run left in a slot."""
        return dtypes.Sink(slot.dtype, _runs.shape_of(slot.shape, self._values))

    def __repr__(self) -> str:
        slots = ", ".join(f"{s.role} {s.name}: {s.dtype}{list(s.shape)}" for s in self.slots)
        return f"<Program {self.hash.hex()[:12]}: {slots}>"


def hash_of(program: ProgramBase[Any] | bytes) -> bytes:
    return program if isinstance(program, bytes) else program.hash


def serialized(graph: Graph | bytes) -> bytes:
    return graph.serialize() if isinstance(graph, Graph) else graph


def slots_of(graph: Graph | bytes) -> tuple[Sequence[Slot], Sequence[Variable]]:
    """Of a graph that was serialized."""
    return (graph.slots, graph.sent_variables()) if isinstance(graph, Graph) else ((), ())


def imported(result: messages.ImportResult, make: Callable[[ImportedSlot], B],
             ) -> tuple[list[Slot], dict[str, B], dict[str, str]]:
    """Slots, the buffers of the weights by name, and the names that the model has for slots."""
    slots, buffers, aliases = [], {}, {}
    for s in result.slots:
        kind = dtypes.from_wire(s.dtype)
        if s.role not in _ROLES:
            raise TelegradError(Code.INTERNAL, f"the server imported a slot of role {s.role}")
        slot = Slot(s.name, _ROLES[messages.Role(s.role)], kind, tuple(s.dims))
        if any(dim < 0 for dim in s.dims) or slot.nbytes > s.bytes:
            raise TelegradError(Code.INTERNAL, f"the server imported a slot {s.name!r} of "
                                f"{s.bytes} bytes as {kind}{list(s.dims)}")
        slots.append(slot)
        aliases.update({name: s.name for name in s.model_names})
        if slot.role == "weight":
            buffers[s.name] = make(s)
    return slots, buffers, aliases


ImportedSlot = messages.ImportedSlot
