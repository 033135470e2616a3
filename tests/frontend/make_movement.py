"""Makes movement.safetensors.gz."""
import ml_dtypes
import numpy as np

from make_values import BF16, Section

s = Section('movement', seed=3)
x23 = s.normal((2, 3, 4))
SMALL = [np.bool_, np.int8, np.uint16, np.int64, np.uint64, np.float16, BF16, np.float64]


def of(dtype, shape):
    return (s.rng.integers(0, 2, shape) if dtype is np.bool_ else s.rng.integers(
        -100 if np.dtype(dtype).kind in 'if' else 0, 100, shape)).astype(dtype)


s.add('reshape', [x23], [x23.reshape(4, 6)])
s.add('reshape', [np.zeros((0, 3), np.float32)], [np.zeros((0, 2), np.float32)])
s.add('expand', [s.normal((3, 1))], [])
s.tensors['expand/0/out0'] = np.broadcast_to(s.tensors['expand/0/in0'], (2, 3, 4)).copy()
s.add('permute', [x23], [x23.transpose(2, 0, 1), x23.T, np.moveaxis(x23, 0, -1),
                         np.swapaxes(x23, -2, -1)])
for d in SMALL:
    x = of(d, (2, 3, 4))
    s.add('flip', [x], [np.flip(x, (0, 2))])

for d in (np.float32, np.int8, np.bool_):
    x = of(d, (3, 4))
    for name, mode in (('reflect', 'reflect'), ('replicate', 'edge'), ('circular', 'wrap')):
        s.add('pad_' + name, [x], [np.pad(x, ((2, 1), (0, 3)), mode)])
    one = np.array(True) if d is np.bool_ else d(7)
    s.add('pad', [x], [np.pad(x, ((2, 1), (0, 3)), constant_values=one)])
x = np.array([[0.0, -0.0], [np.nan, -np.inf]], np.float32)
s.add('pad', [x], [np.pad(x, ((2, 1), (0, 3)), constant_values=7)])
x = s.normal((4, 5))
s.add('pad_crop', [x], [np.pad(x, ((0, 2), (0, 0)), 'reflect')[1:, :-2],
                        np.pad(x[1:, :-2], ((0, 2), (0, 0)))])
s.add('pad_to', [x], [np.pad(x, ((0, 2), (0, 0)), constant_values=np.float32(-1)), x[:2, :5]])
s.add('shrink', [x], [x[1:3, 0:2], x[:, 1:4]])
s.add('slice', [x], [x[:, 1:-1], x[-2:4]])
s.add('narrow', [x], [x[:, 2:5], x[1:1]])
for n in (7, 8):
    x = s.normal((2, n))
    s.add('stride', [x], [x[:, ::3], x[:, ::9]])
x = s.normal((1, 3, 1, 2))
s.add('squeeze', [x], [x[0], x[:, :, 0], x.squeeze(), x[..., None]])
x = s.normal((2, 3, 4))
s.add('flatten', [x], [x.reshape(24), x.reshape(2, 12), x.reshape(6, 4)])
s.add('flatten', [np.zeros((0, 3, 2), np.float32)],
      [np.zeros(0, np.float32), np.zeros((0, 6), np.float32), np.zeros((0, 2), np.float32)])
x = s.normal((2, 12))
s.add('unflatten', [x], [x.reshape(2, 3, 2, 2), x.reshape(1, 2, 12)])

x = s.normal((2, 6, 5, 3))
s.add('rearrange', [x], [
    x.reshape(2, 3, 2, 5, 3).transpose(0, 4, 1, 2, 3).reshape(2, 9, 2, 5),
    x.transpose(0, 3, 1, 2),
    x.reshape(60, 3).T[None],
    x.reshape(2, 3, 2, 5, 3).transpose(2, 0, 1, 3, 4).reshape(2, 2, 45)])
x = s.normal((5, 7))
s.add('split', [x], [x[:, :2], x[:, 2:2], x[:, 2:]])
s.add('split_size', [x], [x[:2], x[2:4], x[4:]])
s.add('chunk', [x], [x[:, :3], x[:, 3:6], x[:, 6:]])
s.add('unbind', [x[:3]], [x[0], x[1], x[2]])
x = s.normal((2, 3))
s.add('repeat', [x], [np.tile(x, (2, 3)), np.tile(x, (2, 1, 2)), np.tile(x, (2,)),
                      np.tile(x, (0, 1))])
s.add('repeat_interleave', [x], [np.repeat(x, 3, 0), np.repeat(x, 2, 1)])
x = s.normal((4, 5))
s.add('roll', [x], [np.roll(x, 2, 0), np.roll(x, (-1, 7), (0, 1)), np.roll(x, 5, 1)])
x = s.normal(4)
s.add('diag', [x], [np.diag(x), np.diag(x, 2), np.diag(x, -1)])
x = s.normal((3, 5))
s.add('diag_of', [x], [np.diag(x), np.diag(x, 2), np.diag(x, -1), np.diag(x, 7)])
x = s.normal((2, 3, 4))
s.add('diagonal', [x], [np.diagonal(x), np.diagonal(x, 1, 2, 1), np.diagonal(x, -1, -1, 0)])
x = s.normal((2, 9))
windows = np.lib.stride_tricks.sliding_window_view
s.add('unfold', [x], [windows(x, 3, 1)[:, ::2], windows(x, 2, 0), windows(x, 4, 1)[:, ::4]])
for d in (np.float32, np.int8, np.bool_):
    x = of(d, (2, 4, 3))
    s.add('tril', [x], [np.tril(x), np.tril(x, 1), np.tril(x, -2)])
    s.add('triu', [x], [np.triu(x), np.triu(x, 1), np.triu(x, -2)])
for d in SMALL:
    parts = [of(d, (2, n)) for n in (3, 0, 2)]
    s.add('concat', parts, [np.concatenate(parts, 1)])
s.add('concat', [np.array([[-0.0], [np.nan]], np.float32), np.array([[0.0], [-0.0]], np.float32),
                 np.zeros((2, 0), np.float32)],
      [np.array([[-0.0, 0.0], [np.nan, -0.0]], np.float32)])
parts = [of(np.int8, (2, 2)), of(np.float32, (2, 2))]
s.add('concat_promotes', parts, [np.concatenate(parts, 0).astype(np.float32)])
parts = [s.normal((2, 3)) for _ in range(3)]
s.add('stack', parts, [np.stack(parts), np.stack(parts, -1), np.stack(parts, 1)])
parts = [s.normal(n) for n in (2, 3, 4)]
s.add('mesh_grid', parts, np.meshgrid(*parts, indexing='ij') + np.meshgrid(*parts))
s.save()
