"""Makes indexing.safetensors.gz."""
import numpy as np

from make_values import BF16, Section

s = Section('indexing', seed=4)
N = np.newaxis


def ints(shape, low, high, dtype=np.int64):
    return s.rng.integers(low, high, shape).astype(dtype)


x = s.normal((4, 5, 6))
y = s.normal((7, 8))
s.add('at_basic', [x, y], [
    x[1], x[-1, 2], x[1, ..., -2], x[:, 1:4], x[..., ::-1], x[::2, ::-2, 1::3], x[N, :, 2, N],
    x[3:1], x[-9:9, 5:2:-1], x[1:-1, -2:, :-3], x[2, 3, 4], x[...], x[::-1, ::-1, ::-1],
    x[::-3, 4::-3], y[::3, 7:0:-2], x[-100:-50, 100:]])
for d in (np.bool_, np.int8, np.uint64, np.float16, BF16, np.float64):
    v = (ints((4, 5), 0, 2) if d is np.bool_ else ints((4, 5), 0, 100)).astype(d)
    s.add('at_types', [v], [v[::2, 3:0:-1], v[1]])

i, j = ints(3, -4, 4), ints((2, 1), -5, 5)
k = ints((2, 3), 0, 6, np.uint8)
s.add('at_tensors', [x, i, j, k], [
    x[i], x[:, j], x[i, j], x[i, :, k], x[:, j, k], x[i, N, j], x[0, :, k], x[:, 0, k], x[1, j],
    x[i, ..., 0], x[1:3, j, ::-2], x[..., k], x[i, j, k], x[::2, N, j, 1], x[i, ..., j, :],
    x[:, i, ..., k]])
for d in (np.int8, np.int16, np.int32, np.uint16, np.uint32, np.uint64):
    n = ints((2, 2), 0, 4, d)
    s.add('at_index_types', [x, n], [x[n]])
big = s.normal((300, 2))
n = np.array([-1, -128, 127, 5], np.int8)
s.add('at_index_types', [big, n], [big[n]])
n = np.array([255, 0, 200], np.uint8)
s.add('at_index_types', [big, n], [big[n]])
# Out of range reads 0.
n = np.array([0, 4, -5, 3, -4, np.iinfo(np.int64).min, np.iinfo(np.int64).max])
out = np.zeros((7, 5, 6), np.float32)
out[0], out[3], out[4] = x[0], x[3], x[0]
s.add('at_out_of_range', [x, n], [out])
n = np.array([2**64 - 1, 1], np.uint64)
s.add('at_out_of_range', [x, n], [np.stack([np.zeros((5, 6), np.float32), x[1]])])
e = np.zeros((0, 3), np.int64)
s.add('at_empty', [x, e], [x[e], x[:, e], x[1:1][:, ints(2, 0, 5) * 0], x[e, e]])


def changed(x, at, value):
    out = x.copy()
    out[at] = value
    return out


v1, v5, v6 = s.normal(()), s.normal((5, 1)), s.normal((6,))
s.add('set_basic', [x, v1, v5, v6], [
    changed(x, 1, v1), changed(x, (Ellipsis, -1), v1), changed(x, (slice(1, 3),), v5),
    changed(x, (slice(None, None, -2), slice(None, None, 2)), v6),
    changed(x, (slice(None), slice(4, 0, -3), slice(1, None, 4)), 7),
    changed(x, (2, 3, 4), v1), changed(x, (slice(3, 1),), v6), changed(x, Ellipsis, v5),
    changed(x, (0, N, slice(1, 3)), v6), changed(x, (slice(None), 0), v6[N, N])])
for d in (np.bool_, np.int8, np.uint64, np.float16, np.float64):
    a, v = ints((4, 5), 0, 2).astype(d), ints((2, 3), 0, 2).astype(d)
    s.add('set_types', [a, v], [changed(a, (slice(None, None, 2), slice(1, 4)), v)])
u = s.normal((3, 5, 6))
one = np.array([3, 0, 2])
s.add('set_tensors', [x, one, u, v6], [
    changed(x, one, u), changed(x, one, 1.5), changed(x, (one, slice(1, 3)), v6),
    changed(x, (slice(None), one, 2), 3), changed(x, (one, slice(None), one), u[..., 0]),
    changed(x, (slice(None, None, 2), one, slice(0, 4)), u[0, 0, :4])])
