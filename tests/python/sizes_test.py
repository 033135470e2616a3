"""Sizes that each run decides: their arithmetic against Python's integers, and programs with them against NumPy."""

import operator
import unittest

import numpy as np
from support import DaemonTest, main, raises, run_async, seeded

import telegrad
from telegrad import Code, Graph, aio, cat
from telegrad._size import Undecided, highest, largest, lowest, smallest, value_of, variable


class ArithmeticTest(unittest.TestCase):
    def setUp(self):
        self.n, self.m = variable(0, "n", 1, 40), variable(1, "m", 2, 30)

    def test_random_expressions(self):
        """Values are Python's, within the bounds, and equal forms have equal values."""
        random = seeded("sizes")
        operations = [operator.add, operator.sub, operator.mul, largest, smallest]
        seen = {}
        for _ in range(400):
            made = [(self.n, lambda n, m: n), (self.m, lambda n, m: m)]
            for _ in range(random.randrange(1, 6)):
                (a, f), (b, g) = random.choice(made), random.choice(made)
                kind = random.randrange(7)
                if kind < 5:
                    op = operations[kind]
                    if random.randrange(2):
                        constant = random.randrange(-3, 9)
                        b, g = constant, lambda n, m, c=constant: c
                    plain = {largest: max, smallest: min}.get(op, op)
                    made.append((op(a, b), lambda n, m, f=f, g=g, op=plain: op(f(n, m), g(n, m))))
                else:
                    divisor = random.choice([2, 3, 7])
                    op = operator.floordiv if kind == 5 else operator.mod
                    made.append((op(a, divisor), lambda n, m, f=f, d=divisor, op=op: op(f(n, m), d)))
            size, plain = made[-1]
            values = []
            for _ in range(8):
                n, m = random.randrange(1, 41), random.randrange(2, 31)
                want = plain(n, m)
                self.assertEqual(value_of(size, {0: n, 1: m}), want, (size, n, m))
                self.assertLessEqual(lowest(size), want)
                self.assertGreaterEqual(highest(size), want)
            values = [plain(n, m) for n in (1, 7, 40) for m in (2, 9, 30)]
            self.assertEqual(seen.setdefault(size, values), values, size)

    def test_one_form(self):
        n, m = self.n, self.m
        self.assertEqual((n + 1) * (m - 1), n * m - n + m - 1)
        self.assertEqual(len({n + n, 2 * n, n * 3 - n}), 1)
        self.assertEqual((4 * n + 3) // 4, n)
        self.assertEqual((n * m * 6) // (2 * m), 3 * n)
        self.assertEqual((4 * n + 6) % 4, 2)
        self.assertEqual(n - n, 0)
        self.assertIsInstance(n - n, int)
        self.assertNotEqual(n, m)
        self.assertEqual(smallest(n, n + 1), n)
        self.assertEqual(repr(2 * n * m - 1), "2 * m * n + -1")

    def test_what_the_bounds_decide(self):
        n, m = self.n, self.m
        self.assertTrue(n < 41 and n >= 1 and n * m >= 2 and n + 1 > n)
        self.assertFalse(n > 40)
        with self.assertRaisesRegex(Undecided, "whether n is less than 7 depends on the variables"):
            bool(n < 7)
        with self.assertRaises(Undecided):
            n // (m - 2)


class ProgramsTest(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.connection = telegrad.connect(cls.daemon.address)
        cls.addClassCleanup(cls.connection.close)
        cls.session = cls.connection.session(timeout=60)

    CASES = [
        (lambda x, y: (x.T @ y).softmax(-1), lambda x, y: (e := np.exp((a := x.T @ y) - a.max(-1, keepdims=True))) / e.sum(-1, keepdims=True)),
        (lambda x, y: cat([x, x * 2], 0)[1:, ::-1], lambda x, y: np.concatenate([x, x * 2])[1:, ::-1]),
        (lambda x, y: cat([y, x], 1), lambda x, y: np.concatenate([y, x], 1)),
        (lambda x, y: y.mean(0), lambda x, y: y.mean(0)),
        (lambda x, y: y.var(1, ddof=1), lambda x, y: y.var(1, ddof=1)),
        (lambda x, y: y.cumsum(1), lambda x, y: y.cumsum(1)),
        (lambda x, y: y.argmax(1), lambda x, y: y.argmax(1)),
        (lambda x, y: y[:, ::2], lambda x, y: y[:, ::2]),
        (lambda x, y: y[:, 1:-1].sum(), lambda x, y: y[:, 1:-1].sum()),
        (lambda x, y: x[-1], lambda x, y: x[-1]),
        (lambda x, y: (y + 1).flatten() * y.shape[0], lambda x, y: (y + 1).flatten() * y.shape[0]),
        (lambda x, y: x.flip(0).reshape(2, -1), lambda x, y: x[::-1].reshape(2, -1)),
        (lambda x, y: y.T.reshape(-1, 1) + 1, lambda x, y: y.T.reshape(-1, 1) + 1)]

    def graph(self):
        g = Graph()
        n, m = g.size("n", 1, 12), g.size("m", 2, 9)
        x, y = g.input("x", (n, 4)), g.input("y", (n, m))
        for i, (ours, _) in enumerate(self.CASES):
            g.output(f"out{i}", ours(x, y))
        return g

    def arrays(self, n, m):
        rng = np.random.default_rng(n * 100 + m)
        return rng.uniform(-2, 2, (n, 4)).astype(np.float32), rng.uniform(-2, 2, (n, m)).astype(np.float32)

    def check(self, outputs, x, y):
        for i, (_, theirs) in enumerate(self.CASES):
            want = theirs(x, y)
            self.assertEqual(outputs[f"out{i}"].shape, want.shape, i)
            np.testing.assert_allclose(outputs[f"out{i}"], want, rtol=2e-5, atol=2e-6, err_msg=str(i))

    def test_one_program_for_all_sizes(self):
        program = self.session.put(self.graph())
        for n, m in ((3, 4), (1, 2), (12, 9), (5, 2), (2, 9)):
            x, y = self.arrays(n, m)
            self.check(program(x=x, y=y), x, y)
            want = y.mean(0)
            np.testing.assert_allclose(program.read("out3"), want, rtol=2e-5, atol=2e-6)

    def test_with_asyncio(self):
        async def run():
            async with await aio.connect(self.daemon.address) as connection, connection.session(timeout=60) as session:
                program = await session.put(self.graph())
                for n, m in ((3, 4), (12, 9)):
                    x, y = self.arrays(n, m)
                    self.check(await program(x=x, y=y), x, y)

        run_async(run())

    def test_most_sizes_compile_nothing(self):
        """The server makes one form for all sizes, and others only for sizes that come again and again."""
        g = Graph()
        n = g.size("n", 1, 64)
        x = g.input("x", (n, 8))
        g.output("y", (x @ x.T).sum(1))
        program = self.session.put(g)
        results = [program.run(x=np.ones((n, 8), np.float32)) for n in range(33, 65)]
        self.assertLess(sum(not r.cached for r in results), 9)
        np.testing.assert_array_equal(program.read("y"), np.full(64, 512))

    def test_a_number_and_a_size(self):
        g = Graph()
        n, k = g.size("n", 1, 9), g.variable("k", 0, 9)
        g.output("y", g.input("x", (n,)) * k.cast("f32"))
        program = self.session.put(g)
        np.testing.assert_array_equal(program(x=[1, 2, 3], variables={"k": 4})["y"], [4, 8, 12])

    def test_a_size_that_nothing_uses(self):
        g = Graph()
        n = g.size("n", 1, 9)
        g.size("m", 1, 9), g.variable("k", 0, 3)
        g.input("x", (n,))
        g.output("y", g.input("z", (2,)) * 2)
        np.testing.assert_array_equal(self.session.put(g)(x=[1, 2, 3], z=[1, 2])["y"], [2, 4])

    def test_what_does_not_fit(self):
        g = Graph()
        n = g.size("n", 1, 9)
        g.output("z", g.input("x", (n, 2)) + g.input("y", (n, 2)))
        program = self.session.put(g)
        ones = np.ones((3, 2), np.float32)
        with raises(self, Code.INVALID_ARGUMENT, "variable 'n' is 10", "from 1 to 9"):
            program(x=np.ones((10, 1)), y=ones)
        with raises(self, Code.INVALID_ARGUMENT, "input 'y' is [4, 2], expected [3, 2] for [n, 2]"):
            program(x=ones, y=np.ones((4, 2), np.float32))
        with raises(self, Code.INVALID_ARGUMENT, "input 'x' is [3], expected [n, 2]"):
            program(x=[1, 2, 3], y=ones)
        with raises(self, Code.INVALID_ARGUMENT, "bytes"):
            program(x=np.ones((99, 2)), y=ones)
        with raises(self, Code.INVALID_ARGUMENT, "no variable 'm'"):
            program(x=ones, y=ones, variables={"m": 3})
        np.testing.assert_array_equal(program(x=ones, y=ones)["z"], ones * 2)
        for make, words in (
                (lambda g, n: g.state("s", (n,)), "what stays between runs has one size"),
                (lambda g, n: g.op("reduce", g.input("a", (n, 2)), arg=["add", n]), "numbers that are the same in each run"),
                (lambda g, n: g.input("b", (n,)) + g.input("c", (n + 1,)), "do not broadcast"),
                (lambda g, n: g.input("d", (n, 2)).reshape(n + 1, 2), "changes the number of elements"),
                (lambda g, n: g.size("wrong", 3, 2), "from 3 to 2")):
            g = Graph()
            with raises(self, Code.INVALID_ARGUMENT, words):
                make(g, g.size("n", 1, 9))
        with self.assertRaisesRegex(TypeError, "the length k is decided by each run"):
            list(g.input("e", (g.size("k", 1, 9),)))


if __name__ == "__main__":
    main()
