"""What a client shows to a server that asks who it is: a certificate, a token, or its user.

docs/security.md says what the server makes of it.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import time
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence, Union

import grpc

from telegrad.errors import Code, TelegradError, invalid

Path = Union[str, "os.PathLike[str]"]
Metadata = Sequence[tuple[str, str]]
Token = Union[str, Callable[[], str], None]

LOCAL_SOCKET_SECONDS = 10.0


@dataclass(frozen=True)
class TLS:
    """PEM files: `ca`, whom to trust (the system's authorities if None); `cert` and `key`, who this
    client is, where the server asks for it. `server_name` is the name that the server's certificate
    has, where it is not the one in the address."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str | None = None

    def credentials(self) -> Any:
        if (self.cert is None) != (self.key is None):
            raise invalid("a client certificate needs its key, and a key its certificate")
        ca, key, cert = (None if path is None else _read(path)
                         for path in (self.ca, self.key, self.cert))
        return grpc.ssl_channel_credentials(ca, key, cert)


def token_from_file(path: Path) -> Callable[[], str]:
    """A token that is read anew for each call, so that the file may be replaced."""
    def token() -> str:
        return _read(path).decode("ascii", "replace")

    return token


def token_from_local_socket(path: Path) -> Callable[[], str]:
    """A token from the local socket of a server on this machine, renewed before it expires."""
    held = ""
    renew = 0.0

    def token() -> str:
        nonlocal held, renew
        if time.monotonic() >= renew:
            held, seconds = _ask(os.fspath(path))
            renew = time.monotonic() + seconds / 2
        return held

    return token


def _ask(path: str) -> tuple[str, int]:
    """A packet each way: "token", and "ok SECONDS TOKEN" or "error ..."."""
    if not hasattr(socket, "AF_UNIX") or not hasattr(socket, "SOCK_SEQPACKET"):
        raise TelegradError(Code.UNIMPLEMENTED, f"this system has no such sockets as {path}; use another token")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
            asking.settimeout(LOCAL_SOCKET_SECONDS)
            asking.connect(path)
            try:
                asking.send(b"token")
            except BrokenPipeError:
                pass  # refused at once; the answer says why
            answer = asking.recv(8192).decode("ascii", "replace")
    except OSError as error:
        raise TelegradError(Code.UNAVAILABLE,
                            f"no server answers on the local socket {path}: {error}") from None
    words = answer.split(" ")
    if len(words) != 3 or words[0] != "ok" or not words[1].isdigit():
        raise TelegradError(Code.UNAUTHENTICATED,
                            f"the server's local socket {path} says: {answer}")
    return words[2], int(words[1])


def from_environment(tls: TLS | None, token: Token,
                     environment: Mapping[str, str]) -> tuple[TLS | None, Token]:
    """What is not given is taken from TELEGRAD_TLS_CA, _TLS_CERT, _TLS_KEY, _TLS_SERVER_NAME and
    TELEGRAD_TOKEN, _TOKEN_FILE or _LOCAL_SOCKET."""
    def get(name: str) -> str | None:
        return environment.get("TELEGRAD_" + name) or None

    if tls is None and get("TLS_CA") is not None:
        tls = TLS(get("TLS_CA"), get("TLS_CERT"), get("TLS_KEY"), get("TLS_SERVER_NAME"))
    if token is None:
        given = [name for name in ("TOKEN", "TOKEN_FILE", "LOCAL_SOCKET") if get(name) is not None]
        if len(given) > 1:
            raise invalid("more than one of " + ", ".join("TELEGRAD_" + name for name in given))
        for name in given:
            value = environment["TELEGRAD_" + name]
            token = (value if name == "TOKEN" else token_from_file(value) if name == "TOKEN_FILE"
                     else token_from_local_socket(value))
    return tls, token


def check_token(address: str, tls: TLS | None, token: Token) -> None:
    """A token is a secret: it does not travel in the clear to another machine."""
    if token is not None and tls is None and not _is_local(address):
        raise invalid(f"a token for {address} would travel in the clear; give tls=TLS(...)")


def _is_local(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    if address.startswith("unix:") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, which somebody else may resolve
        return False


def metadata(token: Token) -> Metadata:
    """That of a call."""
    if token is None:
        return ()
    text = (token() if callable(token) else token).strip()
    if not text or not all("!" <= c <= "~" for c in text):
        raise invalid("a token is one word of printable characters")
    return (("authorization", f"Bearer {text}"),)


def _read(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise invalid(f"cannot read {os.fspath(path)}: {error.strerror}") from None
