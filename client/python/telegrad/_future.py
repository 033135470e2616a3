"""The blocking client's futures."""

from __future__ import annotations

import concurrent.futures
from typing import Generic, TypeVar

from telegrad.errors import Code, TelegradError

T = TypeVar("T")


class Future(concurrent.futures.Future, Generic[T]):  # type: ignore[type-arg]
    """What an operation will answer; `op_id` is its number in the session.

    Its callbacks run on the session's thread, and so may not wait for the session.
    """

    op_id = 0

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
