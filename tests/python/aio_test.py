"""The asyncio client against the real daemon."""

import asyncio

import numpy as np
from support import AsyncTestCase, Daemon, main, raises, slow_graph

import telegrad
from telegrad import Code, Graph, aio


class AioTest(AsyncTestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.stop)

    async def async_setup(self):
        self.connection = await aio.connect(self.daemon.address)
        self.on_exit(self.connection.close)
        self.session = self.connection.session(timeout=60)
        self.on_exit(self.session._abort)

    async def test_connection(self):
        self.assertEqual(self.connection.server.server, "telegradd")
        self.assertEqual((await self.connection.devices())[0].name, "CPU:0")
        self.assertIn("telegrad_devices", await self.connection.stats())
        self.assertIn(self.daemon.address, repr(self.connection))
        with raises(self, Code.UNAVAILABLE, "127.0.0.1:1"):
            await aio.connect("127.0.0.1:1")

    async def test_parts_of_a_buffer_are_bound(self):
        g = Graph()
        x, y = g.param(0, (4,)), g.param(1, (4,))
        g.store(y, x * 2 + y)
        program = await self.session.put(g)
        content = np.arange(16, dtype=np.float32)
        buffer = await self.session.upload(content)
        await self.session.launch(program, [buffer, buffer], offsets=[16, 48])
        await self.session.run(program, [buffer, buffer], offsets=[20])
        content[12:16] += 2 * content[4:8]
        content[0:4] += 2 * content[5:9]
        np.testing.assert_array_equal(await buffer.numpy(), content)
        with raises(self, Code.INVALID_ARGUMENT, "overlap"):
            await self.session.run(program, [buffer, buffer], offsets=[12, 16])

    async def test_a_program(self):
        g = Graph()
        x, w = g.input("x", (4,)), g.state("w", init=np.ones(4, np.float32))
        g.output("y", x * w)
        g.store(w, w + 1)
        program = await self.session.put(g)
        for i in range(3):
            got = await program(x=[1, 2, 3, 4])
            np.testing.assert_array_equal(got["y"], np.arange(1, 5) * (i + 1))
        np.testing.assert_array_equal(await program.read("w"), [4, 4, 4, 4])
        result = await program.run({"x": np.zeros(4)}, trace=True)
        self.assertTrue(result.cached)
        self.assertGreater(len(result.trace.events), 0)
        self.assertTrue(await self.session.has(program.hash))

    async def test_large_arrays_travel_in_chunks(self):
        array = np.random.default_rng(1).random((1 << 20) + 3)
        buffer = await self.session.upload(array)
        array_before = array.copy()
        array[:] = 0
        out = np.zeros_like(array)
        self.assertIs(await buffer.numpy(out=out), out)
        np.testing.assert_array_equal(out, array_before)
        self.assertEqual((await self.session.read_bytes(buffer, 8, 16)).tobytes(), out[1:3].tobytes())
        await buffer.write(array)
        self.assertEqual((await buffer.numpy()).max(), 0)
        await buffer.free()

    async def test_gathered_operations_keep_their_order(self):
        g = Graph()
        count = g.state("count", init=np.zeros(1, np.int64))
        g.store(count, count + 1)
        program = await self.session.put(g)

        async def step():
            await program.launch()
            return int((await program.read("count"))[0])

        await program.buffer("count")
        # Where there is room to send, each task gets as far as its read at once.
        self.assertEqual(await asyncio.gather(*(step() for _ in range(20))), [*range(1, 21)])
        reads = []
        for _ in range(50):
            await program.launch()
            reads.append(asyncio.create_task(program.read("count")))
            await asyncio.sleep(0)
        self.assertEqual([int(r[0]) for r in await asyncio.gather(*reads)], list(range(21, 71)))

    async def test_calls_of_one_program_do_not_mix(self):
        g = Graph()
        g.output("y", g.input("x", (100_000,)) * 2)
        program = await self.session.put(g)
        outputs = await asyncio.gather(*(program(x=np.full(100_000, i)) for i in range(300)))
        for i, output in enumerate(outputs):
            self.assertEqual((output["y"].min(), output["y"].max()), (2 * i, 2 * i))

    async def test_a_cancelled_task_cancels_its_run(self):
        program = await self.session.put(slow_graph(), compile=True)
        await program.buffer("y")
        task = asyncio.create_task(program.run(x=np.eye(512)))
        while not any(p.name == "run" for p in self.session._core._pending):
            await asyncio.sleep(0)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        with raises(self, Code.CANCELLED):  # what the run would have written is poisoned
            await program.read("y")
        with raises(self, Code.DEADLINE_EXCEEDED, "its deadline is in"):
            await program.run(timeout=0.05)

    async def test_many_silent_operations(self):
        for _ in range(2000):
            await self.session.free(await self.session.empty((1,)))
        await self.session.sync()
        self.assertLess(len(self.session._core._pending), 600)

    async def test_errors(self):
        buffer = await self.session.empty((1 << 50,), "u8")
        small = aio.Buffer(self.session, buffer.handle, (4,), buffer.dtype, "")
        with raises(self, Code.RESOURCE_EXHAUSTED, "(read)"):
            await small.numpy()
        with raises(self, Code.RESOURCE_EXHAUSTED, "(alloc)"):
            await self.session.sync()
        await self.session.sync()
        with raises(self, Code.NOT_FOUND, "(free)"):
            async with self.connection.session() as session:
                await session.free(small)
        with self.assertRaises(ZeroDivisionError):
            async with self.connection.session() as session:
                await session.free(small)
                1 / 0
        session = self.connection.session()
        await session.close()
        with raises(self, Code.FAILED_PRECONDITION, "closed"):
            await session.upload([1])

    async def test_the_connection_ends_its_sessions(self):
        connection = await aio.connect(self.daemon.address)
        session = connection.session()
        buffer = await session.upload([1])
        await buffer.numpy()
        await connection.close()
        with raises(self, Code.CANCELLED, "ended"):
            await buffer.numpy()
        with raises(self, Code.FAILED_PRECONDITION, "closed"):
            await connection.devices()
        with raises(self, Code.FAILED_PRECONDITION, "closed"):
            connection.session()


class DaemonGoneTest(AsyncTestCase):
    async def test_a_session_of_a_daemon_that_died_says_so(self):
        daemon = Daemon()
        self.addCleanup(daemon.stop)
        async with await aio.connect(daemon.address) as connection:
            session = connection.session(timeout=60)
            buffer = await session.upload([1, 2])
            await buffer.numpy()
            daemon.process.kill()
            with raises(self, Code.UNAVAILABLE, "is over"):
                while True:
                    await buffer.numpy()
            with raises(self, Code.UNAVAILABLE, "is over"):
                await session.upload([1])


if __name__ == "__main__":
    main()
