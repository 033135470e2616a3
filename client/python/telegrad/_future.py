"""The blocking client's futures, and the answers that a caller waits for at once."""

from __future__ import annotations

import concurrent.futures
import threading
from typing import Any, Generic, TypeVar, Union

from telegrad.errors import Code, TelegradError

T = TypeVar("T")


class Future(concurrent.futures.Future, Generic[T]):  # type: ignore[type-arg]
    """What an operation will answer; `op_id` is its number in the session.

    Its callbacks run on the session's thread, and so may not wait for the session.
    """

    op_id = 0
    alone = False  # the session's thread reads it

    def __init__(self) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()  # Session.cancel ends it, not Future.cancel

    def result(self, timeout: float | None = None) -> T:
        """DEADLINE_EXCEEDED after `timeout` seconds; the operation goes on."""
        try:
            value: T = super().result(timeout)
            return value
        except concurrent.futures.TimeoutError:
            raise TelegradError(Code.DEADLINE_EXCEEDED, f"no answer within {timeout} s",
                                op_id=self.op_id) from None


class Answer:
    """What an operation will answer, for one thread, which waits for it. A future of the standard library has two locks and
    three lists, and costs as much as the rest of a short operation."""

    op_id = 0
    alone = False  # the session's thread reads it

    def __init__(self) -> None:
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._event: threading.Event | None = None  # where the thread does not read itself

    def done(self) -> bool:
        return self._done

    def set_result(self, value: Any) -> None:
        self._end(value, None)

    def set_exception(self, error: BaseException) -> None:
        self._end(None, error)

    def _end(self, value: Any, error: BaseException | None) -> None:
        self._value, self._error, self._done = value, error, True
        if self._event is not None:
            self._event.set()

    def result(self, timeout: float | None = None, said: float | None = None) -> Any:
        """DEADLINE_EXCEEDED after `timeout` seconds, the last of `said`; the operation goes on."""
        if not self._done:
            self._event = threading.Event()
            if not self._done and not self._event.wait(timeout) and not self._done:
                raise TelegradError(Code.DEADLINE_EXCEEDED, f"no answer within {timeout if said is None else said} s",
                                    op_id=self.op_id)
        if self._error is not None:
            raise self._error
        return self._value


Waited = Union["Future[Any]", Answer]
