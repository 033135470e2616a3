"""Ctrl-C in the middle of what must not be left half done takes effect right behind it.

Python calls a signal's handler, which raises KeyboardInterrupt, in the main thread between any two steps, also between a call
of the system's and the note of what it did. While a session sends something or takes an answer, the handler is therefore
another one, which only notes that it was called; but not where it waits.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any, Callable, TypeVar

try:  # those of `signal` take ten times as long, as they look for names of numbers
    from _signal import getsignal as _handler_of, signal as _handle
except ImportError:
    from signal import getsignal as _handler_of, signal as _handle

_NUMBER = int(signal.SIGINT)
T = TypeVar("T")


_main = threading.main_thread().ident  # in others no handler is called


def _find_main() -> None:
    global _main
    _main = threading.main_thread().ident


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_find_main)


class Deferred:
    """with Deferred() as deferred: ..."""

    __slots__ = ("_came", "_handler")

    def __enter__(self) -> Deferred:
        self._handler: Any = None
        if threading.get_ident() == _main and callable(handler := _handler_of(_NUMBER)):
            self._came: list[Any] = []
            self._handler = handler
            _handle(_NUMBER, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        if self._handler is not None:
            _handle(_NUMBER, self._handler)
            if self._came:
                self._handler(_NUMBER, self._came[0])

    def while_waiting(self, function: Callable[..., T], *args: Any) -> T:
        """What a function gives, which waits and may be interrupted."""
        if self._handler is None:
            return function(*args)
        _handle(_NUMBER, self._handler)
        try:
            if self._came:
                self._handler(_NUMBER, self._came.pop())
            return function(*args)
        finally:
            _handle(_NUMBER, self._note)

    def _note(self, number: int, frame: Any) -> None:
        self._came.append(frame)
