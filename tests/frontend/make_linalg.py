"""Makes linalg.safetensors.gz."""
import numpy as np

from make_values import BF16, Section

s = Section('linalg')


def wide(f, *inputs):
    return np.asarray(f(*(x.astype(np.float64) for x in inputs))).astype(inputs[0].dtype)


def batches(case, f, shapes, dtypes=(np.float32, np.float64)):
    """f gives all outputs, in f64."""
    for dtype in dtypes:
        for shape in shapes if dtype == np.float32 else shapes[:1]:
            x = s.normal(shape, np.float64).astype(dtype)
            s.add(case, [x], [np.asarray(out).astype(dtype) for out in f(x.astype(np.float64))])


trace = lambda x: [x.trace(axis1=-2, axis2=-1)]
batches('trace', trace, [(3, 3), (2, 3, 4), (2, 2, 5, 2), (0, 0), (2, 0, 3)],
        (np.float32, np.float64, np.float16, BF16))
x = s.rng.integers(-100, 100, (3, 4)).astype(np.int8)
s.add('trace', [x], [np.trace(x, dtype=np.int32)])
s.add('trace', [x != 0], [np.trace(x != 0, dtype=np.int32)])
x = np.array([[1, np.nan], [np.inf, 2]], np.float32)  # only the diagonal counts
s.add('trace', [x], [np.array(3, np.float32)])
for dtype in (np.float32, np.float64, np.int32, np.uint8):
    a, b = (3 * s.normal((2, 2), np.float64)).astype(dtype), (3 * s.normal(3, np.float64)).astype(dtype)
    s.add('outer', [a, b], [np.outer(a, b)])
s.add('outer', [np.zeros(0, np.float32), np.ones(2, np.float32)], [np.zeros((0, 2), np.float32)])
for dtype in (np.float32, np.float64, np.int32):
    a, b = (9 * s.normal((2, 3), np.float64)).astype(dtype), (9 * s.normal(3, np.float64)).astype(dtype)
    s.add('cross', [a, b], [wide(np.cross, a, b)])
    s.add('cross_first', [a.T, b[:, None]], [wide(np.cross, a, b).T])


def newton_schulz(x, steps=3, c=(3.4445, -4.7750, 2.0315), epsilon=1e-7):
    g = x / (np.sqrt((x * x).sum((-2, -1), keepdims=True)) + epsilon)
    t = lambda g: np.swapaxes(g, -2, -1)
    if tall := x.shape[-2] > x.shape[-1]:
        g = t(g)
    for _ in range(steps):
        y = g @ t(g)
        g = c[0] * g + c[1] * (y @ g) + c[2] * (y @ y @ g)
    return [t(g) if tall else g]


batches('newton_schulz', newton_schulz, [(3, 4), (2, 4, 3)])
t = lambda x: np.swapaxes(x, -2, -1)
square = [(3, 3), (2, 4, 4), (2, 1, 1, 1), (12, 12)]
batches('cholesky', lambda x: [np.linalg.cholesky(x @ t(x) + np.eye(x.shape[-1]))],
        square + [(2, 0, 0)])
batches('inverse', lambda x: [np.linalg.inv(x)], square + [(2, 0, 0), (0, 2, 2)])
# Pivots must be looked for.
x = np.array([[[0, 1, 0], [0, 0, 2], [4, 0, 0]], [[0, 1, 2], [1, 0, 3], [4, -3, 8]]], np.float32)
s.add('inverse', [x], [wide(np.linalg.inv, x)])
s.add('inverse', [np.array([[2, 1], [1, 1]], np.int32)], [np.array([[1, -1], [-1, 2]], np.float32)])
batches('determinant', lambda x: [np.linalg.det(x)], square + [(2, 0, 0), (0, 2, 2)])
s.add('determinant', [x], [wide(np.linalg.det, x)])
for p in ([1, 2, 0], [2, 1, 0], [0, 2, 1]):  # odd and even permutations
    x = np.eye(3, dtype=np.float32)[p]
    s.add('determinant', [x], [wide(np.linalg.det, x)])
x = np.array([[1, 2, 3], [2, 4, 6], [0, 1, 1]], np.float32)  # singular
s.add('determinant', [x], [np.array(0, np.float32)])


def qr(x):
    q, r = np.linalg.qr(x)
    return q @ r, t(q) @ q, r * r


batches('qr', qr, [(3, 3), (2, 5, 3), (2, 3, 5), (1, 4), (4, 1), (2, 12, 12)])


def svd(x):
    u, sigma, v = np.linalg.svd(x, full_matrices=False)
    return (u * sigma[..., None, :]) @ v, t(u) @ u, v @ t(v), sigma


batches('svd', svd, [(4, 3), (2, 4, 4), (3, 5), (1, 4), (4, 1), (2, 9, 7)])
s.save()
