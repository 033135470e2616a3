"""The blocking client's connection to a server."""

from __future__ import annotations

import os
from typing import Any

import grpc

from telegrad import _messages as messages
from telegrad import _transport as transport
from telegrad import credentials
from telegrad.credentials import TLS, Token
from telegrad.session import Session


def connect(address: str | None = None, *, tls: TLS | None = None, token: Token = None,
            timeout: float = 10.0, device: str | None = None) -> Connection:
    """Connects to a server at HOST:PORT or unix:PATH.

    Without an address, $TELEGRAD_ADDRESS counts, and without that 127.0.0.1:50055.

    `tls`: certificates, where the server uses TLS. `token`: a bearer token, or a function that
    gives one for each call (`token_from_file`, `token_from_local_socket`). Where they are None, the
    environment counts, see docs/python.md. `timeout`: seconds for connecting and for each unary
    call. `device`: a name of `Connection.devices`, where buffers and models are that name none, and
    so the runs that use them; None: $TELEGRAD_DEVICE, else the server's first. Raises TelegradError;
    UNAVAILABLE if no server answers.
    """
    return Connection(address, tls=tls, token=token, timeout=timeout, device=device)


class Connection:
    """A server, with which versions were agreed. Thread-safe."""

    def __init__(self, address: str | None = None, *, tls: TLS | None = None, token: Token = None,
                 timeout: float = 10.0, device: str | None = None) -> None:
        self.address = transport.address_of(address)
        self.device = transport.device_of(device)
        self.timeout = timeout
        tls, self._token = credentials.from_environment(tls, token, os.environ)
        credentials.check_token(self.address, tls, self._token)
        self._sessions: set[Session] = set()
        self._closed = False
        options = transport.options_of(tls)
        self._channel = (grpc.insecure_channel(self.address, options) if tls is None else
                         grpc.secure_channel(self.address, tls.credentials(), options))
        try:
            hello = self._call("Hello", transport.hello_request(), timeout)
            self.server: messages.HelloResponse = transport.check_hello(hello, self.address)
        except BaseException:
            self._channel.close()
            raise

    def devices(self) -> list[messages.Device]:
        """The server's devices: name, target, memory, health."""
        devices: list[messages.Device] = self._call(
            "ListDevices", messages.ListDevicesRequest(), self.timeout).devices
        return devices

    def stats(self) -> dict[str, float]:
        """The server's counters, by the names of its metrics page; for who is no administrator, those
        of its tenant."""
        response = self._call("Stats", messages.StatsRequest(), self.timeout)
        return {entry.key: entry.value for entry in response.values}

    def session(self, *, resumable: bool = False, lease: float | None = None,
                timeout: float | None = None) -> Session:
        """A new session.

        A resumable one outlives a broken connection: it connects again by itself and repeats what
        the server had not got, each operation once. `lease`: seconds for which the server keeps it
        when it receives nothing from this process; None: the server's default. `timeout`: seconds
        that a method waits for an answer by default; None: no limit. Opening takes no round trip:
        a refusal appears in the first answer.
        """
        if self._closed:
            raise transport.closed_error(self.address)
        session = Session(self, resumable=resumable, lease=lease, timeout=timeout)
        self._sessions.add(session)
        return session

    def close(self) -> None:
        """Ends its sessions at once."""
        for session in list(self._sessions):
            session._abort()
        self._closed = True
        self._channel.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Connection to {self.address}>"

    def _call(self, name: str, request: Any, timeout: float) -> Any:
        if self._closed:
            raise transport.closed_error(self.address)
        try:
            data = self._channel.unary_unary(transport.session_method(name))(
                request.encode(), timeout=timeout, metadata=credentials.metadata(self._token))
        except grpc.RpcError as error:
            raise transport.to_error(self.address, error.code(), error.details()) from None
        return transport.decode_answer(name, data)
