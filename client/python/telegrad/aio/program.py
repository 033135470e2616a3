"""The asyncio client's programs: graphs on the server with buffers by name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Coroutine, Mapping

from telegrad import _messages as messages
from telegrad.buffers import BufferBase, ProgramBase
from telegrad.dtypes import Array

if TYPE_CHECKING:
    from telegrad.aio.session import Buffer, Session


class Program(ProgramBase["Buffer"]):
    """A graph that the server has, with buffers bound to its slots; see telegrad.Program.

        y = (await program(x=array))["y"]
    """

    session: Session

    async def buffer(self, name: str) -> Buffer:
        """That of a slot; made, and filled with the initial value of state, if it has none."""
        slot = self.slot(name)
        if slot.name not in self.buffers:
            self.buffers[slot.name] = (
                await self.session.empty(slot.shape, slot.dtype) if slot.init is None
                else await self.session.upload(slot.init, slot.dtype))
        return self.buffers[slot.name]

    async def set(self, name: str, value: Any) -> None:
        """Binds a buffer to a slot, or writes an array into the one it has."""
        if isinstance(value, BufferBase):
            buffer: Any = value
            self.bind(name, buffer)
        else:
            await self.session.write(await self.buffer(name), value)

    async def launch(self, inputs: Mapping[str, Any] = {}, /, *,
                     variables: Mapping[str, int] = {}, **named: Any) -> None:
        """A run without waiting for it. Inputs that are not given keep what they have."""
        await self._bind({**inputs, **named})
        await self.session.launch(self, self.handles(), self.values(variables))

    async def run(self, inputs: Mapping[str, Any] = {}, /, *, variables: Mapping[str, int] = {},
                  timeout: float | None = None, trace: bool = False,
                  **named: Any) -> messages.RunResult:
        """A run, and how it went."""
        await self._bind({**inputs, **named})
        return await self.session.run(self, self.handles(), self.values(variables),
                                      timeout=timeout, trace=trace)

    async def read(self, name: str, timeout: float | None = None) -> Array:
        """The content of a slot."""
        return await self.session.read(await self.buffer(name), timeout=timeout)

    async def __call__(self, inputs: Mapping[str, Any] = {}, /, *,
                       variables: Mapping[str, int] = {}, timeout: float | None = None,
                       **named: Any) -> dict[str, Array]:
        """A run with these inputs, by name; the outputs, by name."""
        await self.launch({**inputs, **named}, variables=variables)
        names = self.names("output")
        reads: list[Coroutine[Any, Any, Array]] = [self.read(name, timeout) for name in names]
        return dict(zip(names, await asyncio.gather(*reads)))

    async def _bind(self, inputs: Mapping[str, Any]) -> None:
        for name, value in inputs.items():
            await self.set(name, value)
        for slot in self.slots:
            await self.buffer(slot.name)
