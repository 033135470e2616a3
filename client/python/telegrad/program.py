"""The blocking client's programs: graphs on the server with buffers by name."""

from __future__ import annotations

import threading
from typing import Any, Mapping

from telegrad import _messages as messages
from telegrad._future import Waited
from telegrad._session import Buffer, SessionBase
from telegrad.buffers import BufferBase, ProgramBase
from telegrad.dtypes import Array


class Program(ProgramBase[Buffer]):
    """A graph that the server has, with buffers bound to its slots. Call it to run it:

        y = program(x=array)["y"]
        y = program({"a name with blanks": array})["y"]
    """

    session: SessionBase

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._turn = threading.RLock()

    def buffer(self, name: str) -> Buffer:
        """That of a slot; made, and filled with the initial value of state, if it has none."""
        slot = self.slot(name)
        with self._turn:
            if slot.name not in self.buffers:
                self.buffers[slot.name] = (
                    self.session.empty(self.room(slot), slot.dtype) if slot.init is None
                    else self.session.upload(slot.init, slot.dtype))
            return self.buffers[slot.name]

    def set(self, name: str, value: Any) -> None:
        """Binds a buffer to a slot, or writes an array into the one it has."""
        if isinstance(value, BufferBase):
            buffer: Any = value
            self.bind(name, buffer)
        elif not (slot := self.slot(name)).is_fixed:
            data = self.sized(slot, value)
            self.session.write_bytes(self.buffer(name), 0, data)
        else:
            self.session.write(self.buffer(name), value)

    def launch(self, inputs: Mapping[str, Any] = {}, /, *, variables: Mapping[str, int] = {},
               **named: Any) -> None:
        """A run without waiting for it. Inputs that are not given keep what they have."""
        with self._turn:
            self._bind({**inputs, **named})
            self.session.launch(self, self.handles(), self.values(variables))

    def run(self, inputs: Mapping[str, Any] = {}, /, *, variables: Mapping[str, int] = {},
            timeout: float | None = None, trace: bool = False, search: bool = False, **named: Any) -> messages.RunResult:
        """A run, and how it went; see Session.run."""
        with self._turn:
            self._bind({**inputs, **named})
            future = self.session._asked(self.session._run(self, self.handles(), self.values(variables), (), timeout, trace, (),
                                                           search))
        return self.session._wait_run(future, timeout)

    def read(self, name: str, timeout: float | None = None) -> Array:
        """The content of a slot."""
        array: Array = self.session._wait(self._reading(name), timeout)
        return array

    def _reading(self, name: str) -> Waited:
        return self.session._read_into(self.buffer(name).handle, 0, self.sink(self.slot(name)),
                                       self.session._asked)

    def __call__(self, inputs: Mapping[str, Any] = {}, /, *, variables: Mapping[str, int] = {},
                 timeout: float | None = None, **named: Any) -> dict[str, Array]:
        """A run with these inputs, by name; the outputs, by name.

        Calls of several threads do not mix, and are on their way one behind another.
        """
        with self._turn:
            self.launch({**inputs, **named}, variables=variables)
            reads = {name: self._reading(name) for name in self.names("output")}
        return self.results({name: self.session._wait(read, timeout)
                             for name, read in reads.items()})

    def _bind(self, inputs: Mapping[str, Any]) -> None:
        for name, value in inputs.items():
            self.set(name, value)
        self.check_inputs()
        for slot in self.slots:
            self.buffer(slot.name)
