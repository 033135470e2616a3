"""One connection and session of this process, for frontends that use a server as their device.

The address and the credentials are the environment's (docs/python.md). The frontends free memory
whenever Python collects their arrays, also in the middle of a call of the session's: so `drop` only
notes a handle, and the next operation sends it.

A session that is over (the server went away, a token expired) takes its buffers with it. The call that was
under way fails; the next one begins with `renew`, which connects again, with the credentials that there are
then. `era` counts the sessions: what was made in an earlier one is no longer there.
"""

from __future__ import annotations

import collections
import contextlib
import os
from dataclasses import dataclass
from typing import Any, Iterable, Sequence

from telegrad import _operations as operations
from telegrad._future import Answer, Waited
from telegrad._operations import Operation
from telegrad.connection import connect
from telegrad.errors import Code, TelegradError

_MEMORY_ONLY = ("DISK:", "NPY:", "NULL:")  # of which a graph cannot be run


@dataclass(frozen=True)
class Memory:
    """Bytes of a buffer of the session."""

    handle: int
    offset: int
    nbytes: int
    whole: int  # bytes of the buffer
    era: int = 0
    device: str = ""


_POOLED, _POOLED_BYTES = 4, 1 << 16  # buffers of one size, and the size of one


class Into:
    """What is read goes into a caller's bytes, which are `owner`'s where they do not keep themselves alive."""

    def __init__(self, out: Any, owner: Any = None) -> None:
        view = memoryview(out)
        self.memory = view if view.format == "B" and view.ndim == 1 else view.cast("B")
        self._owner = owner

    def finish(self) -> None:
        return None


class Host:
    def __init__(self) -> None:
        self.era = 0
        self._pool: dict[tuple[str, int], list[Memory]] = {}  # by device and size
        self._read: set[int] = set()  # handles of small buffers that were read without an error
        self._dropped: collections.deque[Memory] = collections.deque()
        self._connect()

    def _connect(self) -> None:
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

    def renew(self) -> None:
        """Connects again if the session is over."""
        if not self.session.ended:
            return
        with contextlib.suppress(TelegradError):
            self.connection.close()
        self._connect()
        self._pool.clear()
        self._read.clear()
        self.era += 1

    def check(self, memory: Memory) -> None:
        """Whether what was kept on the server still is."""
        if memory.era != self.era:
            raise TelegradError(Code.DATA_LOSS, f"{memory.nbytes} bytes that were on the server are gone with the session that "
                                f"ended; this one, with {self.connection.address}, is new. Make the tensor again")

    def drop(self, memory: Memory) -> None:
        self._dropped.append(memory)

    def flush(self) -> None:
        """Frees what was dropped, but for some small buffers that are then used again."""
        handles = []
        while self._dropped:
            memory = self._dropped.popleft()
            if memory.era != self.era:
                continue
            pool = self._pool.setdefault((memory.device, memory.whole), []) if memory.handle in self._read else None
            self._read.discard(memory.handle)
            if pool is not None and len(pool) < _POOLED:
                pool.append(memory)
            else:
                handles.append(memory.handle)
        if handles:
            self.session._submit(operations.free(handles))

    def alloc(self, nbytes: int, device: str = "") -> Memory:
        """Bytes that nobody has written yet, or that were read before."""
        return self.alloc_all((nbytes,), device)[0]

    def alloc_all(self, sizes: Sequence[int], device: str = "") -> list[Memory]:
        """The same of several sizes; what is not there is asked for in one message."""
        self.renew()
        self.flush()
        device = device or self.devices[0]
        found = [pool.pop() if (pool := self._pool.get((device, nbytes))) else None for nbytes in sizes]
        missing = [nbytes for nbytes, memory in zip(sizes, found) if memory is None]
        made = iter(self.session._alloc_all(missing, device) if missing else ())
        return [memory or Memory(next(made).handle, 0, nbytes, nbytes, self.era, device) for nbytes, memory in zip(sizes, found)]

    def copy(self, source: Memory, target: Memory, nbytes: int) -> None:
        """Bytes from the beginning of one to the beginning of another, on the server, of any of its devices."""
        if not self.connection.server.copies:
            raise TelegradError(Code.UNIMPLEMENTED, f"the server at {self.connection.address} copies no buffers; it is older than "
                                "this package")
        for memory in (source, target):
            self.check(memory)
        self.session._submit(operations.copy(source.handle, source.offset, target.handle, target.offset, nbytes))

    def write(self, memory: Memory, data: Any) -> None:
        self.check(memory)
        self.session.write_bytes(memory.handle, memory.offset, data)

    def read(self, memory: Memory, out: Any) -> None:
        """Fills a writable buffer of bytes."""
        self.read_all([(memory, Into(out))])

    def read_all(self, wanted: Iterable[tuple[Memory, Into]], first: Operation | None = None) -> None:
        """The same of several, on their way at once, behind the operation `first`, which has no answer of its own."""
        session = self.session
        asked: list[tuple[Operation, Answer | None]] = [] if first is None else [(first, None)]
        reads: list[tuple[Waited, Memory]] = []
        beside = []
        for memory, sink in wanted:
            self.check(memory)
            operation = session._read_here(memory.handle, memory.offset, sink)
            if operation is None:
                beside.append((memory, sink))
            else:
                answer = Answer()
                asked.append((operation, answer))
                reads.append((answer, memory))
        if asked:
            for (number, _), (_, waited) in zip(session._submit_all(asked), asked):
                if waited is not None:
                    waited.op_id = number
        reads += [(session._read_into(memory.handle, memory.offset, sink, session._asked), memory) for memory, sink in beside]
        for read, memory in reads:
            session._wait(read, None)
            if memory.whole <= _POOLED_BYTES:
                self._read.add(memory.handle)
