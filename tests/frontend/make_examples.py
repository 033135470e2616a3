"""Makes tests/data/examples: small networks' weights under the names that torchvision and Hugging Face use, an input,
and what PyTorch's functions give for it. Runs by hand; the data is committed."""
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parents[1] / 'data/examples'
torch.manual_seed(1)


def numpy(tensors):
    return {k: np.ascontiguousarray(v.detach().numpy()) for k, v in tensors.items()}


def resnet(width, blocks, classes, size):
    w = {}

    def weight(name, *shape):
        w[name] = torch.randn(shape) / np.sqrt(np.prod(shape[1:]) or 1)
        return w[name]

    def conv_norm(conv, norm, x, out, kernel, stride):
        y = F.conv2d(x, weight(conv + '.weight', out, x.shape[1], kernel, kernel), None, stride, kernel // 2)
        w[norm + '.running_mean'] = torch.randn(out) * 0.1
        w[norm + '.running_var'] = torch.rand(out) + 0.5
        w[norm + '.weight'] = torch.rand(out) + 0.5
        w[norm + '.bias'] = torch.randn(out) * 0.1
        return F.batch_norm(y, w[norm + '.running_mean'], w[norm + '.running_var'], w[norm + '.weight'],
                            w[norm + '.bias'])

    image = torch.randn(1, 3, size, size)
    x = F.relu(conv_norm('conv1', 'bn1', image, width, 7, 2))
    x = F.max_pool2d(x, 3, 2, 1)
    for stage, count in enumerate(blocks):
        inner = width << stage
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            name = f'layer{stage + 1}.{block}'
            y = F.relu(conv_norm(name + '.conv1', name + '.bn1', x, inner, 1, 1))
            y = F.relu(conv_norm(name + '.conv2', name + '.bn2', y, inner, 3, stride))
            y = conv_norm(name + '.conv3', name + '.bn3', y, 4 * inner, 1, 1)
            if x.shape[1] != 4 * inner or stride != 1:
                x = conv_norm(name + '.downsample.0', name + '.downsample.1', x, 4 * inner, 1, stride)
            x = F.relu(x + y)
    x = x.mean((2, 3))
    logits = F.linear(x, weight('fc.weight', classes, x.shape[1]), weight('fc.bias', classes))
    return w, image, logits


def bert(layers, heads, width, inner, vocabulary, positions, tokens):
    w = {}

    def weight(name, *shape):
        w[name] = torch.randn(shape) / np.sqrt(shape[-1])
        return w[name]

    def dense(name, x, out):
        return F.linear(x, weight(name + '.weight', out, x.shape[-1]), weight(name + '.bias', out))

    def norm(name, x):
        w[name + '.weight'] = torch.rand(width) + 0.5
        w[name + '.bias'] = torch.randn(width) * 0.1
        return F.layer_norm(x, (width,), w[name + '.weight'], w[name + '.bias'], 1e-12)

    e = 'bert.embeddings.'
    words = weight(e + 'word_embeddings.weight', vocabulary, width)
    n = len(tokens)
    x = (words[torch.tensor([tokens])] + weight(e + 'position_embeddings.weight', positions, width)[:n]
         + weight(e + 'token_type_embeddings.weight', 2, width)[:1])
    x = norm(e + 'LayerNorm', x)
    for i in range(layers):
        name = f'bert.encoder.layer.{i}.'
        q, k, v = (dense(f'{name}attention.self.{part}', x, width).view(1, n, heads, -1).transpose(1, 2)
                   for part in ('query', 'key', 'value'))
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, n, width)
        x = norm(name + 'attention.output.LayerNorm', x + dense(name + 'attention.output.dense', seen, width))
        y = F.gelu(dense(name + 'intermediate.dense', x, inner))
        x = norm(name + 'output.LayerNorm', x + dense(name + 'output.dense', y, width))
    h = 'cls.predictions.'
    norm(h + 'transform.LayerNorm', F.gelu(dense(h + 'transform.dense', x, width)))
    weight(h + 'bias', vocabulary)
    return w, x


HERE.mkdir(exist_ok=True)
weights, image, logits = resnet(4, (1, 1, 1, 1), 10, 32)
torch.save(weights, HERE / 'resnet.pth')
np.save(HERE / 'image.npy', image.numpy())
np.save(HERE / 'logits.npy', logits.detach().numpy())
weights, hidden = bert(2, 2, 16, 32, 50, 12, [3, 7, 1, 49, 0, 20])
save_file(numpy(weights), HERE / 'bert.safetensors')
np.save(HERE / 'hidden.npy', hidden.detach().numpy())
