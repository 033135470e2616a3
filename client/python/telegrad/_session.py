"""What the blocking client's sessions have beside their stream: memory and runs.

`telegrad.session` adds graphs and models, whose programs use what is here.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence, TypeVar

from telegrad import _messages as messages
from telegrad import _operations as operations
from telegrad import _transport as transport
from telegrad import dtypes
from telegrad._beside import Beside
from telegrad._future import Future, Waited
from telegrad._operations import Operation
from telegrad._shared import SharedArray
from telegrad._stream_session import StreamSession
from telegrad.buffers import BufferBase, Handles, ProgramBase, handles_of, hash_of
from telegrad.dtypes import Array, DTypeLike
from telegrad.errors import Code, TelegradError, invalid

W = TypeVar("W", bound=Waited)


class Buffer(BufferBase):
    """A buffer of a session: flat memory on a device, seen as an array of a type and shape."""

    session: SessionBase

    def numpy(self, out: Array | None = None, timeout: float | None = None) -> Array:
        """Its content, as all operations before leave it; see Session.read."""
        return self.session.read(self, out=out, timeout=timeout)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __dlpack__(self, **named: Any) -> Any:
        """Its content for other libraries: a copy in this process."""
        return self.numpy().__dlpack__(**named)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # host memory

    def write(self, array: Any) -> None:
        self.session.write(self, array)

    def free(self) -> None:
        self.session.free(self)


class SessionBase(StreamSession):
    """Buffers and operations on a server. Thread-safe; those of one thread keep their order."""

    _next_handle = 1  # of a buffer

    # Memory.

    def alloc(self, nbytes: int, device: str = "") -> Buffer:
        """Zeroed bytes. `device` is a name of `Connection.devices`; empty: that of `connect`."""
        return self.empty((nbytes,), "u8", device)

    def empty(self, shape: Sequence[int], dtype: DTypeLike = "f32", device: str = "") -> Buffer:
        """A zeroed buffer for an array."""
        device = device or self.connection.device
        buffer = self._buffer(shape, dtypes.dtype(dtype), device)
        self._submit(operations.alloc(buffer.handle, buffer.nbytes, device))
        return buffer

    def _alloc_all(self, sizes: Sequence[int], device: str) -> list[Buffer]:
        """Zeroed bytes, several times, which are asked for together."""
        buffers = [self._buffer((nbytes,), dtypes.dtype("u8"), device) for nbytes in sizes]
        self._submit_all([(operations.alloc(buffer.handle, buffer.nbytes, device), None) for buffer in buffers])
        return buffers

    def upload(self, array: Any, dtype: DTypeLike | None = None, device: str = "") -> Buffer:
        """A buffer with the content of an array, which may change as soon as this returns."""
        values, kind = dtypes.as_array(array, dtype)
        buffer = self.empty(values.shape, kind, device)
        self._write(buffer, values)
        return buffer

    def open_file(self, device: str, path: str, shape: Sequence[int], dtype: DTypeLike = "u8",
                  offset: int = 0, mode: str = "read") -> Buffer:
        """A buffer that is a part of a file on one of the server's disk devices.

        `mode` is "read", "write" or "create"; writes to the buffer are writes to the file.
        """
        buffer = self._buffer(shape, dtypes.dtype(dtype), device)
        self._submit(operations.alloc_file(buffer.handle, buffer.nbytes, device, path, offset,
                                           mode))
        return buffer

    def write(self, buffer: Buffer, array: Any) -> None:
        """The content of an array of the buffer's shape, converted to its type."""
        values, _ = dtypes.as_array(array, buffer.dtype)
        buffer.check(values)
        self._write(buffer, values)

    def write_bytes(self, buffer: Buffer | int, offset: int, data: Any) -> None:
        """Bytes at an offset into a buffer."""
        operations.check_offset(offset, "write_bytes")
        view = memoryview(data).cast("B")
        handle = buffer if isinstance(buffer, int) else buffer.handle
        self._meter.ask(len(view))
        if self._bulk is not None and self._bulk.takes(len(view), read=False):
            return self._bulk.write(handle, offset, view)
        for operation in operations.write(handle, offset, view, self._chunk):
            self._submit(operation)
            self._meter.move(len(operation.request.data))

    def write_shared(self, buffer: Buffer, memory: SharedArray) -> None:
        """The content of shared memory, which the server copies itself; it may change once this returns."""
        buffer.check(memory.array)
        self._beside().write_shared(buffer.handle, 0, memory)

    def read_shared(self, buffer: Buffer, memory: SharedArray) -> None:
        """The buffer's content, which the server copies into shared memory."""
        buffer.check(memory.array)
        self._beside().read_shared(buffer.handle, 0, memory)

    def _beside(self) -> Beside:
        if self._bulk is None:
            raise TelegradError(Code.UNIMPLEMENTED, "a resumable session shares no memory")
        return self._bulk

    def read(self, buffer: Buffer, out: Array | None = None,
             timeout: float | None = None) -> Array:
        """The buffer as an array: a new one, or `out`, which is of its type and shape."""
        sink = dtypes.Sink(buffer.dtype, buffer.shape, out)
        array: Array = self._wait(self._read_into(buffer.handle, 0, sink, self._asked), timeout)
        return array

    def read_future(self, buffer: Buffer, out: Array | None = None) -> Future[Array]:
        sink = dtypes.Sink(buffer.dtype, buffer.shape, out)
        return self._read_into(buffer.handle, 0, sink, self._future)

    def read_bytes(self, buffer: Buffer | int, offset: int, nbytes: int,
                   timeout: float | None = None) -> Array:
        """A part of a buffer, as an array of uint8."""
        operations.check_offset(offset, "read_bytes")
        handle = buffer if isinstance(buffer, int) else buffer.handle
        sink = dtypes.Sink(dtypes.dtype("u8"), (nbytes,))
        array: Array = self._wait(self._read_into(handle, offset, sink, self._asked), timeout)
        return array

    def _read_into(self, handle: int, offset: int, sink: operations.Filled, ask: Callable[[Operation], W]) -> W | Future[Any]:
        here = self._read_here(handle, offset, sink)
        if here is not None:
            return ask(here)
        assert self._bulk is not None
        self._meter.ask(len(sink.memory))
        return self._bulk.read(handle, offset, sink)

    def _read_here(self, handle: int, offset: int, sink: operations.Filled) -> Operation | None:
        """The operation that reads on the session's stream; None for what travels beside it."""
        nbytes = len(sink.memory)
        if self._bulk is not None and self._bulk.takes(nbytes, read=True):
            return None
        self._meter.ask(nbytes)
        return operations.read(handle, offset, sink, self._meter.move)

    def free(self, *buffers: Buffer) -> None:
        """What uses them already still does."""
        if buffers:
            self._submit(operations.free(handles_of(buffers)))

    # Runs.

    def run(self, program: ProgramBase[Any] | bytes, handles: Handles = (),
            variables: Mapping[int, int] = {}, devices: Sequence[str] = (),
            timeout: float | None = None, trace: bool = False,
            offsets: Sequence[int] = (), search: bool = False) -> messages.RunResult:
        """Runs a graph, by its hash, with slot i bound to handles[i], and waits for its end.

        `offsets` are bytes: where slot i begins in its buffer, which may then be bound several times.
        `variables` by id; `devices` are the names of those that the graph's device numbers mean.
        `timeout`: a run that takes longer is ended on the server, too. `trace`: the result says
        what ran when. `search`: the server is to look for faster code of the run's kernels in the
        background, at the expense of the caller's tenant; FAILED_PRECONDITION where it does not search.
        """
        return self._wait_run(self._asked(self._run(program, handles, variables, devices, timeout, trace, offsets, search)),
                              timeout)

    def run_future(self, program: ProgramBase[Any] | bytes, handles: Handles = (),
                   variables: Mapping[int, int] = {}, devices: Sequence[str] = (),
                   timeout: float | None = None, trace: bool = False,
                   offsets: Sequence[int] = (), search: bool = False) -> Future[messages.RunResult]:
        return self._future(self._run(program, handles, variables, devices, timeout, trace, offsets, search))

    def _run(self, program: ProgramBase[Any] | bytes, handles: Handles, variables: Mapping[int, int], devices: Sequence[str],
             timeout: float | None, trace: bool, offsets: Sequence[int], search: bool) -> Operation:
        return operations.run(hash_of(program), handles_of(handles), variables, devices, timeout, trace=trace,
                              offsets=transport.offsets_for(self.connection, offsets),
                              search=transport.check_search(self.connection, search))

    def launch(self, program: ProgramBase[Any] | bytes, handles: Handles = (),
               variables: Mapping[int, int] = {}, devices: Sequence[str] = (),
               offsets: Sequence[int] = ()) -> None:
        """The same without waiting, nor an answer unless it fails."""
        self._submit(operations.run(
            hash_of(program), handles_of(handles), variables, devices, None, quiet=True,
            offsets=transport.offsets_for(self.connection, offsets)))

    def cancel(self, future: Future[Any]) -> None:
        """Ends an operation where it has not ended: its future gets CANCELLED."""
        self._submit(operations.cancel(future.op_id, future.op_id))

    def _buffer(self, shape: Sequence[int], kind: dtypes.DType, device: str) -> Buffer:
        if any(size < 0 for size in shape):
            raise invalid(f"a buffer of {list(shape)}")
        with self._lock:
            handle = self._next_handle
            self._next_handle += 1
        return Buffer(self, handle, shape, kind, device)

    @property
    def _chunk(self) -> int:
        return self.connection.server.chunk_bytes

    def _write(self, buffer: Buffer, values: Array) -> None:
        self.write_bytes(buffer, 0, dtypes.to_bytes(values, buffer.dtype))
