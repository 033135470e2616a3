"""Large arrays over bulk sockets: they arrive whatever breaks on the way, in the order of the calls."""

import os
import tempfile
import threading
import time
import unittest.mock

from support import Daemon, DaemonTest, main, raises, slow_graph

import numpy as np

import telegrad
from telegrad import Code, Graph, _bulk as bulk, _messages as messages

MIB = 1 << 20


def noise(nbytes, seed=5):
    return np.frombuffer(np.random.default_rng(seed).bytes(nbytes), np.uint8)


def breaking(name, every, times):
    """A method of BulkSocket that finds the socket broken at each so-manieth call, so often."""
    original = getattr(bulk.BulkSocket, name)
    calls = left = 0

    def method(self, *args):
        nonlocal calls, left
        calls += 1
        if calls % every == 0 and left < times:
            left += 1
            self.shutdown()
            raise bulk.Broken("so says the test")
        return original(self, *args)

    return unittest.mock.patch.object(bulk.BulkSocket, name, method)


class BulkTest(DaemonTest):
    def setUp(self):
        self.connection = telegrad.connect(self.daemon.address)
        self.addCleanup(self.connection.close)
        self.session = self.connection.session(timeout=60)

    def admitted(self):
        return self.connection.stats()["telegrad_bulk_sockets_admitted_total"]

    def test_there_and_back_in_every_size(self):
        before, refused = self.admitted(), self.connection.stats()["telegrad_chunks_refused_total"]
        for nbytes in (bulk.LEAST_BYTES - 1, bulk.LEAST_BYTES, 5 * MIB + 3, bulk.COPIED_BYTES + 17):
            array = noise(nbytes)
            buffer = self.session.upload(array)
            np.testing.assert_array_equal(buffer.numpy(), array)
            out = np.empty_like(array)
            self.assertIs(buffer.numpy(out=out), out)
            np.testing.assert_array_equal(out, array)
        self.assertEqual(self.admitted() - before, 3, "one socket for uploads, two for downloads")
        self.assertEqual(self.connection.stats()["telegrad_chunks_refused_total"], refused)

    def test_parts_of_buffers_and_types(self):
        wide = noise(24 * MIB).view(np.float32).reshape(1024, -1)
        np.testing.assert_array_equal(self.session.upload(wide.T).numpy().view(np.uint32), wide.T.view(np.uint32))
        buffer = self.session.alloc(20 * MIB)
        part = noise(6 * MIB, seed=6)
        self.session.write_bytes(buffer, 3 * MIB + 5, part)
        np.testing.assert_array_equal(self.session.read_bytes(buffer, 3 * MIB + 5, 6 * MIB), part)
        self.assertFalse(self.session.read_bytes(buffer, 0, 3 * MIB + 5).any())

    def test_an_array_may_change_once_upload_returned(self):
        for nbytes in (8 * MIB, bulk.COPIED_BYTES + 1):
            array = np.ones(nbytes, np.uint8)
            buffer = self.session.upload(array)
            array[:] = 2
            self.assertEqual(buffer.numpy().max(), 1)

    def test_operations_keep_their_order(self):
        n = 2 * MIB
        g = Graph()
        x = g.input("x", (n,))
        g.output("y", x + 1)
        program = self.session.put(g)
        reads = []
        for i in range(6):
            program.set("x", np.full(n, i, np.float32))
            program.launch()
            reads.append(self.session.read_future(program.buffer("y")))
        for i, read in enumerate(reads):
            got = read.result(60)
            self.assertTrue((got == i + 1).all(), f"{i}: {got}")

    def test_threads_at_once(self):
        arrays = [noise(5 * MIB + i, seed=i) for i in range(4)]
        got = [None] * len(arrays)

        def go(i):
            got[i] = self.session.upload(arrays[i]).numpy()

        threads = [threading.Thread(target=go, args=(i,)) for i in range(len(arrays))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for array, back in zip(arrays, got):
            np.testing.assert_array_equal(back, array)

    def test_sockets_that_break_are_replaced(self):
        array = noise(12 * MIB)
        for name, every in (("send", 7), ("receive_chunk", 5)):
            before = self.admitted()
            late = time.monotonic() + 60
            with breaking(name, every, times=2):
                np.testing.assert_array_equal(self.session.upload(array).numpy(), array)
                while self.admitted() <= before:  # those that are left may be done before another one is there
                    self.assertLess(time.monotonic(), late, name)
                    np.testing.assert_array_equal(self.session.upload(array).numpy(), array)

    def test_damaged_chunks_are_sent_again(self):
        array = noise(6 * MIB)
        patch = unittest.mock.patch.object(bulk, "wanted_checksum", lambda host, tls: messages.Checksum.CHECKSUM_CRC32)
        patch.start()
        self.addCleanup(patch.stop)
        np.testing.assert_array_equal(self.session.upload(array).numpy(), array)
        refused = self.connection.stats()["telegrad_chunks_refused_total"]
        right, calls = bulk.zlib.crc32, [0]

        def wrong_sometimes(data):
            calls[0] += 1
            return right(data) ^ (calls[0] % 4 == 1)

        with unittest.mock.patch.object(bulk.zlib, "crc32", wrong_sometimes):
            buffer = self.session.upload(array)
            self.session.sync()
            np.testing.assert_array_equal(buffer.numpy(), array)
        np.testing.assert_array_equal(buffer.numpy(), array)
        self.assertGreater(self.connection.stats()["telegrad_chunks_refused_total"], refused)

    def test_a_socket_that_never_works_ends_the_session_with_a_reason(self):
        array = noise(8 * MIB)
        self.session.upload(array)
        self.session.sync()
        with breaking("send", 1, times=1000):
            buffer = self.session.upload(array)
            with raises(self, Code.UNAVAILABLE, "could not be moved", "so says the test"):
                self.session.sync()
            with raises(self, Code.UNAVAILABLE):
                buffer.numpy()

    def test_a_write_that_the_server_refuses_is_one_error(self):
        buffer = self.session.alloc(8 * MIB)
        buffer.free()
        self.session.write_bytes(buffer, 0, noise(8 * MIB))
        with raises(self, Code.NOT_FOUND):
            self.session.sync()
        with raises(self, Code.NOT_FOUND):
            self.session.read_bytes(buffer, 0, 8 * MIB)
        array = noise(5 * MIB)
        np.testing.assert_array_equal(self.session.upload(array).numpy(), array)

    def test_reads_that_were_asked_for_come_before_the_end(self):
        array = noise(9 * MIB)
        with self.connection.session(timeout=60) as session:
            read = session.read_future(session.upload(array))
        np.testing.assert_array_equal(read.result(60), array)

    def test_an_upload_behind_a_long_run_ends_with_its_session(self):
        """Neither the thread that sends nor the caller is left waiting."""
        program = self.session.put(slow_graph())
        program.set("x", np.eye(512, dtype=np.float32))
        program.launch()
        y = program.buffer("y")
        errors = []

        def write():
            try:
                self.session.write_bytes(y.handle, 0, np.zeros(MIB, np.uint8))
                self.session.upload(np.zeros(bulk.COPIED_BYTES + 1, np.uint8)).numpy()
            except telegrad.TelegradError as error:
                errors.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        self.session._abort()
        thread.join(60)
        self.assertFalse(thread.is_alive())
        self.assertTrue(errors)


class StreamTest(unittest.TestCase):
    """Where there are no bulk sockets, everything travels on the stream."""

    def check(self, *flags):
        daemon = Daemon(*flags)
        self.addCleanup(daemon.stop)
        with telegrad.connect(daemon.address) as connection, connection.session(timeout=60) as session:
            array = noise(9 * MIB)
            np.testing.assert_array_equal(session.upload(array).numpy(), array)
            return connection.stats()["telegrad_bulk_sockets_admitted_total"]

    def test_a_server_without_them(self):
        self.assertEqual(self.check("--bulk-listen", "none"), 0)

    def test_an_address_that_nobody_answers(self):
        def refused(*args):
            raise ConnectionRefusedError("nobody there")

        with unittest.mock.patch.object(bulk.socket, "create_connection", refused):
            self.assertEqual(self.check(), 0)

    def test_a_server_that_checks_in_another_way_only(self):
        original = bulk.BulkSocket.receive

        def older(self):
            response = original(self)
            if response.attached is not None:
                response.attached.checksum = 0
            return response

        with unittest.mock.patch.object(bulk.BulkSocket, "receive", older):
            self.assertEqual(self.check(), 1)

    def test_who_answers_must_be_the_server(self):
        original = bulk.BulkSocket.receive

        def impostor(self):
            response = original(self)
            if response.attached is not None:
                response.attached.proof = os.urandom(32)
            return response

        with unittest.mock.patch.object(bulk.BulkSocket, "receive", impostor):
            self.assertEqual(self.check(), 1)


class FewSocketsTest(unittest.TestCase):
    """Where the server has no room for more sockets, the rest is moved on those at hand, or on the stream."""

    def start(self, sockets):
        daemon = Daemon("--bulk-sockets", str(sockets))
        self.addCleanup(daemon.stop)
        connection = telegrad.connect(daemon.address)
        self.addCleanup(connection.close)
        return connection

    def there_and_back(self, session):
        array = noise(bulk.SPLIT_BYTES + 5)
        np.testing.assert_array_equal(session.upload(array).numpy(), array)

    def test_any_number_will_do(self):
        for sockets in (1, 2, 3):
            connection = self.start(sockets)
            with connection.session(timeout=60) as session, connection.session(timeout=60) as other:
                for _ in range(2):
                    self.there_and_back(session)
                    self.there_and_back(other)
            self.assertEqual(connection.stats()["telegrad_bulk_sockets_admitted_total"], sockets)

    def test_reads_first(self):
        connection = self.start(1)
        with connection.session(timeout=60) as session:
            self.assertFalse(session.alloc(8 * MIB).numpy().any())
            self.there_and_back(session)

    def test_a_broken_socket_is_replaced_once_there_is_room(self):
        connection = self.start(1)
        array = noise(8 * MIB)
        with connection.session(timeout=60) as session:
            session.upload(array)
            session.sync()
            original, refused = session._bulk._open, []

            def full_at_first():
                if len(refused) < 3:
                    refused.append(1)
                    raise telegrad.TelegradError(Code.RESOURCE_EXHAUSTED, "no room, says the test")
                return original()

            session._bulk._upload._open = full_at_first
            with breaking("send", 3, times=1):
                buffer = session.upload(array)
                session.sync()
            self.assertEqual(len(refused), 3)
            np.testing.assert_array_equal(buffer.numpy(), array)


class SharedTest(DaemonTest):
    """Memory that the daemon copies to and from by itself."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.token = staticmethod(telegrad.token_from_local_socket(folder.name + "/local"))
        cls.FLAGS = ("--local-socket", folder.name + "/local", "--local-memory")
        super().setUpClass()

    def setUp(self):
        self.connection = telegrad.connect(self.daemon.address, token=self.token)
        self.addCleanup(self.connection.close)
        self.session = self.connection.session(timeout=60)

    def test_there_and_back(self):
        n = 3 * MIB
        before = self.connection.stats()["telegrad_bulk_sockets_admitted_total"]
        memory, back = telegrad.SharedArray((n,)), telegrad.SharedArray((n,))
        g = Graph()
        g.output("y", g.input("x", (n,)) * 2)
        program = self.session.put(g)
        for i in range(3):
            memory.array[:] = np.arange(n, dtype=np.float32) + i
            self.session.write_shared(program.buffer("x"), memory)
            memory.array[:] = -1
            program.launch()
            self.session.read_shared(program.buffer("y"), back)
            np.testing.assert_array_equal(back.array, (np.arange(n, dtype=np.float32) + i) * 2)
        self.assertEqual(self.connection.stats()["telegrad_bulk_sockets_admitted_total"], before)

    def test_both_ways_of_transfers_in_one_session(self):
        memory = telegrad.SharedArray((8 * MIB,), "u8")
        memory.array[:] = noise(8 * MIB)
        buffer = self.session.upload(noise(8 * MIB, seed=9))
        self.session.write_shared(buffer, memory)
        np.testing.assert_array_equal(buffer.numpy(), memory.array)

    def test_what_does_not_fit(self):
        buffer = self.session.empty((4,))
        with raises(self, Code.INVALID_ARGUMENT, "an array of [5]"):
            self.session.write_shared(buffer, telegrad.SharedArray((5,)))
        for shape, kind in (((0,), "f32"), ((4,), "i4")):
            with raises(self, Code.INVALID_ARGUMENT):
                telegrad.SharedArray(shape, kind)
        buffer.free()
        self.session.write_shared(buffer, telegrad.SharedArray((4,)))
        with raises(self, Code.NOT_FOUND):
            self.session.sync()

    def test_a_server_that_shares_none(self):
        daemon = Daemon()
        self.addCleanup(daemon.stop)
        with telegrad.connect(daemon.address) as connection, connection.session(timeout=60) as session:
            buffer = session.empty((4,))
            with raises(self, Code.FAILED_PRECONDITION, "--local-memory"):
                session.write_shared(buffer, telegrad.SharedArray((4,)))
            np.testing.assert_array_equal(buffer.numpy(), np.zeros(4, np.float32))


class AddressTest(unittest.TestCase):
    def test_where_sockets_go(self):
        for server, said, want in (
                ("127.0.0.1:50055", "127.0.0.1:7", ("127.0.0.1", 7)), ("host:1", ":7", ("host", 7)),
                ("[::1]:50055", ":7", ("::1", 7)), ("unix:/x", ":7", None), ("host:1", "", None),
                ("host:1", "host:port", None)):
            self.assertEqual(bulk.address_of(server, said), want)


if __name__ == "__main__":
    main()
