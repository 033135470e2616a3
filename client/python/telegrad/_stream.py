"""A gRPC stream over an HTTP/2 connection of its own: messages in both directions, and the status of its end.

The protocol is https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md. A session's stream is of this kind where its
connection is not encrypted (`reaches`); under TLS, and for what has to connect again, it is grpcio's.
"""

from __future__ import annotations

import socket
import struct
from typing import Callable, NamedTuple, Sequence
from urllib.parse import unquote

from telegrad import _hpack as hpack
from telegrad import _http2 as http2
from telegrad._http2 import Frames, Lost
from telegrad.errors import Code

_PREFIX = struct.Struct(">BI")  # whether it is compressed, and its length
_SHORT = 4096  # a message that is copied behind its prefix
_MOST_HEADERS = 64 << 10
_KEPT = 2  # memories of long messages
_SILENCE, _SIGN = 40.0, 20.0  # seconds without anything from the server, and then for it to answer a ping
# What a stream's end by RST_STREAM means, by the number of HTTP/2's error; others are INTERNAL.
_RESET = {7: Code.UNAVAILABLE, 8: Code.CANCELLED, 11: Code.RESOURCE_EXHAUSTED, 12: Code.PERMISSION_DENIED}
# What an HTTP status that is not gRPC's means.
_HTTP = {"400": Code.INTERNAL, "401": Code.UNAUTHENTICATED, "403": Code.PERMISSION_DENIED, "404": Code.UNIMPLEMENTED,
         "429": Code.UNAVAILABLE, "502": Code.UNAVAILABLE, "503": Code.UNAVAILABLE, "504": Code.UNAVAILABLE}


class Ended(NamedTuple):
    """How a stream ended."""

    code: int
    details: str


class _End(Exception):
    def __init__(self, code: int, details: str) -> None:
        super().__init__(details)
        self.how = Ended(code, details)


def reaches(address: str) -> bool:
    """Whether such streams go to addresses of this kind."""
    if address.startswith("unix:"):
        return hasattr(socket, "AF_UNIX") and not address.startswith("unix://")
    return address.rpartition(":")[2].isdigit()


