"""Sizes that change between calls of a compiled part are variables of one program: against eager in the same process;
skipped (77) where torch is not installed.
"""


from torch_support import TorchTest
import support
import torch

import models
import telegrad.torch
from telegrad.torch import _backend
from torch.nn import functional as F

INDEX = torch.tensor([0, 2])
OPERATORS = (
    lambda x: (x.cumsum(0) + x.cumprod(0), x.var(0) + x.std(), x.argmax(0), torch.cat([x, x * 2]), x[1:] + x[-1], x[::2], x[:, ::2].flip(0),
               x.sort(0)[0], x.topk(2, 0)[0], x.mean() * x.shape[0] / 3, F.pad(x, (1, 1, 0, 2)), x.repeat(2, 1), torch.arange(x.shape[0]) + 1,
               x.tril(), x.roll(1, 0), x[INDEX], x.unfold(1, 2, 1), x.logsumexp(0), x.diagonal()),
    lambda x: (x.gather(0, (x > 0).long()), torch.zeros(x.shape[0], 4).scatter_add(0, (x > 0).long(), x), F.conv1d(x[:, None], torch.ones(3, 1, 3)),
               F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
               F.batch_norm(x, None, None, training=True), x.view(x.shape[0], 2, 2).transpose(0, 1).reshape(2, -1), x @ x.T,
               x.reshape(-1) * x.numel(), x.clone().index_copy_(0, INDEX, x[:2] + 1)))


class SizesTest(TorchTest):
    def setUp(self):
        torch.manual_seed(7)
        torch._dynamo.reset()
        _backend.compiled_last.clear()

    def close(self, got, want, rtol=2e-4, atol=2e-5):
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol)

    def programs(self):
        """Of the graphs with symbolic sizes; and why some had to be for fixed sizes."""
        graphs = [c for c in _backend.compiled_last if isinstance(c, _backend.Symbolic)]
        return sum(len(graph.programs) for graph in graphs), [g.reason for g in graphs if g.reason]

    def test_one_program_for_sizes_up_to_a_bound(self):
        f = lambda x: x.softmax(-1) @ x.T
        compiled = torch.compile(f, backend="telegrad")
        with torch.no_grad():
            for n in (3, 5, 4, 9, 7, 16, 12, 6):
                x = torch.randn(n, 4)
                self.close(compiled(x), f(x))
        self.assertEqual(self.programs(), (2, []), "up to 8, and up to 16")

    def test_operators(self):
        for number, f in enumerate(OPERATORS):
            with self.subTest(number=number), torch.no_grad():
                torch._dynamo.reset()
                _backend.compiled_last.clear()
                compiled = torch.compile(f, backend="telegrad", fullgraph=True)
                for n in (5, 6, 9):
                    x = torch.randn(n, 4)
                    if n == 5:
                        torch._dynamo.mark_dynamic(x, 0)
                    self.close(compiled(x), f(x))
                count, reasons = self.programs()
                self.assertLessEqual(count, 2, "up to 8, and up to 16")
                self.assertEqual(reasons, [])

    def test_networks_and_their_gradients(self):
        """Batches and lengths of texts; batches of images with batch normalization."""
        for name, make, inputs in (
                ("gpt", models.Gpt, lambda n: [torch.randint(0, 64, (n, 3 * n))]),
                ("resnet", lambda: models.resnet(4, (1, 1, 1, 1), 10), lambda n: [torch.randn(n, 3, 16, 16)])):
            with self.subTest(name):
                torch._dynamo.reset()
                _backend.compiled_last.clear()
                model = make()
                twin = make()
                twin.load_state_dict(model.state_dict())
                compiled = torch.compile(model, backend="telegrad", dynamic=None if name == "resnet" else True)
                for n in (5, 8, 6):
                    given, results = inputs(n), []
                    if n == 5:
                        torch._dynamo.mark_dynamic(given[0], 0)
                    for f, of in ((compiled, model), (twin, twin)):
                        of.zero_grad()
                        out = f(*given)
                        out.square().mean().backward()
                        results.append([out] + [p.grad for p in of.parameters()] + list(of.buffers()))
                    self.close(*results, rtol=5e-3, atol=5e-4)
                self.assertEqual(self.programs()[1], [])
                if name == "resnet":
                    self.assertEqual(self.programs()[0], 2, "forward and backward")

    def test_dropout_of_changing_sizes_is_eagers(self):
        f = lambda x: F.dropout(x, 0.5) + torch.rand(x.shape[0], 1)
        compiled = torch.compile(f, backend="telegrad", dynamic=True)
        for n in (5, 6, 7):
            x, results = torch.randn(n, 4), []
            for function in (compiled, f):
                torch.manual_seed(n)
                results.append(function(x))
            self.close(*results)
        self.assertEqual(self.programs()[1], [])

    def test_sizes_that_an_operator_has_to_know(self):
        """A program for each, and the reason."""
        weight = torch.randn(4, 3, 3, 3)
        f = lambda x: F.conv2d(x, weight, stride=2, padding=1)
        compiled = torch.compile(f, backend="telegrad", dynamic=True)
        with torch.no_grad():
            for n in (5, 6, 5):
                x = torch.randn(2, 3, n, n)
                self.close(compiled(x), f(x))
        count, reasons = self.programs()
        self.assertEqual(count, 2)
        self.assertRegex(reasons[0], "aten.convolution.default of")


if __name__ == "__main__":
    support.main()
