"""TELEGRAD, TELEGRAD:1, ...: the devices of a server as tinygrad sees them.

One connection and one session serve all of them, made when the first is opened: the address and the
credentials are the environment's, as everywhere (docs/python.md). TELEGRAD:n is the n-th device that
computes, in the server's order; TELEGRAD_DEVICE comes first where it is set.
"""

from __future__ import annotations

import collections
import functools
import os
from dataclasses import dataclass

import numpy as np
from tinygrad.device import Allocator, Compiled
from tinygrad.runtime.ops_null import NullRenderer

import telegrad
from telegrad import _operations as operations
from telegrad import dtypes
from telegrad.tinygrad import _execute

_MEMORY_ONLY = ("DISK:", "NPY:", "NULL:")  # of which a graph cannot be run


@dataclass(frozen=True)
class Memory:
    """Bytes of a buffer of the session."""

    handle: int
    offset: int
    nbytes: int
    whole: int  # bytes of the buffer


class Client:
    """The session, and what is to be freed in it.

    tinygrad frees buffers whenever Python collects them, also in the middle of a call of the session's: so
    a free only notes the handle, and the next operation sends it.
    """

    def __init__(self) -> None:
        self.connection = telegrad.connect(timeout=float(os.environ.get("TELEGRAD_TIMEOUT", "10")))
        names = [d.name for d in self.connection.devices() if not d.name.startswith(_MEMORY_ONLY)]
        first = self.connection.device
        if first:
            names = [first] + [name for name in names if name != first]
        if not names:
            raise RuntimeError(f"the server at {self.connection.address} has no device that computes")
        self.devices = tuple(names)
        self.session = self.connection.session()
        self.binds_parts = getattr(self.connection.server, "binds_parts", False)
        self.loaded: dict[bytes, _execute.Loaded] = {}
        self._dropped: collections.deque[int] = collections.deque()

    def drop(self, handle: int) -> None:
        self._dropped.append(handle)

    def flush(self) -> None:
        if self._dropped:
            handles = []
            while self._dropped:
                handles.append(self._dropped.popleft())
            self.session._submit(operations.free(handles))

    def alloc(self, nbytes: int, device: str) -> Memory:
        self.flush()
        return Memory(self.session.alloc(nbytes, device).handle, 0, nbytes, nbytes)

    def write(self, memory: Memory, data: memoryview) -> None:
        self.session.write_bytes(memory.handle, memory.offset, data)

    def read(self, memory: Memory, out: memoryview) -> None:
        array = np.frombuffer(out, np.uint8)
        sink = dtypes.Sink(dtypes.dtype("u8"), array.shape, array)
        self.session._wait(self.session._future(
            operations.read(memory.handle, memory.offset, sink)), None)

    def names(self, count: int) -> tuple[str, ...]:
        """What the first `count` device numbers of a graph mean. Host memory may have a number that the server
        lacks; then it is uploaded to one that there is."""
        return tuple(self.devices[i % len(self.devices)] for i in range(count))


@functools.lru_cache(None)
def client() -> Client:
    return Client()


class TelegradAllocator(Allocator):
    def __init__(self, dev: TelegradDevice) -> None:
        super().__init__(dev, supports_copy_from_disk=False)

    def _alloc(self, size, options):
        return self.dev.client.alloc(size, self.dev.name)

    def _free(self, opaque, options):
        self.dev.client.drop(opaque.handle)

    def _copyin(self, dest, src):
        self.dev.client.write(dest, src)

    def _copyout(self, dest, src):
        self.dev.client.read(src, dest)

    def _offset(self, buf, size, offset):
        return Memory(buf.handle, buf.offset + offset, size, buf.whole)

    def _transfer(self, dest, src, sz, src_dev, dest_dev):
        _execute.copy(self.dev.client, dest, dest_dev.name, src, src_dev.name, sz)


class TelegradDevice(Compiled):
    def __init__(self, device: str) -> None:
        _execute.attach()
        self.client = client()
        number = int(device.partition(":")[2] or 0)
        if number >= len(self.client.devices):
            raise RuntimeError(
                f"{device}: the server at {self.client.connection.address} has "
                f"{len(self.client.devices)} devices that compute: {', '.join(self.client.devices)}")
        self.name = self.client.devices[number]
        super().__init__(device, TelegradAllocator(self), [NullRenderer], self._refuse)

    def count(self) -> int:
        return len(self.client.devices)

    def synchronize(self) -> None:
        self.client.session.sync()

    @staticmethod
    def _refuse(dev, obj):
        raise RuntimeError(f"{obj.name}: a kernel of the client's own code; Telegrad runs graphs, no code of clients")
