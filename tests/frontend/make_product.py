"""Makes product.safetensors.gz."""
import ml_dtypes
import numpy as np
import torch
import torch.nn.functional as F

from make_values import BF16, Section

s = Section('product')
F32, F64, F16 = np.float32, np.float64, np.float16


def ints(shape, dtype, low=-100, high=100):
    if dtype == np.bool_:
        return s.rng.integers(0, 2, shape).astype(dtype)
    info = np.iinfo(dtype)
    return s.rng.integers(max(low, info.min), min(high, info.max), shape).astype(dtype)


def product(case, function, *arrays):
    """Of floats in f64, rounded to the type that they promote to (which is given by the first)."""
    dtype = arrays[0].dtype
    if dtype.kind in 'iub':
        s.add(case, arrays, [function(*arrays).astype(dtype)])
    else:
        s.add(case, arrays, [function(*(a.astype(F64) for a in arrays)).astype(dtype)])


# --- Products ---
for a, b in [((4,), (4,)), ((2, 4), (4,)), ((2, 3), (3, 4)), ((2, 1, 3), (2, 3, 2)), ((), (2, 2)), ((0,), (0,))]:
    product('dot', np.dot, s.normal(a), s.normal(b))
product('dot', np.dot, ints((2, 3), np.int32), ints((3,), np.int32))
product('dot', np.dot, ints((), np.int32), ints((3,), np.int32))

for a, b in [((4,), (4,)), ((2, 4), (4,)), ((4,), (4, 3)), ((2, 3), (3, 4)), ((5, 1, 2, 3), (4, 3, 2)),
             ((3,), (2, 3, 4)), ((2, 4, 3), (3,)), ((2, 0), (0, 3)), ((0, 2), (2, 3)), ((1, 1), (1, 1))]:
    product('matmul', np.matmul, s.normal(a), s.normal(b))
for dtype in (F64, F16, BF16):
    product('matmul', np.matmul, s.normal((3, 17), dtype), s.normal((17, 2), dtype))
for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.bool_):
    product('matmul', np.matmul, ints((3, 5), dtype), ints((5, 2), dtype))
x, y = ints((2, 3), np.int32), s.normal((3, 2))
s.add('matmul', [x, y], [(x.astype(F64) @ y.astype(F64)).astype(F32)])
x, y = ints((2, 3), np.int8), ints((3, 2), np.uint8)
s.add('matmul', [x, y], [x.astype(np.int16) @ y.astype(np.int16)])
x, y = s.normal((2, 3), F16), s.normal((3, 2), BF16)
s.add('matmul', [x, y], [(x.astype(F64) @ y.astype(F64)).astype(F32)])
x = np.array([[np.inf, 1], [np.nan, 1], [-0.0, 0.0]], F32)
s.add('matmul', [x, np.eye(2, dtype=F32) + 1], [x @ (np.eye(2, dtype=F32) + 1)])
# The products of f16 do not round by themselves: 2049 is no f16.
x = np.array([[3.0, 1.0]], F16), np.array([[683.0], [-2048.0]], F16)
s.add('matmul', x, [np.array([[1.0]], F16)])

s.add_torch('linear', F.linear, s.normal((2, 3, 4)), s.normal((5, 4)), s.normal((5,)))
s.add_torch('linear', F.linear, s.normal((4,)), s.normal((5, 4)), s.normal((5,)))
s.add_torch('linear_plain', F.linear, s.normal((3, 4)), s.normal((2, 4)))

EINSUMS = {
    'matrix': ('ij,jk->ik', [(2, 3), (3, 4)]),
    'implicit': ('kj, ji', [(2, 3), (3, 4)]),
    'transpose': ('ba', [(2, 3)]),
    'trace': ('ii', [(3, 3)]),
    'diagonal': ('ii->i', [(3, 3)]),
    'diagonals': ('iijj->ji', [(2, 2, 3, 3)]),
    'triple': ('iii->i', [(3, 3, 3)]),
    'sum': ('ij->', [(2, 3)]),
    'rows': ('ij->i', [(2, 3)]),
    'outer': ('i,j->ji', [(2,), (3,)]),
    'inner': ('i,i', [(4,), (4,)]),
    'scalar': (',ij->ij', [(), (2, 3)]),
    'batch': ('...ij,...jk->...ik', [(2, 1, 2, 3), (4, 3, 2)]),
    'middle': ('i...j->j...', [(2, 3, 4, 2)]),
    'ellipsis': ('a...,...', [(2, 3), (2, 3)]),
    'chain': ('ab,bc,cd,de->ae', [(2, 5), (5, 3), (3, 4), (4, 2)]),
    'shared': ('ij,kj,lj->ikl', [(2, 3), (4, 3), (2, 3)]),
    'broadcast': ('ij,jk->ik', [(2, 1), (3, 4)]),
    'upper': ('Ab,bC', [(2, 3), (3, 2)]),
    'tensor': ('abcd,ebcf->adef', [(2, 2, 3, 2), (2, 2, 3, 2)]),
    'attention': ('bqhd,bkhd->bhqk', [(2, 3, 2, 4), (2, 3, 2, 4)]),
    'empty': ('ij,jk->ik', [(2, 0), (0, 3)]),
}
for name, (formula, shapes) in EINSUMS.items():
    product('einsum_' + name, lambda *x: np.einsum(formula, *x), *(s.normal(shape) for shape in shapes))
