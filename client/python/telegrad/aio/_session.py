"""What the asyncio client's sessions are made of: the stream and its tasks, memory, runs.

`telegrad.aio.session` adds graphs and models, whose programs use what is here.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Callable, Mapping, NamedTuple, Sequence, TypeVar

import grpc
import numpy as np

from telegrad import _messages as messages
from telegrad import _operations as operations
from telegrad import _transport as transport
from telegrad import credentials, dtypes
from telegrad._core import Completion, SessionCore, tell
from telegrad._operations import Operation
from telegrad.aio._channel import Channel
from telegrad.buffers import BufferBase, Handles, ProgramBase, handles_of, hash_of
from telegrad.dtypes import Array, DTypeLike
from telegrad.errors import Code, TelegradError, error_of, invalid

S = TypeVar("S", bound="SessionBase")

class Buffer(BufferBase):
    """A buffer of a session: flat memory on a device, seen as an array of a type and shape."""

    session: SessionBase

    async def numpy(self, out: Array | None = None, timeout: float | None = None) -> Array:
        """Its content, as all operations before leave it; see Session.read."""
        return await self.session.read(self, out=out, timeout=timeout)

    async def write(self, array: Any) -> None:
        await self.session.write(self, array)

    async def free(self) -> None:
        await self.session.free(self)


class _Begun(NamedTuple):
    """An operation that is on its way."""

    name: str
    op_id: int
    future: asyncio.Future[Any]


class SessionBase:
    """Buffers and operations on a server; see telegrad.Session. Of one event loop."""

    def __init__(self, connection: Channel, *, resumable: bool = False,
                 lease: float | None = None, timeout: float | None = None,
                 ended: Callable[[SessionBase], None] = lambda session: None) -> None:
        """`ended` is told when nothing can be asked of it any more."""
        self.connection, self.timeout = connection, timeout
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._core: SessionCore[asyncio.Future[Any]] = SessionCore(
            address=connection.address, client=transport.CLIENT,
            protocol=connection.server.protocol, resumable=resumable, lease=lease,
            new_future=self._loop.create_future)
        self._turn = asyncio.Lock()  # first come, first served
        self._room, self._work = asyncio.Event(), asyncio.Event()
        self._next_handle = 1
        self._aborted = False
        self._task = self._loop.create_task(self._serve())

    # Memory.

    async def alloc(self, nbytes: int, device: str = "") -> Buffer:
        """Zeroed bytes. `device` is a name of `Connection.devices`; empty: that of `connect`."""
        return await self.empty((nbytes,), "u8", device)

    async def empty(self, shape: Sequence[int], dtype: DTypeLike = "f32",
                    device: str = "") -> Buffer:
        """A zeroed buffer for an array."""
        device = device or self.connection.device
        buffer = self._buffer(shape, dtypes.dtype(dtype), device)
        await self._submit(operations.alloc(buffer.handle, buffer.nbytes, device))
        return buffer

    async def upload(self, array: Any, dtype: DTypeLike | None = None, device: str = "") -> Buffer:
        """A buffer with the content of an array, which may change as soon as this returns."""
        values, kind = dtypes.as_array(array, dtype)
        buffer = await self.empty(values.shape, kind, device)
        await self._write(buffer, values)
        return buffer

    async def open_file(self, device: str, path: str, shape: Sequence[int],
                        dtype: DTypeLike = "u8", offset: int = 0, mode: str = "read") -> Buffer:
        """A buffer that is a part of a file of the server's; see telegrad.Session.open_file."""
        buffer = self._buffer(shape, dtypes.dtype(dtype), device)
        await self._submit(operations.alloc_file(buffer.handle, buffer.nbytes, device, path, offset,
                                                 mode))
        return buffer

    async def write(self, buffer: Buffer, array: Any) -> None:
        """The content of an array of the buffer's shape, converted to its type."""
        values, _ = dtypes.as_array(array, buffer.dtype)
        buffer.check(values)
        await self._write(buffer, values)

    async def write_bytes(self, buffer: Buffer | int, offset: int, data: Any) -> None:
        """Bytes at an offset into a buffer."""
        operations.check_offset(offset, "write_bytes")
        view = memoryview(data).cast("B")
        handle = buffer if isinstance(buffer, int) else buffer.handle
        for operation in operations.write(handle, offset, view,
                                          self.connection.server.chunk_bytes):
            await self._submit(operation)

    async def read(self, buffer: Buffer, out: Array | None = None,
                   timeout: float | None = None) -> Array:
        """The buffer as an array: a new one, or `out`, which is of its type and shape."""
        array: Array = await self._finish(await self._begin_read(buffer, out), timeout)
        return array

    async def _begin_read(self, buffer: Buffer, out: Array | None = None) -> _Begun:
        sink = dtypes.Sink(buffer.dtype, buffer.shape, out)
        return await self._begin(operations.read(buffer.handle, 0, sink))

    async def read_bytes(self, buffer: Buffer | int, offset: int, nbytes: int,
                         timeout: float | None = None) -> Array:
        """A part of a buffer, as an array of uint8."""
        operations.check_offset(offset, "read_bytes")
        handle = buffer if isinstance(buffer, int) else buffer.handle
        sink = dtypes.Sink(dtypes.dtype("u8"), (nbytes,))
        part: Array = await self._answer(operations.read(handle, offset, sink), timeout)
        return part

    async def free(self, *buffers: Buffer) -> None:
        """What uses them already still does."""
        if buffers:
            await self._submit(operations.free(handles_of(buffers)))

    # Runs.

    async def run(self, program: ProgramBase[Any] | bytes, handles: Handles = (),
                  variables: Mapping[int, int] = {}, devices: Sequence[str] = (),
                  timeout: float | None = None, trace: bool = False,
                  offsets: Sequence[int] = ()) -> messages.RunResult:
        """Runs a graph with slot i bound to handles[i]; see telegrad.Session.run."""
        begun = await self._begin_run(program, handles, variables, devices, timeout, trace, offsets)
        return await self._finish_run(begun, timeout)

    async def _begin_run(self, program: ProgramBase[Any] | bytes, handles: Handles,
                         variables: Mapping[int, int], devices: Sequence[str],
                         timeout: float | None, trace: bool,
                         offsets: Sequence[int] = ()) -> _Begun:
        return await self._begin(operations.run(
            hash_of(program), handles_of(handles), variables, devices, timeout, trace=trace,
            offsets=transport.offsets_for(self.connection, offsets)))

    async def _finish_run(self, begun: _Begun, timeout: float | None) -> messages.RunResult:
        # The server's own answer to a timeout comes first where it can.
        result: messages.RunResult = await self._finish(
            begun, timeout if timeout is None else timeout + 1.0)
        return result

    async def launch(self, program: ProgramBase[Any] | bytes, handles: Handles = (),
                     variables: Mapping[int, int] = {}, devices: Sequence[str] = (),
                     offsets: Sequence[int] = ()) -> None:
        """The same without waiting, nor an answer unless it fails."""
        await self._submit(operations.run(
            hash_of(program), handles_of(handles), variables, devices, None, quiet=True,
            offsets=transport.offsets_for(self.connection, offsets)))

    async def sync(self, timeout: float | None = None) -> None:
        """Waits until everything before has taken effect.

        Raises the first error of an operation that had no answer of its own, once.
        """
        await self._answer(operations.sync(), timeout)

    @property
    def resumed(self) -> int:
        """How often a resumable session was taken up again after its connection broke."""
        return self._core.resumed

    async def close(self, timeout: float | None = None) -> None:
        """Ends the session when everything asked for is done; see telegrad.Session.close."""
        self._core.close()
        self._work.set()
        wait = self.connection.timeout if timeout is None else timeout
        await asyncio.wait([self._task], timeout=wait)
        late = not self._task.done()
        await self._abort()
        if late:
            raise TelegradError(Code.DEADLINE_EXCEEDED, "the session was ended with work under way")
        error = self._core.take_error()
        if error is not None:
            raise error

    async def __aenter__(self: S) -> S:
        return self

    async def __aexit__(self, kind: object, *error: object) -> None:
        if kind is None:
            await self.close()
        else:
            await self._abort()

    def __repr__(self) -> str:
        return f"<Session {self._core.opened.session} with {self.connection.address}: " \
               f"{self._core.state.value}>"

    def _buffer(self, shape: Sequence[int], kind: dtypes.DType, device: str) -> Buffer:
        if any(size < 0 for size in shape):
            raise invalid(f"a buffer of {list(shape)}")
        self._next_handle += 1
        return Buffer(self, self._next_handle - 1, shape, kind, device)

    async def _write(self, buffer: Buffer, values: Array) -> None:
        await self.write_bytes(buffer, 0, dtypes.to_bytes(values, buffer.dtype))

    async def _submit(self, operation: Operation) -> tuple[int, asyncio.Future[Any] | None]:
        async with self._turn:
            if self._core.is_ahead:
                await asyncio.sleep(0)
            while not self._core.has_room:
                self._room.clear()
                try:
                    await asyncio.wait_for(self._room.wait(), self.timeout)
                except asyncio.TimeoutError:
                    raise transport.no_room_error(self.timeout, operation.name) from None
            submitted = self._core.submit(operation)
        self._work.set()
        return submitted

    async def _begin(self, operation: Operation) -> _Begun:
        """Sends an operation that is answered."""
        op_id, future = await self._submit(operation)
        assert future is not None
        return _Begun(operation.name, op_id, future)

    async def _finish(self, begun: _Begun, timeout: float | None) -> Any:
        """Waits for its answer."""
        wait = self.timeout if timeout is None else timeout
        try:
            return await asyncio.wait_for(begun.future, wait)
        except asyncio.TimeoutError:
            raise TelegradError(Code.DEADLINE_EXCEEDED, f"no answer within {wait} s",
                                operation=begun.name, op_id=begun.op_id) from None
        except asyncio.CancelledError:
            if begun.name == "run":
                with contextlib.suppress(TelegradError):
                    self._core.submit(operations.cancel(begun.op_id, begun.op_id))
                    self._work.set()
            raise

    async def _answer(self, operation: Operation, timeout: float | None) -> Any:
        return await self._finish(await self._begin(operation), timeout)

    # The stream: one task reads, another writes.

    async def _serve(self) -> None:
        try:
            await self._streams()
            done: list[Completion] = []
        except Exception as error:  # such as that a token's file is gone
            done = self._core.end(error_of(error))
        self._tell(done)
        self._ended(self)

    async def _streams(self) -> None:
        """One stream after another, until the session has ended."""
        broken_since: float | None = None
        while True:
            self._core.start_stream()
            resumed = self._core.resumed
            call = self.connection._channel.stream_stream(transport.EXECUTE)(
                metadata=credentials.metadata(self.connection._token))
            writer = self._loop.create_task(self._write_messages(call))
            try:
                code, details = await self._read(call)
            finally:
                writer.cancel()
                call.cancel()
                await asyncio.wait([writer])
            now = self._loop.time()
            if broken_since is None or self._core.resumed > resumed:
                broken_since = now
            delay, done = self._core.stream_ended(code, details, now - broken_since)
            self._tell(done)
            if delay is None:
                return
            await asyncio.sleep(delay)

    async def _read(self, call: Any) -> tuple[int, str]:
        """Takes messages until the stream ends; its code and why."""
        try:
            async for data in call:
                self._tell(self._core.receive(data))
            code, details = await call.code(), await call.details()
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
        except Exception as error:  # a violation of the protocol, or no memory for what came
            self._tell(self._core.end(error_of(error)))
            return Code.CANCELLED, ""
        return code.value[0], details or ""

    async def _write_messages(self, call: Any) -> None:
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):  # the reader hears why
            while True:
                message = self._core.next_message()
                if message is not None:
                    self._room.set()
                    await call.write(message)
                elif self._core.finished:
                    await call.done_writing()
                    return
                else:
                    self._work.clear()
                    try:
                        await asyncio.wait_for(self._work.wait(), self._core.idle_seconds)
                    except asyncio.TimeoutError:
                        idle = self._core.idle_message()
                        if idle is not None:
                            await call.write(idle)

    def _tell(self, completions: list[Completion]) -> None:
        tell(completions)
        self._room.set()
        self._work.set()  # answers to acknowledge, or a session that is open now

    async def _abort(self) -> None:
        """Ends the session now; what is under way is dropped."""
        close = self._core.close_request()
        self._tell(self._core.end(TelegradError(Code.CANCELLED, "the session was ended")))
        self._task.cancel()
        await asyncio.wait([self._task])
        self._ended(self)
        if close is not None:
            with contextlib.suppress(TelegradError):  # the server may be gone, or have ended it
                await self.connection._call("Close", close, min(self.connection.timeout, 1.0))
