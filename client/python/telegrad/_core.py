"""A session's side of the Execute stream, without input, output, threads or clocks.

Operations go in by `submit`, messages for the server come out of `next_message`, and `receive`
takes the server's. The blocking client and the asyncio one put a stream of their kind before it.

Answers come in the order of the operations, so they meet `_pending` from the front, and an answer
acknowledges every operation before it. A resumable session keeps what it sent until something after
it was answered, and repeats what the server had not accepted when a stream broke. So that nothing
takes effect in a session that this side cannot name, it sends nothing before it has the token.
"""

from __future__ import annotations

import enum
import random
from collections import deque
from typing import Any, Callable, Generic, NamedTuple, Protocol, Sequence, TypeVar

from telegrad import _messages as messages
from telegrad._operations import Operation, Reader, Take, Violation
from telegrad._wire import DecodeError, encode_varint
from telegrad.errors import Code, TelegradError, invalid

MAX_QUEUED = 1024  # operations not sent yet
MANY_QUEUED = 64
MAX_PENDING = 16384  # operations not acknowledged yet
MAX_HELD_BYTES = 64 << 20  # of messages not sent or not acknowledged yet
MAX_SILENT = 512  # operations without an answer, until a sync asks for one
MAX_SILENT_BYTES = 8 << 20
MAX_UNACKNOWLEDGED = 256  # answers, until a message acknowledges them
OPENING_SECONDS = 10.0  # after a stream broke before the session was open
OP_ID_TAG = encode_varint(messages.ExecuteRequest.tag("op_id"))
SHORT = 4096  # a message that something may be put before


class FutureLike(Protocol):
    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: Any, /) -> None: ...


F = TypeVar("F", bound=FutureLike)


class Completion(NamedTuple):
    """What a future is to be told, outside of any lock."""

    future: FutureLike
    value: Any
    error: TelegradError | None


def tell(completions: Sequence[Completion]) -> None:
    for future, value, error in completions:
        if future.done():
            continue  # who waited has gone
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)


class _Pending(NamedTuple):
    op_id: int
    name: str
    take: Take | None  # None: it is not answered unless it fails
    future: FutureLike | None
    start: bytes | None = None  # of the answer that is expected, up to the bytes that are read


class _Message(NamedTuple):
    op_id: int
    data: bytes


class State(enum.Enum):
    OPENING = "opening"
    RESUMING = "resuming"  # what follows depends on what the server had accepted
    OPEN = "open"
    BROKEN = "broken"  # between two streams
    ENDED = "ended"


