"""Large writes and reads beside a session's stream, over TCP sockets of their own (docs/wire.md, bulk sockets).

One socket carries the uploads and two the downloads, each with a thread, so that none waits for another. The bytes go from the caller's array to the system and back without a copy in between. When a
socket breaks, another one takes its place: an upload is sent again from its beginning, because the server
takes again what it has, and a download is asked for from where it stopped.

Chunks are checked by zlib's CRC-32, which Python has, and not at all within a machine or under TLS, where nothing
changes them. Python's ssl has no keys that both ends know, so under TLS the server is recognized by the fingerprint of
its certificate, which came with the ticket over the connection that is trusted.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import hmac
import os
import select
import socket
import ssl
import struct
import sys
import threading
import time
import zlib
from dataclasses import dataclass, field
from typing import Callable

from telegrad import _messages as messages
from telegrad._wire import DecodeError
from telegrad.errors import Code, TelegradError

LEAST_BYTES = 4 << 20  # from here on a socket of its own is worth it
COPIED_BYTES = 64 << 20  # up to here an upload is copied, and its caller does not wait for it
PULL_BYTES = 8 << 20
PULLS_IN_FLIGHT = 2
SPLIT_BYTES = 16 << 20  # from here on a download has two parts
CHUNK_BYTES = 1 << 20
MAX_HEAD_BYTES = 1 << 16
MAX_ERRORS = 64  # damaged chunks of a transfer, after which it is not the network's fault
ATTACH_SECONDS = 2.0  # until the stream is used instead
STALL_SECONDS = 60.0
TRIES = 4  # sockets for one transfer
ROOM_SECONDS = 30.0  # for another socket where the server has too many open
_NONCE_BYTES, _IDENTITY_BYTES, _SECRET_BYTES, _DIGEST_BYTES = 16, 16, 32, 32
_SIZES = struct.Struct("<II")


class Broken(Exception):
    """A socket that cannot be used any more; another may."""


def address_of(server: str, said: str) -> tuple[str, int] | None:
    """Where bulk sockets go, where a server at the first address says the second; None: nowhere."""
    if not said or server.startswith("unix:"):
        return None
    host, _, port = (server.rpartition(":")[0] + said if said.startswith(":") else said).rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdigit() else None


def wanted_checksum(host: str, tls: bool) -> messages.Checksum:
    within = tls or host in ("127.0.0.1", "::1")
    return messages.Checksum.CHECKSUM_NONE if within else messages.Checksum.CHECKSUM_CRC32


def _recognized(plain: socket.socket, digest: bytes) -> ssl.SSLSocket:
    """TLS with the one server whose certificate has this SHA-256, whoever signed it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the digest is what is checked
    try:
        under_tls = context.wrap_socket(plain)
    except OSError as error:
        raise Broken(f"TLS: {error}") from None
    shown = under_tls.getpeercert(binary_form=True) or b""
    if not hmac.compare_digest(hashlib.sha256(shown).digest(), digest):
        under_tls.close()
        raise Broken("who answers shows another certificate than the server's")
    return under_tls


def readable(sockets: list[socket.socket], seconds: float | None) -> list[socket.socket]:
    """Those that have input, after waiting for one of them."""
    if not hasattr(select, "poll"):
        return select.select(sockets, [], [], seconds)[0]
    poll = select.poll()  # unlike select, for any number of open files
    for each in sockets:
        poll.register(each, select.POLLIN)
    ready = {fd for fd, _ in poll.poll(None if seconds is None else seconds * 1000)}
    return [each for each in sockets if each.fileno() in ready]


