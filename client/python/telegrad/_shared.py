"""Memory shared with a daemon of this machine that offers it (--local-socket and --local-memory).

The daemon gets a descriptor of the memory over its local socket, and copies between it and a buffer: the
bytes cross no connection. Linux only, where memory has descriptors and can be sealed against being cut.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import threading
from typing import Any, Sequence

import numpy as np

from telegrad import dtypes
from telegrad.dtypes import Array, DTypeLike
from telegrad.errors import Code, TelegradError, invalid

with contextlib.suppress(ImportError):  # Windows has none
    import fcntl

ANSWER_BYTES = 4096
_SEALS = 0x1 | 0x2 | 0x4  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW
_ADD_SEALS = 1033  # F_ADD_SEALS


class SharedArray:
    """Memory for an array of a shape and type, that a daemon can be given: `array` is it."""

    def __init__(self, shape: Sequence[int], dtype: DTypeLike = "f32") -> None:
        if not hasattr(os, "memfd_create"):
            raise TelegradError(Code.UNIMPLEMENTED, "memory is shared on Linux only")
        self.dtype = dtypes.dtype(dtype)
        if self.dtype.is_packed:
            raise invalid(f"elements of {self.dtype} are packed on the server; share them as u8")
        self.nbytes = self.dtype.nbytes(dtypes.num_elements(shape))
        if self.nbytes == 0:
            raise invalid("shared memory of no bytes")
        self.fd = os.memfd_create("telegrad", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(self.fd, 0, self.nbytes)  # now, and charged to this process
            fcntl.fcntl(self.fd, _ADD_SEALS, _SEALS)
            self._map = mmap.mmap(self.fd, self.nbytes)
        except BaseException:
            os.close(self.fd)
            raise
        self.array: Array = np.frombuffer(self._map, self.dtype.numpy).reshape(tuple(shape))

    def __del__(self) -> None:
        if hasattr(self, "array"):  # whose memory lives as long as there are views of it
            os.close(self.fd)


class LocalDoor:
    """A connection to a daemon's local socket."""

    def __init__(self, path: str) -> None:
        self._turn = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise TelegradError(Code.UNAVAILABLE, f"the server's local socket {path}: {error}") from None

    def ask(self, request: str, fd: int) -> None:
        with self._turn:
            try:
                socket.send_fds(self._socket, [request.encode()], [fd])
                answer = self._socket.recv(ANSWER_BYTES).decode("utf-8", "replace")
            except OSError as error:
                raise TelegradError(Code.UNAVAILABLE, f"the server's local socket: {error}") from None
        if not answer:
            raise TelegradError(Code.UNAVAILABLE, "the server's local socket was closed")
        if not answer.startswith("ok"):
            raise TelegradError(Code.FAILED_PRECONDITION, f"the server's local socket says: {answer}")

    def close(self) -> None:
        self._socket.close()


def offered(server: Any) -> str:
    """The path of the local socket, where the server has one and this system shares memory."""
    if not server.local_socket:
        raise TelegradError(Code.FAILED_PRECONDITION,
                            "the server shares no memory; start it with --local-socket and --local-memory")
    return str(server.local_socket)
