"""Makes reduction.safetensors.gz."""
import numpy as np
import torch

from make_values import BF16, Section

s = Section('reduction')
FLOATS = (np.float32, np.float64, np.float16, BF16)
INTS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
NAN, INF = np.nan, np.inf


def floats(shape, dtype):
    return s.normal(shape, np.float64).astype(dtype)


def integers(shape, dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = s.rng.integers(low, high, shape, dtype, endpoint=True)
    x.flat[:2] = low, high
    return x


def sum_type(dtype):
    return np.promote_types(dtype, np.uint32 if np.dtype(dtype).kind == 'u' else np.int32)


def wide(f, x):
    """f in f64 (or the widest there is), rounded to x's type once."""
    return np.asarray(f(x.astype(np.float64))).astype(x.dtype)


def logsumexp(x, axis, keep=False):
    m = x.max(axis, keepdims=True, initial=-INF)
    m = np.where(np.isfinite(m), m, 0)
    out = np.log(np.exp(x - m).sum(axis, keepdims=True)) + m
    return out if keep else out.squeeze(axis)


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def both(case, f, shapes=((3, 5), (2, 4, 3)), dtypes=FLOATS, integer=(),
         make=lambda x: x):
    for dtype in dtypes:
        for shape in shapes[:2 if dtype == np.float32 else 1]:
            x = make(floats(shape, dtype))
            s.add(case, [x], [wide(f, x)])
    for dtype in integer:
        x = integers(shapes[0], dtype)
        s.add(case, [x], [f(x.astype(np.float64)).astype(np.float32)])


def extremes(case, f):
    for dtype in FLOATS:
        x = floats((3, 5), dtype)
        s.add(case, [x], [f(x.astype(np.float64)).astype(dtype)])
    for dtype in INTS:
        x = integers((3, 5), dtype)
        s.add(case, [x], [f(x)])
    x = s.rng.integers(0, 2, (3, 5)).astype(bool)
    s.add(case, [x], [f(x)])
    x = np.array([[1, NAN, 2], [INF, 1, -INF], [-0.0, 0.0, -0.0], [-INF, -INF, -INF]], np.float32)
    s.add(case, [x], [f(x)])


np.seterr(all='ignore')
for case, axes, keep in (('sum', (1,), False), ('sum_keep', (0, -1), True),
                         ('sum_all', None, False), ('sum_none', (), False)):
    f = lambda x: np.sum(x, axis=axes, keepdims=keep)
    both(case, f, make=np.abs)
    for dtype in INTS:
        x = integers((3, 5), dtype)
        s.add(case, [x], [np.sum(x.astype(sum_type(dtype)), axis=axes, keepdims=keep,
                                 dtype=sum_type(dtype))])
    x = s.rng.integers(0, 2, (3, 5)).astype(bool)
    s.add(case, [x], [np.sum(x, axis=axes, keepdims=keep, dtype=np.int32)])
s.add('sum', [np.zeros((2, 0, 3), np.float32)], [np.zeros((2, 3), np.float32)])
s.add('sum', [np.zeros((0, 3), np.int32)], [np.zeros((0,), np.int32)])
s.add('sum', [np.array([[INF, 1], [INF, -INF], [NAN, 1]], np.float32)],
      [np.array([INF, NAN, NAN], np.float32)])
x = np.full((1, 1000), 100, np.float16)  # beyond f16
s.add('sum', [x], [np.array([INF], np.float16)])
x = s.normal((1, 2, 1, 2, 1, 2, 1, 2))
s.add('sum', [x], [x.astype(np.float64).sum(axis=1).astype(np.float32)])
s.add('sum_all', [np.array(3, np.float32)], [np.array(3, np.float32)])
for case, axis in (('prod', -1), ('prod_all', None)):
    both(case, lambda x: np.prod(x, axis=axis))
    for dtype in INTS:
        x = integers((3, 5), dtype)
        s.add(case, [x], [np.prod(x.astype(sum_type(dtype)), axis=axis, dtype=sum_type(dtype))])
s.add('prod', [np.zeros((2, 0), np.float32)], [np.ones((2,), np.float32)])
x = s.normal((3, 4))
x[0, 1] = x[1, 2] = x[1, 3] = 0  # one zero, and two
s.add_torch('prod', lambda t: t.prod(-1), x)

for case, f in (('max', lambda x: x.max(axis=1)), ('max_keep', lambda x: x.max((-1, 0), keepdims=True)),
                ('max_all', lambda x: x.max()), ('min', lambda x: x.min(axis=1)),
                ('min_all', lambda x: x.min())):
    extremes(case, f)
s.add('max', [np.zeros((0, 3), np.float32)], [np.zeros((0,), np.float32)])
s.add('min', [np.zeros((0, 3), np.int32)], [np.zeros((0,), np.int32)])
s.add_torch('max', lambda t: t.amax(1), np.array([[1, 2, 2], [3, 3, 3]], np.float32))  # ties share
s.add_torch('min', lambda t: t.amin(1), np.array([[1, 1, 2], [3, 3, 3]], np.float32))

both('mean', lambda x: x.mean(axis=1), integer=INTS)
both('mean_all', lambda x: x.mean(), make=np.abs)
s.add('mean', [np.zeros((2, 0, 3), np.float32)], [np.full((2, 3), NAN, np.float32)])
s.add('mean', [np.full((1, 1000), 100, np.float16)], [np.array([100], np.float16)])
s.add('mean', [np.array([[True, False, True]])], [np.array([2 / 3], np.float32)])
both('var', lambda x: x.var(axis=-1, ddof=1), integer=(np.int32, np.uint8))
both('var_population', lambda x: x.var(axis=(0, 1), ddof=0, keepdims=True))
both('var_all', lambda x: x.var(ddof=1))
s.add('var', [np.array([[3], [4]], np.float32)], [np.full(2, NAN, np.float32)])  # 0 / 0
x = (1e4 + s.normal((2, 50), np.float64)).astype(np.float32)  # squares would cancel
s.add('var', [x], [wide(lambda x: x.var(axis=-1, ddof=1), x)])
both('std', lambda x: x.std(axis=1, ddof=1))
both('std_all', lambda x: x.std(ddof=1))
# Equal elements: torch's gradient is NaN, a derivative of 0 is among the right ones.
s.add('std', [np.full((2, 3), 2, np.float32)], [np.zeros(2, np.float32)], [np.ones(2, np.float32)],
      [np.zeros((2, 3), np.float32)])
for dtype in (np.float32, np.float64):
    s.add_torch('var_mean', lambda t: torch.var_mean(t, 1, correction=0), s.normal((3, 5), dtype))
    s.add_torch('std_mean', lambda t: torch.std_mean(t, -1, correction=1, keepdim=True),
                s.normal((3, 5), dtype))

for case, f in (('any', lambda x: np.any(x, axis=1)), ('any_all', np.any),
                ('all', lambda x: np.all(x, axis=1)), ('all_all', np.all)):
    for x in (np.array([[True, True, True], [False] * 3, [True, False, True]]),
              np.array([[0, 0], [0, 5], [-1, 3]], np.int32), np.array([[0, 256]], np.int64),
              np.array([[0.0, -0.0], [NAN, 0], [0.25, 1]], np.float32), np.ones((2, 3), bool),
              np.zeros((3, 0), np.float32)):
        s.add(case, [x], [np.asarray(f(x))])

lse = lambda axis, keep: lambda x: logsumexp(x, axis, keep)
both('logsumexp', lse(-1, False))
both('logsumexp_keep', lse((0, 1), True))
x = np.array([[-INF, -INF], [INF, 1], [NAN, 1], [1000, 1000], [-1000, -1000], [-INF, 2]], np.float32)
s.add('logsumexp', [x], [wide(lse(-1, False), x)])
s.add('logsumexp', [np.zeros((2, 0), np.float32)], [np.full(2, -INF, np.float32)])
s.add('logsumexp', [np.array([[3, 4]], np.int32)], [np.array([np.log(np.exp(3) + np.exp(4))],
                                                             np.float32)])
# The second row: nothing moves the result.
x = np.array([[1, -INF], [-INF, -INF]], np.float32)
s.add('logsumexp', [x], [np.array([1, -INF], np.float32)], [np.ones(2, np.float32)],
      [np.array([[1, 0], [0, 0]], np.float32)])
for case, axis, p, keep in (('norm2', 1, 2, False), ('norm0', 1, 0, False), ('norm1', -1, 1, True),
                            ('norm_half', 1, 0.5, False), ('norm_minus1', 1, -1, False),
                            ('norm_inf', 1, INF, False), ('norm_minus_inf', 1, -INF, False)):
    f = lambda x: np.linalg.norm(x, ord=p, axis=axis, keepdims=keep)
    both(case, f, shapes=((3, 5), (2, 4)))
    x = np.array([[0, 0, 0], [0, 2, -3], [1, INF, 1], [1, NAN, 2]], np.float32)
    s.add(case, [x], [wide(f, x)])
both('norm3', lambda x: (np.abs(x)**3).sum((0, 1))**(1 / 3))
both('norm2', lambda x: np.linalg.norm(x, axis=1), shapes=((2, 3),), dtypes=(), integer=(np.int32,))
s.add('norm2', [np.zeros((2, 0), np.float32)], [np.zeros(2, np.float32)])
zeros = np.zeros((2, 3), np.float32)
for case, out in (('norm2', np.zeros(2, np.float32)), ('norm1', np.zeros((2, 1), np.float32)),
                  ('norm_half', np.zeros(2, np.float32))):
    s.add(case, [zeros], [out], [np.ones_like(out)], [zeros])

for case, f in (('argmax', lambda x: x.argmax(axis=1)),
                ('argmax_keep', lambda x: x.argmax(axis=-2, keepdims=True)),
                ('argmax_all', lambda x: x.argmax()), ('argmin', lambda x: x.argmin(axis=1)),
                ('argmin_all', lambda x: x.argmin())):
    for dtype in FLOATS + INTS:
        x = (floats if np.dtype(dtype).kind not in 'iu' else integers)((3, 6), dtype)
        s.add(case, [x], [np.asarray(f(x.astype(np.float64) if dtype is BF16 else x), np.int32)])
    x = np.array([[1, 3, 3, 1], [1, NAN, 5, NAN], [-INF] * 4, [INF, 2, INF, -INF]], np.float32)
    s.add(case, [x], [np.asarray(f(x), np.int32)])  # the first of equals; NaN is both
    x = s.rng.integers(0, 2, (3, 5)).astype(bool)
    s.add(case, [x], [np.asarray(f(x), np.int32)])
s.add('argmax', [np.zeros((0, 3), np.float32)], [np.zeros(0, np.int32)])

for a, b in ((1, 1.0005), (1, 1.002), (INF, INF), (NAN, NAN), (0, 1e-7), (-INF, INF)):
    a, b = np.full((2, 2), a, np.float32), np.array([[1], [1]], np.float32) * np.float32(b)
    s.add('all_close', [a, b], [np.array(np.allclose(a, b, 1e-3, 1e-6))])
both('softmax', lambda x: softmax(x, axis=-1))
both('softmax_first', lambda x: softmax(x, axis=0))
both('log_softmax', lambda x: x - logsumexp(x, -1, True))
both('softmin', lambda x: softmax(-x, axis=0))
for case, f in (('softmax', lambda t: t.softmax(-1)), ('softmax_first', lambda t: t.softmax(0)),
                ('log_softmax', lambda t: t.log_softmax(-1))):
    s.add_torch(case, f, s.normal((3, 4), scale=10))
    s.add_torch(case, f, np.zeros((0, 3), np.float32))
s.add('softmax', [np.zeros((2, 0), np.float32)], [np.zeros((2, 0), np.float32)])
x = np.array([[-INF, 1, 2], [-INF, -INF, -INF], [INF, 1, 2], [1000, 0, -1000]], np.float32)
s.add('softmax', [x], [softmax(x.astype(np.float64), axis=-1).astype(np.float32)])
s.add('softmax', [np.array([[1, 2]], np.int32)],
      [softmax(np.array([[1.0, 2]]), axis=-1).astype(np.float32)])
norm = lambda p, axis, eps: lambda x: x / np.maximum(
    np.linalg.norm(x, p, axis=axis, keepdims=True), eps)
both('normalize', norm(2, 1, 1e-12), shapes=((3, 5), (2, 4)))
both('normalize1', norm(1, -1, 1e-3), shapes=((3, 5), (2, 4)))
s.add('normalize', [zeros], [zeros], [np.ones_like(zeros)], [zeros * 0 + np.float32(1e12)])
both('standardize', lambda x: (x - x.mean(-1, keepdims=True)) /
     np.sqrt(x.var(-1, keepdims=True) + 1e-5))
s.save()
