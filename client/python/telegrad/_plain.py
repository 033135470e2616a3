"""A session's plain stream: who writes to it, and who reads from it.

Handing a message to another thread takes longer than all else that Python does with it. So the thread that submits an
operation sends it, and the thread that waits for an answer reads until it is there (`lead`). The session's own thread reads
where nobody waits in that way: for futures that somebody has kept, and now and then while the session is in use.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Sequence

from telegrad._core import Completion, SessionCore, State, tell
from telegrad._future import Answer, Future, Waited
from telegrad._interrupts import Deferred
from telegrad._stream import Ended, Stream
from telegrad.errors import Code, TelegradError, error_of

GLANCE_SECONDS = 0.05  # between two looks of the session's thread at a stream that others read
_LONG = 1 << 16  # bytes of messages that are sent before more are made


class Plain:
    """`lock` guards `core` and is that of `changed`, which is notified when something in it may have changed."""

    def __init__(self, core: SessionCore[Waited], changed: threading.Condition, lock: Any,
                 make: Callable[[Callable[[], None]], Stream]) -> None:
        self._core, self._changed, self._lock = core, changed, lock
        self._role = threading.Lock()  # of who reads
        self._attention = threading.Condition(lock)  # of the session's thread
        self._alone = 0  # who needs the session's thread to read
        self._begun = self._ends = False
        self._used = 0  # counts what was submitted
        self._stream = make(self._on_clear)

    def begin(self) -> None:
        with self._lock:
            self._core.start_stream()
            self._begun = True
            self.pump()

    # Under the lock.

    def pump(self) -> None:
        """Sends what can be sent at once."""
        stream = self._stream
        try:
            if stream.is_clear:
                while self._put():
                    stream.flush()
                    if not self._core.is_waiting or not stream.is_clear:
                        break
        except BaseException as error:  # a message may have been sent in part
            self._break(error, "sent something")
            raise
        self._used += 1
        if self._core.finished:
            stream.half_close()
            self.attend()
        self._changed.notify_all()  # there may be room, or none any more

    def _put(self) -> bool:
        """Gives the stream messages, as many as may go together."""
        messages = self._core.next_messages(_LONG)
        if messages:
            self._stream.put(*messages)
        return bool(messages)

    def attend(self, future: Waited | None = None) -> None:
        """Has the session's thread read until the future is done; None: until the stream is over."""
        if future is None:
            self._ends = True
        elif not future.done() and not future.alone:
            future.alone = True
            if future.done():  # meanwhile, by a thread that does not have the lock and may not have seen this
                future.alone = False
            else:
                self._alone += 1
        self._attention.notify()

    def await_room(self, seconds: float | None) -> bool:
        """Whether there is room for another operation, after waiting for it."""
        self._alone += 1
        self._attention.notify()
        try:
            return self._changed.wait_for(lambda: self._core.has_room, seconds)
        finally:
            self._alone -= 1

    # Without it.

    def _on_clear(self) -> None:
        with self._lock:
            if self._begun:
                self.pump()

    def cancel(self) -> None:
        self._stream.cancel()

    def forget(self) -> None:
        """In a process that was forked: the stream is its parent's."""
        self._stream.forget()

    def lead(self, future: Waited, seconds: float | None) -> None:
        """Reads until the future is done, or for so many seconds; not if another thread reads, which then has to go on."""
        with Deferred() as deferred:
            if self._role.acquire(blocking=False):
                try:
                    begun, left = time.monotonic(), seconds
                    while not future.done() and self._stream.ended is None and deferred.while_waiting(
                            self._stream.await_input, None if left is None else max(left, 0.0)):
                        self._receive()
                        if seconds is not None:
                            left = seconds - (time.monotonic() - begun)
                            if left <= 0:  # also where there is always something to receive
                                break
                finally:
                    self._role.release()
            if not future.done():
                with self._lock:
                    self.attend(future)

    def _receive(self) -> None:
        try:
            for message in self._stream.receive():
                with self._lock:
                    done = self._core.receive(message)
                    self._changed.notify_all()
                self._tell(done)
        except BaseException as error:  # a violation of the protocol, no memory for what came, or another signal than Ctrl-C
            self._break(error, "took an answer")
            if not isinstance(error, Exception):
                raise

    def _break(self, error: BaseException, doing: str) -> None:
        """Nothing can follow on this stream."""
        self._stream.cancel()
        why = error_of(error) if isinstance(error, Exception) else TelegradError(
            Code.CANCELLED, f"the session was interrupted while it {doing}")
        with self._lock:
            done = self._core.end(why)
            self.attend()
        self._tell(done)

    def _tell(self, done: Sequence[Completion]) -> None:
        tell(done)
        alone = [one.future for one in done if isinstance(one.future, (Answer, Future)) and one.future.alone]
        if alone:
            with self._lock:
                for future in alone:
                    self._alone -= future.alone
                    future.alone = False

    def serve(self) -> Ended:
        """What the session's thread does, until the stream is over."""
        used = -1
        while self._stream.ended is None:
            with self._lock:
                others_read = used != self._used and not self._needed()
                if others_read:
                    used = self._used
                    self._attention.wait_for(self._needed, GLANCE_SECONDS)
            with self._role:
                if self._stream.ended is None and self._stream.await_input(0.0 if others_read else None):
                    self._receive()
        self._stream.release()
        return self._stream.ended

    def _needed(self) -> bool:
        return self._ends or self._alone > 0 or self._core.state is State.OPENING or not self._stream.is_clear