twice = np.array([1, 3, 1, -1, 1])
u5 = s.normal((5, 5, 6))
s.add('set_twice', [x, twice, u5], [changed(x, twice, u5)])
m2, m3, m1 = x[..., 0] > 0, x > 0.5, x[:, 0, 0] > 0
s.add('set_mask', [x, m1, m2, m3, v6], [
    changed(x, m1, 2), changed(x, m1, v6), changed(x, m2, v6), changed(x, m3, -1),
    changed(x, (m1, slice(1, 3)), 4), changed(x, (m1, ..., 2), 9)])
# The mask's elements are one axis, in front where a number and the mask are apart.
m6 = np.array([True, False, True, True, False, False])
w = s.normal((1, 5))
s.add('set_mask_apart', [x, m6, w], [changed(x, (1, slice(None), m6), w),
                                     changed(x, (slice(None), slice(None), m6), w.T)])

rows = ints((2, 3), -1, 5)
got = np.where(((rows >= 0) & (rows < 4))[..., None, None], x[np.clip(rows, 0, 3)], 0)
s.add('gather', [x, rows], [got])
index = np.array([1, 3, 1, 4, -1])
updates = s.normal((5, 5, 6))
for kind, f in (('set', None), ('add', np.add), ('mul', np.multiply), ('min', np.minimum),
                ('max', np.maximum)):
    out = x.copy()
    for t, r in enumerate(index):
        if 0 <= r < 4:
            out[r] = updates[t] if f is None else f(out[r], updates[t])
    s.add('scatter_' + kind, [x, index, updates], [out])
i = ints((2, 3), -5, 5)
s.add('index_select', [x, i, i.clip(-4, 3)], [np.take(x, i, 1), np.take(x, i.clip(-4, 3)[0], 0),
                               np.take(x, i[1, 2], -1)])
i = ints((4, 2, 6), -5, 5)
s.add('take_along', [x, i], [np.take_along_axis(x, i, 1)])
i = ints((3, 5, 2), 0, 6, np.int32)  # fewer rows than x has, as PyTorch allows
s.add('take_along_less', [x, i], [np.take_along_axis(x[:3], i.astype(np.int64), 2)])
a, i = s.normal((4, 5)), np.array([[0, 2, 1], [3, 4, 0]])
v = s.normal((3, 3))
out, added = a.copy(), a.copy()
for r in range(2):
    for c in range(3):
        out[r, i[r, c]] = v[r, c]
        added[r, i[r, c]] += v[r, c]
low = a.copy()
for r in range(2):
    for c in range(3):
        low[i[r, c] % 4, c] = min(low[i[r, c] % 4, c], np.float32(0.5))
s.add('put_along', [a, i, v], [out, added, low])
i = np.array([[[0, 1], [3, -1]], [[2, 2], [0, 7]]])
got = np.zeros((2, 2, 6), np.float32)
got[0, 0], got[0, 1], got[1, 0] = x[0, 1], x[3, -1], x[2, 2]
b = ints((4, 2, 1), 0, 5)
s.add('gather_nd', [x, i, b], [got, x[np.arange(4)[:, None], b[..., 0]],
                               np.broadcast_to(x, (2, 4, 5, 6)).copy()])
u = s.normal((2, 2, 6))
out, added = x.copy(), x.copy()
for p in ((0, 0), (0, 1), (1, 0)):
    out[tuple(i[p])] = u[p]
    added[tuple(i[p])] += u[p]
s.add('scatter_nd', [x, i, u], [out, added])
i = np.array([[0, 2], [-1, 3]])
s.add('one_hot', [i], [i[..., None] == np.arange(3)])
i = np.array([44, -1], np.int8)
s.add('one_hot', [i], [i[..., None].astype(np.int64) == np.arange(3)])
x = s.normal((3, 4)) * (s.rng.random((3, 4)) > 0.4)
x = x.astype(np.float32)
x[0, 0], x[0, 1] = np.nan, -0.0
s.add('count_nonzero', [x], [np.array(np.count_nonzero(x))])
s.add('count_nonzero', [np.zeros((0, 3), np.int8)], [np.array(0)])
m = s.rng.random((3, 4)) > 0.5
nz = np.argwhere(m)
s.add('nonzero', [m], [np.concatenate([nz, np.full((14 - len(nz), 2), -1)]), nz[:3]])
m[1] = False
x = s.normal((3, 4))
got = x[m]
s.add('masked_select', [x, m], [np.concatenate([got, np.full(14 - len(got), 9, np.float32)]),
                                got[:2]])
s.save()
