"""The asyncio client: the methods of the blocking one, to be awaited.

    async with await telegrad.aio.connect("127.0.0.1:50055") as connection:
        async with connection.session() as session:
            x = await session.upload(np.arange(4, dtype=np.float32))
            print(await x.numpy())

Operations take effect in the order in which their coroutines first run, so what is gathered is sent
without waiting for answers in between. Methods without an answer (upload, write, free, launch) wait
only until there is room to send. A run whose task is cancelled is cancelled on the server.
"""

from telegrad.aio.connection import Connection, connect
from telegrad.aio.program import Program
from telegrad.aio.session import Buffer, Session

__all__ = ["Buffer", "Connection", "Program", "Session", "connect"]
