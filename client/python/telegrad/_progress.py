"""What a session moves, and a line about it for whoever waits at a terminal."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from types import TracebackType
from typing import NamedTuple, Protocol, TextIO

from telegrad.errors import TelegradError

QUIET_SECONDS = 2.0
REDRAW_SECONDS = 0.2


class Amount(NamedTuple):
    """Bytes that have moved, and that were asked for."""

    moved: int
    total: int


class Kernels(NamedTuple):
    """Of those that are compiled together: how many are done, of how many."""

    done: int
    total: int


class Meter:
    """Of a session. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moved = self._total = 0

    def ask(self, nbytes: int) -> None:
        with self._lock:
            self._total += nbytes

    def move(self, nbytes: int) -> None:
        """Negative: what was lost on the way."""
        with self._lock:
            self._moved += nbytes

    def amount(self) -> Amount:
        with self._lock:
            return Amount(self._moved, self._total)


class Measured(Protocol):
    """What is needed of a session."""

    @property
    def transferred(self) -> Amount: ...

    @property
    def compiling(self) -> Kernels: ...


def clock(seconds: float) -> str:
    """0:07, 1:02:03; rounded up."""
    whole = math.ceil(seconds)
    minutes = f"{whole // 60 % 60}:{whole % 60:02}"
    return minutes if whole < 3600 else f"{whole // 3600}:{minutes.rjust(5, '0')}"


def counted(what: str, done: int, total: int, unit: str, seconds: float) -> str:
    """"sending: 20 of 80 MiB, 25%, 5 MiB/s, 0:12 left", or the time where nothing is to be done."""
    if done >= total:
        return f"{what}: {clock(seconds)}"
    out = f"{what}: {done} of {total} {unit}, {100 * done // total}%"
    if done <= 0 or seconds <= 0:
        return out
    rate = done / seconds
    return f"{out}, {rate:.3g} {unit}/s, {clock((total - done) / rate)} left"


def line(what: str, before: Amount, now: Amount, seconds: float) -> str:
    """Of what has moved since."""
    return counted(what, now.moved - before.moved >> 20, now.total - before.total >> 20, "MiB", seconds)


class progress:
    """While it is entered, a line at the bottom of the terminal says how a session's transfers go, and what is
    compiled for it while nothing moves:

        with telegrad.progress(session, "sending the weights"):
            ...

    It appears after two seconds, and only on a terminal (TERM, NO_COLOR count).
    """

    def __init__(self, session: Measured, what: str, file: TextIO | None = None) -> None:
        self._session, self._what = session, what
        self._file = sys.stderr if file is None else file
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> progress:
        terminal = (self._file.isatty() and os.environ.get("TERM", "dumb") != "dumb"
                    and not os.environ.get("NO_COLOR"))
        if terminal:
            self._before, self._begin = self._session.transferred, time.monotonic()
            self._thread = threading.Thread(target=self._draw, name="telegrad progress", daemon=True)
            self._thread.start()
        return self

    def _draw(self) -> None:
        drawn = False
        wait = QUIET_SECONDS
        last, since = Kernels(0, 0), 0.0
        while not self._end.wait(wait):
            seconds, now = time.monotonic() - self._begin, self._session.transferred
            text = line(self._what, self._before, now, seconds)
            if now.moved - self._before.moved >= now.total - self._before.total:
                kernels = self._kernels()
                if kernels.total < last.total or kernels.done < last.done:
                    since = seconds  # others than before, whose rate is their own
                if kernels.done < kernels.total:
                    text = counted(self._what, kernels.done, kernels.total, "kernels", seconds - since)
                last = kernels
            self._file.write(f"\r\033[K{text}")
            self._file.flush()
            drawn, wait = True, REDRAW_SECONDS
        if drawn:
            self._file.write("\r\033[K")
            self._file.flush()

    def _kernels(self) -> Kernels:
        try:
            return self._session.compiling
        except TelegradError:  # whoever waits for the server learns it
            return Kernels(0, 0)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()
