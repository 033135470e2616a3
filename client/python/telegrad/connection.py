"""The blocking client's connection to a server."""

from __future__ import annotations

from telegrad import _transport as transport
from telegrad._channel import Channel
from telegrad._stream_session import StreamSession
from telegrad.credentials import TLS, Token
from telegrad.session import Session


def connect(address: str | None = None, *, tls: TLS | None = None, token: Token = None,
            timeout: float = 10.0, device: str | None = None) -> Connection:
    """Connects to a server at HOST:PORT or unix:PATH.

    Without an address, $TELEGRAD_ADDRESS counts, without that the daemon of this machine (`telegrad up`),
    and without one 127.0.0.1:50055.

    `tls`: certificates, where the server uses TLS. `token`: a bearer token, or a function that
    gives one for each call (`token_from_file`, `token_from_local_socket`). Where they are None, the
    environment counts, see docs/python.md. `timeout`: seconds for connecting and for each unary
    call. `device`: a name of `Connection.devices`, where buffers and models are that name none, and
    so the runs that use them; None: $TELEGRAD_DEVICE, else the server's first. Raises TelegradError;
    UNAVAILABLE if no server answers.
    """
    return Connection(address, tls=tls, token=token, timeout=timeout, device=device)


class Connection(Channel):
    """A server, with which versions were agreed. Thread-safe."""

    def __init__(self, address: str | None = None, *, tls: TLS | None = None, token: Token = None,
                 timeout: float = 10.0, device: str | None = None) -> None:
        super().__init__(address, tls=tls, token=token, timeout=timeout, device=device)
        self._sessions: set[StreamSession] = set()

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
        session = Session(self, resumable=resumable, lease=lease, timeout=timeout,
                          ended=self._sessions.discard)
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
