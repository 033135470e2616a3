"""The asyncio client's connection to a server."""

from __future__ import annotations

from telegrad import _transport as transport
from telegrad.aio._channel import Channel
from telegrad.aio._session import SessionBase
from telegrad.aio.session import Session
from telegrad.credentials import TLS, Token


async def connect(address: str | None = None, *, tls: TLS | None = None, token: Token = None,
                  timeout: float = 10.0, device: str | None = None) -> Connection:
    """See telegrad.connect."""
    connection = Connection(address, tls=tls, token=token, timeout=timeout, device=device)
    await connection.hello()
    return connection


class Connection(Channel):
    """A server, with which versions were agreed; made by `connect`."""

    def __init__(self, address: str | None, *, tls: TLS | None, token: Token,
                 timeout: float, device: str | None) -> None:
        super().__init__(address, tls=tls, token=token, timeout=timeout, device=device)
        self._sessions: set[SessionBase] = set()

    def session(self, *, resumable: bool = False, lease: float | None = None,
                timeout: float | None = None) -> Session:
        """A new session; see telegrad.Connection.session."""
        if self._closed:
            raise transport.closed_error(self.address)
        session = Session(self, resumable=resumable, lease=lease, timeout=timeout,
                          ended=self._sessions.discard)
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
