"""The asyncio client: the same methods as `telegrad.client`, to be awaited.

    async with await telegrad.aio.connect("127.0.0.1:50055") as connection:
        async with connection.session() as session:
            x = await session.upload(np.arange(4, dtype=np.float32))
            print(await x.numpy())

Operations take effect in the order in which their coroutines first run, so what is gathered is sent
without waiting for answers in between. Methods without an answer (upload, write, free, launch) wait
only until there is room to send. A run whose task is cancelled is cancelled on the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any, Coroutine, Mapping, Sequence

import grpc
import grpc.aio
import numpy as np

from telegrad import _messages as messages
from telegrad import _operations as operations
from telegrad import _transport as transport
from telegrad import buffers, dtypes
from telegrad._core import Completion, SessionCore
from telegrad._operations import Operation, Violation
from telegrad._transport import TLS, Token
from telegrad.buffers import MAX_INLINE_MODEL, BufferBase, Handles, ProgramBase, handles_of
from telegrad.dtypes import Array, DTypeLike
from telegrad.errors import Code, TelegradError, invalid
from telegrad.graph import Graph


async def connect(address: str | None = None, *, tls: TLS | None = None, token: Token = None,
                  timeout: float = 10.0) -> Connection:
    """See telegrad.connect."""
    connection = Connection(address, tls=tls, token=token, timeout=timeout)
    try:
        hello = await connection._call("Hello", transport.hello_request(), timeout)
        connection.server = transport.check_hello(hello, connection.address)
    except BaseException:
        await connection._channel.close()
        raise
    return connection


class Connection:
    """A server, with which versions were agreed; made by `connect`."""

    server: messages.HelloResponse

    def __init__(self, address: str | None, *, tls: TLS | None, token: Token,
                 timeout: float) -> None:
        self.address = transport.address_of(address)
        self.timeout = timeout
        transport.check_token(self.address, tls, token)
        self._token = token
        self._sessions: set[Session] = set()
        options = transport.options_of(tls)
        self._channel = (grpc.aio.insecure_channel(self.address, options) if tls is None else
                         grpc.aio.secure_channel(self.address, tls.credentials(), options))

    async def devices(self) -> list[messages.Device]:
        """The server's devices: name, target, memory, health."""
        response = await self._call("ListDevices", messages.ListDevicesRequest(), self.timeout)
        devices: list[messages.Device] = response.devices
        return devices

    async def stats(self) -> dict[str, float]:
        """The server's counters since its start, by the names of its metrics page."""
        response = await self._call("Stats", messages.StatsRequest(), self.timeout)
        return {entry.key: entry.value for entry in response.values}

    def session(self, *, resumable: bool = False, timeout: float | None = None) -> Session:
        """A new session; see telegrad.Connection.session."""
        session = Session(self, resumable=resumable, timeout=timeout)
        self._sessions.add(session)
        return session

    async def close(self) -> None:
        """Ends its sessions at once."""
        for session in list(self._sessions):
            await session._abort()
        await self._channel.close()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Connection to {self.address}>"

    async def _call(self, name: str, request: Any, timeout: float) -> Any:
        try:
            data = await self._channel.unary_unary(transport.session_method(name))(
                request.encode(), timeout=timeout, metadata=transport.metadata_of(self._token))
        except grpc.RpcError as error:
            raise transport.to_error(self.address, error.code(), error.details()) from None
        return transport.decode_answer(name, data)


class Buffer(BufferBase):
    """A buffer of a session: flat memory on a device, seen as an array of a type and shape."""

    session: Session

    async def numpy(self, out: Array | None = None, timeout: float | None = None) -> Array:
        """Its content, as all operations before leave it; see Session.read."""
        return await self.session.read(self, out=out, timeout=timeout)

    async def write(self, array: Any) -> None:
        await self.session.write(self, array)

    async def free(self) -> None:
        await self.session.free(self)


