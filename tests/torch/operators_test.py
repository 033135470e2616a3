"""Operators of ATen one by one: torch.compile(backend="telegrad") against eager; skipped (77) without torch.

TELEGRADD names the daemon's program, as in tests/python.
"""

import math
import warnings

from torch_support import TorchTest
import support
import torch

import telegrad.torch
from torch.nn import functional as F

INF = float("inf")
POINTS = torch.tensor([-3e38, -1e9, -20, -1.5, -1, -.9, -.3, -1e-4, -0.0, 0.0, 1e-6, .2, .49, .51, .99, 1, 1.5, 2.5, 30, 1e10,
                       INF, -INF, float("nan")])


class OperatorsTest(TorchTest):
    def setUp(self):
        torch.manual_seed(7)

    def each(self, functions, *inputs, tolerance=2e-5):
        """Compiled and eager from one state of torch's random numbers."""
        for number, function in enumerate(functions):
            with self.subTest(number=number):
                torch._dynamo.reset()
                torch.manual_seed(number)
                got = torch.compile(function, backend="telegrad", fullgraph=True)(*inputs)
                after = torch.get_rng_state()
                torch.manual_seed(number)
                want = function(*inputs)
                torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
                self.assertTrue(torch.equal(after, torch.get_rng_state()), "it drew more or less than eager")

    def test_random_numbers_are_eagers(self):
        self.each([
            lambda x: x + torch.rand_like(x) + torch.randn(7) + torch.rand(5, 1), lambda x: F.dropout(x, 0.3) + F.dropout(x * 2, 0.5),
            lambda x: x + torch.randint(0, 9, (5, 7)) + torch.randperm(7), lambda x: x + torch.empty(5, 7).normal_(1, 2),
            lambda x: x + torch.empty(5, 7).uniform_(1, 2) + torch.empty(5, 7).bernoulli_(0.3),
            lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.2), lambda x: F.dropout(x, 1.0) + F.dropout(x, 0.0)],
            torch.randn(5, 7))

    def test_draws_without_replacement_are_eagers(self):
        p = torch.rand(4, 50) + 0.01
        p[0, :25] = 0
        self.each([lambda p: p.multinomial(1), lambda p: p[0].multinomial(1), lambda p: p.multinomial(7),
                   lambda p: F.softmax(p * 5, -1).multinomial(1) + p.multinomial(3)], p)

    def test_special_functions(self):
        x = torch.cat([torch.linspace(-9.7, 40, 400), torch.tensor([-3.0, -1, 0.0, -0.0, 0.5, 1, 2, 1e-3, 170, 1e6, INF, float("nan")])])
        self.each([torch.lgamma, torch.digamma], x)
        self.each([torch.lgamma, torch.digamma], torch.cat([x.double(), torch.tensor([1e-9, -1e-9, 1e20]).double()]), tolerance=1e-9)
        a = torch.tensor([0, 12, -18, 7, 0, 1 << 40, 12586269025, -5]).unsqueeze(1)
        b = torch.tensor([0, 8, 27, -49, 5, 1 << 35, 7778742049, 10])
        self.each([lambda a, b: torch.gcd(a, b), lambda a, b: torch.gcd(a.int(), b.int()),
                   lambda a, b: torch.gcd(a.abs().byte(), b.abs().byte()), lambda a, b: torch.lcm(a.short(), b.short())], a, b)
        leaf = (torch.rand(9) * 4 + 0.1).requires_grad_()
        grads = [torch.autograd.grad(f(leaf).sum(), leaf)[0] for f in (torch.lgamma, torch.compile(torch.lgamma, backend="telegrad"))]
        torch.testing.assert_close(*grads)

    def test_places_and_counts(self):
        x = torch.tensor([[3.0, 1, 3, 1, 2], [5, 5, float("nan"), 0, 0], [0, -1, 0, -1, 7]])
        self.each([lambda x: x.put(torch.tensor([0, -1, 4]), torch.tensor([7.0, 8, 9])),
                   lambda x: x.put(torch.tensor([[0, 1], [0, -1]]), torch.ones(2, 2), accumulate=True),
                   lambda x: torch.nonzero_static(x, size=4), lambda x: torch.nonzero_static(x > 2, size=9, fill_value=7),
                   lambda x: x.median(1), lambda x: (x > 1).mode(-1)[0]], x)
        self.each([lambda x: x.mode(1)[0], lambda x: x.T.mode(0, True)[0], lambda x: x.int().mode(0)[0],
                   lambda x: x.gather(1, x.mode(1)[1].unsqueeze(1)).squeeze(1) - x.mode(1)[0]], x.nan_to_num(8))
        nan = float("nan")
        for row in ([1.0, nan, 3, nan], [nan, 1, nan, 2], [-INF, -INF, INF, INF], [2.0, 2, 1, 1]):
            self.each([lambda x: (x.argmax(), x.argmin(), x.max(0), x.min(0), x.median(0)[0])], torch.tensor(row))

    def test_bags_of_embeddings(self):
        table, index = torch.randn(9, 4), torch.tensor([1, 2, 8, 2, 0, 5, 2, 3])
        starts = torch.tensor([0, 3, 3, 7])  # the second bag is empty
        weights = torch.rand(8)
        self.each([lambda t, i, s, w: F.embedding_bag(i, t, s, mode="sum"), lambda t, i, s, w: F.embedding_bag(i, t, s),
                   lambda t, i, s, w: F.embedding_bag(i, t, s, mode="max"), lambda t, i, s, w: F.embedding_bag(i.reshape(2, 4), t),
                   lambda t, i, s, w: F.embedding_bag(i, t, s, mode="sum", per_sample_weights=w),
                   lambda t, i, s, w: F.embedding_bag(i, t, s, padding_idx=2), lambda t, i, s, w: F.embedding_bag(
                       i, t, torch.cat([s, torch.tensor([8])]), mode="max", include_last_offset=True, padding_idx=2)],
                  table, index, starts, weights)
        for options in ({"mode": "sum"}, {"mode": "mean", "padding_idx": 2}, {"mode": "max"}, {"mode": "sum", "weights": True},
                        {"mode": "mean", "scale_grad_by_freq": True}):
            with self.subTest(**options):
                torch._dynamo.reset()
                leaves = [table.clone().requires_grad_(), weights.clone().requires_grad_()]
                options = dict(options)
                weighted = options.pop("weights", False)
                used = leaves[:1 + weighted]

                def loss():
                    return F.embedding_bag(index, leaves[0], starts, per_sample_weights=leaves[1] if weighted else None, **options).sin()

                got, want = (torch.autograd.grad(f().sum(), used) for f in (torch.compile(loss, backend="telegrad"), loss))
                torch.testing.assert_close(got, want)

    def test_dropout_in_training(self):
        model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Dropout(0.4), torch.nn.Linear(32, 1))
        x, results = torch.randn(6, 8), []
        for run in (torch.compile(model, backend="telegrad"), model):
            torch._dynamo.reset()
            torch.manual_seed(3)
            history = []
            for _ in range(3):  # new numbers in each step, and the backward pass with those of its forward pass
                model.zero_grad()
                loss = run(x).square().sum()
                loss.backward()
                history += [loss.detach(), *(p.grad.clone() for p in model.parameters())]
            results.append(history)
        torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)
        self.assertNotEqual(results[1][0].item(), results[1][5].item())

    def test_order(self):
        x = torch.randn(5, 7)
        x[1, 2], x[3] = float("nan"), 1.0
        self.each([
            lambda x: torch.sort(x, dim=1, stable=True), lambda x: torch.sort(x, dim=1, stable=True, descending=True),
            lambda x: x.median(1), lambda x: torch.topk(x, 3)[0], lambda x: torch.searchsorted(torch.arange(-2.0, 3), x.nan_to_num()),
            lambda x: torch.bucketize(x.nan_to_num(), torch.arange(4.0), right=True)], x)
        y = torch.randn(5, 7)
        self.each([
            lambda y: torch.sort(y, 0, descending=True), lambda y: torch.topk(y, 2, dim=0, largest=False), lambda y: y.argsort(1),
            lambda y: y.median()], y)
        self.each([lambda z: torch.topk(z, 3), lambda z: torch.topk(z, 2, largest=False)], torch.randn(4, 20000))

    def test_order_of_long_rows(self):
        """More elements than are compared with each other; ties, NaN, infinities, -0, and integers of 64 bits. Torch runs none of it,
        which it would say."""
        x = torch.randint(-50, 50, (2, 3000)).float()
        x[:, ::7], x[:, 3::11], x[:, 5::13], x[:, 2::17] = math.nan, math.inf, -math.inf, -0.0
        i = torch.stack([torch.randperm(3000), torch.randperm(3000)]) * 2 ** 40 - 2 ** 50
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".* has no graph on Telegrad's server")
            self.each([
                lambda x: torch.sort(x, dim=1, stable=True), lambda x: torch.sort(x, dim=1, stable=True, descending=True),
                lambda x: torch.sort(x.T, dim=0, stable=True), lambda x: (torch.topk(x, 40)[0], torch.topk(x, 500, largest=False)[0]),
                lambda x: torch.sort(x.half(), dim=1, stable=True), lambda x: torch.sort(x.double(), dim=1, stable=True),
                lambda x: torch.sort(x > 0, dim=1, stable=True), lambda x: torch.cummax(x, 1), lambda x: torch.cummin(x.T, 0),
                lambda x: torch.logcumsumexp(x, 1), lambda x: torch.logcumsumexp(x.nan_to_num(0, 1, 2), 1)], x)
            self.each([
                lambda i: torch.sort(i, dim=1, stable=True), lambda i: torch.topk(i, 70), lambda i: torch.topk(i, 3, largest=False),
                lambda i: torch.cummin(i, 1), lambda i: torch.kthvalue(i, 5), lambda i: i.median(1)], i)
            self.each([lambda y: torch.sort(y, stable=True), lambda y: torch.topk(y, 300)[0]], torch.randn(200_000))

    def test_inverse_functions(self):
        self.each([torch.atan, torch.asin, torch.acos, torch.sinh, torch.cosh, torch.asinh, torch.acosh, torch.atanh,
                   lambda x: torch.atan2(x[:, None], x)], POINTS, tolerance=3e-6)

    def test_distances_pools_and_places(self):
        x = torch.randn(5, 7)
        index = torch.randint(0, 5, (5, 7))
        self.each([
            lambda x, i: torch.cdist(x, x + 1), lambda x, i: torch.cdist(x, x + 1, p=3.0), lambda x, i: torch.pdist(x),
            lambda x, i: x.masked_scatter(x > 0, torch.arange(35.0)), lambda x, i: x.scatter_reduce(0, i, x, "mean"),
            lambda x, i: x.scatter_reduce(0, i, x, "mean", include_self=False), lambda x, i: x.scatter_reduce(0, i, x, "amax", include_self=False),
            lambda x, i: x.scatter_reduce(0, i, x, "prod", include_self=False), lambda x, i: x.index_add(0, i[0, :2], torch.ones(2, 7)),
            lambda x, i: x + torch.tensor([1.0, 2, 3, 4, 5, 6, 7]), lambda x, i: F.cross_entropy(x, i[:, 0], label_smoothing=0.1)], x, index)
        self.each([lambda x: F.adaptive_avg_pool3d(x, (2, 3, 2))], torch.randn(2, 3, 5, 6, 7))
        self.each([
            lambda x, g: F.grid_sample(x, g, align_corners=False), lambda x, g: F.interpolate(x, scale_factor=2, mode="bicubic"),
            lambda x, g: F.pad(x, (1, 2, 2, 1), mode="reflect"), lambda x, g: F.unfold(x, 3)], torch.randn(2, 3, 5, 5), torch.rand(2, 4, 4, 2) * 2 - 1)

    def test_bits_and_signs(self):
        a = torch.tensor([-7, -3, 3, 7, 2**31 - 1, -2**31, 0], dtype=torch.int32)
        b = torch.tensor([2, 0, 31, 3, 1, 4, 5], dtype=torch.int32)
        self.each([lambda a, b: a << b, lambda a, b: a >> b, lambda a, b: a << 33, lambda a, b: a >> 33, lambda a, b: a ** b,
                   lambda a, b: a.long() ** b, lambda a, b: torch.full_like(a, -1) ** (b - 3).abs(),
                   lambda a, b: (a.abs() % 5).long() ** 27, lambda a, b: a.to(torch.uint8) ** b.to(torch.uint8),
                   lambda a, b: a.signbit()], a, b)
        other = POINTS.flip(0)
        self.each([lambda x, y: x.signbit(), lambda x, y: torch.copysign(y, x), lambda x, y: torch.fmax(x, y),
                   lambda x, y: torch.fmin(x, y), lambda x, y: torch.hypot(x, y), lambda x, y: torch.erfc(x)], POINTS, other)
        self.each([lambda x, y: torch.erfc(x) * x.square().exp()], torch.linspace(0, 9, 50), other)  # relative to its size

    def test_numbers_that_an_integer_does_not_hold(self):
        x = torch.tensor([-1.7, -2, -300, 256, 300.5, 7e4, 1e9, 3e9, -3e9, 5e18, INF, -INF, float("nan")])
        self.each([lambda x: x.to(torch.uint8), lambda x: x.to(torch.int8), lambda x: x.to(torch.int16),
                   lambda x: x.double().to(torch.uint8)], x)
        self.each([lambda x: x[:7].to(torch.int32), lambda x: x[:9].to(torch.int64)], x)

    def test_running_extremes(self):
        x = torch.tensor([[1.0, 3, 3, -2, 5, 5, 0], [2, float("nan"), 9, float("nan"), 1, 0, 0], [-INF, -INF, 1, INF, 2, INF, 0]])
        scans = [lambda x: torch.cummax(x, 1), lambda x: torch.cummin(x, 1), lambda x: torch.cummax(x, 0), lambda x: torch.kthvalue(x.nan_to_num(8, 7, -7) + torch.arange(7) * 0.1, 2),
                 lambda x: torch.kthvalue(x.nan_to_num(8, 7, -7) + torch.arange(3).reshape(3, 1) * 0.1, 2, 0, True)]
        self.each([*scans, lambda x: torch.logcumsumexp(x, 1)], x)
        self.each(scans[:3], (x.nan_to_num(3, 7, -7) * 2).int())
        y = torch.randn(4, 9)
        for function in (lambda y: torch.logcumsumexp(y, 1), lambda y: torch.cummax(y, 1).values):
            grads = []
            for run in (function, torch.compile(function, backend="telegrad", fullgraph=True)):
                torch._dynamo.reset()
                z = y.clone().requires_grad_()
                (run(z) * torch.arange(9.0)).sum().backward()
                grads.append(z.grad)
            torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-4)

    def test_adaptive_max_pool(self):
        x = torch.randn(2, 3, 7, 5)
        x[0, 0, 0, 0] = float("nan")
        self.each([lambda x: F.adaptive_max_pool2d(x, 1), lambda x: F.adaptive_max_pool2d(x, (3, 2), return_indices=True),
                   lambda x: F.adaptive_max_pool2d(x[0], 4)], x)
        grads = []
        for run in (lambda x: F.adaptive_max_pool2d(x, (3, 2)), torch.compile(lambda x: F.adaptive_max_pool2d(x, (3, 2)), backend="telegrad")):
            z = x.nan_to_num(9).requires_grad_()
            (run(z) * torch.arange(6.0).reshape(3, 2)).sum().backward()
            grads.append(z.grad)
        torch.testing.assert_close(grads[1], grads[0])

    def test_assertions_on_values(self):
        classes = torch.compile(lambda i: F.one_hot(i, 4) * 2, backend="telegrad", fullgraph=True)
        good, bad = torch.tensor([0, 3, 1]), torch.tensor([0, 4, 1])
        self.assertTrue(torch.equal(classes(good), F.one_hot(good, 4) * 2))
        with self.assertRaisesRegex(RuntimeError, "(?i)class"):
            classes(bad)
        self.assertTrue(torch.equal(classes(good), F.one_hot(good, 4) * 2))
        alone = torch.compile(lambda x: torch._assert_async((x > 0).all()), backend="telegrad")
        alone(torch.ones(3))

    def test_groups_of_rows(self):
        x = torch.tensor([0.0, 1, 1, 4, 4, 3.9, -1, 5, 2, 0.8, INF, -INF, float("nan")])
        self.each([lambda x: torch.histc(x.nan_to_num(9), bins=5, min=0, max=4), lambda x: torch.histc(x.nan_to_num(9), 7, -1, 2)], x)
        a, b = torch.randn(10, 16).bfloat16(), torch.randn(3, 16, 8).bfloat16()
        ends = torch.tensor([2, 2, 9], dtype=torch.int32)  # the second group is empty, the last row in none
        self.each([lambda a, b, ends: torch._grouped_mm(a, b, ends)[:9]], a, b, ends, tolerance=2e-2)
        got = torch.compile(lambda a, b, ends: torch._grouped_mm(a, b, ends), backend="telegrad", fullgraph=True)(a, b, ends)
        self.assertTrue(torch.equal(got[9], torch.zeros(8, dtype=torch.bfloat16)))

    def gradients(self, function, *inputs, tolerance=2e-5):
        """Of the sum of a function's results with different weights, compiled and eager."""
        found = []
        for run in (function, torch.compile(function, backend="telegrad", fullgraph=True)):
            torch._dynamo.reset()
            leaves = [x.clone().requires_grad_() for x in inputs]
            out = run(*leaves)
            found.append(torch.autograd.grad((out * torch.arange(1.0, out.numel() + 1).reshape(out.shape).sin()).sum(), leaves))
        torch.testing.assert_close(found[1], found[0], rtol=tolerance, atol=tolerance)

    def test_gradients_of_distances(self):
        x, y = torch.randn(5, 3), torch.randn(4, 3)
        y[0] = x[1]  # which has no distance from it
        for p in (0.0, 1.0, 1.5, 2.0, 3.0, INF):
            with self.subTest(p=p):
                self.gradients(lambda x, y: torch.cdist(x, y, p, "donot_use_mm_for_euclid_dist"), x, y)
                self.gradients(lambda x: F.pdist(x, p), x)

    def test_pools_of_volumes(self):
        x = torch.randn(2, 3, 5, 6, 4)
        self.each([lambda x: F.adaptive_max_pool3d(x, (2, 3, 4)), lambda x: F.adaptive_max_pool3d(x[0], 2, return_indices=True)], x)
        for function in (lambda x: F.adaptive_max_pool3d(x, (2, 3, 3)), lambda x: F.adaptive_avg_pool3d(x, (2, 4, 3))):
            self.gradients(function, x)

    def test_gradients_of_samples(self):
        image, grid = torch.randn(2, 3, 5, 4), torch.rand(2, 4, 3, 2) * 3 - 1.5
        grid[0, 0, 0] = torch.tensor([-1.0, 1.0])  # a corner
        for mode in ("bilinear", "nearest"):
            for pads in ("zeros", "border", "reflection"):
                for corners in (False, True):
                    with self.subTest(mode=mode, pads=pads, corners=corners):
                        self.gradients(lambda i, g: F.grid_sample(i, g, mode, pads, corners), image, grid)
        with self.assertWarnsRegex(UserWarning, "grid_sampler_2d_backward.*torch runs it"):
            self.gradients(lambda i, g: F.grid_sample(i, g, "bicubic", align_corners=False), image, grid)

    def test_digits_masks_and_inverse_errors(self):
        x = torch.randn(4, 6) * 30
        self.each([lambda x: torch.round(x, decimals=1), lambda x: torch.round(x, decimals=-1), lambda x: x.long().round(),
                   lambda x: torch.ops.aten.index_put(x, [x > 0], torch.tensor(3.0)),
                   lambda x: torch.ops.aten.index_put(x, [x[:, 0] > 0], torch.tensor([3.0]), True)], x)
        self.each([torch.erfinv], torch.cat([torch.linspace(-1.2, 1.2, 401), torch.tensor([1 - 1e-6, 1e-6 - 1, 0.0, -0.0])]), tolerance=1e-5)

    def test_resizing_with_antialiasing(self):
        x = torch.randn(2, 3, 12, 9)
        for size in ((5, 4), (12, 20), (1, 9)):
            for mode in ("bilinear", "bicubic"):
                for corners in (False, True):
                    with self.subTest(size=size, mode=mode, corners=corners):
                        resize = lambda x: F.interpolate(x, size, mode=mode, align_corners=corners, antialias=True)  # noqa: E731, B023
                        self.each([resize], x)
                        self.gradients(resize, x)
        self.each([lambda x: F.interpolate(x, scale_factor=(0.4, 0.7), mode="bilinear", antialias=True)], x)

    def test_tangents_near_their_poles(self):
        x = torch.tensor([0.0, -0.0, 1.5707, 1.5708, -1.5709, 1.5707963, 4.712389, 11.0, 1e3, -333.0086, 0.785, INF])
        self.each([torch.tan, lambda x: (x.double() * 1.0001).tan()], x)

    def test_sums_of_products_and_reductions_by_index(self):
        x, rows = torch.randn(4, 5), torch.tensor([2, 0, 2])
        a, b = torch.randn(3, 4, 6), torch.randn(3, 6, 5)
        self.each([lambda x, a, b: torch.addbmm(x, a, b), lambda x, a, b: torch.addbmm(x, a, b, beta=0.5, alpha=2), lambda x, a, b: x.angle(),
                   lambda x, a, b: x[0, 0].index_select(0, torch.tensor([0]))], x, a, b)
        self.each([lambda x, i, s, how=how, with_self=with_self: x.index_reduce(0, i, s, how, include_self=with_self)
                   for how in ("prod", "mean", "amax", "amin") for with_self in (True, False)], x, rows, torch.randn(3, 5))
        bilinear = torch.nn.Bilinear(4, 5, 3)
        left, right = torch.randn(2, 4), torch.randn(2, 5)
        with torch.no_grad():
            self.each([bilinear], left, right)
        self.gradients(lambda x, y: F.bilinear(x, y, bilinear.weight.detach(), bilinear.bias.detach()), left, right)


if __name__ == "__main__":
    support.main()
