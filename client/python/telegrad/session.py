"""The blocking client's session.

    with telegrad.connect("127.0.0.1:50055") as connection, connection.session() as session:
        x = session.upload(np.arange(4, dtype=np.float32))
        print(x.numpy())

Operations of a session take effect in the order of their calls. Those without an answer (upload,
write, alloc, free, launch) return as soon as they are on their way; those with one wait for it, or
return a future where the method's name ends in `_future`. An error of the first kind shows at what
depends on it, and at the next `sync`, which raises the first one.
"""

from __future__ import annotations

import os
from typing import Any, Mapping, Sequence

import numpy as np

from telegrad import _operations as operations
from telegrad import _transport as transport
from telegrad import buffers, dtypes
from telegrad._future import Future
from telegrad._session import Buffer, SessionBase
from telegrad.buffers import MAX_INLINE_MODEL
from telegrad.graph import Graph
from telegrad.program import Program

__all__ = ["Buffer", "Future", "Session"]


class Session(SessionBase):
    """Buffers, graphs and operations on a server. Thread-safe; those of one thread keep their order."""

    _imports = 0

    def has(self, digest: bytes, timeout: float | None = None) -> bool:
        """Whether this client has put the graph with this hash."""
        there: bool = self._wait(self._asked(operations.has(digest)), timeout)
        return there

    def put(self, graph: Graph | bytes, compile: bool = False,
            timeout: float | None = None) -> Program:
        """Sends a graph, also in its serialized form. `compile`: now, for the connection's device, not at the first run."""
        put = operations.put(buffers.serialized(graph), compile, self.connection.device)
        slots, variables = buffers.slots_of(graph)
        return Program(self, self._wait(self._asked(put), timeout), slots, variables)

    def import_model(self, model: bytes | str | os.PathLike[str], format: str = "onnx", *,
                     input_shapes: Mapping[str, Sequence[int]] = {},
                     dims: Mapping[str, int] = {}, values: Mapping[str, Any] = {},
                     device: str = "", compile: bool = False,
                     timeout: float | None = None) -> Program:
        """A model file (its path, or its bytes), read by the server, which keeps its weights.

        `input_shapes` count in place of what the model says; `dims` are the sizes of dimensions
        that it only names. `values` are what will be bound to inputs, by name, where shapes may
        depend on them: program.guards says for which inputs they did, so that other values need
        another import. An input of strings, a list of arrays (a sequence) or None (an optional
        without a value) needs its value here.
        """
        device = device or self.connection.device
        data = model if isinstance(model, bytes) else transport.read_file(model)
        with self._changed:
            first = buffers.handles_beyond(self._imports)
            self._imports += 1
        file = self.upload(np.frombuffer(data, np.uint8)) if len(data) > MAX_INLINE_MODEL else None
        future = self._asked(operations.import_model(
            data, file, format, first, device, input_shapes, dims, values, compile))
        if file is not None:
            file.free()
        result = self._wait(future, timeout)
        slots, weights, aliases = buffers.imported(result, lambda slot: Buffer(
            self, slot.handle, slot.dims, dtypes.from_wire(slot.dtype), device))
        program = Program(self, result.hash, slots, aliases=aliases)
        program.learn(result)
        program.buffers.update(weights)
        return program
