"""The blocking client against the real daemon."""

import concurrent.futures
import os
import pickle
import tempfile
import threading
import time
import unittest

import numpy as np
from support import ConnectedTest, main, raises, slow_graph

import telegrad
from telegrad import Code, Graph


def double_graph(n=4, kind="f32"):
    g = Graph()
    g.output("y", g.input("x", (n,), kind) * 2)
    return g


class SessionTest(ConnectedTest):
    FILES = tempfile.TemporaryDirectory()
    FLAGS = ("--disk-root", f"files={FILES.name}", "--cpu-devices", "2")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.addClassCleanup(cls.FILES.cleanup)

    def test_connection(self):
        self.assertEqual(self.connection.server.server, "telegradd")
        devices = {device.name: device for device in self.connection.devices()}
        self.assertIn("CPU:1", devices)
        self.assertTrue(devices["CPU:0"].healthy)
        self.assertGreater(devices["CPU:0"].memory_limit, 0)
        self.assertIn("telegrad_devices", self.connection.stats())
        self.assertIn(self.daemon.address, repr(self.connection))

    def test_unix_socket_and_the_environment(self):
        os.environ["TELEGRAD_ADDRESS"] = self.daemon.address
        self.addCleanup(os.environ.pop, "TELEGRAD_ADDRESS")
        with telegrad.connect() as connection:
            self.assertEqual(connection.address, self.daemon.address)

    def test_the_device_of_a_connection(self):
        os.environ["TELEGRAD_DEVICE"] = "CPU:1"
        self.addCleanup(os.environ.pop, "TELEGRAD_DEVICE")
        for device, where in ((None, "CPU:1"), ("CPU:0", "CPU:0")):
            with telegrad.connect(self.daemon.address, device=device) as connection, \
                    connection.session(timeout=60) as session:
                self.assertEqual(session.empty((4,)).device, where)
                self.assertEqual(session.empty((4,), device="CPU:1").device, "CPU:1")
                program = session.put(double_graph())
                result = program.run({"x": np.ones(4, np.float32)}, trace=True)
                self.assertEqual({event.queue.split()[0] for event in result.trace.events}, {where})

    def test_nobody_there(self):
        with raises(self, Code.UNAVAILABLE, "127.0.0.1:1", "telegrad up"):
            telegrad.connect("127.0.0.1:1")

    def test_an_address_needs_a_port(self):
        for address in ("localhost", "localhost:", "::1", "localhost:http"):
            with raises(self, Code.INVALID_ARGUMENT, "no port", ":50055"):
                telegrad.connect(address)

    def test_runs(self):
        session = self.session()
        program = session.put(double_graph())
        self.assertTrue(session.has(program.hash))
        self.assertFalse(session.has(bytes(32)))
        self.assertIn("input x: f32[4]", repr(program))
        x, y = session.upload([1.0, 2, 3, 4]), session.empty((4,))
        result = session.run(program, [x, y])
        self.assertGreater(result.kernels, 0)
        np.testing.assert_array_equal(y.numpy(), [2, 4, 6, 8])
        self.assertTrue(session.run(program.hash, [x.handle, y.handle]).cached)
        traced = session.run(program, [x, y], trace=True)
        self.assertEqual(len([e for e in traced.trace.events if e.kind == 0]), traced.kernels)
        again = session.put(double_graph().serialize(), compile=True)
        self.assertEqual(again.hash, program.hash)

    def test_what_is_pipelined_takes_effect_in_order(self):
        session = self.session()
        g = Graph()
        count = g.state("count", init=np.zeros(1, np.int64))
        g.store(count, count + 1)
        program = session.put(g)
        reads = []
        for _ in range(200):
            program.launch()
            reads.append(session.read_future(program.buffer("count")))
        self.assertEqual([int(r.result(60)[0]) for r in reads], list(range(1, 201)))
        self.assertEqual([r.op_id for r in reads], sorted(r.op_id for r in reads))

    def test_devices_are_named(self):
        session = self.session()
        program = session.put(double_graph())
        x, y = session.upload([1.0, 2, 3, 4], device="CPU:1"), session.empty((4,), device="CPU:1")
        session.run(program, [x, y])
        np.testing.assert_array_equal(y.numpy(), [2, 4, 6, 8])
        session.run(program, [x, y], devices=["CPU:1"])
        session.empty((1,), device="CPU:9")
        with raises(self, Code.NOT_FOUND, "CPU:9"):
            session.sync()

    def test_errors_name_the_operation_and_poison_what_depends(self):
        session = self.session()
        x = session.empty((1 << 50,), "u8")
        other = session.upload([1, 2])
        with raises(self, Code.RESOURCE_EXHAUSTED, "(read)") as raised:
            x_read = telegrad.Buffer(session, x.handle, (4,), telegrad.dtype("u8"), "")
            x_read.numpy()
        self.assertEqual(raised.error is None, False)
        np.testing.assert_array_equal(other.numpy(), [1, 2])
        with raises(self, Code.RESOURCE_EXHAUSTED, "(alloc)"):
            session.sync()
        session.sync()  # reported once
        with raises(self, Code.NOT_FOUND, "(run)"):
            session.run(bytes(32), [])
        with raises(self, Code.INVALID_ARGUMENT, "(put)"):
            session.put(b"\x01")
        with raises(self, Code.INVALID_ARGUMENT, "slot 'x' has no buffer"):
            session.put(double_graph()).handles()

    def test_leaving_raises_what_nobody_heard(self):
        with raises(self, Code.NOT_FOUND, "(free)"):
            with self.connection.session() as session:
                session.free(telegrad.Buffer(session, 99, (1,), telegrad.dtype("u8"), ""))
        with self.assertRaises(ZeroDivisionError):  # and does not hide another error
            with self.connection.session() as session:
                session.free(telegrad.Buffer(session, 99, (1,), telegrad.dtype("u8"), ""))
                1 / 0

    def test_a_closed_session_says_so(self):
        session = self.connection.session()
        buffer = session.upload([1])
        session.close()
        with raises(self, Code.FAILED_PRECONDITION, "closed"):
            buffer.numpy()
        self.assertIn("ended", repr(session))
        session.close()

    def test_closing_finishes_what_was_asked(self):
        with tempfile.NamedTemporaryFile(dir=self.FILES.name) as file:
            file.write(bytes(3 << 20))
            file.flush()
            with self.connection.session() as session:
                buffer = session.open_file("DISK:files", os.path.basename(file.name), (3 << 20,),
                                           mode="write")
                buffer.write(np.full(3 << 20, 5, np.uint8))
            file.seek(0)
            self.assertEqual(set(file.read()), {5})

    def test_threads_share_a_session(self):
        session = self.session()
        program = session.put(double_graph(1000))

        def work(seed):
            rng = np.random.default_rng(seed)
            for _ in range(10):
                array = rng.random(1000, np.float32)
                x, y = session.upload(array), session.empty((1000,))
                session.launch(program, [x, y])
                np.testing.assert_array_equal(y.numpy(), array * 2)
                session.free(x, y)

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(work, seed) for seed in range(8)]:
                done.result()
        session.sync()

    def test_calls_of_one_program_do_not_mix(self):
        program = self.session().put(double_graph(10_000, "i32"))

        def call(i):
            return program(x=np.full(10_000, i))["y"]

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for i, got in enumerate(pool.map(call, range(100))):
                self.assertEqual((got.min(), got.max()), (2 * i, 2 * i))

    def test_runs_are_cancelled(self):
        session = self.session()
        program = session.put(slow_graph(), compile=True)
        program.buffer("x"), program.buffer("y")
        running, waiting = (session.run_future(program, program.handles()) for _ in range(2))
        session.cancel(waiting)
        session.cancel(running)
        for future in (running, waiting):
            with raises(self, Code.CANCELLED, "(run)"):
                future.result(60)
        with raises(self, Code.CANCELLED):  # what it would have written is poisoned
            program.read("y")

    def test_runs_have_time_limits(self):
        session = self.session()
        program = session.put(slow_graph(), compile=True)
        program.buffer("x"), program.buffer("y")
        with raises(self, Code.DEADLINE_EXCEEDED, "(run)", "its deadline is in"):
            session.run_future(program, program.handles(), timeout=0.05).result(60)

    def test_futures(self):
        session = self.session()
        future = session.read_future(session.upload([4]))
        called = threading.Event()
        future.add_done_callback(lambda _: called.set())
        self.assertEqual(future.result(60)[0], 4)
        self.assertTrue(called.wait(60))
        self.assertFalse(session.sync_future().cancel())

    def test_the_connection_ends_its_sessions(self):
        connection = telegrad.connect(self.daemon.address)
        session = connection.session()
        buffer = session.upload([1])
        buffer.numpy()
        connection.close()
        with raises(self, Code.CANCELLED, "ended"):
            buffer.numpy()
        with raises(self, Code.FAILED_PRECONDITION, "closed"):
            connection.devices()
        with raises(self, Code.FAILED_PRECONDITION, "closed"):
            connection.session()

    def test_values_that_cannot_be_sent(self):
        session = self.session()
        for make, words in ((lambda: session.run(bytes(32), [-1]), "Run.handles"),
                            (lambda: session.write_bytes(1, -1, b"x"), "write_bytes: offset -1"),
                            (lambda: session.empty((1,), device="\ud800"), "Alloc.device"),
                            (lambda: session.empty((-1,)), "[-1]")):
            with self.subTest(words), raises(self, Code.INVALID_ARGUMENT, words):
                make()
        session.sync()  # nothing came of them

    def test_errors_can_be_pickled(self):
        error = telegrad.TelegradError(Code.NOT_FOUND, "no", operation="run", op_id=3)
        self.assertEqual(str(pickle.loads(pickle.dumps(error))), str(error))
        self.assertEqual(telegrad.TelegradError(99, "later").code, Code.UNKNOWN)

    def test_sessions_leave_no_threads(self):
        before = threading.enumerate()
        for i in range(20):
            with self.connection.session(resumable=bool(i % 2)) as session:
                session.upload([i]).numpy()
        more = [thread for thread in threading.enumerate() if thread not in before]
        until = time.monotonic() + 30  # gRPC's threads of the last ones may be ending
        while len(more) > 1 and time.monotonic() < until:
            more[0].join(0.1)
            more = [thread for thread in more[1:] + more[:1] if thread.is_alive()]
        self.assertLessEqual(len(more), 1)

    def test_nothing_is_left_on_the_server(self):
        gauges = ("telegrad_sessions", "telegrad_buffers", "telegrad_buffer_bytes")
        session = self.session()
        session.upload(np.zeros(1 << 20, np.uint8))
        session.sync()
        stats = self.connection.stats()
        self.assertTrue(all(stats[name] > 0 for name in gauges), stats)
        session.close()
        deadline = time.monotonic() + 60
        while any(self.connection.stats()[name] for name in gauges):
            self.assertLess(time.monotonic(), deadline)


class DaemonGoneTest(unittest.TestCase):
    def test_a_session_of_a_daemon_that_died_says_so(self):
        from support import Daemon

        daemon = Daemon()
        self.addCleanup(daemon.stop)
        with telegrad.connect(daemon.address) as connection:
            session = connection.session()
            buffer = session.upload([1, 2])
            buffer.numpy()
            daemon.process.kill()
            with raises(self, Code.UNAVAILABLE, "is over"):
                while True:
                    buffer.numpy(timeout=60)
            with raises(self, Code.UNAVAILABLE, "is over"):
                session.upload([1])
            with raises(self, Code.UNAVAILABLE):
                connection.devices()


if __name__ == "__main__":
    main()
