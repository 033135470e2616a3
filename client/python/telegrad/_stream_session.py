"""A blocking session and its stream: who sends operations, who waits for their answers, and how a session ends.

`telegrad._session` adds memory and runs, `telegrad.session` graphs and models.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from typing import Any, Callable, Iterator, Sequence, TypeVar

import grpc

from telegrad import _messages as messages
from telegrad import _operations as operations
from telegrad import _transport as transport
from telegrad import credentials
from telegrad._beside import Beside
from telegrad._channel import Channel
from telegrad._core import Completion, SessionCore, State, tell
from telegrad._future import Answer, Future, Waited
from telegrad._http2 import Lost
from telegrad._interrupts import Deferred
from telegrad._operations import Operation
from telegrad._plain import Plain
from telegrad._progress import Amount, Kernels, Meter
from telegrad._stream import Stream, reaches
from telegrad.errors import Code, TelegradError, error_of

S = TypeVar("S", bound="StreamSession")


class StreamSession:
    """Operations on a server. Thread-safe; those of one thread keep their order."""

    def __init__(self, connection: Channel, *, resumable: bool = False,
                 lease: float | None = None, timeout: float | None = None,
                 ended: Callable[[StreamSession], None] = lambda session: None) -> None:
        """`ended` is told once, when nothing can be asked of it any more."""
        self.connection, self.timeout = connection, timeout
        self._ended = ended
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._core: SessionCore[Waited] = SessionCore(
            address=connection.address, client=transport.CLIENT,
            protocol=connection.server.protocol, resumable=resumable, lease=lease,
            new_future=Future)
        self._aborted = False
        self._meter = Meter()
        # None: everything travels on the stream. What is resumed would need a transfer that is, too.
        self._bulk = None if resumable else Beside(self)
        self._stream = 0  # which one is the last
        self._call: Any = None
        self._lock = lock  # that of `_changed`; as an interrupt between the two calls of a condition's would leave it taken
        self._plain: Plain | None = None  # the same, where it is not grpcio's
        self._submits = self._partial = False  # something is submitted at the moment; perhaps not all of it yet
        _sessions.add(self)
        self._thread = threading.Thread(target=self._serve, name="telegrad session", daemon=True)
        self._thread.start()

    # Order and the end.

    def sync(self, timeout: float | None = None) -> None:
        """Waits until everything before has taken effect.

        Raises the first error of an operation that had no answer of its own, once.
        """
        self._wait(self._asked(operations.sync()), timeout)

    def sync_future(self) -> Future[None]:
        return self._future(operations.sync())

    @property
    def transferred(self) -> Amount:
        """What has moved of the writes and reads so far, and what was asked for."""
        return self._meter.amount()

    @property
    def compiling(self) -> Kernels:
        """The kernels that the server compiles for this session, or has compiled last. Asks it, for a second at most."""
        opened = self._core.opened
        if not opened.token:
            return Kernels(0, 0)  # not open yet
        answer = self.connection._call("KeepAlive", messages.KeepAliveRequest(
            token=opened.token, epoch=opened.epoch), timeout=1)
        return Kernels(answer.kernels_compiled, answer.kernels_to_compile)

    @property
    def resumed(self) -> int:
        """How often a resumable session was taken up again after its connection broke."""
        return self._core.resumed

    @property
    def ended(self) -> bool:
        """Whether nothing can be asked of it any more."""
        return self._core.state is State.ENDED

    def close(self, timeout: float | None = None) -> None:
        """Ends the session when everything asked for is done; the server frees what it owned.

        Raises the first error that has not been raised. After `timeout` seconds (the connection's
        unless said) the session is ended at once.
        """
        seconds = self.connection.timeout if timeout is None else timeout
        if self._bulk is not None:
            self._bulk.finish(seconds)
        with self._lock:
            self._core.close()
            self._changed.notify_all()
            if self._plain is not None:
                self._plain.pump()
        self._thread.join(seconds)
        late = self._thread.is_alive()
        self._abort()
        if late:
            raise TelegradError(Code.DEADLINE_EXCEEDED, "the session was ended with work under way")
        with self._lock:
            error = self._core.take_error()
        if error is not None:
            raise error

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is None:
            self.close()
        else:
            self._abort()

    def __repr__(self) -> str:
        return f"<Session {self._core.opened.session} with {self.connection.address}: " \
               f"{self._core.state.value}>"

    def _submit(self, operation: Operation, future: Waited | None = None) -> tuple[int, Waited | None]:
        """Its number, and what is told the answer where it has one: `future`, or a new one."""
        return self._submit_all(((operation, future),))[0]

    def _submit_all(self, asked: Sequence[tuple[Operation, Waited | None]]) -> list[tuple[int, Waited | None]]:
        """The same for several, which are sent together."""
        out: list[tuple[int, Waited | None]] = []
        with self._lock:
            if self._submits:
                raise TelegradError(Code.FAILED_PRECONDITION, "a signal's handler or a destructor asks the session for something "
                                    "in the middle of another operation of its thread", operation=asked[0][0].name)
            while len(out) < len(asked):
                if not self._core.has_room and not self._await_room():
                    raise transport.no_room_error(self.timeout, asked[len(out)][0].name)
                self._submits = True
                try:
                    with Deferred():
                        self._submit_some(asked, out)
                except BaseException as error:
                    if self._partial and not isinstance(error, Exception):  # of another signal's handler: nothing could follow
                        self._abandon(TelegradError(Code.CANCELLED, "the session was interrupted while it sent something"))
                    raise
                finally:
                    self._submits = self._partial = False
        return out

    def _submit_some(self, asked: Sequence[tuple[Operation, Waited | None]], out: list[tuple[int, Waited | None]]) -> None:
        """Those behind `out` for which there is room, and sends them."""
        self._partial = True
        try:
            for operation, future in asked[len(out):]:
                out.append(self._core.submit(operation, future))
                if not self._core.has_room:
                    break
        finally:
            if self._plain is None:
                self._changed.notify_all()
            else:
                self._plain.pump()
        self._partial = False

    def _await_room(self) -> bool:
        if self._plain is not None:
            return self._plain.await_room(self.timeout)
        return self._changed.wait_for(lambda: self._core.has_room, self.timeout)

    def _future(self, operation: Operation) -> Future[Any]:
        """For whoever keeps it, and may wait for it or not."""
        future: Future[Any] = Future()
        future.op_id, _ = self._submit(operation, future)
        with self._lock:
            if self._plain is not None:
                self._plain.attend(future)
        return future

    def _asked(self, operation: Operation) -> Answer:
        """For `_wait`."""
        answer = Answer()
        answer.op_id, _ = self._submit(operation, answer)
        return answer

    def _wait_run(self, future: Waited, timeout: float | None) -> messages.RunResult:
        # The server's own answer to a timeout comes first where it can.
        result: messages.RunResult = self._wait(future, timeout if timeout is None else timeout + 1.0)
        return result

    def _wait(self, future: Waited, timeout: float | None) -> Any:
        seconds = self.timeout if timeout is None else timeout
        plain = self._plain  # as the session's thread knows of no use of it by others when it is over
        if plain is not None and isinstance(future, Answer):
            begun = time.monotonic()
            plain.lead(future, seconds)
            if seconds is not None and not future.done():  # the session has ended, or another thread reads
                return future.result(max(seconds - (time.monotonic() - begun), 0.0), seconds)
        return future.result(seconds)

    # The stream, of which the thread reads. gRPC writes, or whoever has something to write.

    def _serve(self) -> None:
        try:
            plain = self._connect_plain()
            if plain is None:
                self._streams()
            else:
                self._plain_stream(plain)
            done: list[Completion] = []
        except Exception as error:  # such as that a token's file is gone
            with self._lock:
                done = self._core.end(error_of(error))
        with self._lock:
            self._stream += 1
            self._changed.notify_all()
        tell(done)
        if self._bulk is not None:
            self._bulk.close()
        self._ended(self)

    def _connect_plain(self) -> Plain | None:
        """None: grpcio's streams are to be used, since there is more than one in turn, or encryption, or no such connection."""
        connection = self.connection
        if self._bulk is None or connection.encrypted or not reaches(connection.address):
            return None
        metadata = credentials.metadata(connection._token)
        try:
            return Plain(self._core, self._changed, self._lock, lambda clear: Stream(
                connection.address, transport.EXECUTE, metadata, transport.MAX_MESSAGE_BYTES, connection.timeout, clear))
        except Lost:
            return None

    def _plain_stream(self, plain: Plain) -> None:
        """The one stream of a session that is not resumable."""
        with self._lock:
            self._call = self._plain = plain
            if self._aborted:
                plain.cancel()
            plain.begin()
        code, details = plain.serve()
        with self._lock:
            self._plain = None
            if self._aborted:
                done = self._core.end(TelegradError(Code.CANCELLED, "the session was ended"))
            else:
                done = self._core.stream_ended(code, details, 0.0)[1]
            self._changed.notify_all()
        tell(done)

    def _streams(self) -> None:
        """One stream after another, until the session has ended."""
        broken_since: float | None = None
        delay: float | None = 0.0
        while delay is not None:
            metadata = credentials.metadata(self.connection._token)
            with self._lock:
                self._changed.wait_for(lambda: self._aborted, delay)
                if self._aborted:
                    break
                self._core.start_stream()
                self._stream += 1
                resumed = self._core.resumed
                self._call = self.connection._channel.stream_stream(transport.EXECUTE)(
                    self._messages(self._stream), metadata=metadata)
            code, details = self._read(self._call)
            with self._lock:
                self._stream += 1  # ends the writer
                now = time.monotonic()
                if broken_since is None or self._core.resumed > resumed:
                    broken_since = now
                if self._aborted:
                    break
                delay, done = self._core.stream_ended(code, details, now - broken_since)
                self._changed.notify_all()
            tell(done)
        with self._lock:
            done = self._core.end(TelegradError(Code.CANCELLED, "the session was ended"))
        tell(done)

    def _read(self, call: Any) -> tuple[int, str]:
        """Takes messages until the stream ends; its code and why."""
        try:
            for data in call:
                with self._lock:
                    done = self._core.receive(data)
                    self._changed.notify_all()
                tell(done)
            return Code.OK, ""
        except grpc.RpcError:
            return call.code().value[0], call.details() or ""
        except Exception as error:  # a violation of the protocol, or no memory for what came
            call.cancel()
            with self._lock:
                done = self._core.end(error_of(error))
            tell(done)
            return Code.CANCELLED, ""

    def _messages(self, stream: int) -> Iterator[bytes]:
        """What gRPC sends, as long as this stream is the last one."""
        while True:
            with self._lock:
                message = self._next(stream)
            if message is None:
                return
            yield message

    def _next(self, stream: int) -> bytes | None:
        while self._stream == stream and not self._aborted:
            message = self._core.next_message()
            if message is not None:
                self._changed.notify_all()  # there may be room
                return message
            if self._core.finished:
                return None
            if not self._changed.wait(self._core.idle_seconds):
                message = self._core.idle_message()
                if message is not None:
                    return message
        return None

    def _await_open(self) -> messages.OpenResult | None:
        """What the server said of the session; None where it will not, or only if this returns."""
        if threading.current_thread() is self._thread:
            return None
        with self._lock:
            self._changed.wait_for(lambda: self._core.state is not State.OPENING, self.timeout)
            return self._core.opened if self._core.state is State.OPEN else None

    def _abandon(self, error: TelegradError) -> None:
        """Ends the session with an error, where an operation cannot come to its end."""
        with self._lock:
            done = self._core.end(error)
            self._aborted = True
            self._changed.notify_all()
            call = self._call
        if call is not None:
            call.cancel()
        tell(done)

    def _forget(self) -> None:
        """In a process that was forked, in which no other thread runs: the session is its parent's, which goes on with it."""
        self._lock = threading.RLock()  # another thread may have had it
        self._changed = threading.Condition(self._lock)
        if self._plain is not None:
            self._plain.forget()
        self._plain = self._call = self._bulk = None
        self._core.end(TelegradError(Code.FAILED_PRECONDITION, "the session is that of the process from which this one was "
                                     "forked; connect again here"))

    def _abort(self) -> None:
        """Ends the session now; what is under way is dropped."""
        with self._lock:
            self._aborted = True
            self._changed.notify_all()
            call, close = self._call, self._core.close_request()
        if call is not None:
            call.cancel()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        if close is not None:
            with contextlib.suppress(TelegradError):  # the server may be gone, or have ended it
                self.connection._call("Close", close, min(self.connection.timeout, 1.0))


_sessions: weakref.WeakSet[StreamSession] = weakref.WeakSet()  # that a fork would share


def _forget_all() -> None:
    for session in list(_sessions):
        session._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
