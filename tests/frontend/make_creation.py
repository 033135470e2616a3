"""Makes creation.safetensors.gz."""
import numpy as np

from make_values import Section

s = Section('creation')
F32, F64 = np.float32, np.float64
s.add('arange', [], [
    np.arange(2, 9, 3, np.int32), np.arange(5, -4, -2, np.int32), np.arange(3, 3, 1, np.int32),
    np.arange(0, 1, 0.1).astype(F32), np.arange(2.0, 7.0).astype(F32), np.arange(0, 1, 0.3),
    np.arange(-2**40, 2**40, 2**39), np.arange(0, 250, 50).astype(np.uint8),
    np.arange(3, -1, -0.7).astype(np.float16)])
s.add('linspace', [], [
    np.linspace(0, 1, 7).astype(F32), np.linspace(3, -2, 4), np.linspace(5, 9, 1).astype(F32),
    np.zeros(0, F32), np.linspace(-1, 10, 5, dtype=np.int32), np.linspace(0.1, 0.7, 1000).astype(F32)])
s.add('eye', [], [np.eye(3, dtype=F32), np.eye(2, 4, dtype=np.int8), np.eye(3, 2, dtype=bool),
                  np.eye(0, dtype=F32)])
s.add('full', [], [np.full((2, 3), 7, np.int16), np.full((), -0.5, F32), np.zeros((2, 0), F32),
                   np.ones((3,), np.uint8), np.full(2, True)])
x = s.normal((2, 3), np.float16)
s.add('like', [x], [np.full_like(x, 2.5), np.zeros_like(x), np.ones_like(x),
                    np.full_like(x, 3, np.int64), np.float16(1.5)])
s.add('literal', [], [np.array([1.5, -2, 3], F32), np.array([[1, 2], [3, 4]], np.int8)])
s.add('from', [np.array([[1, 2, 3]], np.int64)], [np.array([[11, 22, 33]], np.int64)])
s.save()
