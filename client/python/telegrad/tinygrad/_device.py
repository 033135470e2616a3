"""TELEGRAD, TELEGRAD:1, ...: the devices of a server as tinygrad sees them.

One connection and one session serve all of them, made when the first is opened: the address and the
credentials are the environment's, as everywhere (docs/python.md). TELEGRAD:n is the n-th device that
computes, in the server's order; TELEGRAD_DEVICE comes first where it is set.
"""

from __future__ import annotations

from tinygrad.device import Allocator, Compiled
from tinygrad.runtime.ops_null import NullRenderer

from telegrad._host import Memory
from telegrad.tinygrad import _execute
from telegrad.tinygrad._client import client


class TelegradAllocator(Allocator):
    def __init__(self, dev: TelegradDevice) -> None:
        super().__init__(dev, supports_copy_from_disk=False)

    def _alloc(self, size, options):
        return self.dev.client.alloc(size, self.dev.name)

    def _free(self, opaque, options):
        self.dev.client.drop(opaque)

    def _copyin(self, dest, src):
        self.dev.client.write(dest, src)

    def _copyout(self, dest, src):
        self.dev.client.read(src, dest)

    def _offset(self, buf, size, offset):
        return Memory(buf.handle, buf.offset + offset, size, buf.whole, buf.era)

    def _transfer(self, dest, src, sz, src_dev, dest_dev):
        self.dev.client.copy(src, dest, sz)


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
        if not self.client.session.ended:
            self.client.session.sync()

    @staticmethod
    def _refuse(dev, obj):
        raise RuntimeError(f"{obj.name}: a kernel of the client's own code; Telegrad runs graphs, no code of clients")
