"""How both clients reach a server: addresses, channel options, and gRPC's errors as ours."""

from __future__ import annotations

import os
from typing import Any, Sequence

from telegrad import _messages as messages
from telegrad import _tables as tables
from telegrad._local import find_daemon
from telegrad._wire import DecodeError
from telegrad.credentials import TLS
from telegrad.errors import Code, TelegradError, invalid

DEFAULT_ADDRESS = "127.0.0.1:50055"
VERSION = "0.1.0"
CLIENT = f"telegrad-python/{VERSION}"
MAX_MESSAGE_BYTES = tables.MAX_MESSAGE_BYTES
EXECUTE = "/telegrad.v1.Compute/Execute"

_OPTIONS = (
    ("grpc.max_receive_message_length", tables.MAX_MESSAGE_BYTES),
    # None of gRPC's own compression: a message would be unpacked before its length is looked at.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.max_send_message_length", tables.MAX_MESSAGE_BYTES),
    ("grpc.http2.max_frame_size", (1 << 24) - 1),
    ("grpc.http2.lookahead_bytes", 16 << 20),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.keepalive_time_ms", 40_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # A stream is never repeated by the library; resuming a session is this package's business.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
)


def read_file(path: str | os.PathLike[str]) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def address_of(address: str | None) -> str:
    """As given, else the environment's, else that of this machine's daemon, else the server's default."""
    address = address or os.environ.get("TELEGRAD_ADDRESS") or find_daemon() or DEFAULT_ADDRESS
    host, colon, port = address.rpartition(":")
    numeric = ":" in host and "/" not in host and not host.startswith("[")  # IPv6 without its brackets
    if not address.startswith("unix:") and (numeric or not (colon and host and port.isdigit())):
        host = f"[{address}]" if numeric else host if colon and not port else address
        raise invalid(f"the address {address!r} has no port: HOST:PORT or unix:PATH is one, such as "
                      f"{host}:{DEFAULT_ADDRESS.split(':')[1]}")
    return address


def device_of(device: str | None) -> str:
    """As given, else the environment's; empty: the server's first."""
    return device or os.environ.get("TELEGRAD_DEVICE") or ""


def options_of(tls: TLS | None) -> list[tuple[str, Any]]:
    out: list[tuple[str, Any]] = list(_OPTIONS)
    if tls is not None and tls.server_name is not None:
        out.append(("grpc.ssl_target_name_override", tls.server_name))
    return out


def hello_request() -> messages.HelloRequest:
    return messages.HelloRequest(
        protocol=messages.VersionRange(tables.PROTOCOL_MIN, tables.PROTOCOL_MAX),
        graph_form=messages.VersionRange(tables.GRAPH_FORM_MIN, tables.GRAPH_FORM_MAX),
        client=CLIENT)


def check_hello(hello: messages.HelloResponse, address: str) -> messages.HelloResponse:
    """What the server says must be what was asked for, and of use."""
    if not tables.PROTOCOL_MIN <= hello.protocol <= tables.PROTOCOL_MAX:
        raise TelegradError(Code.FAILED_PRECONDITION,
                            f"{address} chose protocol {hello.protocol}, expected "
                            f"{tables.PROTOCOL_MIN} to {tables.PROTOCOL_MAX}")
    hello.chunk_bytes = min(max(hello.chunk_bytes, 4096), tables.MAX_MESSAGE_BYTES // 2)
    return hello


def closed_error(address: str) -> TelegradError:
    return TelegradError(Code.FAILED_PRECONDITION, f"the connection to {address} is closed")


def no_room_error(timeout: float | None, operation: str) -> TelegradError:
    return TelegradError(Code.DEADLINE_EXCEEDED, "the server took nothing of what waits to be sent "
                         f"for {timeout} s", operation=operation)


def offsets_for(connection: Any, offsets: Sequence[int]) -> Sequence[int]:
    """Of a run on that connection."""
    if offsets and not connection.server.binds_parts:
        raise TelegradError(Code.UNIMPLEMENTED, f"the server at {connection.address} binds whole buffers only; it is "
                            "older than this package")
    return offsets


def check_search(connection: Any, search: bool) -> bool:
    """Of a run on that connection."""
    if search and not connection.server.searches:
        raise TelegradError(Code.FAILED_PRECONDITION, f"the server at {connection.address} does not search for faster kernels; "
                            "its operator has to start it with --search-seconds")
    return search


def method(name: str) -> str:
    """The path of a method that is called with one message."""
    return next(path for path in messages.METHODS if path.endswith("/" + name))


def decode_answer(name: str, data: bytes) -> Any:
    try:
        return messages.METHODS[method(name)][1].decode(data)
    except DecodeError as error:
        raise TelegradError(Code.INTERNAL, f"the answer to {name} is malformed: {error}") from None


def to_error(address: str, code: Any, details: str | None) -> TelegradError:
    """Of a grpc.StatusCode."""
    number = code.value[0] if code is not None else Code.UNKNOWN
    message = details or "no reason was given"
    if number == Code.DEADLINE_EXCEEDED:
        message = f"{address} did not answer in time"
    if number == Code.UNAVAILABLE:
        message = (f"no server answers at {address} ({message}); `telegrad up` starts one on this machine. A server "
                   "that requires TLS (the argument tls), or rejects this client's certificate, causes the same error")
    return TelegradError(number, message)
