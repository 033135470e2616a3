"""Networks of the shapes that people use, small and with random weights."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """ResNet's basic block."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.down = None
        if stride != 1 or inputs != outputs:
            self.down = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + (x if self.down is None else self.down(x)))


def resnet(width=64, layers=(2, 2, 2, 2), classes=1000):
    """ResNet-18 with its own widths and depths by default."""
    parts = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = width
    for i, count in enumerate(layers):
        for j in range(count):
            parts.append(Block(inputs, width << i, 2 if i > 0 and j == 0 else 1))
            inputs = width << i
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


class Bert(nn.Module):
    """An encoder with masked attention and a pooler."""

    def __init__(self, words=100, width=32, heads=4, layers=2, length=16):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True)
        self.layers = nn.ModuleList([layer] + [nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True) for _ in range(layers - 1)])
        self.pool = nn.Linear(width, width)

    def forward(self, ids, mask):
        x = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1])))
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=~mask)
        return torch.tanh(self.pool(x[:, 0]))


class Gpt(nn.Module):
    """GPT-2's: causal attention, norms in front, the embedding as the last matrix."""

    def __init__(self, words=96, width=48, heads=4, layers=2, length=32):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList()
        self.heads = heads
        for _ in range(layers):
            self.blocks.append(nn.ModuleDict({
                "norm1": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width),
                "norm2": nn.LayerNorm(width), "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width)}))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, targets=None):
        b, t = ids.shape
        x = self.words(ids) + self.places(torch.arange(t))
        for block in self.blocks:
            q, k, v = (h.view(b, t, self.heads, -1).transpose(1, 2) for h in block["qkv"](block["norm1"](x)).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + block["out"](y.transpose(1, 2).reshape(b, t, -1))
            x = x + block["down"](F.gelu(block["up"](block["norm2"](x)), approximate="tanh"))
        logits = self.norm(x) @ self.words.weight.T
        return logits if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Llama(nn.Module):
    """One layer with rotary positions, grouped heads and a cache of keys and values."""

    def __init__(self, words=64, width=32, heads=4, groups=2, length=16):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.words = nn.Embedding(words, width)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
        self.gate, self.up, self.down = (nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False),
                                         nn.Linear(2 * width, width, bias=False))
        self.norm = nn.RMSNorm(width)
        angle = torch.outer(torch.arange(length), 1e4 ** (-torch.arange(0, self.size, 2) / self.size))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def rotate(self, x, at):
        a, b = x.chunk(2, -1)
        cos, sin = self.cos[at], self.sin[at]
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    def forward(self, ids, at, keys, values):
        """ids [1, n] at places `at` [n]; the cache with them."""
        x = self.words(ids)
        h = self.norm(x)
        q = self.rotate(self.q(h).view(1, -1, self.heads, self.size).transpose(1, 2), at)
        k = self.rotate(self.k(h).view(1, -1, self.groups, self.size).transpose(1, 2), at)
        v = self.v(h).view(1, -1, self.groups, self.size).transpose(1, 2)
        keys, values = keys.index_copy(2, at, k), values.index_copy(2, at, v)
        repeat = self.heads // self.groups
        scores = q @ keys.repeat_interleave(repeat, 1).transpose(-1, -2) / math.sqrt(self.size)
        ahead = torch.arange(keys.shape[2])[None, :] > at[:, None]
        weights = scores.masked_fill(ahead, float("-inf")).softmax(-1)
        y = weights @ values.repeat_interleave(repeat, 1)
        x = x + self.o(y.transpose(1, 2).reshape(1, -1, self.heads * self.size))
        h = self.norm(x)
        return (x + self.down(F.silu(self.gate(h)) * self.up(h))) @ self.words.weight.T, keys, values


class Unet(nn.Module):
    """Two levels, with group norms and a transposed convolution."""

    def __init__(self, width=8):
        super().__init__()
        self.first, self.down = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.middle, self.norm = nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.GroupNorm(4, 2 * width)
        self.up, self.last = nn.ConvTranspose2d(2 * width, width, 2, 2), nn.Conv2d(2 * width, 1, 1)

    def forward(self, x):
        a = F.silu(self.first(x))
        b = F.silu(self.norm(self.middle(self.down(a))))
        return self.last(torch.cat([a, self.up(b)], 1))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.last = nn.LSTM(6, 10, batch_first=True), nn.Linear(10, 3)

    def forward(self, x):
        return self.last(self.cells(x)[0][:, -1])


class Vit(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.patch, self.places = nn.Conv2d(3, width, 8, 8), nn.Parameter(torch.randn(1, 17, width) * 0.02)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.layer(x)[:, 0])