class Stream:
    """`clear` is called, without locks, when everything that was kept has been sent. Lost where nobody answers there."""

    def __init__(self, address: str, path: str, metadata: Sequence[tuple[str, str]], most_bytes: int, seconds: float,
                 clear: Callable[[], None]) -> None:
        try:
            connection = http2.connected(address, seconds)
        except OSError as error:
            raise Lost(f"cannot connect: {error}") from None
        self.ended: Ended | None = None
        self._cancelled = self._half_closed = self._last = False
        self._asked = self._silent = False  # for a sign of life, and there was none
        self._headers = bytearray()
        self._parts = _Parts(most_bytes)
        self._frames = Frames(connection, clear)
        authority = "localhost" if address.startswith("unix:") else address
        block = hpack.encode([(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", authority),
                              ("te", "trailers"), ("content-type", "application/grpc"), *metadata])
        self._frames.control(http2.frame(http2.HEADERS, http2.END_HEADERS, http2.STREAM, block))

    @property
    def is_clear(self) -> bool:
        """Whether nothing waits to be sent, so that messages may be given."""
        return self._frames.is_clear

    def put(self, *messages: bytes) -> None:
        """To be sent by the next `flush`. Short ones that follow one another are one piece."""
        pieces: list[bytes] = []
        short: list[bytes] = []
        for message in messages:
            short.append(_PREFIX.pack(0, len(message)))
            if len(message) < _SHORT:
                short.append(message)
            else:
                pieces += [b"".join(short), message]
                short = []
        if short:
            pieces.append(b"".join(short))
        self._frames.data(*pieces)

    def flush(self) -> None:
        """Sends what can be sent now; never waits."""
        self._frames.flush()

    def half_close(self) -> None:
        """No message follows."""
        if not self._half_closed:
            self._half_closed = True
            self._frames.data(b"", flags=http2.END_STREAM)
            self._frames.flush()

    def cancel(self) -> None:
        """Ends it at once; from any thread."""
        self._cancelled = True
        self._frames.control(http2.frame(http2.RST_STREAM, 0, http2.STREAM, (8).to_bytes(4, "big")))
        self._frames.close()

    def await_input(self, seconds: float | None = None) -> bool:
        """Whether `receive` has something to do, after waiting for it: perhaps that the server gives no sign of life, which TCP
        does not notice where a process is stopped. An interrupt here does no harm."""
        while not self._silent:
            wait = _SIGN if self._asked else _SILENCE
            if seconds is not None and seconds <= wait:
                return self._frames.await_input(seconds)
            if self._frames.await_input(wait):
                break
            if self._asked:
                self._silent = True
                self._frames.close()
            else:
                self._asked = True
                self._frames.control(http2.frame(http2.PING, 0, 0, bytes(8)))
            seconds = None if seconds is None else seconds - wait
        return True

    def receive(self) -> list[bytes | memoryview]:
        """The next messages, perhaps none, or how the stream `ended`; by one thread at a time. They stay until the next call."""
        out: list[bytes | memoryview] = []
        self._parts.recycle()
        self._asked = False
        try:
            if self._silent:
                raise Lost(f"the server has given no sign of life for {_SILENCE + _SIGN:.0f} s")
            for kind, flags, stream, payload in self._frames.receive():
                if stream == http2.STREAM or kind == http2.GOAWAY:
                    self._take(kind, flags, payload, out)
        except _End as end:
            self.ended = end.how
        except (Lost, hpack.Malformed) as error:
            self.ended = (Ended(Code.CANCELLED, "the stream was cancelled") if self._cancelled else
                          Ended(Code.UNAVAILABLE, str(error)))
        return out

    def _take(self, kind: int, flags: int, payload: bytes | memoryview, out: list[bytes | memoryview]) -> None:
        if kind == http2.DATA:
            self._parts.take(payload, out)
            if flags & http2.END_STREAM:
                raise _End(Code.INTERNAL, "the stream ended without a status")
        elif kind == http2.RST_STREAM:
            number = int.from_bytes(payload[:4], "big")
            raise _End(_RESET.get(number, Code.INTERNAL), f"the stream was reset with HTTP/2's error {number}")
        elif kind == http2.GOAWAY:
            if int.from_bytes(payload[:4], "big") & 0x7FFFFFFF < http2.STREAM:
                raise _End(Code.UNAVAILABLE, f"the server takes no stream: {bytes(payload[8:]).decode('utf-8', 'replace')}")
        else:
            self._last |= kind == http2.HEADERS and bool(flags & http2.END_STREAM)
            self._headers += payload
            if len(self._headers) > _MOST_HEADERS:
                raise Lost("headers that are too long")
            if flags & http2.END_HEADERS:
                fields = hpack.decode(bytes(self._headers))
                self._headers.clear()
                _check(fields, self._last)

    def forget(self) -> None:
        """In a process that was forked: the stream is its parent's."""
        self._frames.forget()

    def release(self) -> None:
        """Once nobody receives any more."""
        self._frames.release()


def _check(fields: dict[str, str], last: bool) -> None:
    """The headers of the stream's beginning, or of its end."""
    status = fields.get(":status", "200")
    if status != "200" and "grpc-status" not in fields:
        raise _End(_HTTP.get(status, Code.UNKNOWN), f"the server answers with the HTTP status {status}, and not with gRPC")
    if last:
        number = fields.get("grpc-status", "")
        known = number.isascii() and number.isdigit() and len(number) < 4 and int(number) <= max(Code)
        code = int(number) if known else Code.UNKNOWN
        raise _End(code, unquote(fields.get("grpc-message", "")))


class _Parts:
    """Messages out of parts that end anywhere."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._prefix = b""
        self._message: memoryview | None = None  # that is not complete
        self._filled = 0
        self._free: list[bytearray] = []  # memory of messages: new memory each time would take longer than the copy
        self._given: list[bytearray] = []
        self._in_use = bytearray()  # by the message that is not complete

    def recycle(self) -> None:
        """Long messages that were given are not needed any more."""
        if self._given:
            self._free = (self._given + self._free)[:_KEPT]
            self._given = []

    def _memory(self, size: int) -> memoryview:
        found = next((i for i, memory in enumerate(self._free) if len(memory) >= size), None)
        self._in_use = bytearray(size) if found is None else self._free.pop(found)
        return memoryview(self._in_use)[:size]

    def take(self, part: bytes | memoryview, out: list[bytes | memoryview]) -> None:
        while len(part):
            if self._message is None:
                if not self._prefix and len(part) >= _PREFIX.size:  # most are in one part
                    end = _PREFIX.size + self._size(part)
                    if end <= len(part):
                        out.append(bytes(part[_PREFIX.size:end]))
                        part = part[end:]
                        continue
                missing = _PREFIX.size - len(self._prefix)
                self._prefix += bytes(part[:missing])
                part = part[missing:]
                if len(self._prefix) < _PREFIX.size:
                    return
                size = self._size(self._prefix)
                self._prefix = b""
                if size <= len(part):
                    out.append(bytes(part[:size]))
                    part = part[size:]
                    continue
                self._message, self._filled = self._memory(size), 0
            count = min(len(part), len(self._message) - self._filled)
            self._message[self._filled:self._filled + count] = part[:count]
            self._filled += count
            part = part[count:]
            if self._filled == len(self._message):
                out.append(self._message)
                self._given.append(self._in_use)
                self._message = None

    def _size(self, prefix: bytes | memoryview) -> int:
        """Of the message that begins with it."""
        compressed, size = _PREFIX.unpack_from(prefix)
        if compressed:
            raise _End(Code.INTERNAL, "a message is compressed, which this end has not allowed")
        if size > self._most_bytes:
            raise _End(Code.RESOURCE_EXHAUSTED, f"a message of {size} bytes, expected at most {self._most_bytes}")
        return int(size)
