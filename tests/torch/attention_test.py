"""Attention in torch's forms: results and gradients are eager's, and no program has queries times keys in an argument or a result;
skipped (77) without torch.

TELEGRADD names the daemon's program, as in tests/python.
"""

from torch_support import TorchTest
import support
import torch
import torch.nn.functional as F

import telegrad.torch  # noqa: F401
from telegrad.torch._backend import compiled_last

LENGTH, HEADS, CHANNELS = 96, 2, 16


def products(q, k, v):
    scores = torch.bmm(q, k.transpose(1, 2)) / CHANNELS ** 0.5
    places = torch.arange(q.shape[1])
    scores = scores.masked_fill(places[None, :] > places[:, None], float("-inf"))
    return torch.bmm(F.softmax(scores, -1), v)


def causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def grouped(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


class AttentionTest(TorchTest):
    def setUp(self):
        torch.manual_seed(3)
        torch._dynamo.reset()
        compiled_last.clear()

    def compare(self, function, *inputs):
        """Results and gradients of two sets of equal inputs."""
        ours = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
        weight = torch.randn_like(function(*inputs))
        (function(*inputs) * weight).sum().backward()
        result = torch.compile(function, backend="telegrad")(*ours)
        (result * weight).sum().backward()
        torch.testing.assert_close(result, function(*inputs), rtol=1e-4, atol=1e-5)
        for mine, theirs in zip(ours, inputs):
            if theirs.grad is not None:
                torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4)
        self.assertEqual(len(compiled_last), 2)

    def sizes(self):
        """Elements of each argument and result of the programs."""
        return [torch.Size(slot.shape).numel() for one in compiled_last for slot in one.lowered.graph.slots]

    def of_heads(self, *heads):
        return [torch.randn(1, n, LENGTH, CHANNELS, requires_grad=True) for n in heads]

    def test_no_program_has_scores_in_memory(self):
        cases = {"full": (F.scaled_dot_product_attention, self.of_heads(HEADS, HEADS, HEADS)),
                 "causal": (causal, self.of_heads(HEADS, HEADS, HEADS)),
                 "grouped": (grouped, self.of_heads(2 * HEADS, HEADS, HEADS)),
                 "products": (products, [torch.randn(HEADS, LENGTH, CHANNELS, requires_grad=True) for _ in range(3)])}
        for name, (function, inputs) in cases.items():
            with self.subTest(name):
                torch._dynamo.reset()
                compiled_last.clear()
                self.compare(function, *inputs)
                self.assertLess(max(self.sizes()), LENGTH * LENGTH)

    def test_a_mask_of_the_client_is_saved_and_no_scores(self):
        mask = torch.rand(LENGTH, LENGTH) < 0.7
        mask[:, 0] = True
        self.compare(F.scaled_dot_product_attention, *self.of_heads(HEADS, HEADS, HEADS), mask)
        self.assertLessEqual(max(self.sizes()), LENGTH * LENGTH)

    def test_rows_that_see_nothing_are_zero(self):
        mask = torch.rand(LENGTH, LENGTH) < 0.5
        mask[::3] = False
        self.compare(F.scaled_dot_product_attention, *self.of_heads(HEADS, HEADS, HEADS), mask)

    def test_lengths_that_change(self):
        """Whether the sizes are symbolic changes nothing."""
        weight = torch.randn(1, HEADS, 128, CHANNELS)
        compiled = torch.compile(causal, backend="telegrad", dynamic=True)
        for length in (96, 80):
            inputs = [torch.randn(1, HEADS, length, CHANNELS, requires_grad=True) for _ in range(3)]
            ours = [x.detach().clone().requires_grad_() for x in inputs]
            (causal(*inputs) * weight[:, :, :length]).sum().backward()
            (compiled(*ours) * weight[:, :, :length]).sum().backward()
            for mine, theirs in zip(ours, inputs):
                torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4)
        self.assertEqual(len(compiled_last), 2)

    def test_flex_attention(self):
        """Its functions of scores and of places are parts of the program."""
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        q, k, v, bias = torch.randn(2, 4, 64, 16), torch.randn(2, 2, 64, 16), torch.randn(2, 2, 64, 16), torch.randn(4, 64)
        causal = create_block_mask(lambda b, h, i, j: i >= j, None, None, 64, 64, device="cpu")
        compiled = torch.compile(lambda *t: flex_attention(*t[:3], score_mod=lambda s, b, h, i, j: torch.tanh(s + t[3][h, j]), block_mask=causal,
                                                           enable_gqa=True), backend="telegrad", fullgraph=True)
        scores = torch.tanh(q @ k.repeat_interleave(2, 1).transpose(-1, -2) / 4 + bias[:, None])
        weights = scores.masked_fill(torch.ones(64, 64).triu(1).bool(), float("-inf")).softmax(-1)
        torch.testing.assert_close(compiled(q, k, v, bias), weights @ v.repeat_interleave(2, 1), rtol=1e-4, atol=1e-4)
        self.assertEqual(type(compiled_last[-1]).__name__, "Compiled")

    def test_multihead(self):
        layer = torch.nn.MultiheadAttention(HEADS * CHANNELS, HEADS, batch_first=True)
        x = torch.randn(1, LENGTH, HEADS * CHANNELS, requires_grad=True)
        self.compare(lambda x: layer(x, x, x, need_weights=False)[0], x)
        self.assertLess(max(self.sizes()), LENGTH * LENGTH)

    def test_products_of_layers_are_saved(self):
        """A product that grows is no score unless a maximum of it is taken."""
        x = torch.randn(64, 8, requires_grad=True)
        w = torch.randn(8, 64, requires_grad=True)
        self.compare(lambda x, w: (x @ w).tanh(), x, w)
        self.assertIn(64 * 64, [torch.Size(s.shape).numel() for s in compiled_last[0].lowered.graph.slots if s.name != "y0"])


if __name__ == "__main__":
    support.main()