for dtype in (F64, F16, BF16, np.int8, np.int64, np.bool_):
    shapes = [(2, 3), (4, 3), (2, 3)]
    arrays = [ints(x, dtype) if dtype in (np.int8, np.int64, np.bool_) else s.normal(x, dtype) for x in shapes]
    product('einsum_shared', lambda *x: np.einsum('ij,kj,lj->ikl', *x), *arrays)

# --- Windows ---
x = s.normal((2, 5, 6))
v = np.lib.stride_tricks.sliding_window_view
s.add('windows', [x], [v(x, (3, 3), (1, 2))[:, ::2, ::2]])
p = np.pad(x, ((0, 0), (1, 2), (0, 1)))
s.add('windows_dilated', [x], [v(p, (3, 5), (1, 2))[..., ::2]])
x = np.arange(10, dtype=np.int16)
s.add('windows_disjoint', [x], [np.stack([x[0:2], x[3:5], x[6:8]])])


def conv(case, function, x, w, dtypes=(F32,)):
    for i, dtype in enumerate(dtypes):
        s.add_torch(case, function, s.normal(x, dtype), s.normal(w, dtype))


conv('conv1', lambda x, w: F.conv1d(x, w), (2, 3, 7), (4, 3, 3), (F32, F64))
conv('conv2', lambda x, w: F.conv2d(x, w, stride=2, padding=1), (2, 3, 7, 6), (4, 3, 3, 3))
conv('conv2_uneven', lambda x, w: F.conv2d(F.pad(x, (1, 0, 0, 2)), w, stride=(1, 2), dilation=(2, 1), groups=2),
     (1, 4, 6, 5), (6, 2, 2, 3))
conv('conv2_depthwise', lambda x, w: F.conv2d(x, w, padding=1, groups=4), (2, 4, 5, 5), (4, 1, 3, 3))
conv('conv2_point', lambda x, w: F.conv2d(x, w, stride=2), (2, 3, 5, 5), (4, 3, 1, 1))
conv('conv3', lambda x, w: F.conv3d(x, w, stride=(1, 2, 1), padding=(0, 1, 0)), (1, 2, 3, 4, 3), (2, 2, 2, 3, 2))
x, w = s.normal((2, 3, 7), F16), s.normal((4, 3, 3), F16)
f = F.conv1d(*(torch.from_numpy(t.astype(F64)) for t in (x, w))).numpy()
s.add('conv1', [x, w], [f.astype(F16)])
x, w = ints((2, 3, 7), np.int32), ints((4, 3, 3), np.int32)
s.add('conv1', [x, w], [F.conv1d(*(torch.from_numpy(t.astype(F64)) for t in (x, w))).numpy().astype(np.int32)])
s.add('conv1', [s.normal((0, 3, 7)), s.normal((4, 3, 3))], [np.zeros((0, 4, 5), F32)])

conv('conv_transpose1', lambda x, w: F.conv_transpose1d(x, w), (2, 3, 5), (3, 4, 3), (F32, F64))
conv('conv_transpose2', lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
     (2, 4, 3, 4), (4, 2, 3, 3))
conv('conv_transpose2_groups', lambda x, w: F.conv_transpose2d(x, w, stride=(2, 1), groups=2, dilation=(1, 2)),
     (1, 4, 3, 4), (4, 3, 2, 2))
conv('conv_transpose2_dilated',
     lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=2, output_padding=1, dilation=3), (1, 2, 3, 3),
     (2, 2, 2, 3))
conv('conv_transpose3', lambda x, w: F.conv_transpose3d(x, w, padding=(0, 1, 0)), (1, 2, 2, 3, 2), (2, 2, 2, 2, 1))

# --- Pools ---
image = (2, 2, 7, 6)
for dtype in (F32, F64, F16):
    s.add_torch('max_pool', lambda x: F.max_pool2d(x, 3, 2, 1), s.normal(image, dtype))
