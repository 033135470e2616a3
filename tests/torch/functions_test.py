"""Elementwise functions and sums of every float type, where digits are lost easily; skipped (77) without torch.

TELEGRADD names the daemon's program, as in tests/python.
"""

import math

from torch_support import TorchTest
import support
import torch

import telegrad.torch  # noqa: F401  (registers the backend)
from torch.nn import functional as F

NARROW = {torch.bfloat16: 2 ** -7, torch.float16: 2 ** -10}  # and their units in the last place
POINTS = [-9.0, -7, -2.5, -1.5, -1, -0.9, -0.3, -1e-2, -1e-4, -0.0, 0.0, 1e-6, 1e-3, 0.1, 0.49, 0.51, 0.99, 1, 1.5, 2.5, 7, 9, 30, 55, 88]
UNARY = [torch.exp, torch.log, torch.expm1, torch.log1p, torch.log10, torch.sin, torch.cos, torch.tan, torch.asin, torch.acos, torch.atan,
         torch.sinh, torch.cosh, torch.tanh, torch.asinh, torch.acosh, torch.atanh, torch.erf, torch.erfc, torch.erfinv, torch.rsqrt,
         torch.sigmoid, F.gelu, F.elu, F.softplus, F.mish]


class FunctionsTest(TorchTest):
    def compiled(self, function, *inputs):
        torch._dynamo.reset()
        return torch.compile(function, backend="telegrad", fullgraph=True)(*inputs)

    def each(self, functions, *inputs, relative, absolute=0.0):
        for function in functions:
            with self.subTest(getattr(function, "__name__", ""), type=inputs[0].dtype):
                torch.testing.assert_close(self.compiled(function, *inputs), function(*inputs), rtol=relative, atol=absolute, equal_nan=True)

    def test_only_results_of_16_bits_are_rounded(self):
        for dtype, unit in NARROW.items():
            x = torch.cat([torch.tensor(POINTS), torch.linspace(-4, 4, 101)]).to(dtype)
            for function in UNARY:
                with self.subTest(function.__name__, dtype=dtype):
                    want = function(x.double()).to(dtype)
                    torch.testing.assert_close(self.compiled(function, x), want, rtol=unit, atol=1e-7, equal_nan=True)

    def test_64_bits(self):
        x = torch.cat([torch.tensor(POINTS), torch.linspace(-4, 4, 101), torch.tensor([0.999999, 1e-9, 5.5, 25.0, 700.0])]).double()
        self.each(UNARY, x, relative=2e-13, absolute=1e-15)
        self.each([torch.erfinv], torch.tensor([1 - 1e-12, 1e-15 - 1, 0.5, -0.999, 1.0, -1.0], dtype=torch.float64), relative=1e-12)

    def test_small_and_large_numbers(self):
        small = torch.tensor([1e-30, -1e-20, 1e-10, -3e-8, 1e-5, -1e-3, 0.02, 0.3, -0.6])
        self.each([torch.tanh, torch.expm1, torch.log1p, torch.erf, torch.sinh, torch.atan], small, relative=1e-6)
        large = torch.tensor([100.0, 1000.5, 4095.0, 8192.0, 123456.0, 1e7, 1e10, -3e38])
        self.each([torch.cos, torch.sin], large, relative=2e-6, absolute=1e-6)
        self.each([torch.cos, torch.sin], large.double(), relative=1e-12, absolute=1e-14)

    def test_rotary_embeddings_of_far_positions(self):
        frequencies = 10000 ** -(torch.arange(0, 64, 2) / 64)
        angles = torch.arange(0, 131072, 4097)[:, None] * frequencies
        self.each([torch.cos, torch.sin], angles, relative=0, absolute=1e-6)

    def test_quotients(self):
        numbers = [0.0, 1, -1, 0.5, 1.5, -2.5, 7, -7, 0.1, -0.3, 1000, 1e6, -1e6, 3.3e9, math.inf, -math.inf, math.nan]
        for dtype in (torch.float32, torch.float64, *NARROW):
            a, b = (t.flatten().to(dtype) for t in torch.meshgrid(torch.tensor(numbers), torch.tensor(numbers), indexing="ij"))
            self.each([torch.fmod, torch.remainder, torch.floor_divide, lambda a, b: torch.div(a, b, rounding_mode="trunc")], a, b,
                      relative=0 if dtype.itemsize > 2 else NARROW[dtype])
        self.each([torch.floor_divide], torch.tensor([3e38, 7, -7]), torch.tensor([0.1, 1e-40, 1e-40]), relative=0)
        self.each([lambda x: x % 1, lambda x: x // 0.1, lambda x: x % -0.1], torch.linspace(-3, 3, 61), relative=0)

    def test_sums_of_16_bits(self):
        for dtype, unit in NARROW.items():
            x = (torch.randn(3, 5000, generator=torch.Generator().manual_seed(1)) + 40).to(dtype)
            self.each([lambda x: x.mean(), lambda x: x.mean(1), lambda x: torch.var_mean(x, 1)[1], lambda x: x.std(), lambda x: x.cumsum(1),
                       lambda x: (x / 40).cumprod(1), lambda x: (x / 40).logcumsumexp(1)], x[:, :1500].clone(), relative=unit)
            self.each([lambda x: x.mean()], x, relative=unit)

    def test_corrections_that_are_no_integers(self):
        x = torch.randn(4, 9)
        self.each([lambda x: x.var(1, correction=0.5), lambda x: torch.std(x, 0, correction=1.3), lambda x: torch.var_mean(x, correction=2.5)[0]],
                  x, relative=1e-5)

    def test_bytes(self):
        x = torch.tensor([[0, 1, 2, 127], [128, 200, 254, 255]], dtype=torch.uint8)
        self.each([torch.abs, lambda x: x.any(0), lambda x: x.all(1), lambda x: x.any(), torch.sign], x, relative=0)

    def test_integers_have_no_infinity(self):
        for dtype in (torch.uint8, torch.int8, torch.int64):
            x = (torch.arange(98) * 37 % 120).reshape(2, 7, 7).to(dtype) - (100 if dtype.is_signed else 0)
            self.each([torch.isinf, torch.isnan, torch.isfinite, lambda x: F.max_pool2d(x, 3, 2, 1), lambda x: F.max_pool2d(x, 2, ceil_mode=True),
                       lambda x: x.cumprod(1, dtype=x.dtype), lambda x: x.cumsum(1, dtype=x.dtype)], x, relative=0)

    def test_pads_of_which_nothing_but_the_edge_is_left(self):
        """Each element of a row is the same one of the input's, which a vector of addresses has in all lanes."""
        for dtype in (torch.uint8, torch.float32):
            x = (torch.arange(240) % 251).reshape(5, 3, 4, 4).to(dtype)
            self.each([lambda x, n=n: F.pad(x, (-n, 5, 0, 0), "replicate") for n in (2, 3, 4)], x, relative=0)

    def test_bools_by_index(self):
        x, i, y = torch.tensor([True, False, False, True, False]), torch.tensor([1, 1, 3, 2, 4]), torch.tensor([True, False, False, False, True])
        self.each([lambda x, i, y: x.scatter_add(0, i, y), lambda x, i, y: x.index_put((i,), y, accumulate=True), lambda x, i, y: x.index_add(0, i, y),
                   lambda x, i, y: x.scatter_reduce(0, i, y, "amin"), lambda x, i, y: x.scatter_reduce(0, i, y, "amax", include_self=False),
                   lambda x, i, y: x.scatter_reduce(0, i, y, "prod")], x, i, y, relative=0)

    def test_lowest_integers_have_divisors(self):
        lowest = torch.tensor([-2 ** 31, -2 ** 31, 12], dtype=torch.int32)
        self.assertEqual(self.compiled(torch.gcd, lowest, torch.tensor([6, 5, -2 ** 31], dtype=torch.int32)).tolist(), [2, 1, 4])


if __name__ == "__main__":
    support.main()
