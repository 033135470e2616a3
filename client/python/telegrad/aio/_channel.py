"""The asyncio client's channel to a server: credentials and unary calls."""

from __future__ import annotations

import os
from typing import Any

import grpc
import grpc.aio

from telegrad import _messages as messages
from telegrad import _transport as transport
from telegrad import credentials
from telegrad.credentials import TLS, Token


class Channel:
    """A server; its `server` says which versions were agreed, once `hello` has returned."""

    server: messages.HelloResponse

    def __init__(self, address: str | None, *, tls: TLS | None, token: Token,
                 timeout: float, device: str | None) -> None:
        self.address = transport.address_of(address)
        self.device = transport.device_of(device)
        self.timeout = timeout
        tls, self._token = credentials.from_environment(tls, token, os.environ)
        credentials.check_token(self.address, tls, self._token)
        self._closed = False
        options = transport.options_of(tls)
        self._channel = (grpc.aio.insecure_channel(self.address, options) if tls is None else
                         grpc.aio.secure_channel(self.address, tls.credentials(), options))

    async def hello(self) -> None:
        """Agrees on versions; closes the channel where that fails."""
        try:
            answer = await self._call("Hello", transport.hello_request(), self.timeout)
            self.server = transport.check_hello(answer, self.address)
        except BaseException:
            await self._channel.close()
            raise

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

    async def _call(self, name: str, request: Any, timeout: float) -> Any:
        if self._closed:
            raise transport.closed_error(self.address)
        try:
            data = await self._channel.unary_unary(transport.method(name))(
                request.encode(), timeout=timeout, metadata=credentials.metadata(self._token))
        except grpc.RpcError as error:
            raise transport.to_error(self.address, error.code(), error.details()) from None
        return transport.decode_answer(name, data)
