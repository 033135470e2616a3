"""One connection and session of this process, for frontends that use a server as their device.

The address and the credentials are the environment's (docs/python.md). The frontends free memory
whenever Python collects their arrays, also in the middle of a call of the session's: so `drop` only
notes a handle, and the next operation sends it.
"""

from __future__ import annotations

import collections
import os
from dataclasses import dataclass
from typing import Any, Iterable

import numpy as np

from telegrad import _operations as operations
from telegrad import dtypes
from telegrad.connection import connect

_MEMORY_ONLY = ("DISK:", "NPY:", "NULL:")  # of which a graph cannot be run


@dataclass(frozen=True)
class Memory:
    """Bytes of a buffer of the session."""

    handle: int
    offset: int
    nbytes: int
    whole: int  # bytes of the buffer


class Host:
    def __init__(self) -> None:
        self.connection = connect(timeout=float(os.environ.get("TELEGRAD_TIMEOUT", "10")))
        names = [d.name for d in self.connection.devices() if not d.name.startswith(_MEMORY_ONLY)]
        first = self.connection.device
        if first:
            names = [first] + [name for name in names if name != first]
        if not names:
            raise RuntimeError(f"the server at {self.connection.address} has no device that computes")
        self.devices = tuple(names)
        self.session = self.connection.session()
        self.binds_parts = self.connection.server.binds_parts
        self._dropped: collections.deque[int] = collections.deque()

    def drop(self, handle: int) -> None:
        self._dropped.append(handle)

    def flush(self) -> None:
        """Sends what was dropped."""
        handles = []
        while self._dropped:
            handles.append(self._dropped.popleft())
        if handles:
            self.session._submit(operations.free(handles))

    def alloc(self, nbytes: int, device: str = "") -> Memory:
        self.flush()
        buffer = self.session.alloc(nbytes, device or self.devices[0])
        return Memory(buffer.handle, 0, nbytes, nbytes)

    def write(self, memory: Memory, data: Any) -> None:
        self.session.write_bytes(memory.handle, memory.offset, data)

    def read(self, memory: Memory, out: Any) -> None:
        """Fills a writable buffer of bytes."""
        self.read_all([(memory, out)])

    def read_all(self, wanted: Iterable[tuple[Memory, Any]]) -> None:
        """The same of several, on their way at once."""
        reads = []
        for memory, out in wanted:
            array = np.frombuffer(out, np.uint8)
            sink = dtypes.Sink(dtypes.dtype("u8"), array.shape, array)
            reads.append(self.session._future(
                operations.read(memory.handle, memory.offset, sink)))
        for read in reads:
            self.session._wait(read, None)