x = s.normal(image)
x[0, 0, 2, 2], x[0, 1] = np.nan, -np.inf
s.add('max_pool', [x], [F.max_pool2d(torch.from_numpy(x), 3, 2, 1).numpy()])
s.add_torch('max_pool_disjoint', lambda x: F.max_pool2d(x, 2), s.normal(image))
s.add_torch('max_pool_ceil', lambda x: F.max_pool2d(x, (3, 2), (2, 3), (1, 0), (2, 1), True), s.normal(image))
s.add_torch('max_pool1', lambda x: F.max_pool1d(x, 3, 1), s.normal((2, 2, 5)))
for dtype in (np.int8, np.uint8, np.int64):
    x = ints((1, 1, 5), dtype)
    s.add('max_pool1', [x], [np.max(v(x, 3, 2), -1)])


def indices(x):
    y, i = F.max_pool2d(torch.from_numpy(x), 3, 2, 1, return_indices=True)
    return [y.numpy(), i.numpy().astype(np.int32)]


x = s.normal(image)
s.add('max_pool_indices', [x], indices(x))
x = np.round(s.normal(image))  # ties
s.add('max_pool_indices', [x], indices(x))
x = np.full((1, 1, 3, 3), -np.inf, F32)
s.add('max_pool_indices', [x], indices(x))
x = s.normal((2, 2, 6, 4))
y, i = F.max_pool2d(torch.from_numpy(x), 2, return_indices=True)
s.add('max_unpool', [y.numpy(), i.numpy()], [F.max_unpool2d(y, i, 2).numpy()])
s.add('max_unpool', [np.array([[[[1.5]]]], F32), np.array([[[[24]]]], np.int32)], [np.zeros((1, 1, 6, 4), F32)])

for dtype in (F32, F64):
    s.add_torch('avg_pool', lambda x: F.avg_pool2d(x, 3, 2, 1), s.normal(image, dtype))
x = s.normal(image, F16)
s.add('avg_pool', [x], [F.avg_pool2d(torch.from_numpy(x.astype(F64)), 3, 2, 1).numpy().astype(F16)])
x = ints(image, np.int32)
s.add('avg_pool', [x], [F.avg_pool2d(torch.from_numpy(x.astype(F32)), 3, 2, 1).numpy()])
s.add_torch('avg_pool_inside', lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), s.normal(image))
s.add_torch('avg_pool_ceil', lambda x: F.avg_pool2d(x, (3, 2), (2, 4), (1, 0), True), s.normal(image))
s.add_torch('avg_pool_ceil_inside', lambda x: F.avg_pool2d(x, (3, 2), (2, 4), (1, 0), True, False), s.normal(image))
x = s.normal(image)
s.add('lp_pool', [x], [np.sqrt(np.square(v(x.astype(F64), (3, 3), (2, 3))[:, :, ::2, ::2]).sum((-1, -2))).astype(F32)])
x = np.zeros((1, 1, 4, 4), F32)
s.add('lp_pool', [x], [np.zeros((1, 1, 1, 1), F32)])
x = s.normal(image)
s.add('lp_pool3', [x],
      [np.cbrt((np.abs(v(x.astype(F64), (2, 2), (2, 3))) ** 3).sum((-1, -2))).astype(F32)])
s.add('lp_pool1', [x], [np.abs(v(x.astype(F64), (2, 2), (2, 3))).sum((-1, -2)).astype(F32)])

# --- Interpolation ---
up = (1, 2, 3, 5)
for name, mode in (('nearest', 'nearest'), ('exact', 'nearest-exact')):
    for size in ((6, 10), (7, 3), (1, 5), (4, 12)):
        s.add_torch(f'interpolate_{name}_{size[0]}x{size[1]}',
                    lambda x: F.interpolate(x, size, mode=mode), s.normal(up))
for size in ((6, 10), (7, 3), (1, 4), (2, 13)):
    for corners in (False, True):
        s.add_torch(f'interpolate_linear{"_corners" if corners else ""}_{size[0]}x{size[1]}',
                    lambda x: F.interpolate(x, size, mode='bilinear', align_corners=corners), s.normal(up))
s.add_torch('interpolate_linear_7x3', lambda x: F.interpolate(x, (7, 3), mode='bilinear'), s.normal(up, F64))
s.add_torch('interpolate_linear1', lambda x: F.interpolate(x, 7, mode='linear'), s.normal((1, 2, 4)))
s.add_torch('interpolate_linear3', lambda x: F.interpolate(x, (3, 2, 4), mode='trilinear'), s.normal((1, 1, 2, 3, 2)))
x = ints((1, 1, 4), np.uint8)
s.add('interpolate_nearest1', [x], [x[:, :, [0, 0, 1, 2, 2, 3]]])

