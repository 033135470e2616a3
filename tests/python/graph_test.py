"""Graphs made in Python, run on the real daemon, against NumPy."""

import math
import unittest

import numpy as np
from support import DaemonTest, main, raises, seeded

import telegrad
from telegrad import Code, Graph, cat, dtypes, stack


class ValuesTest(DaemonTest):
    """Each case is a function of tensors, and the same of arrays."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.connection = telegrad.connect(cls.daemon.address)
        cls.addClassCleanup(cls.connection.close)
        cls.session = cls.connection.session(timeout=60)

    def check(self, ours, theirs, *arrays, rtol=1e-5, atol=1e-6):
        """One graph of all functions of a list."""
        g = Graph()
        tensors = [g.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
        for i, function in enumerate(ours):
            g.output(f"y{i}", function(*tensors))
        got = self.session.put(g)({f"x{i}": a for i, a in enumerate(arrays)})
        with np.errstate(all="ignore"):
            wanted = [np.asarray(function(*arrays)) for function in theirs]
        for i, want in enumerate(wanted):
            with self.subTest(number=i):
                self.assertEqual(got[f"y{i}"].shape, want.shape)
                self.assertEqual(got[f"y{i}"].dtype, want.dtype)
                np.testing.assert_allclose(got[f"y{i}"], want, rtol=rtol, atol=atol)

    def array(self, *shape, seed=1):
        return np.random.default_rng(seed).uniform(-2, 2, shape).astype(np.float32)

    def test_floats(self):
        a, b = self.array(3, 4), self.array(3, 4, seed=2)
        two = [
            (lambda x, y: x + y, lambda x, y: x + y),
            (lambda x, y: x - y * 2, lambda x, y: x - y * 2),
            (lambda x, y: 1 - x / y, lambda x, y: 1 - x / y),
            (lambda x, y: 3 / (x * x + 1), lambda x, y: 3 / (x * x + 1)),
            (lambda x, y: abs(x).sqrt() ** 1.5, lambda x, y: np.sqrt(np.abs(x)) ** 1.5),
            (lambda x, y: x.maximum(y), np.maximum),
            (lambda x, y: x.minimum(y), np.minimum),
            (lambda x, y: x.minimum(0.5), lambda x, y: np.minimum(x, np.float32(0.5))),
            (lambda x, y: x.exp() + y.exp2(), lambda x, y: np.exp(x) + np.exp2(y)),
            (lambda x, y: abs(x).log() - abs(y).log2(), lambda x, y: np.log(abs(x)) - np.log2(abs(y))),
            (lambda x, y: x.sin() * y.cos(), lambda x, y: np.sin(x) * np.cos(y)),
            (lambda x, y: x.trunc() - y.floor(), lambda x, y: np.trunc(x) - np.floor(y)),
            (lambda x, y: x.tanh() + y.sigmoid(), lambda x, y: np.tanh(x) + 1 / (1 + np.exp(-y))),
            (lambda x, y: x.relu() - y.reciprocal(), lambda x, y: np.maximum(x, 0) - 1 / y),
            (lambda x, y: (x < y).where(x, 7), lambda x, y: np.where(x < y, x, np.float32(7))),
            (lambda x, y: (x > 0).where(1, y), lambda x, y: np.where(x > 0, np.float32(1), y)),
            (lambda x, y: x.softmax(), lambda x, y: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
        ]
        self.check([f for f, _ in two], [f for _, f in two], a, b)

    def test_far_small_and_narrow_numbers(self):
        """Functions that are composed of others: their digits, and sums of 16-bit floats that are larger than the largest of these."""
        far = np.array([1e2, 1000.5, 8192, 1e7, -3e38], np.float32)
        self.check([lambda x: x.cos()], [lambda x: np.cos(x.astype(np.float64)).astype(np.float32)], far, rtol=1e-5, atol=2e-7)
        small = np.array([1e-30, -1e-12, 1e-5, -0.01, 0.3, 0.6], np.float32)
        self.check([lambda x: x.tanh()], [np.tanh], small, rtol=1e-6, atol=0)
        half = (self.array(3, 900) * 2 + 90).astype(np.float16)
        exact = lambda f: lambda x: f(x.astype(np.float64)).astype(np.float16)  # noqa: E731
        self.check([lambda x: x.mean(), lambda x: x.std(1), lambda x: x.var(0), lambda x: (x / 90).exp(), lambda x: x.cos(), lambda x: (x - 90).tanh(),
                    lambda x: (x - 90).softmax()],
                   [exact(np.mean), exact(lambda x: x.std(1)), exact(lambda x: x.var(0)),
                    lambda x: exact(np.exp)((x / np.float16(90))), exact(np.cos), exact(lambda x: np.tanh(x - 90)),
                    exact(lambda x: (e := np.exp(x - 90)) / e.sum(1, keepdims=True))], half, rtol=1e-3, atol=1e-6)
        self.check([abs], [np.abs], np.array([0, 1, 127, 128, 255], np.uint8))

    def test_as_numpy_has_it(self):
        """The same source of both, with arrays and numbers on either side."""
        a, c = self.array(3, 4), self.array(4, seed=3)
        names = {"np": np, "c": c, "two": np.float32(2)}
        texts = ["x + c", "c + x", "c - x", "two * x", "x / c", "[1, 2, 3, 4] * x", "2 ** x", "+x",
                 "x == c", "c == x", "x != 0", "np.exp(x) + np.maximum(c, x)", "c @ x.T", "x @ c",
                 "x.var()", "x.std(axis=0)", "x.var(axis=1, ddof=1)", "x.argmax()", "x.argmin(axis=0)",
                 "x.argmax(axis=1)", "x.cumsum(axis=1)", "(x > 0).any()", "(x > -1).all(axis=0)",
                 "x.clip(-1, 1)", "np.square(x)", "x.flatten()", "x.astype('int32')"]
        for text in texts:
            with self.subTest(text):
                run = eval("lambda x: " + text, dict(names))
                want = np.asarray(run(a))
                g = Graph()
                g.output("y", run(g.input("x", a.shape)))
                got = self.session.put(g)(x=a)["y"]
                self.assertEqual(got.shape, want.shape)
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        for text in ("7 // x", "7 % x", "3 & x", "3 | x", "3 ^ x", "1 << x", "64 >> x", "~x"):
            with self.subTest(text):
                run = eval("lambda x: " + text)
                i = np.array([1, 2, 3], np.int32)
                g = Graph()
                g.output("y", run(g.input("x", i.shape, "i32")))
                np.testing.assert_array_equal(self.session.put(g)(x=i)["y"], run(i))
        rows = list(g.input("rows", (3, 2)))
        self.assertEqual([r.shape for r in rows], [(2,)] * 3)
        self.assertEqual(len({x for x in rows}), 3)

    def test_indexing_is_numpys(self):
        rng = seeded("indexing")
        for _ in range(60):
            a = np.arange(math.prod(shape := [rng.randrange(1, 6) for _ in range(rng.randrange(1, 4))]),
                          dtype=np.float32).reshape(shape)
            index, gathered = [], False
            for size in shape[:rng.randrange(0, len(shape) + 1)]:
                kind = rng.randrange(4)
                if kind == 0 and not gathered:
                    index.append(rng.randrange(-size, size))
                elif kind == 1 and not any(isinstance(i, int) for i in index) and not gathered:
                    gathered = True
                    index.append(np.array([[rng.randrange(-size, size)] for _ in range(3)]))
                else:
                    ends = [rng.choice([None, rng.randrange(-7, 7)]) for _ in range(2)]
                    index.append(slice(*ends, rng.choice([None, 1, 2, 3, -1, -2])))
            for place in sorted(rng.sample(range(len(index) + 1), rng.randrange(0, 2)), reverse=True):
                index.insert(place, None)
            if rng.randrange(3) == 0:
                index.append(Ellipsis)
            want = a[tuple(index)]
            if want.size == 0:
                continue
            with self.subTest(shape=shape, index=index):
                g = Graph()
                g.output("y", g.input("x", shape)[tuple(index)])
                np.testing.assert_array_equal(self.session.put(g)(x=a)["y"], want)

    def test_arrays_of_other_libraries(self):
        buffer = self.session.upload(np.arange(4, dtype=np.float32))
        np.testing.assert_array_equal(np.asarray(buffer), np.arange(4))
        np.testing.assert_array_equal(np.from_dlpack(buffer), np.arange(4))

        class Theirs:  # an array of a library that NumPy knows nothing of
            def __dlpack__(self, **named):
                return np.arange(3, dtype=np.float32).__dlpack__()

            def __dlpack_device__(self):
                return 1, 0

        np.testing.assert_array_equal(self.session.upload(Theirs()).numpy(), np.arange(3))

    def test_comparisons(self):
        a = np.array([1, 2, 3, np.nan], np.float32)
        b = np.array([2, 2, 2, np.nan], np.float32)
        two = [(lambda x, y: x < y, np.less), (lambda x, y: x <= y, np.less_equal),
               (lambda x, y: x > y, np.greater), (lambda x, y: x >= y, np.greater_equal),
               (lambda x, y: x.eq(y), np.equal), (lambda x, y: x.ne(y), np.not_equal),
               (lambda x, y: ~(x < y) & x.eq(x), lambda x, y: ~(x < y) & (x == x))]
        self.check([f for f, _ in two], [f for _, f in two], a, b)

    def test_integers(self):
        for kind in (np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64):
            with self.subTest(kind.__name__):
                a = np.array([1, 5, 100, 127, 90], kind)
                b = np.array([3, 2, 7, 11, 1], kind)
                two = [(lambda x, y: x + y, lambda x, y: x + y), (lambda x, y: x * y, np.multiply),
                       (lambda x, y: -x, lambda x, y: -x), (lambda x, y: ~x, lambda x, y: ~x),
                       (lambda x, y: x // y, np.floor_divide), (lambda x, y: x % y, np.mod),
                       (lambda x, y: (x & y) | (x ^ 3), lambda x, y: (x & y) | (x ^ kind(3))),
                       (lambda x, y: x << 1, lambda x, y: x << kind(1)),
                       (lambda x, y: x >> 2, lambda x, y: x >> kind(2)),
                       (lambda x, y: x.minimum(y), np.minimum),
                       (lambda x, y: x.min(), lambda x, y: x.min()),
                       (lambda x, y: x.cast("f32"), lambda x, y: x.astype(np.float32)),
                       (lambda x, y: x.gather(y.cast("i32") - 1),
                        lambda x, y: np.where(y <= 5, x[np.minimum(y, 5).astype(int) - 1], kind(0)))]
                self.check([f for f, _ in two], [f for _, f in two], a, b)

    def test_shapes(self):
        a, b = self.array(2, 3, 4), self.array(3, 1, seed=5)
        two = [
            (lambda x, y: x + y, lambda x, y: x + y),
            (lambda x, y: x.reshape(6, -1), lambda x, y: x.reshape(6, -1)),
            (lambda x, y: x.permute(2, 0, 1), lambda x, y: x.transpose(2, 0, 1)),
            (lambda x, y: x.T, lambda x, y: x.T),
            (lambda x, y: x.transpose(), lambda x, y: x.swapaxes(-1, -2)),
            (lambda x, y: x[1], lambda x, y: x[1]),
            (lambda x, y: x[:, -1, 1:3], lambda x, y: x[:, -1, 1:3]),
            (lambda x, y: x[..., ::-1], lambda x, y: x[..., ::-1]),
            (lambda x, y: x[0, 2:0:-1], lambda x, y: x[0, 2:0:-1]),
            (lambda x, y: x[:, 5:], lambda x, y: x[:, 5:]),
            (lambda x, y: x.flip(0, 2), lambda x, y: x[::-1, :, ::-1]),
            (lambda x, y: x.pad([(0, 0), (1, 2), (3, 0)]),
             lambda x, y: np.pad(x, [(0, 0), (1, 2), (3, 0)])),
            (lambda x, y: cat([x, y.broadcast_to((2, 3, 1))], -1),
             lambda x, y: np.concatenate([x, np.broadcast_to(y, (2, 3, 1))], -1)),
            (lambda x, y: stack([x, x * 2], 1), lambda x, y: np.stack([x, x * 2], 1)),
            (lambda x, y: x.unsqueeze(1).squeeze(1), lambda x, y: x),
            (lambda x, y: x.sum(), lambda x, y: x.sum()),
            (lambda x, y: x.sum((0, -1)), lambda x, y: x.sum((0, -1))),
            (lambda x, y: x.max(1, keepdims=True), lambda x, y: x.max(1, keepdims=True)),
            (lambda x, y: x.min(0), lambda x, y: x.min(0)),
            (lambda x, y: x.prod(-1), lambda x, y: x.prod(-1)),
            (lambda x, y: x.mean((1, 2)), lambda x, y: x.mean((1, 2))),
            (lambda x, y: x.bitcast("i32"), lambda x, y: x.view(np.int32)),
            (lambda x, y: x.bitcast("u8"), lambda x, y: x.view(np.uint8)),
            (lambda x, y: x.graph.full((2, 2), 3) + x.graph.arange(2, "i32").cast("f32"),
             lambda x, y: np.full((2, 2), 3, np.float32) + np.arange(2, dtype=np.float32)),
        ]
        self.check([f for f, _ in two], [f for _, f in two], a, b)

    def test_products(self):
        for left, right in (((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)),
                            ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((3, 0), (0, 2))):
            with self.subTest(left=left, right=right):
                self.check([lambda x, y: x @ y], [lambda x, y: x @ y], self.array(*left),
                           self.array(*right, seed=3))
        a, b = self.array(3, 4).astype(np.float16), self.array(4, 2).astype(np.float16)
        self.check([lambda x, y: x @ y],
                   [lambda x, y: (x.astype(np.float32) @ y.astype(np.float32)).astype(np.float16)],
                   a, b)

    def test_rows_by_index(self):
        rows, index = self.array(5, 3), np.array([[4, 0], [7, -1]], np.int64)
        there = (index >= 0) & (index < 5)
        g = Graph()
        x, i = g.input("x", rows.shape), g.input("i", index.shape, "i64")
        g.output("rows", x.gather(i))
        g.output("sums", g.full((5, 3), 0).scatter(i, x.gather(i), "add"))
        got = self.session.put(g)(x=rows, i=index)
        want = np.where(there[..., None], rows[index % 5], 0)
        np.testing.assert_array_equal(got["rows"], want)
        sums = np.zeros((5, 3), np.float32)
        np.add.at(sums, index[there], want[there])
        np.testing.assert_array_equal(got["sums"], sums)

    def test_bools_by_index(self):
        base, rows, index = np.array([1, 0, 0, 1], bool), np.array([1, 0, 0, 0], bool), np.array([1, 1, 3, 2], np.int64)
        ways = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
        g = Graph()
        x, y, i = g.input("x", (4,), "bool"), g.input("y", (4,), "bool"), g.input("i", (4,), "i64")
        for kind in ways:
            g.output(kind, x.scatter(i, y, kind))
        got = self.session.put(g)(x=base, y=rows, i=index)
        for kind, function in ways.items():
            want = base.copy()
            function.at(want, index, rows)
            np.testing.assert_array_equal(got[kind], want, kind)

    def test_state_and_stores(self):
        g = Graph()
        x = g.input("x", (4,))
        total = g.state("total", init=np.zeros(4))
        self.assertEqual(total.dtype.name, "f64")  # as the array has it
        after = g.store(total, total + x.cast("f64"))
        g.store(total[1:3], 7)  # after the first
        g.output("before", total)
        g.output("between", after * 2)
        program = self.session.put(g)
        for i in range(3):
            got = program(x=np.full(4, i + 1, np.float32))
            held = [[0, 0, 0, 0], [1, 7, 7, 1], [3, 7, 7, 3]][i]
            np.testing.assert_array_equal(got["before"], held)
            np.testing.assert_array_equal(got["between"], 2 * (np.array(held) + i + 1))
        np.testing.assert_array_equal(program.read("total"), [6, 7, 7, 6])

    def test_state_is_shared_by_binding(self):
        w = np.array([2, 3], np.float32)
        training, scoring = Graph(), Graph()
        t = training.state("w", init=w)
        training.store(t, t * t)
        scoring.output("y", scoring.state("w", (2,)) + 1)
        train, score = self.session.put(training), self.session.put(scoring)
        train.run()
        score.bind("w", train.buffer("w"))
        np.testing.assert_array_equal(score()["y"], w * w + 1)
        with raises(self, Code.INVALID_ARGUMENT, "'w'", "expected f32[2]"):
            score.bind("w", self.session.upload([1, 2, 3]))

    def test_inputs_must_be_given_once(self):
        g = Graph()
        g.output("y", g.input("a", (2,)) - g.input("b", (2,)))
        program = self.session.put(g)
        with raises(self, Code.INVALID_ARGUMENT, "input 'b' has no value"):
            program(a=[1, 2])
        np.testing.assert_array_equal(program(b=[1, 1])["y"], [0, 1])  # a is still there
        with raises(self, Code.INVALID_ARGUMENT, "no slot 'c'", "a, b, y"):
            program(c=1)
        with raises(self, Code.INVALID_ARGUMENT, "[3]"):
            program(a=[1, 2, 3])

    def test_variables(self):
        g = Graph()
        n = g.variable("n", 0, 100, multiple=5)
        g.output("y", g.arange(3) * n)
        program = self.session.put(g)
        np.testing.assert_array_equal(program(variables={"n": 15})["y"], [0, 15, 30])
        for variables, words in (({}, "no value"), ({"n": 7}, "multiple of 5"), ({"m": 1}, "'m'")):
            with raises(self, Code.INVALID_ARGUMENT, words):
                program(variables=variables)

    def test_functions_and_loops_by_name(self):
        g = Graph()
        x = g.input("x", (3,))
        i, carried = g.op("arg", arg=(0, 0), dtype="i64"), g.op("arg", arg=(1, 0, 3), dtype="f32")
        body = g.op("tuple", carried + carried * i.cast("f32"))
        loop = g.op("loop", body, g.const(4, "i64"), x)
        g.output("y", g.op("gettuple", loop, arg=(0,)))
        x = np.array([1, 2, 3], np.float32)
        np.testing.assert_array_equal(self.session.put(g)(x=x)["y"], x * math.factorial(4))

    def test_constants_of_every_type(self):
        for kind in dtypes.ALL:
            values = [0, 1] if kind.kind == "boolean" else [0, 1, -2] if kind.kind == "signed" else [1]
            values += [0.3, -0.0, 1e30, math.nan] if kind.name in ("f32", "f64") else []
            values += [0.3] if kind.is_float else []
            for value in values:
                with self.subTest(kind=kind.name, value=value):
                    g = Graph()
                    g.output("y", g.const(value, kind))
                    got = self.session.put(g)()["y"]
                    want = g.const(value, kind)
                    if kind.is_float:
                        got = kind.to_float32(got) if kind.name != "f64" else got
                        np.testing.assert_equal(float(got), float(np.float32(want.real))
                                                if kind.name != "f64" else want.real)
                    else:
                        self.assertEqual(int(got), value)

    def test_random_expressions(self):
        """Of + - * max and broadcasts: exact on integers."""
        rng = seeded("random_expressions")
        for _ in range(10):
            arrays = [np.array([rng.randrange(-9, 9) for _ in range(12)], np.int32).reshape(shape)
                      for shape in ((3, 4), (3, 4), (12,))]
            g = Graph()
            pairs = [(g.input(f"x{i}", a.shape, a.dtype), a) for i, a in enumerate(arrays)]
            for _ in range(12):
                (t, a), (u, b) = rng.choice(pairs), rng.choice(pairs)
                if a.shape != b.shape:
                    t, a = t.reshape(b.shape), a.reshape(b.shape)
                pairs.append(rng.choice([
                    lambda: (t + u, a + b), lambda: (t * 3 - u, a * 3 - b),
                    lambda: (t.maximum(u), np.maximum(a, b)), lambda: (t.T, a.T),
                    lambda: (t.flip(0), a[::-1]), lambda: ((t < u).where(t, u), np.where(a < b, a, b)),
                    lambda: (t[:2].sum(0) + u, a[:2].sum(0) + b)])())
                pairs = [(t, a) for t, a in pairs if a.size == 12]
            for i, (t, _) in enumerate(pairs[3:]):
                g.output(f"y{i}", t)
            got = self.session.put(g)({f"x{i}": a for i, a in enumerate(arrays)})
            for i, (_, a) in enumerate(pairs[3:]):
                np.testing.assert_array_equal(got[f"y{i}"], a.astype(np.int32))


class ErrorsTest(unittest.TestCase):
    """Found where they are made, without a server."""

    def test_errors_say_what_and_where(self):
        g = Graph()
        x, y = g.input("x", (3, 4)), g.input("y", (4,), "i32")
        for make, words in (
            (lambda: g.op("frobnicate", x), "frobnicate"),
            (lambda: x + y, "i32"),
            (lambda: x + g.input("z", (5,)), "[3, 4] and [5]"),
            (lambda: x + 1j, "complex"),
            (lambda: x & 1, "f32"),
            (lambda: y / 2, "float_only"),
            (lambda: y.sqrt(), "i32"),
            (lambda: y + 0.5, "0.5"),
            (lambda: y + (1 << 40), "range of i32"),
            (lambda: x.reshape(5, -1), "[3, 4]"),
            (lambda: x.broadcast_to((4, 4)), "[4, 4]"),
            (lambda: x.permute(0, 0), "order"),
            (lambda: x.sum(2), "axis 2"),
            (lambda: x.pad([(1, 1)]), "1 widths"),
            (lambda: x[3], "index 3"),
            (lambda: x[::0], None),
            (lambda: x[True], "truth"),
            (lambda: x[[0, 7]], "0 to 7"),
            (lambda: x[[0.5]], "float64"),
            (lambda: bool(x), "Store it as an output"),
            (lambda: 1 if x > 0 else 2, "where"),
            (lambda: float(x), "number"),
            (lambda: np.asarray(x), "array"),
            (lambda: 3 in x, "elements"),
            (lambda: np.arctan(x), "np.arctan"),
            (lambda: y + np.ones(3), "float64 meets a tensor of i32"),
            (lambda: x + "3", "str"),
            (lambda: len(x.sum()), "scalar"),
            (lambda: x[0, 0, 0], "3 indices"),
            (lambda: x @ x, "4 and 3"),
            (lambda: x.reduce("min"), "'min'"),
            (lambda: x.squeeze(0), "size 1"),
            (lambda: x.bitcast("f64")[0], None),
            (lambda: g.input("x", (1,)), "'x'"),
            (lambda: g.store(x + 1, x), "add"),
            (lambda: g.store(x, y), "i32"),
            (lambda: g.output("s", g.store(x, x).src[1]), "store"),
            (lambda: g.state("w"), "'w'"),
            (lambda: Graph().serialize(), "output"),
            (lambda: cat([x, y]), "source 1"),
            (lambda: Graph().input("a", (1,)) + x, "another graph"),
            (lambda: telegrad.dtype("float33"), "float33"),
            (lambda: g.op("add", x, dtype="f32"), "1 sources"),
            (lambda: g.op("add", x, x, dtype="f32"), "follows"),
            (lambda: g.op("param", arg=(0, 0, 3)), "element type"),
            (lambda: g.op("param", arg=(0, 0, -3), dtype="f32"), "negative"),
            (lambda: x.gather(y).scatter(y, x), "expected"),
            (lambda: np.ones(5) + x, "do not broadcast"),
        ):
            with self.subTest(words):
                if words is None:
                    try:
                        make()
                    except (TypeError, ValueError, telegrad.TelegradError):
                        pass
                    continue
                with self.assertRaises((telegrad.TelegradError, TypeError)) as context:
                    make()
                self.assertIn(words, str(context.exception))

    def test_equal_nodes_are_one(self):
        g = Graph()
        x = g.input("x", (3,))
        self.assertIs(x + 1, x + 1)
        self.assertIsNot(g.const(0.0), g.const(-0.0))

    def test_only_what_is_needed_is_sent(self):
        g = Graph()
        x = g.input("x", (3,))
        x.exp().sin().log()
        g.output("y", x + x)
        self.assertEqual(len(g.message().nodes), 5)  # x, x + x, y, store, sink

    def test_names_are_not_mistaken(self):
        """i4 has four bits and i8 eight, whatever NumPy's short names mean."""
        self.assertEqual([telegrad.dtype(n).bits for n in ("i4", "i8", "u2", "f8e5m2")], [4, 8, 2, 8])
        for like, name in ((np.int64, "i64"), ("int64", "i64"), (np.dtype(">f4"), "f32"),
                           ("bool", "bool"), (bool, "bool"), (np.float16, "f16")):
            self.assertEqual(telegrad.dtype(like).name, name)


if __name__ == "__main__":
    main()
