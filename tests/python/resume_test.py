"""Resumable sessions over connections that break: every operation takes effect once."""

import select
import socket
import threading
import unittest

import numpy as np
from support import Daemon, DaemonTest, main, raises, run_async, seeded

import telegrad
from telegrad import Code, Graph, aio


class Proxy:
    """Forwards connections to a server, and cuts them: after so many bytes, or when told to."""

    def __init__(self, target, next_cut=lambda: None):
        self.target, self.next_cut = target, next_cut
        self.cuts = 0
        self.refusing = False
        self._lock = threading.Lock()
        self._links = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
                continue
            host, port = self.target.rsplit(":", 1)
            server = socket.create_connection((host, int(port)))
            with self._lock:
                self._links.add((client, server))
            thread = threading.Thread(target=self._forward, args=(client, server), daemon=True)
            thread.start()

    def _forward(self, client, server):
        left = self.next_cut()
        other = {client: server, server: client}
        try:
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(1 << 16)
                    if left is not None and len(data) >= left:
                        other[ready].sendall(data[:left])
                        return
                    if not data:
                        return
                    left = None if left is None else left - len(data)
                    other[ready].sendall(data)
        except OSError:
            pass
        finally:
            with self._lock:
                self._links.discard((client, server))
                self.cuts += 1
            for end in (client, server):
                end.close()

    def cut(self):
        """Breaks every connection now."""
        with self._lock:
            links = list(self._links)
        for client, server in links:
            for end in (client, server):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()


def counting_graph():
    g = Graph()
    count = g.state("count", init=np.zeros(1, np.int64))
    g.store(count, count + 1)
    return g


class ResumeTest(DaemonTest):
    def through_proxy(self, next_cut=lambda: None):
        proxy = Proxy(self.daemon.address, next_cut)
        self.addCleanup(proxy.close)
        connection = telegrad.connect(proxy.address)
        self.addCleanup(connection.close)
        return proxy, connection

    def test_every_operation_once_however_the_connection_breaks(self):
        rng = seeded("cut_at_random")
        proxy, connection = self.through_proxy()
        proxy.next_cut = lambda: rng.randrange(1000, 12_000)
        proxy.cut()
        with connection.session(resumable=True, timeout=120) as session:
            session.sync()
            program = session.put(counting_graph())
            count = program.buffer("count")
            launched = 0
            for _ in range(40):
                for _ in range(rng.randrange(1, 60)):
                    program.launch()
                    launched += 1
                self.assertEqual(int(count.numpy()[0]), launched)
            self.assertGreater(session.resumed, 3)
            self.assertGreater(proxy.cuts, 3)

    def test_uploads_that_are_cut_are_whole(self):
        rng = seeded("cut_uploads")
        proxy, connection = self.through_proxy()
        with connection.session(resumable=True, timeout=120) as session:
            session.sync()
            proxy.next_cut = lambda: rng.randrange(1 << 20, 24 << 20)
            proxy.cut()
            array = np.frombuffer(rng.randbytes(40 << 20), np.uint8)
            buffer = session.upload(array)
            session.sync()
            self.assertGreater(session.resumed, 0)
            proxy.next_cut = lambda: None
            proxy.cut()
            while True:  # what was read from device memory is not kept for another stream
                try:
                    got = buffer.numpy()
                    break
                except telegrad.TelegradError as error:
                    self.assertEqual(error.code, Code.ABORTED)
            np.testing.assert_array_equal(got, array)

    def test_futures_wait_through_a_break(self):
        proxy, connection = self.through_proxy()
        with connection.session(resumable=True, timeout=60) as session:
            program = session.put(counting_graph())
            program.run()
            proxy.refusing = True
            proxy.cut()
            futures = [session.run_future(program, program.handles()) for _ in range(10)]
            read = session.read_future(program.buffer("count"))
            proxy.refusing = False
            self.assertEqual(int(read.result(60)[0]), 11)
            self.assertEqual([f.result(60).kernels for f in futures], [1] * 10)
            self.assertEqual(session.resumed, 1)

    def test_with_asyncio(self):
        rng = seeded("cut_asyncio")
        proxy = Proxy(self.daemon.address, lambda: rng.randrange(1000, 12_000))
        self.addCleanup(proxy.close)

        async def run():
            connection = None
            while connection is None:
                try:
                    connection = await aio.connect(proxy.address)
                except telegrad.TelegradError:
                    pass
            async with connection, connection.session(resumable=True, timeout=120) as session:
                program = await session.put(counting_graph())
                launched = 0
                for _ in range(30):
                    for _ in range(rng.randrange(1, 60)):
                        await program.launch()
                        launched += 1
                    self.assertEqual(int((await program.read("count"))[0]), launched)
                self.assertGreater(session.resumed, 2)

        run_async(run())

    def test_a_session_that_is_not_resumable_ends_with_its_connection(self):
        proxy, connection = self.through_proxy()
        session = connection.session(timeout=60)
        buffer = session.upload([1])
        buffer.numpy()
        proxy.cut()
        with raises(self, Code.UNAVAILABLE, "is over"):
            while True:
                buffer.numpy()

    def test_an_idle_session_renews_its_lease(self):
        """As often as its lease asks for, counted in messages; nothing else is said meanwhile."""
        _, connection = self.through_proxy()
        session = connection.session(resumable=True, lease=1, timeout=60)
        buffer = session.upload([7])
        session.sync()
        self.assertEqual(session._core.opened.lease_ms, 1000)
        renewed = threading.Semaphore(0)
        make = session._core.idle_message

        def counted():
            renewed.release()
            return make()

        session._core.idle_message = counted
        for _ in range(7):  # longer than the lease
            self.assertTrue(renewed.acquire(timeout=60))
        self.assertEqual(buffer.numpy()[0], 7)
        session.close()

    def test_ending_frees_what_the_server_would_keep(self):
        connection = telegrad.connect(self.daemon.address)
        self.addCleanup(connection.close)
        for end in ("close", "_abort"):
            session = connection.session(resumable=True, timeout=60)
            session.upload(np.zeros(100))
            session.sync()
            self.assertGreater(connection.stats()["telegrad_sessions"], 0)
            getattr(session, end)()
            while connection.stats()["telegrad_sessions"]:
                pass  # the test's own time limit ends this


class DaemonStartedAnewTest(unittest.TestCase):
    def test_the_session_is_lost_and_says_so(self):
        first, second = Daemon(), Daemon()
        for daemon in (first, second):
            self.addCleanup(daemon.stop)
        proxy = Proxy(first.address)
        self.addCleanup(proxy.close)
        with telegrad.connect(proxy.address) as connection:
            session = connection.session(resumable=True, timeout=60)
            program = session.put(counting_graph())
            program.run()
            proxy.refusing = True
            first.process.kill()
            proxy.cut()
            future = session.run_future(program, program.handles())
            proxy.target, proxy.refusing = second.address, False
            with raises(self, Code.ABORTED, "is lost", "(run)"):
                future.result(60)
            with raises(self, Code.ABORTED, "is lost"):
                session.sync()


if __name__ == "__main__":
    main()
