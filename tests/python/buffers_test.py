"""Arrays in buffers of the real daemon: types, chunks, parts, files."""

import os
import tempfile

import numpy as np
from support import ConnectedTest, main, raises, seeded

import telegrad
from telegrad import Code, Graph, dtypes


def random_array(rng, kind, shape):
    """Any codes of a type, as its array."""
    bits = np.frombuffer(rng.randbytes(int(np.prod(shape)) * kind.numpy.itemsize), np.uint8)
    if kind.kind == "boolean":
        return (bits & 1).astype(bool).reshape(shape)
    if kind.is_packed:
        low = -(1 << kind.bits - 1) if kind.kind == "signed" else 0
        return ((bits & (1 << kind.bits) - 1).astype(np.int64) + low).astype(kind.numpy).reshape(shape)
    return bits.view(kind.numpy).reshape(shape)


class BuffersTest(ConnectedTest):
    FILES = tempfile.TemporaryDirectory()
    FLAGS = ("--disk-root", f"files={FILES.name}")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.addClassCleanup(cls.FILES.cleanup)

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
        with raises(self, Code.INVALID_ARGUMENT, "read_bytes: offset -4 is before the buffer's first byte"):
            session.read_bytes(buffer, -4, 4)
        with raises(self, Code.INVALID_ARGUMENT, "write_bytes: offset -1 is before the buffer's first byte"):
            session.write_bytes(buffer, -1, b"12")
        buffer.write([1, 2, 3, 4])
        np.testing.assert_array_equal(buffer.numpy(), [1, 2, 3, 4])
        with raises(self, Code.INVALID_ARGUMENT, "[3]", "i32[4]"):
            buffer.write([1, 2, 3])
        session.write_bytes(buffer, 14, b"abc")
        with raises(self, Code.INVALID_ARGUMENT, "(write)"):
            session.sync()

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


if __name__ == "__main__":
    main()
