"""Which writes and reads of a session travel beside its stream, and what becomes of them there."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from typing import Any, Callable, Protocol

from telegrad import _bulk as bulk
from telegrad import _messages as messages
from telegrad import _operations as operations
from telegrad._channel import Channel
from telegrad._future import Future
from telegrad._operations import Operation
from telegrad._progress import Meter
from telegrad._shared import LocalDoor, SharedArray, offered
from telegrad.dtypes import Array
from telegrad.errors import Code, TelegradError


class Opened(Protocol):
    """What is needed of a session."""

    connection: Channel
    _meter: Meter

    def _submit(self, operation: Operation) -> tuple[int, Any]: ...
    def _future(self, operation: Operation) -> Future[Any]: ...
    def _await_open(self) -> messages.OpenResult | None: ...
    def _abandon(self, error: TelegradError) -> None: ...


class _Parts:
    """A download as parts on several sockets; over when the last of them is."""

    def __init__(self, transfer: int, memory: memoryview, done: Callable[[TelegradError | None], None],
                 moved: Callable[[int], None]) -> None:
        self._transfer, self._memory, self._done, self._moved = transfer, memory, done, moved
        self._lock = threading.Lock()
        self._error: TelegradError | None = None

    def start(self, movers: list[bulk.Mover]) -> None:
        size = len(self._memory)
        middle = size // 2 if size >= bulk.SPLIT_BYTES else size
        ranges = [(0, middle), (middle, size)] if middle < size else [(0, size)]
        self._moving = self._left = len(ranges)
        for mover, (begin, end) in zip(movers, ranges):
            mover.add(bulk.Job(self._transfer, self._memory[begin:end], self._ended, self._moved, begin,
                               self._is_last, ended=None))

    def _is_last(self) -> bool:
        with self._lock:
            self._moving -= 1
            return self._moving <= 0  # also where the release is sent again

    def _ended(self, error: TelegradError | None) -> None:
        with self._lock:
            self._left -= 1
            self._error = self._error or error
            left = self._left
        if left == 0:
            self._done(self._error)


class Beside:
    def __init__(self, session: Opened) -> None:
        self._session = session
        self._first_use = threading.Lock()
        self._works: dict[bool, bool] = {}  # whether reads do, and whether writes do, as far as was tried
        # Numbers ascend in the order of the operations, and so do the movers' jobs: otherwise one that has
        # to wait for its turn on the server would be in the way of the one before.
        self._turn = threading.Lock()
        self._last = 0
        self._upload: bulk.Mover | None = None
        self._downloads: list[bulk.Mover] = []
        self._reads: set[Future[Array]] = set()
        self._over: TelegradError | None = None
        self._door: LocalDoor | None = None  # once memory is shared

    def takes(self, nbytes: int, read: bool) -> bool:
        """Whether so many bytes are worth it, and the server can be reached in this way.

        The first write and the first read find out, for a server may have room for one socket and not for two.
        Where the one has found none, the other is not tried.
        """
        if nbytes < bulk.LEAST_BYTES:
            return False
        with self._first_use:
            if read not in self._works:
                hopeless = self._works.get(not read) is False
                self._works[read] = not hopeless and self._try(read)
            return self._works[read]

    def _try(self, read: bool) -> bool:
        connection = self._session.connection
        self._address = bulk.address_of(connection.address, connection.server.bulk_address)
        if self._address is None:
            return False
        opened = self._session._await_open()
        if opened is None:
            return False
        self._opened = opened
        try:
            first = self._open()
        except (bulk.Broken, TelegradError):
            return False  # the stream may go on
        with self._turn:
            if self._over is not None:
                first.close()
                return False
            if read:
                # What is downloaded waits for no other operation, so it may wait for another download.
                one = bulk.Mover(self._open, first, bulk.download)
                self._downloads = [one, bulk.Mover(self._open, None, bulk.download, beside=one)]
            else:
                self._upload = bulk.Mover(self._open, first, bulk.upload)
        return True

    def _open(self) -> bulk.BulkSocket:
        assert self._address is not None
        ticket = self._session.connection._call("AdmitBulk", messages.AdmitBulkRequest(
            token=self._opened.token, epoch=self._opened.epoch), self._session.connection.timeout)
        if self._session.connection.encrypted and not ticket.tls:
            raise bulk.Broken("the server's bulk sockets would carry in the clear what its connection encrypts")
        return bulk.BulkSocket(self._address, ticket, self._opened.epoch)

    def write(self, handle: int, offset: int, view: memoryview) -> None:
        """Returns when the bytes may change: of a short write at once, of a long one when the server has them."""
        copied = len(view) <= bulk.COPIED_BYTES
        finished = threading.Event()
        errors: list[TelegradError] = []

        def done(error: TelegradError | None) -> None:
            if error is not None:
                errors.append(error)
                self._session._abandon(error)  # no operation after it would begin
            finished.set()

        with self._turn:
            assert self._upload is not None
            self._last += 1
            self._session._submit(operations.write_beside(handle, offset, len(view), self._last))
            acknowledged = self._session._future(operations.acknowledge())
            job = bulk.Job(self._last, memoryview(bytes(view)) if copied else view, done, self._session._meter.move)
            acknowledged.add_done_callback(lambda _: job.end())
            self._upload.add(job)
        if not copied:
            finished.wait()
            if errors:
                raise errors[0]
            acknowledged.result()

    def read(self, handle: int, offset: int, sink: operations.Filled) -> Future[Array]:
        out: Future[Array] = Future()

        def done(error: TelegradError | None) -> None:
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                if error is not None:
                    out.set_exception(error)
                else:
                    out.set_result(sink.finish())
            self._reads.discard(out)

        def ready(answer: concurrent.futures.Future[Any]) -> None:
            error = answer.exception()
            if error is None:
                _Parts(transfer, sink.memory, done, self._session._meter.move).start(self._downloads)
            else:
                done(error if isinstance(error, TelegradError) else TelegradError(Code.INTERNAL, str(error)))

        with self._turn:
            self._last += 1
            transfer = self._last
            answer = self._session._future(
                operations.read_beside(handle, offset, len(sink.memory), transfer))
            self._reads.add(out)
        out.op_id = answer.op_id
        answer.add_done_callback(ready)
        return out

    def write_shared(self, handle: int, offset: int, memory: SharedArray) -> None:
        """Returns when the server has copied the bytes."""
        with self._turn:
            door = self._open_door()
            self._last += 1
            transfer = self._last
            self._session._submit(operations.write_beside(handle, offset, memory.nbytes, transfer))
            acknowledged = self._session._future(operations.acknowledge())
            try:
                self._show(door, "upload", transfer, memory)
            except TelegradError as error:
                self._session._abandon(error)  # no operation after it would begin
                raise
        acknowledged.result()

    def read_shared(self, handle: int, offset: int, memory: SharedArray) -> None:
        """Returns when the bytes are there."""
        with self._turn:
            door = self._open_door()
            self._last += 1
            transfer = self._last
            answer = self._session._future(operations.read_beside(handle, offset, memory.nbytes, transfer))
        answer.result()
        self._show(door, "download", transfer, memory)

    def _open_door(self) -> LocalDoor:
        if self._door is None:
            path = offered(self._session.connection.server)
            opened = self._session._await_open()
            if opened is None:
                raise TelegradError(Code.FAILED_PRECONDITION, "the session is not open")
            self._opened = opened
            self._door = LocalDoor(path)
        return self._door

    def _show(self, door: LocalDoor, verb: str, transfer: int, memory: SharedArray) -> None:
        door.ask(f"{verb} {self._opened.token.hex()} {self._opened.epoch} {transfer} 0 {memory.nbytes}", memory.fd)

    def finish(self, seconds: float) -> None:
        """Waits for the reads that were asked for."""
        concurrent.futures.wait(list(self._reads), seconds)

    def close(self) -> None:
        """The session is over."""
        with self._turn:
            self._over = TelegradError(Code.CANCELLED, "the session was ended")
            movers = self._downloads + ([] if self._upload is None else [self._upload])
            if self._door is not None:
                self._door.close()
        for mover in movers:
            mover.close(self._over)
