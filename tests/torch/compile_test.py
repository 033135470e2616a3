"""torch.compile(backend="telegrad") against eager in the same process; skipped (77) where torch is not installed.

TELEGRADD names the daemon's program, as in tests/python.
"""

import contextlib
import gc
import io
import pathlib
import re
import unittest
import unittest.mock

from torch_support import TorchTest
import support
import torch

import models
import telegrad.torch
from telegrad.torch import _backend
from telegrad.torch._backend import host
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F


class CompileTest(TorchTest):
    def setUp(self):
        torch.manual_seed(7)
        torch._dynamo.reset()
        torch._dynamo.config.allow_rnn = True

    def close(self, got, want, rtol=2e-4, atol=2e-5):
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol)

    def check(self, model, *inputs):
        model.eval()
        with torch.no_grad():
            self.close(torch.compile(model, backend="telegrad", fullgraph=True)(*inputs), model(*inputs))

    # Operators: each a function of random tensors, and its gradient.

    def each(self, functions, *inputs, gradient=True):
        for number, function in enumerate(functions):
            with self.subTest(number=number):
                torch._dynamo.reset()
                compiled = torch.compile(function, backend="telegrad", fullgraph=True)
                ours = [i.clone().requires_grad_(gradient and i.is_floating_point()) for i in inputs]
                theirs = [i.clone().requires_grad_(gradient and i.is_floating_point()) for i in inputs]
                got, want = compiled(*ours), function(*theirs)
                self.close(got, want)
                if gradient and want.is_floating_point() and want.requires_grad:
                    seed = torch.randn_like(want)
                    got.backward(seed)
                    want.backward(seed)
                    for a, b in zip(ours, theirs):
                        self.close(a.grad, b.grad)

    def test_elementwise(self):
        x, y = torch.randn(4, 5), torch.rand(5) + 0.5
        self.each([
            lambda x, y: x + 2 * y - x / y, lambda x, y: torch.exp(x) * torch.log(y), lambda x, y: torch.tanh(x) + torch.sigmoid(x),
            lambda x, y: F.gelu(x) + F.silu(x) + F.elu(x) + F.softplus(x), lambda x, y: F.hardswish(x) + F.leaky_relu(x),
            lambda x, y: torch.erf(x) + torch.expm1(x) + torch.log1p(y), lambda x, y: x.clamp(-0.5, 0.5) ** 2 + y ** 0.5 + y.rsqrt(),
            lambda x, y: torch.where(x > 0, x, y) + x.abs(), lambda x, y: torch.maximum(x, y) + torch.minimum(x, y),
            lambda x, y: x.sin() * x.cos() + y.pow(2.5) + y.sqrt(), lambda x, y: torch.lerp(x, y, 0.3) + torch.addcmul(x, x, y, value=2)], x, y)

    def test_values_without_gradients(self):
        x, i = torch.randn(4, 6) * 3, torch.randint(-9, 9, (4, 6))
        self.each([
            lambda x, i: x.round() + x.floor() + x.ceil() + x.trunc() + x.sign(), lambda x, i: i // 3 + i % 4 - torch.fmod(i, 4),
            lambda x, i: x // 0.7 + x % 0.7, lambda x, i: (i & 3) | (i ^ 5), lambda x, i: ~(x > 0) & (i == 3) | (i != 2),
            lambda x, i: torch.isnan(x.log()).sum(), lambda x, i: x.argmax(1) + x.argmin(0)[:4] + i.argmax(),
            lambda x, i: (x > 0).any(1).float() + (x > -9).all(1), lambda x, i: i / 3 + i.float() + x.int(),
            lambda x, i: i.cumsum(1) + torch.arange(6) * 2, lambda x, i: torch.full((3,), 2.5) + torch.ones(3)], x, i, gradient=False)

    def test_shapes_and_indices(self):
        x, i = torch.randn(4, 6, 3), torch.tensor([[0, 5], [2, -1]])
        self.each([
            lambda x, i: x.permute(2, 0, 1).reshape(3, 24).T.flip(0), lambda x, i: x[1:3, ::2].flatten() + x[0, 0, 0],
            lambda x, i: torch.cat(x.split([2, 4], 1)[::-1], 1) + torch.stack(x.unbind(2), 2), lambda x, i: x[:, i],
            lambda x, i: x[i.clamp(0, 3), i], lambda x, i: x.gather(1, i.clamp(min=0)[None, :, :1].expand(4, 2, 3)),
            lambda x, i: F.pad(x, (1, 2, 0, 1), value=2.0) + 1, lambda x, i: x.repeat(2, 1, 3), lambda x, i: x.tril(1) + x.triu(),
            lambda x, i: x.index_select(1, i.flatten()[:2]), lambda x, i: x.transpose(0, 2).squeeze().unsqueeze(1),
            lambda x, i: torch.zeros(4, 6, 3).scatter_add(1, (i.clamp(min=0).sum() + torch.arange(6))[None, :, None].expand(4, 6, 3) % 6, x),
            lambda x, i: x.cumsum(1) + x.diagonal(0, 0, 2).sum()], x, i)

    def test_reductions_and_products(self):
        x, y = torch.randn(3, 4, 5), torch.randn(5, 4)
        self.each([
            lambda x, y: x.sum(1) + x.mean((1,)) + x.amax(1), lambda x, y: x.var(-1) + x.std(-1, correction=0), lambda x, y: x.max(2)[0] - x.min(2)[0],
            lambda x, y: x.softmax(-1) + x.log_softmax(1), lambda x, y: x.logsumexp(2), lambda x, y: x @ y, lambda x, y: torch.bmm(x, x.transpose(1, 2)),
            lambda x, y: torch.einsum("bij,jk->bki", x, y), lambda x, y: F.layer_norm(x, (5,)), lambda x, y: F.mse_loss(x, x * 0.5) + x.prod(),
            lambda x, y: F.scaled_dot_product_attention(x, x, x, is_causal=True)], x, y)

    def test_convolutions_and_pools(self):
        x, w = torch.randn(2, 4, 9, 8), torch.randn(6, 4, 3, 3)
        self.each([
            lambda x, w: F.conv2d(x, w), lambda x, w: F.conv2d(x, w, stride=2, padding=1), lambda x, w: F.conv2d(x, w, padding=(2, 0), dilation=(1, 2), stride=(1, 3)),
            lambda x, w: F.conv2d(x, w[:, :2], groups=2, padding=1), lambda x, w: F.conv1d(x[:, :, 0], w[:, :, 0], stride=2),
            lambda x, w: F.conv_transpose2d(x, w.transpose(0, 1), stride=2, padding=1, output_padding=1), lambda x, w: F.conv_transpose2d(x, w[:4], dilation=2),
            lambda x, w: F.max_pool2d(x, 3, 2, 1), lambda x, w: F.max_pool2d(x, 2, ceil_mode=True), lambda x, w: F.avg_pool2d(x, 3, 2, 1),
            lambda x, w: F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False), lambda x, w: F.adaptive_avg_pool2d(x, 1),
            lambda x, w: F.adaptive_avg_pool2d(x, (3, 4)), lambda x, w: F.interpolate(x, scale_factor=2.0), lambda x, w: F.group_norm(x, 2)], x, w)

    def test_types(self):
        for dtype in (torch.float64, torch.bfloat16, torch.float16):
            x = torch.randn(4, 8).to(dtype)
            with self.subTest(dtype), torch.no_grad():
                torch._dynamo.reset()
                f = lambda x: (x @ x.T).relu() + 1
                self.close(torch.compile(f, backend="telegrad")(x), f(x), rtol=2e-2, atol=2e-2)

    # Networks.

    def test_inference(self):
        ids = torch.randint(0, 64, (2, 16))
        mask = torch.arange(16)[None, :] < torch.tensor([[16], [9]])
        for name, model, inputs in (
                ("resnet", models.resnet(16, (2, 2, 2, 2), 10), [torch.randn(2, 3, 64, 64)]), ("bert", models.Bert(), [ids, mask]),
                ("gpt", models.Gpt(), [ids]), ("unet", models.Unet(), [torch.randn(1, 1, 16, 16)]),
                ("lstm", models.Lstm(), [torch.randn(2, 5, 6)]), ("vit", models.Vit(), [torch.randn(2, 3, 32, 32)])):
            with self.subTest(name):
                torch._dynamo.reset()
                self.check(model, *inputs)

    def test_a_cache_of_keys_and_values(self):
        model = models.Llama()
        compiled = torch.compile(model, backend="telegrad", fullgraph=True)
        caches = [[torch.zeros(1, 2, 16, 8), torch.zeros(1, 2, 16, 8)] for _ in range(2)]
        with torch.no_grad():
            for at in (torch.arange(3), torch.tensor([3]), torch.tensor([4]), torch.tensor([5])):
                ids = torch.randint(0, 64, (1, len(at)))
                got, want = compiled(ids, at, *caches[0]), model(ids, at, *caches[1])
                caches = [list(got[1:]), list(want[1:])]
                self.close(got[0], want[0])

    def train(self, make, loss, steps=20):
        """The losses of both, of equal beginnings and equal batches."""
        histories = []
        for compiled in (True, False):
            torch.manual_seed(11)
            torch._dynamo.reset()
            model = make()
            step = torch.compile(model, backend="telegrad") if compiled else model
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            history = []
            for _ in range(steps):
                optimizer.zero_grad()
                value = loss(step)
                value.backward()
                optimizer.step()
                history.append(value.item())
            histories.append(torch.tensor(history))
        self.close(histories[0], histories[1], rtol=1e-4, atol=1e-4)
        self.assertLess(histories[0][-1], histories[0][0])

    def test_training(self):
        ids = torch.randint(0, 96, (4, 17))
        images, labels = torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 2, 3])
        with self.subTest("gpt"):
            self.train(models.Gpt, lambda model: model(ids[:, :-1], ids[:, 1:]))
        with self.subTest("resnet"):
            self.train(lambda: models.resnet(8, (1, 1, 1, 1), 10), lambda model: F.cross_entropy(model(images), labels))
        with self.subTest("unet"):
            self.train(models.Unet, lambda model: F.mse_loss(model(images[:, :1]), images[:, 1:2]))

    # What stays where, and what goes wrong.

    def test_parameters_travel_once(self):
        model = torch.nn.Linear(64, 64)
        compiled = torch.compile(model, backend="telegrad")
        written = []
        write = host().write
        host().write = lambda memory, data: (written.append(memory.nbytes), write(memory, data))
        self.addCleanup(lambda: setattr(host(), "write", write))
        with torch.no_grad():
            for _ in range(3):
                compiled(torch.randn(2, 64))
            self.assertEqual(sorted(written), [256, 512, 512, 512, 16384])
            model.weight.add_(1)
            x = torch.randn(2, 64)
            self.close(compiled(x), model(x))
            self.assertEqual(written.count(16384), 2)

    def test_a_compiled_optimizer_keeps_its_state_on_the_server(self):
        batches, losses = torch.randn(6, 4, 8), []
        written = []
        write = host().write
        host().write = lambda memory, data: (written.append(memory.nbytes), write(memory, data))
        self.addCleanup(lambda: setattr(host(), "write", write))
        for compiled in (True, False):
            torch.manual_seed(5)
            model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            f, update = model, optimizer.step
            if compiled:
                f, update = (torch.compile(g, backend="telegrad") for g in (model, lambda: optimizer.step()))
            history = []
            for i, x in enumerate(batches):
                if i == 4:  # changed here: it has to travel
                    with torch.no_grad():
                        model[0].weight.mul_(0.5)
                before = len(written)
                optimizer.zero_grad()
                loss = f(x).square().sum()
                loss.backward()
                update()
                history.append(loss.item())
                if compiled and i in (3, 4, 5):  # the batch, the loss's gradient; the parameters' gradients are there
                    self.assertEqual(sorted(written[before:]), sorted([128, 16] + [512] * (i == 4)))
            losses.append(torch.tensor(history + [v for p in model.parameters() for v in p.flatten().tolist()]))
        self.close(losses[0], losses[1], rtol=1e-4, atol=1e-5)

    def test_results_have_the_strides_of_eager(self):
        """Also those that are expanded, or a part; used again as an argument, they are read by these strides."""
        x = torch.randn(3, 4, 5)
        rnn = torch.nn.LSTM(4, 6, batch_first=True, bidirectional=True)
        images = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
        conv = torch.nn.Conv2d(3, 4, 3)
        for name, function, argument in (
                ("permuted", lambda x: (x * 2).permute(2, 0, 1), x), ("expanded", lambda x: (x * 2)[None].expand(2, -1, -1, -1), x),
                ("part", lambda x: (x * 2)[:, ::2, 1:3], x), ("like", lambda x: x.exp(), x.permute(2, 0, 1)),
                ("rotated", lambda x: x[0].rot90(1, (0, 1)), x), ("channels last", conv, images),
                ("LSTM", lambda x: rnn(x)[0], torch.randn(3, 5, 4))):
            for grad in (False, True):
                with self.subTest(name, grad=grad), torch.set_grad_enabled(grad):
                    torch._dynamo.reset()
                    got, want = torch.compile(function, backend="telegrad", fullgraph=True)(argument), function(argument)
                    self.assertEqual(got.stride(), want.stride())
                    self.close(got, want)
                    again = torch.compile(lambda y: y.flatten() * 3, backend="telegrad")
                    self.close(again(got.detach()), want.detach().flatten() * 3)

    def test_a_tensor_is_known_by_its_storage(self):
        """Views and detached forms of what the server has do not travel; what was written in any way does."""
        f = torch.compile(lambda x: x * 2, backend="telegrad", dynamic=False)
        written = []
        write = host().write
        host().write = lambda memory, data: (written.append(memory.nbytes), write(memory, data))
        self.addCleanup(lambda: setattr(host(), "write", write))
        x = torch.arange(64.0)
        for change, travels in ((lambda: None, True), (lambda: None, False), (lambda: x.add_(1), True), (lambda: x.data.mul_(3), True),
                                (lambda: None, False)):
            change()
            before = len(written)
            self.close(f(x), x * 2)
            self.close(f(x.detach()), x * 2)
            self.close(f(x.view(8, 8).view(64)), x * 2)
            self.assertEqual(len(written) - before, int(travels))
        self.close(f(x[::2]), x[::2] * 2)
        self.close(f(x[1::2]), x[1::2] * 2)
        self.close(f(x), x * 2)

    def test_a_result_of_any_strides_is_sent_again_once_written(self):
        """Also where torch does not count the write, and the result is not contiguous."""
        twice = torch.compile(lambda y: y * 2, backend="telegrad")
        for name, of in (("transposed", lambda x: (x + 1).t()), ("permuted", lambda x: (x.view(2, 2, 4, 4) + 1).permute(0, 3, 1, 2)),
                         ("contiguous", lambda x: x + 1)):
            with self.subTest(name):
                torch._dynamo.reset()
                y = torch.compile(of, backend="telegrad")(torch.zeros(8, 8))
                self.assertEqual(y.is_contiguous(), name == "contiguous")
                self.close(twice(y), torch.full_like(y, 2))
                y.data.fill_(5)
                self.close(twice(y), torch.full_like(y, 10))

    def test_arguments_written_in_place(self):
        f = torch.compile(lambda x: x.add_(1).sum(), backend="telegrad")
        whole = torch.zeros(6)
        for x in (torch.zeros(3), whole[::2], torch.zeros(2, 3).T):
            for n in (1, 2, 3):
                self.assertEqual(f(x).item(), n * x.numel())
                self.close(x, torch.full_like(x, n))
        self.close(whole, torch.tensor([3.0, 0, 3, 0, 3, 0]))

    def test_what_is_saved_for_gradients_stays_on_the_server(self):
        x = torch.randn(32, 32, requires_grad=True)
        read = []
        own = host().read_all
        host().read_all = lambda wanted, first=None: own([(m, read.append(m.nbytes) or o) for m, o in wanted], first)
        self.addCleanup(lambda: setattr(host(), "read_all", own))
        y = torch.compile(lambda x: (x.exp() @ x).tanh().sum(), backend="telegrad")(x)
        self.assertEqual(read, [4])
        y.backward()
        self.assertEqual(read, [4, 4096])

    def test_a_repeated_call_encodes_nothing(self):
        """The run of a set of buffers is made once; buffers are used again, so that there are few sets."""
        f, x = torch.compile(lambda x: x * 2 + 1, backend="telegrad", dynamic=False), torch.arange(16.0)
        for _ in range(4):
            self.close(f(x), x * 2 + 1)
        with unittest.mock.patch.object(_backend.operations, "run", side_effect=AssertionError):
            for _ in range(20):
                self.close(f(x), x * 2 + 1)

    def test_constants_go_with_their_program(self):
        table, x = torch.arange(1 << 16, dtype=torch.float32), torch.ones(1 << 16)

        def held():
            host().flush()
            host().session.sync()
            return host().connection.stats()["telegrad_buffer_bytes"]

        module = make_fx(lambda x: [x + table], tracing_mode="fake", _allow_non_fake_inputs=True)(x)
        program = _backend.Compiled(module, _backend.Role())
        self.close(program(x)[0], table + 1)
        with_it = held()
        del program
        gc.collect()
        self.assertLessEqual(held(), with_it - table.nbytes)

    def test_nothing_is_left_on_the_server(self):
        f = torch.compile(lambda x: (x * 2).sum(), backend="telegrad")
        x = torch.randn(1000, requires_grad=True)
        f(x).backward()
        def used():
            host().flush()
            host().session.sync()
            return host().connection.devices()[0].memory_used
        before = used()
        for _ in range(20):
            x = torch.randn(1000, requires_grad=True)
            f(x).backward()
        del x
        self.assertLessEqual(used(), before + (1 << 16))

    # The guide.

    def test_the_guide_does_what_it_says(self):
        text = pathlib.Path(support.path("docs", "pytorch.md")).read_text(encoding="utf-8")
        (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(program, {})
        loss, error = map(float, re.fullmatch(r"loss (\S+), error of eager (\S+)\n", out.getvalue()).groups())
        self.assertLess(loss, 0.01)
        self.assertLess(error, 1e-5)


if __name__ == "__main__":
    support.main()
