"""Makes scan.safetensors.gz."""
import numpy as np

from make_values import BF16, Section

s = Section('scan')
FLOATS = (np.float32, np.float64, np.float16, BF16)
INTS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
NAN, INF = np.nan, np.inf
np.seterr(all='ignore')


def sum_type(dtype):
    return np.promote_types(dtype, np.uint32 if np.dtype(dtype).kind == 'u' else np.int32)


def integers(shape, dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = s.rng.integers(low, high, shape, dtype, endpoint=True)
    x.flat[:2] = low, high
    return x


def any_values(shape, dtype):
    if np.dtype(dtype).kind in 'iu':
        return integers(shape, dtype)
    if dtype is bool:
        return s.rng.integers(0, 2, shape).astype(bool)
    return s.normal(shape, np.float64).astype(dtype)


def wide(f, x):
    return f(x.astype(np.float64)).astype(x.dtype)


# Rows of 70 are three blocks, rows of 1100 are blocks of blocks.
EDGES = np.array([[1, INF, 2, -INF, 3], [0, NAN, 1, INF, 2]], np.float32)
for case, axis in (('cumsum', 1), ('cumsum_first', 0)):
    for dtype in FLOATS:
        x = any_values((3, 5), dtype)
        s.add(case, [x], [wide(lambda x: x.cumsum(axis), x)])
    for dtype in INTS + (bool,):
        x = any_values((3, 5), dtype)
        to = sum_type(dtype)
        s.add(case, [x], [x.cumsum(axis, dtype=to)])
    s.add(case, [EDGES], [EDGES.cumsum(axis)])
    s.add(case, [np.zeros((0, 3), np.float32)], [np.zeros((0, 3), np.float32)])
    s.add(case, [np.zeros((3, 0), np.int32)], [np.zeros((3, 0), np.int32)])
x = s.normal((2, 70))
s.add_torch('cumsum', lambda t: t.double().cumsum(1).float(), x)
x = integers((1, 1100), np.int32)
s.add('cumsum', [x], [x.cumsum(1, dtype=np.int32)])
x = any_values((40, 1, 2, 1), np.float32)
s.add('cumsum_first', [x], [wide(lambda x: x.cumsum(0), x)])
x = any_values((5,), np.float32)
s.add('cumsum_first', [x], [wide(lambda x: x.cumsum(0), x)])
for dtype in FLOATS:
    x = any_values((3, 5), dtype)
    s.add('cumprod', [x], [wide(lambda x: x.cumprod(-1), x)])
for dtype in INTS + (bool,):
    x = any_values((3, 5), dtype)
    s.add('cumprod', [x], [x.cumprod(-1, dtype=sum_type(dtype))])
x = s.normal((2, 70))
x[0, 40] = x[0, 60] = 0
s.add_torch('cumprod', lambda t: t.double().cumprod(-1).float(), x)


def positions(x, axis, better):
    """Of the extreme so far, the first of equals; a NaN stays."""
    x = np.moveaxis(x, axis, -1)
    out = np.zeros(x.shape, np.int32)
    for row in np.ndindex(x.shape[:-1]):
        at = 0
        for i in range(x.shape[-1]):
            v, m = x[row + (i,)], x[row + (at,)]
            if better(v, m) or (v != v and m == m):
                at = i
            out[row + (i,)] = at
    return np.moveaxis(out, -1, axis)


for case, axis, better in (('cummax', 1, lambda a, b: a > b), ('cummin', -2, lambda a, b: a < b)):
    def add(x):
        at = positions(x, axis, better)
        s.add(case, [x], [np.take_along_axis(x, at.astype(np.int64), axis), at])
    for dtype in FLOATS + INTS + (bool,):
        add(any_values((4, 5), dtype))
    add(np.array([[-INF, 1, 1, NAN, 2], [3, 3, INF, INF, -INF], [-INF, -INF, 0, -0.0, 0]],
                 np.float32))
    add(np.zeros((3, 0), np.float32))
    add(np.zeros((0, 3), np.float32))
    add(s.normal((70, 70) if case == 'cummin' else (2, 70)))


def logcumsumexp(x, axis=1):
    return np.logaddexp.accumulate(x, axis)


for dtype in FLOATS:
    x = any_values((3, 5), dtype)
    s.add('logcumsumexp', [x], [wide(logcumsumexp, x)])
x = np.array([[-INF, -INF, 1, 2], [1000, -1000, 1001, 0], [INF, 1, 2, 3], [0, NAN, 1, 2]], np.float32)
s.add('logcumsumexp', [x], [wide(logcumsumexp, x)])
x = s.normal((2, 70), scale=3)
s.add_torch('logcumsumexp', lambda t: t.double().logcumsumexp(1).float(), x)
s.add('logcumsumexp', [np.array([[1, 2]], np.int32)],
      [logcumsumexp(np.array([[1.0, 2]])).astype(np.float32)])


def order(x, axis, descending=False):
    """Stable, also where it falls; NaN is larger than all."""
    if np.dtype(x.dtype) == BF16 or x.dtype == np.float16:
        x = x.astype(np.float32)
    if not descending:
        return x.argsort(axis, kind='stable')
    n = x.shape[axis]
    return (n - 1 - np.flip(np.flip(x, axis).argsort(axis, kind='stable'), axis))


def add_order(case, x, axis, descending=False, k=None, values=True):
    at = order(x, axis, descending)
    if k is not None:
        at = np.take(at, range(k), axis)
    out = [np.take_along_axis(x, at, axis)] if values else []
    s.add(case, [x], out + [at.astype(np.int32)])


TIES = np.array([[3, 1, 2, 1, 3, 1], [0.0, -0.0, 0.0, NAN, -0.0, -1], [INF, NAN, -INF, INF, NAN, 0],
                 [-1, -2, -1e-40, 1e-40, 5, -5]], np.float32)
for case, axis, down, k, values in (
        ('sort', -1, False, None, True), ('sort_down', 0, True, None, True),
        ('argsort', 1, False, None, False), ('topk', -1, True, 3, True),
        ('topk_least', -2, False, 2, True)):
    for dtype in FLOATS + INTS + (bool,):
        add_order(case, any_values((3, 6), dtype), axis, down, k, values)
    add_order(case, TIES, axis, down, k, values)
    add_order(case, TIES.astype(np.float64), axis, down, k, values)
    add_order(case, np.zeros((2, 0, 3) if axis != -2 else (0, 2, 3), np.float32), axis, down, k, values)
    add_order(case, np.array([[7, 7, 7]] * 3, np.int16), axis, down, k, values)
add_order('sort', any_values((0,), np.float32), -1)
add_order('sort', any_values((2, 100), np.int8), -1)  # many equal ones
for n in (1024, 1500, 3001):  # counted, and merged from runs that do not divide
    add_order('sort', s.rng.integers(-200, 200, (2, n)).astype(np.float32), -1)
add_order('sort', s.rng.integers(-2**62, 2**62, (1, 1500)), -1)
add_order('sort_down', s.rng.integers(0, 50, (1300, 2)).astype(np.int32), 0, True)
add_order('topk', s.rng.integers(0, 5000, (2, 3000)).astype(np.float32), -1, True, 3)
add_order('topk', s.normal((1, 3)), -1, True, 3)
s.save()
