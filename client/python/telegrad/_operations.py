"""The operations of a session: what each sends, and what its answer means."""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Protocol, Sequence

import numpy as np

from telegrad import _messages as messages
from telegrad import dtypes
from telegrad._wire import encode_varint
from telegrad.buffers import BufferBase
from telegrad.errors import Code, TelegradError, invalid

Take = Callable[[messages.ExecuteResponse], tuple[bool, Any]]
HASH_BYTES = 32


class Filled(Protocol):
    """What is read goes into `memory`; `finish` makes of it what the reader wants."""

    @property
    def memory(self) -> memoryview: ...
    def finish(self) -> Any: ...


class Violation(TelegradError):
    """The server broke the protocol."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.INTERNAL, message)


class Operation(NamedTuple):
    """`take` says whether an answer is complete, and its value; None: no caller waits for one."""

    name: str
    request: messages.ExecuteRequest
    take: Take | None = None
    body: bytes | None = None  # the request without its id, encoded, where that is known already
    answer: bytes | None = None  # what the answer most likely has between its id and the bytes that `take.whole` takes


def alloc(handle: int, nbytes: int, device: str) -> Operation:
    # A step of training has hundreds, of a few sizes.
    body = _ALLOC_HANDLE + encode_varint(handle) + _body(_alloc_body, max(nbytes, 1), device)  # servers give no empty buffers
    return Operation("alloc", _NOTHING, None, _ALLOC + encode_varint(len(body)) + body)


_MODES = {"read": messages.FileMode.FILE_MODE_READ, "write": messages.FileMode.FILE_MODE_WRITE,
          "create": messages.FileMode.FILE_MODE_CREATE}


def alloc_file(handle: int, nbytes: int, device: str, path: str, offset: int,
               mode: str) -> Operation:
    if mode not in _MODES:
        raise invalid(f"there is no mode {mode!r}; there are {', '.join(_MODES)}")
    if not path:
        raise invalid("a file needs a path")
    return Operation("alloc", messages.ExecuteRequest(alloc=messages.Alloc(
        handle=handle, bytes=nbytes, device=device, path=path, file_offset=offset,
        mode=_MODES[mode])))


def copy(source: int, start: int, target: int, at: int, nbytes: int) -> Operation:
    """Bytes of a buffer, from `start` on, into another one, from `at` on."""
    return Operation("copy", messages.ExecuteRequest(copy=messages.Copy(
        from_=source, from_offset=start, to=target, to_offset=at, bytes=nbytes)))


def free(handles: Sequence[int]) -> Operation:
    return Operation("free", messages.ExecuteRequest(free=messages.Free(handles=list(handles))))


def write(handle: int, offset: int, data: memoryview, chunk: int) -> Iterator[Operation]:
    """One message for each chunk, made when it is asked for."""
    for at in range(0, len(data), chunk):
        yield Operation("write", messages.ExecuteRequest(
            write=messages.Write(handle=handle, offset=offset + at), data=data[at:at + chunk]))


_NOTHING = messages.ExecuteRequest()  # in place of a request whose body is encoded
_BODIES = 256  # that are kept: a program that repeats something sends the same again and again
_ALLOC, _ALLOC_HANDLE = (encode_varint(tag) for tag in (messages.ExecuteRequest.tag("alloc"), messages.Alloc.tag("handle")))


@functools.lru_cache(_BODIES)
def _alloc_body(nbytes: int, device: str) -> bytes:
    """All but the handle."""
    return messages.Alloc(bytes=nbytes, device=device).encode()


def check_offset(offset: int, what: str) -> None:
    if offset < 0:
        raise invalid(f"{what}: offset {offset} is before the buffer's first byte")


def read(handle: int, offset: int, sink: Filled, moved: Callable[[int], None] = lambda nbytes: None) -> Operation:
    """`moved` is told how many bytes have arrived, once all have."""
    nbytes = len(sink.memory)
    return Operation("read", _NOTHING, Reader(offset, sink, moved), _body(_read_body, handle, offset, nbytes),
                     _read_answer(offset, nbytes))


def _body(make: Callable[..., bytes], *args: Any) -> bytes:
    try:
        return make(*args)
    except ValueError as error:  # a number that is none of its field's
        raise invalid(str(error)) from None


@functools.lru_cache(_BODIES)
def _read_body(handle: int, offset: int, nbytes: int) -> bytes:
    return messages.ExecuteRequest(read=messages.Read(handle=handle, offset=offset, bytes=nbytes)).encode()


@functools.lru_cache(_BODIES)
def _read_answer(offset: int, nbytes: int) -> bytes | None:
    """That of a read whose bytes are all in one message; None where there are none."""
    if not nbytes:
        return None
    head = messages.ExecuteResponse(read=messages.ReadChunk(offset=offset, last=True)).encode()
    return head + encode_varint(messages.ExecuteResponse.tag("data")) + encode_varint(nbytes)


class Reader:
    """Chunks in order; a repeated answer begins anew."""

    def __init__(self, offset: int, sink: Filled, moved: Callable[[int], None]) -> None:
        self.offset, self.sink, self.moved, self.at = offset, sink, moved, 0

    def __call__(self, response: messages.ExecuteResponse) -> tuple[bool, Any]:
        chunk, memory = _result(response.read, "read"), self.sink.memory
        size, begin = len(response.data), chunk.offset - self.offset
        if begin == 0:
            self.at = 0
        at, whole = self.at, len(memory)
        if begin != at or size > whole - at:
            raise Violation(f"a chunk of {size} bytes at {chunk.offset}, expected at most {whole - at} at {self.offset + at}")
        memory[at:at + size] = response.data
        self.at = at + size
        if not chunk.last:
            if size == 0:
                raise Violation("a chunk of a read is empty")
            return False, None
        if self.at != whole:
            raise Violation(f"a read ended after {self.at} of {whole} bytes")
        self.moved(whole)
        return True, self.sink.finish()

    def whole(self, data: memoryview) -> Any:
        """The same of all bytes at once, so many as there were to be."""
        self.sink.memory[:] = data
        self.moved(len(data))
        return self.sink.finish()


def write_beside(handle: int, offset: int, nbytes: int, transfer: int) -> Operation:
    """Of bytes that travel over bulk sockets."""
    return Operation("write", messages.ExecuteRequest(write=messages.Write(
        handle=handle, offset=offset, bytes=nbytes, transfer=transfer)))


def read_beside(handle: int, offset: int, nbytes: int, transfer: int) -> Operation:
    """Answered when the bytes are ready to be asked for."""
    def take(response: messages.ExecuteResponse) -> tuple[bool, Any]:
        if not _result(response.read, "read").last or response.data:
            raise Violation("a read of a transfer is answered with bytes")
        return True, None

    return Operation("read", messages.ExecuteRequest(read=messages.Read(
        handle=handle, offset=offset, bytes=nbytes, transfer=transfer)), take)


def has(digest: bytes) -> Operation:
    return Operation("has", messages.ExecuteRequest(has=messages.Has(hash=digest)),
                     lambda response: (True, _result(response.has, "has").has))


def put(graph: bytes, compile: bool, device: str) -> Operation:
    devices = [device] if compile and device else []
    return Operation("put", messages.ExecuteRequest(put=messages.Put(compile=compile, devices=devices), data=graph),
                     lambda response: (True, _digest(_result(response.put, "put").hash)))


def run(digest: bytes, handles: Sequence[int], variables: Mapping[int, int],
        devices: Sequence[str], timeout: float | None, *, quiet: bool = False,
        trace: bool = False, offsets: Sequence[int] = (), search: bool = False) -> Operation:
    body = _body(_run_body, digest, tuple(handles), tuple(variables.items()), tuple(devices), timeout, quiet, trace,
                 tuple(offsets), search)
    return Operation("run", _NOTHING, None if quiet else _take_run, body)


def _take_run(response: messages.ExecuteResponse) -> tuple[bool, Any]:
    return True, _result(response.run, "run")


@functools.lru_cache(_BODIES)
def _run_body(digest: bytes, handles: tuple[int, ...], variables: tuple[tuple[int, int], ...], devices: tuple[str, ...],
              timeout: float | None, quiet: bool, trace: bool, offsets: tuple[int, ...], search: bool) -> bytes:
    return messages.ExecuteRequest(run=messages.Run(
        hash=digest, handles=list(handles), quiet=quiet, trace=trace, devices=list(devices), offsets=list(offsets),
        variables=[messages.Variable(id=i, value=v) for i, v in variables], search=search,
        timeout_ms=0 if timeout is None else min(max(round(timeout * 1000), 1), (1 << 32) - 1))).encode()


def sync() -> Operation:
    return Operation("sync", messages.ExecuteRequest(sync=messages.Sync()),
                     lambda response: (True, None))


def acknowledge() -> Operation:
    """The same, and errors of operations without an answer of their own wait for the next sync."""
    return sync()._replace(name="acknowledge")


def cancel(first: int, last: int) -> Operation:
    return Operation("cancel", messages.ExecuteRequest(cancel=messages.Cancel(first, last)))


def import_model(model: bytes, file: BufferBase | None, format: str, first_handle: int,
                 device: str, input_shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int],
                 values: Mapping[str, Any], compile: bool) -> Operation:
    """`file`: a buffer that holds the model, which then does not travel with the operation."""
    request = messages.Import(
        format=format, first_handle=first_handle, device=device, compile=compile,
        input_shapes=[messages.ShapeEntry(key=name, value=messages.Dims(dims=list(shape)))
                      for name, shape in input_shapes.items()],
        dims=[messages.DimEntry(key=name, value=size) for name, size in dims.items()],
        values=[messages.ValueEntry(key=name, value=_model_value(value))
                for name, value in values.items()])
    if file is not None:
        request.handle, request.bytes = file.handle, len(model)
    return Operation("import", messages.ExecuteRequest(
        import_=request, data=b"" if file is not None else model), _imported)


def _model_value(value: Any) -> messages.ModelValue:
    """What is bound to an input: an array, strings, a list of such, or None."""
    if isinstance(value, (list, tuple)):
        return messages.ModelValue(sequence=True, elements=[_model_element(v) for v in value])
    return messages.ModelValue(elements=[_model_element(value)])


def _model_element(value: Any) -> messages.ModelElement:
    if value is None:
        return messages.ModelElement(kind=messages.ModelElementKind.NOTHING)
    array = np.asarray(value)
    if array.dtype.kind in "OSU":
        return messages.ModelElement(
            kind=messages.ModelElementKind.STRINGS, dims=list(array.shape),
            strings=[s if isinstance(s, bytes) else str(s).encode() for s in array.flat])
    array, kind = dtypes.as_array(value)
    return messages.ModelElement(dtype=kind.wire, dims=list(array.shape),
                                 data=bytes(dtypes.to_bytes(array, kind)))


def _imported(response: messages.ExecuteResponse) -> tuple[bool, messages.ImportResult]:
    result = _result(response.import_, "import")
    _digest(result.hash)
    return True, result


def _result(result: Any, name: str) -> Any:
    if result is None:
        raise Violation(f"the answer to a {name} has no result of its kind")
    return result


def _digest(digest: bytes) -> bytes:
    if len(digest) != HASH_BYTES:
        raise Violation(f"a hash of {len(digest)} bytes, expected {HASH_BYTES}")
    return digest