class Session:
    """Buffers and operations on a server; see telegrad.Session. Of one event loop."""

    def __init__(self, connection: Connection, *, resumable: bool = False,
                 timeout: float | None = None) -> None:
        self.connection, self.timeout = connection, timeout
        self._loop = asyncio.get_running_loop()
        self._core: SessionCore[asyncio.Future[Any]] = SessionCore(
            address=connection.address, client=transport.CLIENT,
            protocol=connection.server.protocol, resumable=resumable,
            new_future=self._loop.create_future)
        self._turn = asyncio.Lock()  # first come, first served
        self._room, self._work = asyncio.Event(), asyncio.Event()
        self._next_handle = 1
        self._imports = 0
        self._aborted = False
        self._task = self._loop.create_task(self._serve())

    # Memory.

    async def alloc(self, nbytes: int, device: str = "") -> Buffer:
        """Zeroed bytes. `device` is a name of `Connection.devices`; empty: the server's first."""
        return await self.empty((nbytes,), "u8", device)

    async def empty(self, shape: Sequence[int], dtype: DTypeLike = "f32",
                    device: str = "") -> Buffer:
        """A zeroed buffer for an array."""
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
        view = memoryview(data).cast("B")
        handle = buffer if isinstance(buffer, int) else buffer.handle
        for operation in operations.write(handle, offset, view,
                                          self.connection.server.chunk_bytes):
            await self._submit(operation)

    async def read(self, buffer: Buffer, out: Array | None = None,
                   timeout: float | None = None) -> Array:
        """The buffer as an array: a new one, or `out`, which is of its type and shape."""
        sink = dtypes.Sink(buffer.dtype, buffer.shape, out)
        array: Array = await self._answer(operations.read(buffer.handle, 0, sink), timeout)
        return array

    async def free(self, *buffers: Buffer) -> None:
        """What uses them already still does."""
        if buffers:
            await self._submit(operations.free(handles_of(buffers)))

    # Graphs.

    async def has(self, digest: bytes, timeout: float | None = None) -> bool:
        """Whether this client has put the graph with this hash."""
        there: bool = await self._answer(operations.has(digest), timeout)
        return there

    async def put(self, graph: Graph | bytes, compile: bool = False,
                  timeout: float | None = None) -> Program:
        """Sends a graph, a Graph or its serialized form. `compile`: now, and not at the first run."""
        slots, variables = buffers.slots_of(graph)
        digest = await self._answer(operations.put(buffers.serialized(graph), compile), timeout)
        return Program(self, digest, slots, variables)

    async def run(self, program: Program | bytes, handles: Handles = (),
                  variables: Mapping[int, int] = {}, devices: Sequence[str] = (),
                  timeout: float | None = None, trace: bool = False) -> messages.RunResult:
        """Runs a graph with slot i bound to handles[i]; see telegrad.Session.run."""
        # The server's own answer to a timeout comes first where it can.
        result: messages.RunResult = await self._answer(
            operations.run(_hash(program), handles_of(handles), variables, devices, timeout,
                           trace=trace), timeout if timeout is None else timeout + 1.0)
        return result

    async def launch(self, program: Program | bytes, handles: Handles = (),
                     variables: Mapping[int, int] = {}, devices: Sequence[str] = ()) -> None:
        """The same without waiting, nor an answer unless it fails."""
        await self._submit(operations.run(_hash(program), handles_of(handles), variables, devices,
                                          None, quiet=True))

    async def import_model(self, model: bytes | str | os.PathLike[str], format: str = "onnx", *,
                           input_shapes: Mapping[str, Sequence[int]] = {},
                           dims: Mapping[str, int] = {}, device: str = "", compile: bool = False,
                           timeout: float | None = None) -> Program:
        """A model file, read by the server; see telegrad.Session.import_model."""
        data = model if isinstance(model, bytes) else transport.read_file(model)
        first = buffers.handles_beyond(self._imports)
        self._imports += 1
        file = None
        if len(data) > MAX_INLINE_MODEL:
            file = await self.upload(np.frombuffer(data, np.uint8))
        result = await self._answer(operations.import_model(
            data, file, format, first, device, input_shapes, dims, compile), timeout)
        if file is not None:
            await file.free()
        slots, weights, aliases = buffers.imported(result, lambda slot: Buffer(
            self, slot.handle, slot.dims, dtypes.from_wire(slot.dtype), device))
        program = Program(self, result.hash, slots, aliases=aliases)
        program.buffers.update(weights)
        return program

    # Order and the end.

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

    async def __aenter__(self) -> Session:
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
                await self._room.wait()
            submitted = self._core.submit(operation)
        self._work.set()
        return submitted

    async def _answer(self, operation: Operation, timeout: float | None) -> Any:
        op_id, future = await self._submit(operation)
        assert future is not None
        wait = self.timeout if timeout is None else timeout
        try:
            return await asyncio.wait_for(future, wait)
        except asyncio.TimeoutError:
            raise TelegradError(Code.DEADLINE_EXCEEDED, f"no answer within {wait} s",
                                operation=operation.name, op_id=op_id) from None
        except asyncio.CancelledError:
            if operation.name == "run":
                with contextlib.suppress(TelegradError):
                    self._core.submit(operations.cancel(op_id, op_id))
                    self._work.set()
            raise

    # The stream: one task reads, another writes.

    async def _serve(self) -> None:
        try:
            await self._streams()
            done: list[Completion] = []
        except Exception as error:  # such as a token's file that is gone
            done = self._core.end(TelegradError(Code.INTERNAL, f"{type(error).__name__}: {error}"))
        self._tell(done)
        self.connection._sessions.discard(self)

    async def _streams(self) -> None:
        """One stream after another, until the session is over."""
        broken_since: float | None = None
        while True:
            self._core.start_stream()
            resumed = self._core.resumed
            call = self.connection._channel.stream_stream(transport.EXECUTE)(
                metadata=transport.metadata_of(self.connection._token))
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
        except Violation as violation:
            self._tell(self._core.end(violation))
            return violation.code, violation.message
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
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
        for completion in completions:
            completion.tell()
        self._room.set()
        self._work.set()  # answers to acknowledge, or a session that is open now

    async def _abort(self) -> None:
        """Ends the session now; what is under way is dropped."""
        close = self._core.close_request()
        self._tell(self._core.end(TelegradError(Code.CANCELLED, "the session was ended")))
        self._task.cancel()
        await asyncio.wait([self._task])
        self.connection._sessions.discard(self)
        if close is not None:
            with contextlib.suppress(TelegradError):  # the server may be gone, or have ended it
                await self.connection._call("Close", close, min(self.connection.timeout, 1.0))


def _hash(program: Program | bytes) -> bytes:
    return program if isinstance(program, bytes) else program.hash


class Program(ProgramBase[Buffer]):
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
        if isinstance(value, Buffer):
            self.bind(name, value)
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
