"""The asyncio client's connection to a server."""

from __future__ import annotations

import os
from typing import Any

import grpc
import grpc.aio

from telegrad import _messages as messages
from telegrad import _transport as transport
from telegrad import credentials
from telegrad.aio.session import Session
from telegrad.credentials import TLS, Token


async def connect(address: str | None = None, *, tls: TLS | None = None, token: Token = None,
                  timeout: float = 10.0, device: str | None = None) -> Connection:
    """See telegrad.connect."""
    connection = Connection(address, tls=tls, token=token, timeout=timeout, device=device)
    try:
        hello = await connection._call("Hello", transport.hello_request(), timeout)
        connection.server = transport.check_hello(hello, connection.address)
    except BaseException:
        await connection._channel.close()
        raise
    return connection


class Connection:
    """A server, with which versions were agreed; made by `connect`."""

    server: messages.HelloResponse

    def __init__(self, address: str | None, *, tls: TLS | None, token: Token,
                 timeout: float, device: str | None) -> None:
        self.address = transport.address_of(address)
        self.device = transport.device_of(device)
        self.timeout = timeout
        tls, self._token = credentials.from_environment(tls, token, os.environ)
        credentials.check_token(self.address, tls, self._token)
        self._sessions: set[Session] = set()
        self._closed = False
        options = transport.options_of(tls)
        self._channel = (grpc.aio.insecure_channel(self.address, options) if tls is None else
                         grpc.aio.secure_channel(self.address, tls.credentials(), options))

    async def devices(self) -> list[messages.Device]:
        """The server's devices: name, target, memory, health."""
        response = await self._call("ListDevices", messages.ListDevicesRequest(), self.timeout)
        devices: list[messages.Device] = response.devices
        return devices

    async def stats(self) -> dict[str, float]:
        """The server's counters, by the names of its metrics page; for who is no administrator, those
        of its tenant."""
        response = await self._call("Stats", messages.StatsRequest(), self.timeout)
        return {entry.key: entry.value for entry in response.values}

    def session(self, *, resumable: bool = False, lease: float | None = None,
                timeout: float | None = None) -> Session:
        """A new session; see telegrad.Connection.session."""
        if self._closed:
            raise transport.closed_error(self.address)
        session = Session(self, resumable=resumable, lease=lease, timeout=timeout)
        self._sessions.add(session)
        return session

    async def close(self) -> None:
        """Ends its sessions at once."""
        for session in list(self._sessions):
            await session._abort()
        self._closed = True
        await self._channel.close()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Connection to {self.address}>"

    async def _call(self, name: str, request: Any, timeout: float) -> Any:
        if self._closed:
            raise transport.closed_error(self.address)
        try:
            data = await self._channel.unary_unary(transport.session_method(name))(
                request.encode(), timeout=timeout, metadata=credentials.metadata(self._token))
        except grpc.RpcError as error:
            raise transport.to_error(self.address, error.code(), error.details()) from None
        return transport.decode_answer(name, data)
