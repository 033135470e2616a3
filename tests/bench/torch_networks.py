"""Networks as ONNX files for onnxruntime_peer.py: PyTorch's exports, with random weights.

bert and gpt2 read 128 tokens; vit is torchvision's; unet segments 256 x 256 pixels; lstm reads 64 steps; llama writes
one token behind 127 others, whose keys and values are inputs.
"""

import math
import warnings

NETWORKS = ["bert", "gpt2", "vit", "unet", "lstm", "llama"]


def transformer(causal):
    """GPT-2 small or BERT-base without its pooler, as tests/models has them."""
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(768), nn.LayerNorm(768)
            self.qkv = nn.ModuleList([nn.Linear(768, 2304)] if causal else [nn.Linear(768, 768) for _ in range(3)])
            self.out, self.wide, self.narrow = nn.Linear(768, 768), nn.Linear(768, 3072), nn.Linear(3072, 768)
            self.act = nn.GELU("tanh" if causal else "none")

        def attend(self, x, bias):
            parts = self.qkv[0](x).split(768, -1) if causal else [linear(x) for linear in self.qkv]
            q, k, v = (part.reshape(-1, 128, 12, 64).transpose(1, 2) for part in parts)
            weights = (q @ k.transpose(2, 3) / 8 + bias).softmax(-1)
            return self.out((weights @ v).transpose(1, 2).reshape(-1, 128, 768))

        def forward(self, x, bias):
            if causal:
                x = x + self.attend(self.norm1(x), bias)
                return x + self.narrow(self.act(self.wide(self.norm2(x))))
            x = self.norm1(x + self.attend(x, bias))
            return self.norm2(x + self.narrow(self.act(self.wide(x))))

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(50257 if causal else 30522, 768)
            self.positions, self.norm = nn.Embedding(1024, 768), nn.LayerNorm(768)
            self.types = nn.Embedding(2, 768)
            self.layers = nn.ModuleList(Layer() for _ in range(12))
            self.register_buffer("mask", torch.full((128, 128), -10000.0).triu(1))

        def forward(self, tokens, mask):
            x = self.tokens(tokens) + self.positions.weight[:128]
            if causal:
                bias = self.mask
            else:
                x = self.norm(x + self.types(torch.zeros_like(tokens)))
                bias = (1 - mask).reshape(-1, 1, 1, 128) * -10000.0
            for layer in self.layers:
                x = layer(x, bias)
            return self.norm(x) @ self.tokens.weight.T if causal else x

    return Network(), (torch.zeros(1, 128, dtype=torch.long), torch.ones(1, 128))


def llama():
    """A step of 12 layers of Llama's kind, 768 wide: 12 heads, of which 4 have keys of their own."""
    import torch
    from torch import nn

    width, heads, own, size, past, layers = 768, 12, 4, 64, 127, 12

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x):
            return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.weight

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = Norm(), Norm()
            self.q, self.k, self.v = (nn.Linear(width, n * size, bias=False) for n in (heads, own, own))
            self.out = nn.Linear(width, width, bias=False)
            self.gate, self.up = nn.Linear(width, 2048, bias=False), nn.Linear(width, 2048, bias=False)
            self.down = nn.Linear(2048, width, bias=False)

        def rotated(self, x, cos, sin):
            a, b = x[..., :size // 2], x[..., size // 2:]
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

        def forward(self, x, keys, values, cos, sin):
            y = self.norm1(x)
            q = self.rotated(self.q(y).reshape(1, 1, heads, size).transpose(1, 2), cos, sin)
            k = self.rotated(self.k(y).reshape(1, 1, own, size).transpose(1, 2), cos, sin)
            v = self.v(y).reshape(1, 1, own, size).transpose(1, 2)
            keys, values = torch.cat((keys, k), 2), torch.cat((values, v), 2)
            q = q.reshape(1, own, heads // own, size)
            weights = (q @ keys.transpose(2, 3) / math.sqrt(size)).softmax(-1)
            x = x + self.out((weights @ values).reshape(1, 1, width))
            y = self.norm2(x)
            gate = self.gate(y)
            return x + self.down(gate * torch.sigmoid(gate) * self.up(y)), keys, values

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.norm = nn.Embedding(32000, width), Norm()
            self.layers = nn.ModuleList(Layer() for _ in range(layers))
            angle = past / 10000 ** (torch.arange(size // 2) * 2 / size)
            self.register_buffer("cos", angle.cos())
            self.register_buffer("sin", angle.sin())

        def forward(self, token, keys, values):
            x, caches = self.tokens(token), []
            for i, layer in enumerate(self.layers):
                x, k, v = layer(x, keys[i], values[i], self.cos, self.sin)
                caches += [k, v]
            return self.norm(x) @ self.tokens.weight.T, torch.stack(caches[::2]), torch.stack(caches[1::2])

    cache = torch.zeros(layers, 1, own, past, size)
    return Network(), (torch.zeros(1, 1, dtype=torch.long), cache, cache)


def unet():
    """Ronneberger et al. 2015 with padded convolutions and batch normalization, four levels from 32 channels."""
    import torch
    from torch import nn

    def block(before, after):
        return nn.Sequential(*(part for a in (before, after) for part in (
            nn.Conv2d(a, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())))

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            sizes = [32, 64, 128, 256]
            self.down = nn.ModuleList(block(a, b) for a, b in zip([3] + sizes, sizes))
            self.middle = block(256, 512)
            self.grow = nn.ModuleList(nn.ConvTranspose2d(2 * n, n, 2, stride=2) for n in reversed(sizes))
            self.up = nn.ModuleList(block(2 * n, n) for n in reversed(sizes))
            self.last = nn.Conv2d(32, 2, 1)

        def forward(self, x):
            kept = []
            for part in self.down:
                x = part(x)
                kept.append(x)
                x = nn.functional.max_pool2d(x, 2)
            x = self.middle(x)
            for grow, part, left in zip(self.grow, self.up, reversed(kept)):
                x = part(torch.cat((grow(x), left), 1))
            return self.last(x)

    return Network(), (torch.randn(1, 3, 256, 256),)


def make(name):
    """The module and its inputs."""
    import torch
    if name == "vit":
        import torchvision
        return torchvision.models.vit_b_16(weights=None), (torch.randn(1, 3, 224, 224),)
    if name == "lstm":
        return torch.nn.LSTM(256, 512, num_layers=2), (torch.randn(64, 1, 256),)
    return {"unet": unet, "llama": llama}[name]() if name in ("unet", "llama") else transformer(name == "gpt2")


def export(name, path, batch=None):
    """`batch` names the first dimension of all inputs, where it is not to be 1: of bert and gpt2."""
    import torch
    torch.manual_seed(0)
    net, inputs = make(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        more = {}
        if batch:
            names = ["tokens", "mask"][:len(inputs)]
            more = {"input_names": names, "output_names": ["out"],
                    "dynamic_axes": {value: {0: batch} for value in [*names, "out"]}}
        torch.onnx.export(net.eval(), inputs, path, dynamo=False, opset_version=17, **more)
