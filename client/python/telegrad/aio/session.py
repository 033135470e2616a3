"""The asyncio client's session."""

from __future__ import annotations

import os
from typing import Any, Mapping, Sequence

import numpy as np

from telegrad import _operations as operations
from telegrad import _transport as transport
from telegrad import buffers, dtypes
from telegrad.aio._session import Buffer, SessionBase
from telegrad.aio.program import Program
from telegrad.buffers import MAX_INLINE_MODEL
from telegrad.graph import Graph

__all__ = ["Buffer", "Session"]


class Session(SessionBase):
    """Buffers, graphs and operations on a server; see telegrad.Session. Of one event loop."""

    _imports = 0

    async def has(self, digest: bytes, timeout: float | None = None) -> bool:
        """Whether this client has put the graph with this hash."""
        there: bool = await self._answer(operations.has(digest), timeout)
        return there

    async def put(self, graph: Graph | bytes, compile: bool = False,
                  timeout: float | None = None) -> Program:
        """Sends a graph, also in its serialized form; see telegrad.Session.put."""
        put = operations.put(buffers.serialized(graph), compile, self.connection.device)
        digest = await self._answer(put, timeout)
        slots, variables = buffers.slots_of(graph)
        return Program(self, digest, slots, variables)

    async def import_model(self, model: bytes | str | os.PathLike[str], format: str = "onnx", *,
                           input_shapes: Mapping[str, Sequence[int]] = {},
                           dims: Mapping[str, int] = {}, values: Mapping[str, Any] = {},
                           device: str = "", compile: bool = False,
                           timeout: float | None = None) -> Program:
        """A model file, read by the server; see telegrad.Session.import_model."""
        device = device or self.connection.device
        data = model if isinstance(model, bytes) else transport.read_file(model)
        first = buffers.handles_beyond(self._imports)
        self._imports += 1
        file = None
        if len(data) > MAX_INLINE_MODEL:
            file = await self.upload(np.frombuffer(data, np.uint8))
        result = await self._answer(operations.import_model(
            data, file, format, first, device, input_shapes, dims, values, compile), timeout)
        if file is not None:
            await file.free()
        slots, weights, aliases = buffers.imported(result, lambda slot: Buffer(
            self, slot.handle, slot.dims, dtypes.from_wire(slot.dtype), device))
        program = Program(self, result.hash, slots, aliases=aliases)
        program.learn(result)
        program.buffers.update(weights)
        return program

    # Order and the end.
