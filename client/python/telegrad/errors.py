"""What goes wrong: one exception, with the server's code and message."""

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """The codes of google.rpc.Code, as gRPC and the server use them."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class TelegradError(Exception):
    """An operation or a connection that failed.

    `code` says what kind of error it is, `message` what was wrong, where, and what was expected.
    `operation` is the operation's name ("run") and `op_id` its number in the session, where the
    error belongs to one. `device_lost`: the device was lost, and buffers of it may be gone: they
    are made again once the device is back.
    """

    def __init__(self, code: int, message: str, *, operation: str | None = None, op_id: int = 0,
                 device_lost: bool = False):
        super().__init__(code, message, operation, op_id)
        try:
            self.code = Code(code)
        except ValueError:  # of a server with newer codes
            self.code = Code.UNKNOWN
        self.message = message
        self.operation = operation
        self.op_id = op_id
        self.device_lost = device_lost

    def __str__(self) -> str:
        where = ""
        if self.operation is not None:
            where = f"operation {self.op_id} ({self.operation}): " if self.op_id else \
                f"{self.operation}: "
        return f"{self.code.name}: {where}{self.message}"

    def __repr__(self) -> str:
        return f"TelegradError({str(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _remake, (int(self.code), self.message, self.operation, self.op_id)


def _remake(code: int, message: str, operation: str | None, op_id: int) -> TelegradError:
    return TelegradError(code, message, operation=operation, op_id=op_id)


_REMEDIES = {
    Code.RESOURCE_EXHAUSTED: "fewer or smaller tensors at a time need less; what the server may use is its operator's to set",
    Code.UNAVAILABLE: "the next call connects again; what was on the server is gone",
    Code.UNAUTHENTICATED: "the next call connects again, with the credentials that there are then",
    Code.DEADLINE_EXCEEDED: "TELEGRAD_TIMEOUT gives the server more seconds",
}


def explained(error: TelegradError, what: str) -> TelegradError:
    """An error of a run, with what was run and what can be done about it."""
    remedy = _REMEDIES.get(error.code)
    message = f"{error.message}; this was {what}" + (f". {remedy[0].upper()}{remedy[1:]}" if remedy else "")
    return TelegradError(error.code, message, operation=error.operation, op_id=error.op_id)


def invalid(message: str) -> TelegradError:
    """An error of the caller's that was found without asking the server."""
    return TelegradError(Code.INVALID_ARGUMENT, message)


def error_of(error: Exception) -> TelegradError:
    """Any error as one of ours."""
    if isinstance(error, TelegradError):
        return error
    return TelegradError(Code.INTERNAL, f"{type(error).__name__}: {error}")
