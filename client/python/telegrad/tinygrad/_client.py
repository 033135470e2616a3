"""The one connection of this process for all TELEGRAD devices, and the programs that its server has."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from telegrad._host import Host


@dataclass
class Loaded:
    """A program that the server has."""

    hash: bytes
    kernels: int = 0
    flops: float = 0.0
    traffic: float = 0.0  # bytes that its kernels read and write
    searched: bool = False  # the server was asked to search for its kernels


class Client(Host):
    def __init__(self) -> None:
        super().__init__()
        self.loaded: dict[bytes, Loaded] = {}

    def renew(self) -> None:
        era = self.era
        super().renew()
        if self.era != era:
            self.loaded.clear()

    def names(self, count: int) -> tuple[str, ...]:
        """What the first `count` device numbers of a graph mean. Host memory may have a number that the
        server lacks; then it is uploaded to one that there is."""
        return tuple(self.devices[i % len(self.devices)] for i in range(count))


@functools.lru_cache(None)
def client() -> Client:
    return Client()
