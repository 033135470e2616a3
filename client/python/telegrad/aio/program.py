"""The asyncio client's programs: graphs on the server with buffers by name."""

from __future__ import annotations

import asyncio
from typing import Any, Mapping

from telegrad import _messages as messages
from telegrad import _operations as operations
from telegrad.aio._session import Buffer, SessionBase
from telegrad.buffers import BufferBase, ProgramBase
from telegrad.dtypes import Array


class Program(ProgramBase[Buffer]):
    """A graph that the server has, with buffers bound to its slots; see telegrad.Program.

        y = (await program(x=array))["y"]
    """

    session: SessionBase

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._turn, self._making = asyncio.Lock(), asyncio.Lock()

    async def buffer(self, name: str) -> Buffer:
        """That of a slot; made, and filled with the initial value of state, if it has none."""
        slot = self.slot(name)
        async with self._making:
            if slot.name not in self.buffers:
                self.buffers[slot.name] = (
                    await self.session.empty(self.room(slot), slot.dtype) if slot.init is None
                    else await self.session.upload(slot.init, slot.dtype))
            return self.buffers[slot.name]

    async def set(self, name: str, value: Any) -> None:
        """Binds a buffer to a slot, or writes an array into the one it has."""
        if isinstance(value, BufferBase):
            buffer: Any = value
            self.bind(name, buffer)
        elif not (slot := self.slot(name)).is_fixed:
            data = self.sized(slot, value)
            await self.session.write_bytes(await self.buffer(name), 0, data)
        else:
            await self.session.write(await self.buffer(name), value)

    async def launch(self, inputs: Mapping[str, Any] = {}, /, *,
                     variables: Mapping[str, int] = {}, **named: Any) -> None:
        """A run without waiting for it. Inputs that are not given keep what they have."""
        async with self._turn:
            await self._launch({**inputs, **named}, variables)

    async def run(self, inputs: Mapping[str, Any] = {}, /, *, variables: Mapping[str, int] = {},
                  timeout: float | None = None, trace: bool = False,
                  **named: Any) -> messages.RunResult:
        """A run, and how it went."""
        async with self._turn:
            await self._bind({**inputs, **named})
            begun = await self.session._begin_run(self, self.handles(), self.values(variables), (),
                                                  timeout, trace)
        return await self.session._finish_run(begun, timeout)

    async def read(self, name: str, timeout: float | None = None) -> Array:
        """The content of a slot."""
        array: Array = await self.session._finish(await self._reading(name), timeout)
        return array

    async def _reading(self, name: str) -> Any:
        return await self.session._begin(operations.read((await self.buffer(name)).handle, 0, self.sink(self.slot(name))))

    async def __call__(self, inputs: Mapping[str, Any] = {}, /, *,
                       variables: Mapping[str, int] = {}, timeout: float | None = None,
                       **named: Any) -> dict[str, Array]:
        """A run with these inputs, by name; the outputs, by name.

        Calls of several tasks do not mix, and are on their way one behind another.
        """
        async with self._turn:
            await self._launch({**inputs, **named}, variables)
            reads = {name: await self._reading(name) for name in self.names("output")}
        return self.results({name: await self.session._finish(read, timeout)
                             for name, read in reads.items()})

    async def _launch(self, inputs: Mapping[str, Any], variables: Mapping[str, int]) -> None:
        await self._bind(inputs)
        await self.session.launch(self, self.handles(), self.values(variables))

    async def _bind(self, inputs: Mapping[str, Any]) -> None:
        for name, value in inputs.items():
            await self.set(name, value)
        self.check_inputs()
        for slot in self.slots:
            await self.buffer(slot.name)
