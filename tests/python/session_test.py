"""The blocking client against the real daemon."""

import concurrent.futures
import os
import pickle
import tempfile
import threading
import time
import unittest

import numpy as np
from support import DaemonTest, main, raises, seeded, slow_graph

import telegrad
from telegrad import Code, Graph, dtypes


def double_graph(n=4, kind="f32"):
    g = Graph()
    g.output("y", g.input("x", (n,), kind) * 2)
    return g


def random_array(rng, kind, shape):
    """Any codes of a type, as its array."""
    bits = np.frombuffer(rng.randbytes(int(np.prod(shape)) * kind.numpy.itemsize), np.uint8)
    if kind.kind == "boolean":
        return (bits & 1).astype(bool).reshape(shape)
    if kind.is_packed:
        low = -(1 << kind.bits - 1) if kind.kind == "signed" else 0
        return ((bits & (1 << kind.bits) - 1).astype(np.int64) + low).astype(kind.numpy).reshape(shape)
    return bits.view(kind.numpy).reshape(shape)


class SessionTest(DaemonTest):
    FILES = tempfile.TemporaryDirectory()
    FLAGS = ("--disk-root", f"files={FILES.name}", "--cpu-devices", "2")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.addClassCleanup(cls.FILES.cleanup)
        cls.connection = telegrad.connect(cls.daemon.address)
        cls.addClassCleanup(cls.connection.close)

    def session(self, **options):
        session = self.connection.session(timeout=60, **options)
        self.addCleanup(session._abort)
        return session

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

    def test_every_type_goes_there_and_back(self):
        rng = seeded("every_type")
        session = self.session()
        for kind in dtypes.ALL:
            for shape in ((), (1,), (7,), (3, 5), (0,), (2, 0, 3)):
                with self.subTest(kind=kind.name, shape=shape):
                    array = random_array(rng, kind, shape)
                    buffer = session.upload(array, kind)
                    self.assertEqual(buffer.nbytes, -(-array.size * kind.bits // 8))
                    got = buffer.numpy()
                    self.assertEqual((got.dtype, got.shape), (array.dtype, shape))
                    self.assertEqual(got.tobytes(), array.tobytes())

    def test_the_server_means_the_same_by_every_type(self):
        """A cast on the server is compared with the values that we decode."""
        session = self.session()
        for kind in dtypes.ALL:
            if kind.name == "f4e2m1" or not (kind.is_float or kind.is_packed):
                continue
            with self.subTest(kind.name):
                codes = np.arange(min(1 << kind.bits, 1 << 16), dtype=np.uint64)
                if kind.bits > 16:
                    codes = np.linspace(0, (1 << 31) - 1, 1000).astype(np.uint64)
                array = codes.astype(f"<u{kind.numpy.itemsize}").view(kind.numpy)
                if kind.is_packed:
                    array = codes.astype(np.uint8).view(kind.numpy)
                    if kind.kind == "signed":
                        array = array - (1 << kind.bits - 1)
                g = Graph()
                g.output("y", g.input("x", array.shape, kind).cast("f32"))
                want = kind.to_float32(array) if kind.is_float else array.astype(np.float32)
                np.testing.assert_array_equal(session.put(g)(x=array)["y"], want)

    def test_f4_codes(self):
        session = self.session()
        kind = telegrad.dtype("f4e2m1")
        g = Graph()
        g.output("y", g.input("x", (16,), kind).cast("f32"))
        codes = np.arange(16, dtype=np.uint8)
        np.testing.assert_array_equal(session.put(g)(x=codes)["y"], kind.to_float32(codes))

    def test_bf16_rounds_as_the_server_does(self):
        rng = seeded("bf16")
        values = np.frombuffer(rng.randbytes(4 * 4096), np.float32)
        g = Graph()
        g.output("y", g.input("x", values.shape).cast("bf16").cast("f32"))
        kind = telegrad.dtype("bf16")
        ours = kind.to_float32(dtypes.as_array(values, kind)[0])
        np.testing.assert_array_equal(self.session().put(g)(x=values)["y"], ours)

    def test_large_arrays_travel_in_chunks(self):
        session = self.session()
        rng = np.random.default_rng(7)
        chunk = self.connection.server.chunk_bytes
        for nbytes in (chunk - 1, chunk, chunk + 1, 5 * chunk + 3):
            array = rng.integers(0, 256, nbytes, np.uint8)
            buffer = session.upload(array)
            np.testing.assert_array_equal(buffer.numpy(), array)
        # Written elsewhere, in any memory order, and read into what is there.
        wide = rng.random((700, 600)).astype(np.float32)
        buffer = session.upload(wide.T)
        out = np.zeros((600, 700), np.float32)
        self.assertIs(buffer.numpy(out=out), out)
        np.testing.assert_array_equal(out, wide.T)
        strided = np.zeros((600, 1400), np.float32)[:, ::2]
        self.assertIs(buffer.numpy(out=strided), strided)
        np.testing.assert_array_equal(strided, wide.T)
        big_endian = wide.astype(">f4")
        np.testing.assert_array_equal(session.upload(big_endian).numpy(), wide)
        for out in (np.zeros(3, np.float32), np.zeros((600, 700))):
            with raises(self, Code.INVALID_ARGUMENT, "out is"):
                buffer.numpy(out=out)

    def test_an_array_may_change_once_upload_returned(self):
        session = self.session()
        array = np.ones(3 << 20, np.uint8)
        buffer = session.upload(array)
        array[:] = 2
        self.assertEqual(buffer.numpy().max(), 1)

    def test_values_become_the_type_that_is_asked_for(self):
        session = self.session()
        for value, kind, want in (([1, 2.5], None, np.array([1, 2.5], np.float32)), (3, None, np.int64(3)),
                                  (True, None, np.bool_(True)), ([1, 2], "f16", np.float16([1, 2])),
                                  (np.arange(3), np.uint8, np.arange(3, dtype=np.uint8))):
            got = session.upload(value, kind).numpy()
            self.assertEqual(got.dtype, want.dtype)
            np.testing.assert_array_equal(got, want)
        with raises(self, Code.INVALID_ARGUMENT, "complex"):
            session.upload(1j)
        if dtypes.ml_dtypes is None:
            with raises(self, Code.INVALID_ARGUMENT, "ml_dtypes", "uint8"):
                session.upload([0.5], "f8e5m2")

    def test_parts_of_buffers(self):
        session = self.session()
        buffer = session.empty((4,), "i32")
        session.write_bytes(buffer, 4, np.array([7, 8], np.int32))
        np.testing.assert_array_equal(buffer.numpy(), [0, 7, 8, 0])
        self.assertEqual(session.read_bytes(buffer, 3, 3).tolist(), [0, 7, 0])
        buffer.write([1, 2, 3, 4])
        np.testing.assert_array_equal(buffer.numpy(), [1, 2, 3, 4])
        with raises(self, Code.INVALID_ARGUMENT, "[3]", "i32[4]"):
            buffer.write([1, 2, 3])
        session.write_bytes(buffer, 14, b"abc")
        with raises(self, Code.INVALID_ARGUMENT, "(write)"):
            session.sync()

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

    def test_parts_of_a_buffer_are_bound(self):
        g = Graph()
        x, y = g.param(0, (4,)), g.param(1, (4,))
        g.store(y, x * 2 + y)
        with self.connection.session() as session:
            program = session.put(g)
            content = np.arange(16, dtype=np.float32)
            buffer = session.upload(content)
            session.launch(program, [buffer, buffer], offsets=[16, 48])
            session.run(program, [buffer, buffer], offsets=[20])  # aligned to an element, no more
            content[12:16] += 2 * content[4:8]
            content[0:4] += 2 * content[5:9]
            np.testing.assert_array_equal(buffer.numpy(), content)
            for offsets, words in (
                    ([12, 16], "overlap"), ([0, 52], "slot 1: 16 bytes at offset 52 do not fit"),
                    ([(1 << 64) - 16, 0], "slot 0: 16 bytes at offset 18446744073709551600"),
                    ([1, 32], "expected a multiple of 4"), ([0, 0, 0], "3 offsets for 2 handles")):
                buffer = session.upload(content)  # a failed run poisons what it would have written
                with raises(self, Code.INVALID_ARGUMENT, words):
                    session.run(program, [buffer, buffer], offsets=offsets)

    def test_weights_that_change_between_runs(self):
        """A server keeps copies of weights in the order of its kernels: each way of writing a buffer ends them."""
        rng = np.random.default_rng(5)
        rows, inner, columns = 128, 768, 512
        new_weights = lambda: rng.integers(-3, 4, (inner, columns)).astype(np.float32)  # noqa: E731
        g, scale = Graph(), Graph()
        g.output("y", g.input("x", (rows, inner)) @ g.input("w", (inner, columns)))
        scale.output("to", scale.input("from", (inner, columns)) * 2)
        with self.session() as session:
            program, scaled = session.put(g), session.put(scale)
            x = rng.integers(-3, 4, (rows, inner)).astype(np.float32)
            a, y, other = session.upload(x), session.empty((rows, columns)), new_weights()
            w, source = session.empty((inner, columns)), session.upload(other)

            def check(weights):
                for _ in range(3):  # the copy is made at the second
                    session.run(program, [a, w, y])
                    np.testing.assert_array_equal(y.numpy(), x @ weights)

            weights = new_weights()
            session.write(w, weights)
            check(weights)
            weights = new_weights()
            session.write(w, weights)
            check(weights)
            weights[5, 7:11] = [8, -9, 10, 11]
            session.write_bytes(w, (5 * columns + 7) * 4, weights[5, 7:11])
            check(weights)
            session.run(scaled, [source, w])
            check(2 * other)
            session.run(scaled, [source, w])
            session.write(w, weights)  # pipelined behind the run
            check(weights)

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

    def test_files(self):
        session = self.session()
        values = np.arange(10, dtype=np.int32)
        values.tofile(os.path.join(self.FILES.name, "values"))
        part = session.open_file("DISK:files", "values", (4,), "i32", offset=8)
        np.testing.assert_array_equal(part.numpy(), values[2:6])
        made = session.open_file("DISK:files", "made", (3,), "f32", mode="create")
        made.write([1, 2, 3])
        session.sync()
        made.free()
        session.sync()
        np.testing.assert_array_equal(
            np.fromfile(os.path.join(self.FILES.name, "made"), np.float32), [1, 2, 3])
        session.open_file("DISK:files", "absent", (1,))
        with raises(self, Code.NOT_FOUND, "absent"):
            session.sync()
        with raises(self, Code.INVALID_ARGUMENT, "'append'"):
            session.open_file("DISK:files", "values", (1,), mode="append")

    def test_beyond_four_gigabytes(self):
        size, at = 5 << 30, (4 << 30) + 12_345
        sparse = os.path.join(self.FILES.name, "sparse")
        with open(sparse, "wb") as file:
            file.truncate(size)
        session = self.session()
        buffer = session.open_file("DISK:files", "sparse", (size,), mode="write")
        data = np.random.default_rng(4).integers(0, 256, 3 << 20, np.uint8)
        session.write_bytes(buffer, at, data)
        np.testing.assert_array_equal(session.read_bytes(buffer, at - 1, data.size + 2),
                                      np.pad(data, 1))
        session.close()
        with open(sparse, "rb") as file:
            file.seek(at)
            self.assertEqual(file.read(data.size), data.tobytes())
        os.remove(sparse)

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
                            (lambda: session.write_bytes(1, -1, b"x"), "Write.offset"),
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
