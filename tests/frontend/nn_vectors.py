#!/usr/bin/env python3
"""Layers forward and backward, as data for nn_test.cc: PyTorch's values in f64.

Writes nn.safetensors. Of each CASE: "CASE/in/NAME" the inputs, "CASE/state/NAME" the layer's state dict before,
"CASE/after/NAME" what of it a call in training changes, "CASE/out/i" the results, "CASE/pull/i" random tensors of
their shapes, and "CASE/grad/NAME" the gradients of sum(out * pull) with respect to float inputs and parameters.

Usage: nn_vectors.py OUTPUT
"""

import sys

import numpy as np
import torch
from safetensors.numpy import save
from torch import nn

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Attention(nn.MultiheadAttention):
    """Masks say what may be seen, as scaled_dot_product_attention has it, not what may not."""

    def __init__(self, channels, heads, causal=False, **options):
        super().__init__(channels, heads, batch_first=True, **options)
        self.causal = causal

    def forward(self, x, key=None, mask=None):
        key = x if key is None else key
        if self.causal:
            mask = torch.tril(torch.ones(x.shape[1], key.shape[1], dtype=torch.bool))
        return super().forward(x, key, key, attn_mask=None if mask is None else ~mask, need_weights=False)[0]


class Cell(nn.LSTMCell):
    def forward(self, x, h, c):
        return super().forward(x, (h, c))


def randn(*shape):
    return torch.randn(*shape)


MASK = torch.tensor([[True, False, True, True, True], [True, True, False, False, True], [False, True, True, True, True],
                     [True, True, True, True, True]])

# name -> the layer, in training or not, its inputs
CASES = {
    "linear": (nn.Linear(5, 3), True, {"x": randn(2, 4, 5)}),
    "linear_plain": (nn.Linear(5, 3, bias=False), True, {"x": randn(4, 5)}),
    "conv1d": (nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), True, {"x": randn(2, 4, 9)}),
    "conv2d": (nn.Conv2d(3, 4, 3, padding=1), True, {"x": randn(2, 3, 5, 6)}),
    "conv2d_odd": (nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2, bias=False), True,
                   {"x": randn(2, 4, 7, 6)}),
    "conv_transpose1d": (nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), True,
                         {"x": randn(2, 4, 5)}),
    "conv_transpose2d": (nn.ConvTranspose2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)), True,
                         {"x": randn(2, 3, 4, 5)}),
    "batch_norm": (nn.BatchNorm2d(3), True, {"x": randn(4, 3, 2, 5) * 2 + 1}),
    "batch_norm_vectors": (nn.BatchNorm1d(3, eps=1e-3, momentum=0.3), True, {"x": randn(6, 3)}),
    "batch_norm_eval": (nn.BatchNorm2d(3), False, {"x": randn(2, 3, 2, 2)}),
    "batch_norm_plain": (nn.BatchNorm2d(3, affine=False), True, {"x": randn(2, 3, 2, 2)}),
    "layer_norm": (nn.LayerNorm(6), True, {"x": randn(2, 3, 6)}),
    "layer_norm_axes": (nn.LayerNorm((3, 4), eps=1e-3, bias=False), True, {"x": randn(2, 3, 4)}),
    "layer_norm2d": (LayerNorm2d(5), True, {"x": randn(2, 5, 3, 2)}),
    "group_norm": (nn.GroupNorm(2, 6), True, {"x": randn(2, 6, 3, 2)}),
    "group_norm_plain": (nn.GroupNorm(3, 6, affine=False), True, {"x": randn(3, 6, 4)}),
    "instance_norm": (nn.InstanceNorm2d(3, affine=True), True, {"x": randn(2, 3, 4, 2)}),
    "rms_norm": (nn.RMSNorm(6, eps=1e-6), True, {"x": randn(2, 3, 6)}),
    "embedding": (nn.Embedding(7, 4), True, {"x": torch.tensor([[0, 6, 2], [2, 2, 5]])}),
    "lstm_cell": (Cell(4, 3), True, {"x": randn(2, 4), "h": randn(2, 3), "c": randn(2, 3)}),
    "lstm_cell_plain": (Cell(4, 3, bias=False), True, {"x": randn(2, 4), "h": randn(2, 3), "c": randn(2, 3)}),
    "attention": (Attention(6, 2), True, {"x": randn(2, 4, 6)}),
    "attention_causal": (Attention(6, 3, causal=True), True, {"x": randn(2, 5, 6)}),
    "attention_cross": (Attention(8, 2, bias=False), True, {"x": randn(2, 4, 8), "key": randn(2, 5, 8), "mask": MASK}),
}


def main():
    out = {}
    for case, (layer, training, inputs) in CASES.items():
        layer.train(training)
        with torch.no_grad():
            for parameter in layer.parameters():  # else scales are all 1 and biases 0
                parameter.add_(randn(*parameter.shape) * 0.3)
            for name, buffer in layer.named_buffers():
                if buffer.is_floating_point():
                    buffer.add_(torch.rand(*buffer.shape))
        before = {k: v.clone() for k, v in layer.state_dict().items()}
        leaves = {k: v.requires_grad_(v.is_floating_point()) for k, v in inputs.items()}
        results = layer(*leaves.values())
        results = results if isinstance(results, tuple) else (results,)
        pulls = [randn(*r.shape) for r in results]
        sum((r * p).sum() for r, p in zip(results, pulls)).backward()
        for k, v in leaves.items():
            out[f"{case}/in/{k}"] = v
            if v.grad is not None:
                out[f"{case}/grad/{k}"] = v.grad
        for k, v in before.items():
            out[f"{case}/state/{k}"] = v
            if not torch.equal(v, layer.state_dict()[k]):
                out[f"{case}/after/{k}"] = layer.state_dict()[k]
        for k, v in layer.named_parameters():
            out[f"{case}/grad/{k}"] = v.grad
        for i, (result, pull) in enumerate(zip(results, pulls)):
            out[f"{case}/out/{i}"], out[f"{case}/pull/{i}"] = result, pull
    with open(sys.argv[1], "wb") as f:
        f.write(save({k: np.array(v.detach().numpy(), order="C") for k, v in out.items()}))


if __name__ == "__main__":
    main()
