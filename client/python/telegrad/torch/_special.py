"""Special functions, computed in f64, and the greatest common divisor.

Both series are Stirling's, which need a large argument: a recurrence moves it up by 8, and a reflection takes negative ones
(https://dlmf.nist.gov/5.5, https://dlmf.nist.gov/5.11).
"""

from __future__ import annotations

import math

from telegrad import Tensor
from telegrad.torch._table import Call, aten

_UP = 8


def _sine_and_cosine_of_pi(x: Tensor) -> tuple[Tensor, Tensor]:
    """Of pi x, with a sine of exactly 0 for integers; |x| < 2^52."""
    part = (x - (x * 0.5 + 0.5).floor() * 2) * math.pi  # from -pi to pi, and exact near 0
    return (x.floor().eq(x)).where(0, part.sin()), part.cos()


@aten("lgamma")
def lgamma(c: Call, x: Tensor) -> Tensor:
    x = c.tensor(x).cast("f64")
    low = x < 0.5
    a = low.where(1 - x, x)
    product = a
    for k in range(1, _UP):
        product = product * (a + k)
    far = a > 1e15  # where the recurrence would change nothing, and the product overflow
    b = far.where(a, a + _UP)
    z = (b * b).reciprocal()
    series = ((((-1 / 1680) * z + 1 / 1260) * z - 1 / 360) * z + 1 / 12) / b
    positive = (b - 0.5) * b.log() - b + 0.5 * math.log(2 * math.pi) + series - far.where(1, product).log()
    sine, _ = _sine_and_cosine_of_pi(low.where(x, 0.5))
    out = low.where(math.log(math.pi) - abs(sine).log() - positive, positive)
    return abs(x).eq(math.inf).where(math.inf, out).cast(c.dtype)


@aten("digamma")
def digamma(c: Call, x: Tensor) -> Tensor:
    x = c.tensor(x).cast("f64")
    low = x < 0.5
    a = low.where(1 - x, x)
    total = a.reciprocal()
    for k in range(1, _UP):
        total = total + (a + k).reciprocal()
    b = a + _UP
    z = (b * b).reciprocal()
    series = ((((1 / 240) * z - 1 / 252) * z + 1 / 120) * z - 1 / 12) * z
    positive = b.log() - 0.5 / b + series - total
    sine, cosine = _sine_and_cosine_of_pi(low.where(x, 0.5))
    reflected = sine.eq(0).where(math.nan, positive - math.pi * cosine / sine)  # the poles, of which that at 0 has a side
    out = low.where(reflected, positive)
    out = x.eq(0).where(-x.reciprocal(), out)
    return x.eq(-math.inf).where(math.nan, out).cast(c.dtype)


@aten("gcd")
def gcd(c: Call, x: Tensor, y: Tensor) -> Tensor:
    """Euclid's algorithm, for as many steps as the type's numbers can need: each two steps halve the larger number."""
    a, b = c.tensors(x, y)
    shape = c.shape
    a, b = (abs(t.broadcast_to(shape)).cast(f"u{t.dtype.bits}") for t in (a, b))  # the lowest number has no magnitude of its type
    for _ in range(math.ceil(a.dtype.bits * math.log(2, (1 + math.sqrt(5)) / 2)) + 1):
        over = b.eq(0)
        a, b = over.where(a, b), over.where(b, a % over.where(1, b))
    return a.cast(c.dtype)
