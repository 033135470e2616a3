"""HTTP/2 (RFC 9113) with one stream: frames on a socket, in both directions.

Sending never waits: what the system or the peer's flow control does not take now is kept, and sent by the thread that
receives when the peer makes room, or by a thread that waits for the system. Receiving is for one thread, which waits.

This exists because grpcio takes 300 microseconds of processor time for a message there and its answer, three threads and their
hand-overs included; a socket takes less than a tenth.
"""

from __future__ import annotations

import collections
import select
import socket
import struct
import threading
from typing import Callable

DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 1, 1, 4, 8, 32
STREAM = 1  # the number of the one stream
NO_WAIT = getattr(socket, "MSG_DONTWAIT", None)  # None (Windows): another thread sends
# Plain numbers, of which `|` is short. With MSG_NOSIGNAL a peer that is gone is an error, also where SIGPIPE ends the process.
_SENDING = int(NO_WAIT or 0) | int(getattr(socket, "MSG_NOSIGNAL", 0))
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_FRAME = 1 << 20  # that is accepted
WINDOW = 16 << 20  # bytes that the peer may have on their way
_RECEIVED = 1 << 16  # bytes of one call that receives, unless a frame has more
_MOST_PARTS = 64  # of one call that sends
_MOST_CONTROL = 1024  # frames that answer the peer's, and that it does not take
_LONGEST_WAIT = 1e6  # seconds, of which poll takes no more than 2^31 milliseconds
_HEAD = struct.Struct(">HBBBI")  # length in two parts, kind, flags, stream
_SETTING = struct.Struct(">HI")
_TABLE, _PUSH, _INITIAL_WINDOW, _FRAME_SIZE = 1, 2, 4, 5  # settings


class Lost(Exception):
    """The connection is of no further use."""


def frame(kind: int, flags: int, stream: int, *payload: bytes) -> bytes:
    size = sum(map(len, payload))
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + b"".join(payload)


def connected(address: str, seconds: float) -> socket.socket:
    """To HOST:PORT or unix:PATH. OSError."""
    if address.startswith("unix:"):
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(seconds)
        made.connect(address[len("unix:"):])
    else:
        host, _, port = address.rpartition(":")
        made = socket.create_connection((host.strip("[]"), int(port)), seconds)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a peer that is gone is noticed
        for name, value in (("TCP_KEEPIDLE", 40), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 60_000)):
            if hasattr(socket, name):
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    made.settimeout(None)
    return made