class SessionCore(Generic[F]):
    def __init__(self, *, address: str, client: str, protocol: int, resumable: bool,
                 lease: float | None, new_future: Callable[[], F]) -> None:
        self.address = address
        self.state = State.OPENING
        self.opened = messages.OpenResult()
        self.error: TelegradError | None = None  # of the session, once it has ended
        self.resumed = 0  # how often
        self._client, self._protocol, self._resumable = client, protocol, resumable
        self._lease_ms = 0 if lease is None else min(max(round(lease * 1000), 1), (1 << 32) - 1)
        self._new_future = new_future
        self._next_id = 1
        self._queue: deque[_Message] = deque()
        self._kept: deque[_Message] = deque()  # sent, and perhaps to be sent again
        self._held_bytes = 0  # of both
        self._pending: deque[_Pending] = deque()
        self._answered = 0  # the last operation that was, and all before it
        self._to_acknowledge = 0  # answers
        self._silent = self._silent_bytes = 0  # since the last operation that is answered
        self._quiet_error: TelegradError | None = None
        self._closing = False
        self._open_sent = False  # on this stream
        self._failures = 0  # to connect again, one after another
        self._submit_open()

    # The caller's side.

    @property
    def has_room(self) -> bool:
        """There is nothing to wait for before the next submit."""
        return (len(self._queue) < MAX_QUEUED and len(self._pending) < MAX_PENDING and self._held_bytes < MAX_HELD_BYTES
                or self.state is State.ENDED)

    @property
    def is_waiting(self) -> bool:
        """Something waits to be sent."""
        return bool(self._queue)

    @property
    def is_ahead(self) -> bool:
        """Much is waiting to be sent: time to let the stream run."""
        return len(self._queue) >= MANY_QUEUED

    def submit(self, operation: Operation, future: F | None = None) -> tuple[int, F | None]:
        """Its id, and a future, this or a new one, where it is answered. The session's error if it has ended."""
        if self.state is State.ENDED or self._closing:
            why = self.error or TelegradError(Code.FAILED_PRECONDITION, "the session is closed")
            raise TelegradError(why.code, why.message)
        if operation.take is not None:
            if future is None:
                future = self._new_future()
            op_id = self._enqueue(operation, future)
            self._silent = self._silent_bytes = 0
        else:
            future = None
            op_id = self._enqueue(operation, None)
            self._silent += 1
            self._silent_bytes += len(self._queue[-1].data)
            if self._silent >= MAX_SILENT or (
                    self._resumable and self._silent_bytes >= MAX_SILENT_BYTES):
                self._silent = self._silent_bytes = 0
                sync = messages.ExecuteRequest(sync=messages.Sync())
                self._enqueue(Operation("sync", sync), None)
        return op_id, future

    def _enqueue(self, operation: Operation, future: F | None) -> int:
        name, request, take, body, answer = operation
        op_id = self._next_id
        start = None
        if body is not None:
            head = OP_ID_TAG + encode_varint(op_id)
            data = head + body
            start = None if answer is None else head + answer
        else:
            request.op_id = op_id
            try:
                data = request.encode()
            except ValueError as error:
                raise invalid(str(error)) from None
        self._pending.append(_Pending(op_id, name, take, future, start))
        self._queue.append(_Message(op_id, data))
        self._held_bytes += len(data)
        self._next_id = op_id + 1
        return op_id

    def take_error(self) -> TelegradError | None:
        """The first error of an operation that has no answer of its own, which is then cleared."""
        error, self._quiet_error = self._quiet_error, None
        return error

    def close(self) -> None:
        """Nothing follows: the stream may end once the queue is sent."""
        self._closing = True

    def close_request(self) -> messages.CloseRequest | None:
        """What ends a session that the server would keep after its stream is cancelled."""
        if not self._resumable or not self.opened.token or self.state is State.ENDED:
            return None
        return messages.CloseRequest(token=self.opened.token, epoch=self.opened.epoch)

    # The stream's side.

    def start_stream(self) -> None:
        """A stream has been made: its first message opens or resumes the session."""
        self._open_sent = False
        if self.state is State.BROKEN:
            self.state = State.RESUMING if self.opened.token else State.OPENING

    def next_message(self) -> bytes | None:
        """What to send next; None: nothing now, or never (`finished`)."""
        if self.state is State.RESUMING or (self.state is State.OPENING and self._resumable):
            if self._open_sent:
                return None
            self._open_sent = True
            return (self._resume_message() if self.state is State.RESUMING
                    else self._queue[0].data)
        if self._queue:
            message = self._queue.popleft()
            if not self._resumable:
                self._held_bytes -= len(message.data)
                return message.data
            self._kept.append(message)
            if self._to_acknowledge and len(message.data) < SHORT:
                return self._acknowledgement().encode() + message.data
            return message.data
        return self.idle_message() if self._to_acknowledge >= MAX_UNACKNOWLEDGED else None

    def next_messages(self, most_bytes: int) -> list[bytes]:
        """The same for several at once, until they have so many bytes, in a session that is not resumable."""
        out: list[bytes] = []
        nbytes = 0
        while self._queue and nbytes <= most_bytes:
            data = self._queue.popleft().data
            out.append(data)
            nbytes += len(data)
        self._held_bytes -= nbytes
        return out

    def idle_message(self) -> bytes | None:
        """Tells a server that keeps the session that this side lives; acknowledges answers."""
        if self.state is not State.OPEN or not self._resumable:
            return None
        message = self._acknowledgement()
        message.op_id = self._kept[-1].op_id if self._kept else self._answered  # the last one sent
        return message.encode()

    @property
    def idle_seconds(self) -> float | None:
        """How long a stream may be without a message before the next idle one."""
        if not self._resumable or not self.opened.lease_ms:
            return None
        return max(self.opened.lease_ms / 3000, 0.01)

    @property
    def finished(self) -> bool:
        """Nothing will be sent any more."""
        return (self._closing and not self._queue and self.state in (State.OPENING, State.OPEN)
                or self.state is State.ENDED)

    def _acknowledgement(self) -> messages.ExecuteRequest:
        self._to_acknowledge = 0
        return messages.ExecuteRequest(acknowledged=self._answered)

    def receive(self, data: bytes | memoryview) -> list[Completion]:
        """Takes a message of the server's. Violation: it breaks the protocol, end the stream."""
        if (done := self._expected(data)) is not None:
            return done
        try:
            response = messages.ExecuteResponse.decode(data)
        except DecodeError as error:
            raise Violation(f"a message of the server's is malformed: {error}") from None
        if self.state is State.RESUMING:
            return self._resume(response)
        waiting, op_id = self._pending, response.op_id
        while waiting and waiting[0].op_id < op_id:
            if waiting[0].take is not None:
                raise Violation(f"operation {waiting[0].op_id} was not answered, {op_id} was")
            waiting.popleft()
        if not waiting or waiting[0].op_id != op_id:
            if response.op_id <= self._answered and self.resumed:
                return []  # its acknowledgement was lost with the stream
            raise Violation(f"an answer to operation {response.op_id}, which waits for none")
        return self._complete(waiting[0], response)

    def _expected(self, data: bytes | memoryview) -> list[Completion] | None:
        """Takes a message that is, byte for byte, the answer that the next operation expects: decoding it would take longer
        than all else that is done with it. None: it is another one."""
        if self._resumable:
            return None
        waiting = self._pending
        for pending in waiting:
            if pending.take is not None:
                break
        else:
            return None
        start, reader = pending.start, pending.take
        if start is None or data[:len(start)] != start or not isinstance(reader, Reader) or (
                len(data) - len(start) != len(reader.sink.memory)):
            return None
        while waiting.popleft() is not pending:
            pass  # those before it have no answer unless they fail
        self._answered = pending.op_id
        assert pending.future is not None
        return [Completion(pending.future, reader.whole(memoryview(data)[len(start):]), None)]

    def _complete(self, pending: _Pending, response: messages.ExecuteResponse) -> list[Completion]:
        value: Any = None
        error = None
        status = response.status
        if status is not None and status.code:
            error = TelegradError(status.code, status.message, operation=pending.name,
                                  op_id=pending.op_id, device_lost=status.device_lost)
        elif pending.take is not None:
            done, value = pending.take(response)
            if not done:
                return []
        self._pending.popleft()
        self._answered = pending.op_id
        self._to_acknowledge += 1
        while self._kept and self._kept[0].op_id <= self._answered:
            self._held_bytes -= len(self._kept.popleft().data)
        if pending.name == "open":
            return self._take_open(value, error)
        if pending.future is None:
            self._quiet_error = self._quiet_error or error
            return []
        if pending.name == "sync" and error is None:
            error = self.take_error()
        return [Completion(pending.future, value, error)]

    def stream_ended(self, code: int, details: str, broken_seconds: float,
                     ) -> tuple[float | None, list[Completion]]:
        """A stream is over. In how many seconds the next one is to begin, or None: never."""
        if self.state is State.ENDED:
            return None, []
        lost = Code.UNAVAILABLE if code == Code.OK else code
        if self._may_resume(code, broken_seconds):
            self.state = State.BROKEN
            self._failures += 1
            return min(0.02 * 2 ** min(self._failures, 7), 2.0) * random.uniform(0.5, 1.0), []
        if self._closing and code == Code.OK and not self._pending_answers():
            return None, self.end(TelegradError(Code.FAILED_PRECONDITION, "the session is closed"))
        return None, self.end(TelegradError(lost, f"the session with {self.address} is over: "
                                            f"{details or 'it was ended'}"))

    def _may_resume(self, code: int, broken_seconds: float) -> bool:
        grace = self.opened.grace_ms / 1000 if self.opened.token else OPENING_SECONDS
        return self._resumable and broken_seconds < grace and code in (
            Code.UNAVAILABLE, Code.UNKNOWN, Code.INTERNAL, Code.CANCELLED)

    def _pending_answers(self) -> bool:
        return any(p.take is not None for p in self._pending)

    def end(self, error: TelegradError) -> list[Completion]:
        """The session is over; who waits is told whether an operation may have run."""
        if self.state is State.ENDED:
            return []
        self.state, self.error = State.ENDED, error
        unsent = self._queue[0].op_id if self._queue else self._next_id
        out = []
        for p in self._pending:
            what = "it was not sent" if p.op_id >= unsent else "it may have run"
            told = TelegradError(error.code, f"{error.message}; {what}",
                                 operation=p.name, op_id=p.op_id)
            if p.future is not None:
                out.append(Completion(p.future, None, told))
            elif p.name != "sync" and error.code != Code.FAILED_PRECONDITION:
                self._quiet_error = self._quiet_error or told
        self._pending.clear()
        self._queue.clear()
        self._kept.clear()
        self._held_bytes = 0
        return out

    # Opening and resuming.

    def _submit_open(self) -> None:
        def take(response: messages.ExecuteResponse) -> tuple[bool, Any]:
            if response.open is None:
                raise Violation("the answer to open has no OpenResult")
            return True, response.open

        self._enqueue(Operation("open", messages.ExecuteRequest(open=messages.Open(
            protocol=self._protocol, client=self._client, resumable=self._resumable,
            lease_ms=self._lease_ms)), take), None)

    def _take_open(self, opened: Any, error: TelegradError | None) -> list[Completion]:
        if error is not None:
            return self.end(error)
        self.opened = opened
        self.state = State.OPEN
        if self._resumable:
            self._held_bytes -= len(self._queue.popleft().data)
            self._failures = 0
        if self._resumable and not opened.token:
            raise Violation("the server gave no token for a session that was to be resumable")
        return []

    def _resume_message(self) -> bytes:
        return messages.ExecuteRequest(op_id=self._next_id - 1, acknowledged=self._answered,
                                       open=messages.Open(
            protocol=self._protocol, client=self._client, resumable=True,
            token=self.opened.token, epoch=self.opened.epoch)).encode()

    def _resume(self, response: messages.ExecuteResponse) -> list[Completion]:
        """The answer to the open of a resumed session: sends again what was not accepted."""
        status = response.status
        if status is not None and status.code:
            return self.end(TelegradError(status.code, f"the session with {self.address} is lost: "
                                          f"{status.message}"))
        if response.open is None:
            raise Violation("the first answer of a resumed stream has no OpenResult")
        accepted = response.open.last_op_id
        if not self._answered <= accepted < self._next_id:
            raise Violation(f"the server says that operation {accepted} was the last one, "
                            f"expected {self._answered} to {self._next_id - 1}")
        again = [m for m in self._kept if m.op_id > accepted]
        self._held_bytes -= sum(len(m.data) for m in self._kept if m.op_id <= accepted)
        self._kept.clear()
        self._queue.extendleft(reversed(again))
        self.opened.lease_ms, self.opened.grace_ms = response.open.lease_ms, response.open.grace_ms
        self.state = State.OPEN
        self.resumed += 1
        self._failures = 0
        return []