# --- Normalizations ---
shape = (3, 4, 5)
for dtype in (F32, F64):
    s.add_torch('batch_norm', lambda x, m, v, w, b: (x - m[:, None]) / torch.sqrt(v[:, None] + 1e-5) * w[:, None] + b[:, None],
                s.normal(shape, dtype), s.normal((4,), dtype), np.abs(s.normal((4,), dtype)) + dtype(0.1),
                s.normal((4,), dtype), s.normal((4,), dtype))
s.add_torch('batch_norm_plain', lambda x, m, v: (x - m) / torch.sqrt(v + 1e-5), s.normal((3, 4)), s.normal((4,)),
            np.abs(s.normal((4,))) + F32(0.1))
for dtype in (F32, F64):
    s.add_torch('layer_norm', lambda x: F.layer_norm(x, x.shape[-1:]), s.normal(shape, dtype))
x = (s.normal(shape, F64) * 300).astype(F16)
s.add('layer_norm', [x], [F.layer_norm(torch.from_numpy(x.astype(F64)), (5,)).numpy().astype(F16)])
s.add('layer_norm', [s.normal((0, 2, 3))], [np.zeros((0, 2, 3), F32)])
s.add_torch('layer_norm2', lambda x: F.layer_norm(x, x.shape[-2:], eps=0.1), s.normal(shape))
s.add_torch('group_norm', lambda x: F.group_norm(x, 2), s.normal((2, 4, 3, 2)))
s.add_torch('group_norm', lambda x: F.group_norm(x, 2), s.normal((3, 4, 2)))
for dtype in (F32, F64):
    s.add_torch('rms_norm', lambda x: x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6), s.normal(shape, dtype))
x = (s.normal(shape, F64) * 300).astype(F16)
y = x.astype(F64)
s.add('rms_norm', [x], [(y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-6)).astype(F16)])

# --- Attention ---
attention = F.scaled_dot_product_attention
q, k, e = (2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3)
for dtype in (F32, F64):
    s.add_torch('attention', attention, *(s.normal(x, dtype) for x in (q, k, e)))
s.add_torch('attention', attention, *(s.normal(x) for x in ((3, 4), (5, 4), (5, 2))))
arrays = [s.normal(x, F16) for x in (q, k, e)]
s.add('attention', arrays, [attention(*(torch.from_numpy(x.astype(F64)) for x in arrays)).numpy().astype(F16)])
s.add_torch('attention_causal', lambda q, k, v: attention(q, k, v, is_causal=True, scale=0.3),
            *(s.normal(x) for x in (q, k, e)))
mask = s.rng.integers(0, 2, (2, 1, 3, 5)).astype(bool)
mask[0, 0, 1] = False  # sees nothing
mask[1, 0, 2] = True
arrays = [s.normal(x) for x in (q, k, e)]


def masked(q, k, v, mask):
    scores = q.astype(F64) @ k.astype(F64).swapaxes(-1, -2) / 2
    scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e9))
    total = weights.sum(-1, keepdims=True)
    return (weights / np.where(total == 0, 1, total) @ v).astype(F32)


s.add('attention_masked', [*arrays, mask], [masked(*arrays, mask)])
bias = np.where(mask, s.normal((5,)), F32(-np.inf)).astype(F32)
s.add('attention_masked', [*arrays, bias], [masked(*arrays, bias)])
s.add_torch('attention_bias', attention, *arrays, s.normal((3, 5)))
s.add_torch('attention_grouped', lambda q, k, v: attention(q, k, v, enable_gqa=True),
            s.normal((2, 4, 3, 4)), s.normal(k), s.normal(e))
s.add_torch('attention_grouped_masked', lambda q, k, v, m: attention(q, k, v, attn_mask=m, enable_gqa=True),
            s.normal((2, 4, 3, 4)), s.normal(k), s.normal(e), s.normal((4, 3, 5)))


def rope(x, cos, sin, interleaved):
    if interleaved:
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


for interleaved in (False, True):
    angles = s.rng.uniform(0, 6, (3, 2))
    for dtype in (F32, F64):
        s.add_torch('rope_interleaved' if interleaved else 'rope', lambda x, c, n: rope(x, c, n, interleaved),
                    s.normal((2, 2, 3, 4), dtype), np.cos(angles).astype(dtype), np.sin(angles).astype(dtype))
s.save()