class Frames:
    """`clear` is called, without locks, when everything that was kept has been sent."""

    def __init__(self, connection: socket.socket, clear: Callable[[], None]) -> None:
        self._socket, self._clear = connection, clear
        self._lock = threading.RLock()  # a signal's handler or a destructor may send in the middle of sending
        self._writable = threading.Condition(self._lock)
        self._control: collections.deque[bytes] = collections.deque()
        self._data: collections.deque[tuple[memoryview, int]] = collections.deque()  # payloads of DATA, and their flags
        self._rest = b""  # of a frame that the system took in part
        self._room, self._stream_room, self._initial = 65535, 65535, 65535  # bytes of DATA that the peer takes
        self._largest = 16384  # frame of the peer's
        self._waiter: threading.Thread | None = None
        self._waits = self._over = self._sending = False
        self._buffer = bytearray(_RECEIVED)  # what was received last: memory that is new each time would take longer than the copy
        self._rest_of_input = b""  # what of it belongs to a frame that is not complete
        self._wanted = self._end = self._consumed = 0
        if hasattr(select, "poll"):
            self._input = select.poll()
            self._input.register(connection, select.POLLIN)
        self.control(PREFACE + frame(SETTINGS, 0, 0, *(_SETTING.pack(*row) for row in (
            (_TABLE, 0), (_PUSH, 0), (_INITIAL_WINDOW, WINDOW), (_FRAME_SIZE, MAX_FRAME)))) +
            frame(WINDOW_UPDATE, 0, 0, (WINDOW - 65535).to_bytes(4, "big")))

    # Sending.

    @property
    def is_clear(self) -> bool:
        """Whether nothing waits to be sent."""
        return not (self._rest or self._data or self._control)

    def control(self, frames: bytes) -> None:
        """Frames that no flow control holds back."""
        with self._lock:
            self._control.append(frames)
            self._send()

    def data(self, *parts: bytes, flags: int = 0) -> None:
        """DATA with these bytes, in as many frames as they need, to be sent by the next `flush`."""
        added = [(memoryview(part), flags) for part in parts]
        with self._lock:
            self._data += added

    def flush(self) -> None:
        with self._lock:
            self._send()

    def _send(self) -> None:
        """As much as can be sent now."""
        if self._sending:
            return  # whom this interrupts goes on with what was added
        self._sending = True
        try:
            self._send_all()
        finally:
            self._sending = False

    def _send_all(self) -> None:
        while not self._over and not self._waits:
            parts: list[bytes | memoryview] = [self._rest] if self._rest else self._next()
            if not parts:
                return
            nbytes = sum(map(len, parts))
            if NO_WAIT is None:
                return self._wait_for_room(parts, 0)
            try:
                sent = self._socket.sendmsg(parts, (), _SENDING)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                self._over = True  # the thread that receives finds out why
                return
            if sent < nbytes:
                return self._wait_for_room(parts, sent)
            self._rest = b""

    def _next(self) -> list[bytes | memoryview]:
        """The next frames, as parts."""
        parts: list[bytes | memoryview] = [b"".join(self._control)] if self._control else []
        self._control.clear()
        while self._data and len(parts) < _MOST_PARTS:
            payload, flags = self._data[0]
            size = min(len(payload), self._largest, self._room, self._stream_room)
            if size <= 0 and len(payload):
                break
            last = size == len(payload)
            parts += [_HEAD.pack(size >> 8, size & 0xFF, DATA, flags if last else 0, STREAM), payload[:size]]
            self._room -= size
            self._stream_room -= size
            if last:
                self._data.popleft()
            else:
                self._data[0] = payload[size:], flags
        return parts

    def _wait_for_room(self, parts: list[bytes | memoryview], sent: int) -> None:
        self._rest = b"".join(parts)[sent:]
        self._waits = True
        if self._waiter is None:
            self._waiter = threading.Thread(target=self._send_when_writable, name="telegrad sender", daemon=True)
            self._waiter.start()
        self._writable.notify()

    def _send_when_writable(self) -> None:
        while True:
            with self._lock:
                self._writable.wait_for(lambda: self._waits or self._over)
                if self._over:
                    return
                rest = self._rest
            try:
                if NO_WAIT is None:
                    self._socket.sendall(rest)
                    sent = len(rest)
                else:
                    _await_writable(self._socket)
                    sent = 0
            except OSError:
                sent = 0
                self._over = True
            with self._lock:
                self._rest = self._rest[sent:]
                self._waits = False
                self._send()
                clear = self.is_clear
            if clear:
                self._clear()

    # Receiving.

    def await_input(self, seconds: float | None) -> bool:
        """Whether there is something to receive, after waiting for it, at most for some days. An interrupt here does no harm."""
        seconds = None if seconds is None else min(seconds, _LONGEST_WAIT)
        if not hasattr(select, "poll"):
            return bool(select.select([self._socket], [], [], seconds)[0])
        return bool(self._input.poll(None if seconds is None else seconds * 1000))

    def receive(self) -> list[tuple[int, int, int, bytes | memoryview]]:
        """Kind, flags, stream and payload of the frames that are complete, but for those that are dealt with here; payloads
        of DATA stay for as long as this is not called again. Waits for at least a byte. Lost, in the end."""
        if self._rest_of_input:
            self._buffer[:self._end], self._rest_of_input = self._rest_of_input, b""
        if self._wanted > len(self._buffer):
            larger = bytearray(self._wanted)
            larger[:self._end] = self._buffer[:self._end]
            self._buffer = larger
        view = memoryview(self._buffer)
        try:
            count = self._socket.recv_into(view[self._end:])
        except OSError as error:
            raise Lost(str(error)) from None
        if not count:
            raise Lost("the connection was closed")
        end = self._end = self._end + count
        if end < self._wanted:  # a long frame is looked at once it is complete
            return []
        frames: list[tuple[int, int, int, bytes | memoryview]] = []
        at = 0
        self._wanted = _HEAD.size
        while end - at >= _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(view, at)
            size = high << 8 | low
            if size > MAX_FRAME:
                raise Lost(f"a frame of {size} bytes")
            if end - at < _HEAD.size + size:
                self._wanted = _HEAD.size + size
                break
            part = view[at + _HEAD.size:at + _HEAD.size + size]
            at += _HEAD.size + size
            if kind == DATA and not flags & PADDED:  # nearly all
                self._grant(size)
                frames.append((kind, flags, stream & 0x7FFFFFFF, part))
                continue
            if kind == WINDOW_UPDATE:
                self._enlarge(stream & 0x7FFFFFFF, part)
                continue
            payload = part if kind == DATA else bytes(part)
            if self._is_other(kind, flags, stream & 0x7FFFFFFF, payload):
                frames.append((kind, flags, stream & 0x7FFFFFFF, _content(kind, flags, payload)))
        self._end = end - at
        if at and self._end:
            self._rest_of_input = bytes(view[at:end])
        return frames

    def _is_other(self, kind: int, flags: int, stream: int, payload: bytes | memoryview) -> bool:
        """Deals with a frame, and says whether there is more to it."""
        if kind == SETTINGS:
            self._settings(flags, bytes(payload))
        elif kind == PING:
            if len(payload) != 8:
                raise Lost(f"a ping of {len(payload)} bytes")
            if not flags & ACK:
                self._answer(frame(PING, ACK, 0, bytes(payload)))
        elif kind == DATA:
            self._grant(len(payload))
        return kind in (DATA, HEADERS, CONTINUATION, RST_STREAM, GOAWAY, PUSH_PROMISE)

    def _grant(self, size: int) -> None:
        self._consumed += size
        if self._consumed >= WINDOW // 4:
            grant = self._consumed.to_bytes(4, "big")
            self._consumed = 0
            self._answer(frame(WINDOW_UPDATE, 0, 0, grant) + frame(WINDOW_UPDATE, 0, STREAM, grant))

    def _answer(self, frames: bytes) -> None:
        """By the thread that receives. While these waited, others may have found that it is not their turn to send."""
        if len(self._control) >= _MOST_CONTROL:
            raise Lost("the peer takes no answers to what it sends")
        self.control(frames)
        self._cleared()

    def _settings(self, flags: int, payload: bytes) -> None:
        if flags & ACK:
            return
        if len(payload) % _SETTING.size:
            raise Lost("settings of a wrong length")
        for name, value in _SETTING.iter_unpack(payload):
            if name == _INITIAL_WINDOW:
                if value > 0x7FFFFFFF:
                    raise Lost(f"a window of {value} bytes")
                with self._lock:
                    self._stream_room += value - self._initial
                    self._initial = value
            elif name == _FRAME_SIZE:
                if not 16384 <= value < 1 << 24:
                    raise Lost(f"frames of {value} bytes")
                self._largest = min(value, MAX_FRAME)
        self._answer(frame(SETTINGS, ACK, 0))

    def _enlarge(self, stream: int, payload: memoryview) -> None:
        if len(payload) != 4:
            raise Lost("a window of a wrong form")
        size = int.from_bytes(payload, "big") & 0x7FFFFFFF
        with self._lock:
            if stream == 0:
                self._room += size
            elif stream == STREAM:
                self._stream_room += size
            if self._room > 0x7FFFFFFF or self._stream_room > 0x7FFFFFFF:
                raise Lost("a window that is too large")
            if not self._data:  # nothing has waited for it
                return
            self._send()
        self._cleared()

    def _cleared(self) -> None:
        if self.is_clear:
            self._clear()

    def close(self) -> None:
        """Ends both directions; from any thread."""
        with self._lock:
            self._over = True
            self._writable.notify()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def forget(self) -> None:
        """In a process that was forked: the connection is its parent's, which goes on with it."""
        self._over = True
        self._socket.close()

    def release(self) -> None:
        """Once nobody receives any more."""
        self.close()
        if self._waiter is not None:
            self._waiter.join()
        self._socket.close()


def _await_writable(connection: socket.socket) -> None:
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(connection, select.POLLOUT)
        poll.poll()
    else:
        select.select([], [connection], [])


def _content(kind: int, flags: int, payload: bytes | memoryview) -> bytes | memoryview:
    """Without padding and priority."""
    if kind == PUSH_PROMISE:
        raise Lost("a stream that this end has not allowed")
    if kind not in (DATA, HEADERS) or not flags & (PADDED | PRIORITY):
        return payload
    begin, end = 0, len(payload)
    if flags & PADDED:
        if not payload:
            raise Lost("padding without a length")
        begin, end = 1, end - payload[0]
    if kind == HEADERS and flags & PRIORITY:
        begin += 5
    if begin > end:
        raise Lost("padding that is longer than its frame")
    return payload[begin:end]