class BulkSocket:
    """A connection that the server has admitted to the session."""

    _wait_all: int = 0

    def __init__(self, address: tuple[str, int], ticket: messages.AdmitBulkResponse, epoch: int) -> None:
        sizes = len(ticket.identity), len(ticket.secret), len(ticket.certificate_sha256)
        if sizes != (_IDENTITY_BYTES, _SECRET_BYTES, _DIGEST_BYTES if ticket.tls else 0):
            raise Broken("its ticket is not of the kind that this client uses")
        try:
            self._socket = socket.create_connection(address, ATTACH_SECONDS)
        except OSError as error:
            raise Broken(f"{address[0]}:{address[1]}: {error}") from None
        self._tls = ticket.tls
        try:
            if ticket.tls:
                self._socket = _recognized(self._socket, ticket.certificate_sha256)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._attach(ticket, epoch)
            self._set_stall(STALL_SECONDS)
        except BaseException:
            self._socket.close()
            raise

    def _set_stall(self, seconds: float) -> None:
        """How long a call may wait for a byte; by the system where that can be said, which wakes Python less."""
        if sys.platform != "linux" or self._tls:
            self._socket.settimeout(seconds)
            return
        self._socket.settimeout(None)
        interval = struct.pack("ll", int(seconds), 0)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, interval)
        self._wait_all = socket.MSG_WAITALL

    def _attach(self, ticket: messages.AdmitBulkResponse, epoch: int) -> None:
        def proof(who: bytes) -> bytes:
            return hmac.new(ticket.secret, b"telegrad bulk " + who + nonce, hashlib.sha256).digest()

        nonce = os.urandom(_NONCE_BYTES)
        wanted = wanted_checksum(self._socket.getpeername()[0], self._tls)
        self.send(messages.TransferRequest(attach=messages.Attach(
            token=ticket.identity + nonce + proof(b"client"), epoch=epoch,
            checksum=wanted)))
        attached = self.receive().attached
        if attached is None or not hmac.compare_digest(attached.proof, proof(b"server")):
            raise Broken("who answers is not the server that gave the ticket")
        self._checked = attached.checksum == messages.Checksum.CHECKSUM_CRC32
        if not self._checked and attached.checksum != wanted:
            raise Broken("the server is older than this package, and checks chunks in another way")
        self.credit = self.most_credit = attached.credit
        self.chunk_bytes = min(attached.chunk_bytes, attached.credit, CHUNK_BYTES)
        if self.chunk_bytes == 0:
            raise Broken("the server takes chunks of no bytes")

    def send(self, request: messages.TransferRequest, data: memoryview = memoryview(b"")) -> None:
        head = request.encode()
        first = _SIZES.pack(len(head), len(data)) + head
        try:
            sent = 0
            if hasattr(self._socket, "sendmsg") and not isinstance(self._socket, ssl.SSLSocket):
                sent = self._socket.sendmsg([first, data])
            if sent < len(first):
                self._socket.sendall(first[sent:])
                sent = len(first)
            self._socket.sendall(data[sent - len(first):])
        except OSError as error:
            raise Broken(str(error)) from None

    def receive(self) -> messages.TransferResponse:
        """The next message; of a chunk, its bytes are next in the socket. Broken, too, where the server ends it."""
        sizes = bytearray(_SIZES.size)
        self.receive_into(memoryview(sizes))
        head_bytes, self._data_bytes = _SIZES.unpack(sizes)
        if head_bytes > MAX_HEAD_BYTES or self._data_bytes > CHUNK_BYTES:
            raise Broken(f"a frame of {head_bytes} and {self._data_bytes} bytes")
        head = bytearray(head_bytes)
        self.receive_into(memoryview(head))
        try:
            response = messages.TransferResponse.decode(bytes(head))
        except DecodeError as error:
            raise Broken(f"a malformed message: {error}") from None
        if response.ended is not None:
            raise Broken(f"the server ended the socket: {response.ended.message}")
        if response.credit is not None:
            self.credit = min(self.credit + response.credit.bytes, self.most_credit)
        if response.download is None and self._data_bytes:
            raise Broken("bytes that belong to no chunk")
        return response

    def receive_chunk(self, chunk: messages.Chunk, into: memoryview) -> bool:
        """The bytes of a chunk; whether they are those that were sent."""
        if chunk.compression or self._data_bytes != chunk.bytes:
            raise Broken("a chunk in a form that was not asked for")
        self.receive_into(into)
        return self.checksum(into) == chunk.checksum

    def checksum(self, data: memoryview) -> int:
        return zlib.crc32(data) if self._checked else 0

    def receive_into(self, view: memoryview) -> None:
        try:
            while len(view):
                count = self._socket.recv_into(view, 0, self._wait_all)
                if count == 0:
                    raise Broken("the server closed the socket")
                view = view[count:]
        except OSError as error:
            raise Broken(str(error)) from None

    def has_input(self, also: socket.socket | None = None, seconds: float | None = 0.0) -> bool:
        """Whether there is a message, at once or after waiting; `also` ends the waiting."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return self._socket in readable([self._socket] + ([] if also is None else [also]), seconds)

    def shutdown(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


@dataclass
class Job:
    """An upload, or a part of a download, from `start` on, of which `at` bytes are there."""

    transfer: int
    view: memoryview
    done: Callable[[TelegradError | None], None]
    moved: Callable[[int], None]  # told how many bytes have; negative: move again
    start: int = 0
    is_last: Callable[[], bool] = lambda: True  # of the parts of the download; asked when the bytes are there
    at: int = 0
    sent: int = 0
    errors: int = 0
    # Of an upload: written to when the operation is acknowledged.
    ended: tuple[socket.socket, socket.socket] | None = field(default_factory=socket.socketpair)

    def end(self) -> None:
        if self.ended is not None:
            with contextlib.suppress(OSError):
                self.ended[1].send(b"\0")

    def close(self) -> None:
        for each in self.ended or ():
            each.close()


class Mover:
    """The transfers of one direction, one after another, on a thread and a socket that last.

    One with another of the same direction beside it leaves to that what it cannot move itself.
    """

    def __init__(self, open_socket: Callable[[], BulkSocket], first: BulkSocket | None,
                 move: Callable[[BulkSocket, Job], None], beside: Mover | None = None) -> None:
        self._open, self._socket, self._move, self._beside = open_socket, first, move, beside
        self._changed = threading.Condition()
        self._jobs: collections.deque[Job] = collections.deque()
        self._closing: TelegradError | None = None
        self._thread = threading.Thread(target=self._run, name="telegrad bulk", daemon=True)
        self._thread.start()

    def add(self, job: Job) -> None:
        with self._changed:
            if self._closing is None:
                self._jobs.append(job)
                self._changed.notify_all()
                return
        job.done(self._closing)
        job.close()

    def close(self, why: TelegradError) -> None:
        """Ends everything; the memory of the jobs is not in use any more."""
        with self._changed:
            self._closing = self._closing or why
            if self._socket is not None:
                self._socket.shutdown()
            for job in self._jobs:
                job.end()
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._closing is not None)
                if not self._jobs:
                    break
                job = self._jobs[0]
            error = self._closing or self._finish(job)
            with self._changed:
                self._jobs.popleft()
            if error is not None and self._beside is not None:
                self._beside.add(job)
                continue
            job.close()
            job.done(error)
        if self._socket is not None:
            self._socket.close()

    def _open_again(self) -> BulkSocket:
        """Waits where the server has no room: until others have gone, or it has noticed that one has broken."""
        until, pause = time.monotonic() + ROOM_SECONDS, 0.05
        while True:
            try:
                return self._open()
            except TelegradError as error:
                late = self._beside is not None or time.monotonic() > until
                if error.code != Code.RESOURCE_EXHAUSTED or late or self._closing is not None:
                    raise
            with self._changed:
                self._changed.wait_for(lambda: self._closing is not None, pause)
            pause = min(2 * pause, 1.0)

    def _finish(self, job: Job) -> TelegradError | None:
        why = ""
        for attempt in range(TRIES):
            if attempt > 0:
                with self._changed:
                    self._changed.wait_for(lambda: self._closing is not None, 0.05 * 2 ** attempt)
            try:
                if self._socket is None:
                    opened = self._open_again()
                    with self._changed:
                        self._socket = opened
                        if self._closing is not None:
                            return self._closing
                self._move(self._socket, job)
                return None
            except (Broken, TelegradError) as error:
                why = str(error)
                with self._changed:
                    if self._socket is not None:
                        self._socket.close()
                    self._socket = None
                    if self._closing is not None:
                        return self._closing
                if isinstance(error, TelegradError) and error.code != Code.UNAVAILABLE:
                    return error
        return TelegradError(Code.UNAVAILABLE, f"{len(job.view)} bytes could not be moved: {why}")


def upload(bulk: BulkSocket, job: Job) -> None:
    """Sends the bytes, until the write is acknowledged."""
    assert job.ended is not None
    ended = job.ended[0]
    job.moved(-job.sent)  # over a socket that has broken
    job.sent = 0
    ranges = collections.deque([(0, len(job.view))])
    while True:
        wants = min(ranges[0][1], bulk.chunk_bytes) if ranges else 0
        waits = not ranges or bulk.credit < wants
        while bulk.has_input(ended, None if waits else 0.0):
            refused = bulk.receive().refused
            if refused is not None and refused.transfer == job.transfer:
                if not _send_again(job, refused):
                    continue
                ranges.appendleft((refused.offset, refused.bytes))
                job.sent -= refused.bytes
                job.moved(-refused.bytes)
            waits = False
        if readable([ended], 0.0):
            return
        if not ranges or bulk.credit < min(ranges[0][1], bulk.chunk_bytes):
            continue
        offset, count = ranges.popleft()
        size = min(count, bulk.chunk_bytes)
        chunk = job.view[offset:offset + size]
        bulk.send(messages.TransferRequest(upload=messages.Chunk(
            transfer=job.transfer, offset=offset, bytes=size, checksum=bulk.checksum(chunk))), chunk)
        bulk.credit -= size
        job.sent += size
        job.moved(size)
        if count > size:
            ranges.appendleft((offset + size, count - size))


def _send_again(job: Job, refused: messages.Refused) -> bool:
    """Whether a refused chunk is to be sent again; an error where that would not help."""
    if refused.code == Code.NOT_FOUND:
        return False  # the write has ended, and its answer says how
    if refused.offset + refused.bytes > len(job.view):
        raise Broken("a chunk was refused that was not sent")
    job.errors += 1
    if job.errors > MAX_ERRORS or refused.code not in (Code.DATA_LOSS, Code.UNAVAILABLE,
                                                       Code.RESOURCE_EXHAUSTED):
        raise TelegradError(refused.code, refused.message)
    return True


def download(bulk: BulkSocket, job: Job) -> None:
    """Gets the bytes of a read that was answered."""
    asked = job.at  # up to here
    in_flight: collections.deque[int] = collections.deque()  # where each pull ends
    total = len(job.view)
    while job.at < total:
        while asked < total and len(in_flight) < PULLS_IN_FLIGHT:
            size = min(PULL_BYTES, total - asked)
            bulk.send(messages.TransferRequest(pull=messages.Pull(
                transfer=job.transfer, offset=job.start + asked, bytes=size)))
            asked += size
            in_flight.append(asked)
        response = bulk.receive()
        if response.refused is not None:
            raise TelegradError(response.refused.code, response.refused.message)
        chunk = response.download
        if chunk is None:
            continue
        if (chunk.transfer, chunk.offset) != (job.transfer, job.start + job.at) or not 0 < chunk.bytes <= asked - job.at:
            raise Broken("a chunk that was not asked for")
        if not bulk.receive_chunk(chunk, job.view[job.at:job.at + chunk.bytes]):
            job.errors += 1
            if job.errors > MAX_ERRORS:
                raise TelegradError(Code.DATA_LOSS, "chunks of a read have arrived damaged several times")
            raise Broken("a chunk arrived damaged")
        job.at += chunk.bytes
        job.moved(chunk.bytes)
        if job.at == in_flight[0]:
            in_flight.popleft()
    if job.is_last():
        bulk.send(messages.TransferRequest(release=messages.Release(transfer=job.transfer)))
