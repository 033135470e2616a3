"""Makes elementwise.safetensors.gz."""
import numpy as np

from make_values import Section

s = Section('elementwise')
for dtype in (np.float32, np.float64, np.float16):
    x = np.abs(s.normal((3, 4), dtype))
    s.add('sqrt', [x], [np.sqrt(x)])
    a, b = s.normal((3, 1), dtype), s.normal((4,), dtype)
    s.add('maximum', [a, b], [np.maximum(a, b)])
s.add('sqrt', [np.zeros((0, 3), np.float32)], [np.zeros((0, 3), np.float32)])
s.save()
