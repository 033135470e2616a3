"""The blocking client's channel to a server: versions agreed, credentials, unary calls."""

from __future__ import annotations

import os
from typing import Any

import grpc

from telegrad import _messages as messages
from telegrad import _transport as transport
from telegrad import credentials
from telegrad.credentials import TLS, Token


class Channel:
    """A server, with which versions were agreed. Thread-safe."""

    def __init__(self, address: str | None = None, *, tls: TLS | None = None, token: Token = None,
                 timeout: float = 10.0, device: str | None = None) -> None:
        self.address = transport.address_of(address)
        self.device = transport.device_of(device)
        self.timeout = timeout
        tls, self._token = credentials.from_environment(tls, token, os.environ)
        credentials.check_token(self.address, tls, self._token)
        self._closed = False
        self.encrypted = tls is not None
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

    def _call(self, name: str, request: Any, timeout: float) -> Any:
        if self._closed:
            raise transport.closed_error(self.address)
        try:
            data = self._channel.unary_unary(transport.method(name))(
                request.encode(), timeout=timeout, metadata=credentials.metadata(self._token))
        except grpc.RpcError as error:
            raise transport.to_error(self.address, error.code(), error.details()) from None
        return transport.decode_answer(name, data)
