"""Functions that are composed of EXP2, LOG2, SIN, SQRT and arithmetic.

The formulas and coefficients are those of engine/frontend/ops (functions.cc, trigonometry.cc, division.cc), where it is said how
exact they are; erfc and the inverse of erf are of this file alone. 16-bit floats are computed in f32, so that only the result is
rounded. There is no autograd here, so a branch that is not taken may be infinite.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Sequence

T = Any  # a tensor, whose class has methods made of these functions


def composed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of numbers of one type, computed in f32 where they are floats of fewer bits."""
    def of(first: T, *others: T) -> T:
        if first.dtype.bits >= 32 or not first.dtype.is_float:
            return function(first, *others)
        return function(*(x.cast("f32") for x in (first, *others))).cast(first.dtype)

    of.__doc__ = function.__doc__
    return of


def _polynomial(x: T, coefficients: Sequence[float]) -> T:
    """c[0] + c[1] x + c[2] x^2 + ..."""
    total = x * coefficients[-1] + coefficients[-2]
    for factor in coefficients[-3::-1]:
        total = total * x + factor
    return total


def _of(x: T, single: Any, double: Any) -> Any:
    """The numbers for a type: f32's or f64's."""
    return double if x.dtype.bits == 64 else single


def _hex(*numbers: str) -> list[float]:
    return [float.fromhex(number) for number in numbers]


# Exponentials and logarithms.

# (e^x - 1 - x) / x^2 on [-1/2, 1/2].
_EXPM1 = ([0.50000001216, 0.16666666802, 0.04166579123, 0.0083332361335, 0.0013982186046, 0.00019944874442],
          [0.5, 0.16666666666666667, 0.041666666666667062, 0.0083333333333333597, 0.0013888888888704549, 0.00019841269841146992,
           2.4801587616145413e-5, 2.7557319433620243e-6, 2.7557076636642723e-7, 2.5051946709721621e-8, 2.0962955815976076e-9,
           1.6116496514371546e-10])
# (tanh(x) / x - 1) / x^2 by x^2 on [0, 1/4].
_TANH = ([-0.33333311085, 0.13330476491, -0.053387110636, 0.017988744406],
         [-0.33333333333333329, 0.13333333333329824, -0.053968253963610086, 0.021869488297234514, -0.0088632292700678434,
          0.0035920334653723928, -0.0014549593843804661, 0.00058496537290226446, -0.00022107222975864634, 5.9469565897747691e-5])
# (sinh(x) / x - 1) / x^2 by x^2 on [0, 1].
_SINH = ([0.16666675397, 0.0083317627337, 0.00020258884903],
         [0.16666666666666667, 0.0083333333333333334, 0.00019841269841269773, 2.7557319224040339e-6, 2.5052108364058041e-8,
          1.6059048396350562e-10, 7.6466253616566577e-13, 2.8445264169895286e-15])
_LARGE = 1e9  # from which on 1 / x^2 is nothing beside 1, and whose square is finite


def _exp(x: T) -> T:
    return (x * (1 / math.log(2))).exp2()


def _log(x: T) -> T:
    return x.log2() * math.log(2)


def _expm1(x: T) -> T:
    return (abs(x) < 0.5).where(x + x * x * _polynomial(x, _of(x, *_EXPM1)), _exp(x) - 1)


def _log1p(x: T) -> T:
    """log(u) + (x - (u - 1)) / u, where u is 1 + x rounded."""
    u = x + 1
    lost = (u < math.inf).where(x - (u - 1), 0)
    return _log(u) + lost / u.eq(0).where(1, u)


def _near_zero(x: T, end: float, coefficients: Sequence[float], far: T) -> T:
    """The odd function x + x^3 p(x^2) of a magnitude below `end`, else `far`, which is for positive numbers."""
    z = x * x
    return (abs(x) < end).where(x + x * z * _polynomial(z, coefficients), (x < 0).where(-far, far))


def _tanh(x: T) -> T:
    e = _exp(abs(x) * -2)
    return _near_zero(x, 0.5, _of(x, *_TANH), (1 - e) / (1 + e))


def _sinh(x: T) -> T:
    """With the halved exponential twice: a result in range does not overflow on the way."""
    a = abs(x)
    e = _exp(a * 0.5)
    return _near_zero(x, 1, _of(x, *_SINH), e * 0.5 * e - _exp(-a) * 0.5)


def _cosh(x: T) -> T:
    a = abs(x)
    e = _exp(a * 0.5)
    return e * 0.5 * e + _exp(-a) * 0.5


def _asinh(x: T) -> T:
    """log(x + sqrt(x^2 + 1)), of a large x log(2 x)."""
    a = abs(x)
    large = a > _LARGE
    t = large.where(1, a)
    value = large.where(_log(a) + math.log(2), _log1p(t + t * t / ((t * t + 1).sqrt() + 1)))
    return (x < 0).where(-value, value)


def _acosh(x: T) -> T:
    """log(x + sqrt(x^2 - 1)) by x - 1, which is exact near 1."""
    large = x > _LARGE
    t = large.where(1, x - 1)
    value = large.where(_log(x) + math.log(2), _log1p(t + (t * (t + 2)).sqrt()))
    return (x < 1).where(math.nan, value)


def _atanh(x: T) -> T:
    a = abs(x)
    value = _log1p(a * 2 / (1 - a)) * 0.5
    return (x < 0).where(-value, value)


exp, log, expm1, log1p = composed(_exp), composed(_log), composed(_expm1), composed(_log1p)
log10 = composed(lambda x: x.log2() * math.log10(2))
sigmoid = composed(lambda x: (_exp(-x) + 1).reciprocal())
tanh, sinh, cosh = composed(_tanh), composed(_sinh), composed(_cosh)
asinh, acosh, atanh = composed(_asinh), composed(_acosh), composed(_atanh)
rsqrt = composed(lambda x: x.sqrt().reciprocal())


# The error function.

# An odd rational function for f32, up to _ERF_END.
_ERF_END = 4.2
_ERF_OVER = [1.12837915, 0.190596285, 0.0527696297, 0.0037726553, 0.00028484526, 2.04600081e-06]
_ERF_UNDER = [1, 0.50224429, 0.114183763, 0.0149834125, 0.00116388191, 3.80475874e-05]
# erf(x) / x by x^2 on [0, 1].
_ERF = [1.1283791670955126, -0.37612638903183752, 0.1128379167095512, -0.026866170645129841, 0.0052239776254232983,
        -0.00085483270219348296, 0.00012055332902888735, -1.4925647567519332e-5, 1.6462045441468419e-6, -1.6364642158167615e-7,
        1.4792401209404813e-8, -1.216456005728345e-9, 8.7090451290531067e-11, -4.2309458242953378e-12]
# exp(x^2) erfc(x) (x + 5/2) by (x - 5/2) / (x + 5/2) for x >= 1/2: interpolations at Chebyshev nodes.
_ERFCX = ([1.0540318311254797, -0.8046521308539079, 0.4539133884049352, -0.1712438359751039, 0.028367519440557116,
           0.008339251131491112, -0.004821677354584195, -0.0002854703934844583, 0.0006404316265689567, -9.97068711401952e-05],
          [1.054031820305718, -0.8046518494391484, 0.45391411664809667, -0.17125114524611776, 0.028361550131893,
           0.008393044305120726, -0.00481878551968217, -0.0004392083123260072, 0.0007026936715393505, 5.830822984280746e-05,
           -0.00011260442995656179, -1.953465285488117e-05, 1.8242656853668837e-05, 6.763493694926844e-06,
           -2.328458340143375e-06, -1.985867064034814e-06, -8.521676548632798e-09, 4.856901613974847e-07,
           1.3111119237216446e-07, -1.0538928856723526e-07, -3.6588221365469125e-08, 1.9728319889415848e-08])


def _erf(x: T) -> T:
    if x.dtype.bits == 64:
        a = abs(x)
        far = 1 - _tail_of_erf(a)
        return (a < 1).where(x * _polynomial(x * x, _ERF), (x < 0).where(-far, far))
    t = x.clip(-_ERF_END, _ERF_END)
    z = t * t
    return (t * _polynomial(z, _ERF_OVER) / _polynomial(z, _ERF_UNDER)).clip(-1, 1)


def _tail_of_erf(a: T) -> T:
    """1 - erf(a) of a >= 1/2, with all digits."""
    b = a.minimum(1e4)  # its square is finite, and the exponential 0
    return _exp(-(b * b)) * _polynomial((b - 2.5) / (b + 2.5), _of(a, *_ERFCX)) / (b + 2.5)


def _erfc(x: T) -> T:
    tail = _tail_of_erf(abs(x))
    return (abs(x) < 0.5).where(1 - _erf(x), (x < 0).where(2 - tail, tail))


# erfinv(x) of x near 1, by sqrt(-log(1 - x^2)) - 5, to 3e-7, up to 1 - 2^-53.
_ERFINV_TAIL = [4.849906595295421, 1.0103009071190558, -0.0001418663343875401, -0.00021660916261341323, 8.358658276291359e-05,
                -1.92951588899238e-05]


def _erfinv(x: T) -> T:
    """M. Giles, Approximating the erfinv function (GPU Computing Gems, 2012), to a few units in the last place of f32; f64 by two of
    Newton's steps from there."""
    w = -_log((1 - x) * (1 + x))
    root = w.sqrt()
    near, far = w - 2.5, root - 3
    p = _polynomial(near, [1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06,
                           -3.5233877e-06, 3.43273939e-07, 2.81022636e-08])
    q = _polynomial(far, [2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844, 0.00134934322,
                          0.000100950558, -0.000200214257])
    value = (w < 5).where(p, q) * x
    if x.dtype.bits == 64:
        a = abs(x)
        y = (w < 16).where(abs(value), _polynomial(root - 5, _ERFINV_TAIL))
        for _ in range(2):
            over = (a < 0.5).where(_erf(y) - a, (1 - a) - _erfc(y))
            y = y - over * (math.sqrt(math.pi) / 2) * _exp(y * y)
        value = (x < 0).where(-y, y)
    return abs(x).eq(1).where(x * math.inf, value)


erf, erfc, erfinv = composed(_erf), composed(_erfc), composed(_erfinv)


# Trigonometric functions and their inverses.

# pi/2 in parts of 12 and 27 bits, the last with all bits.
_HALF_PI = (_hex("0x1.92p+0", "0x1.fb4p-12", "0x1.444p-24", "0x1.68c234c4c6629p-39"),
            _hex("0x1.921fb54p+0", "0x1.10b461p-30", "0x1.a62633p-58", "0x1.45c06e0e68948p-86"))
# Up to which |x| the number of half turns has as many bits as those parts leave.
_END = 6000, 1e8
# (atan(t) / t - 1) / t^2 by t^2 for t in [0, tan pi/8].
_ATAN = ([-0.33333331761, 0.19999540484, -0.14263955598, 0.10743731491, -0.064519282081],
         [-0.33333333333333333, 0.19999999999999805, -0.14285714285659828, 0.11111111105155447, -0.090909087535008768,
          0.076922963750321424, -0.066664248857382553, 0.058789289978347751, -0.052304542706502445, 0.045515932206265492,
          -0.034570561981427747, 0.016285756855221028])
# pi/4 as the nearest number and the rest.
_QUARTER_PI = _hex("0x1.921fb6p-1", "0x1.921fb54442d18p-1")
_QUARTER_PI_REST = _hex("-0x1.777a5cf72cecep-26", "0x1.1a62633145c07p-55")


def _cos(x: T) -> T:
    """+-sin(x - m pi/2) for the odd m next to x, where all m pi/2 are exact; beyond that 1 - 2 sin^2(x / 2)."""
    near = abs(x) < _of(x, *_END)
    turns = (x * (1 / math.pi) + 1).floor()
    odd, w = turns * 2 - 1, x
    for part in _of(x, *_HALF_PI):
        w = w - odd * part
    half = turns * 0.5
    sign = 1 - (half - half.floor()) * 4
    s = near.where(w, x * 0.5).sin()
    return near.where(sign * s, 1 - s * s * 2)


def _arc(t: T) -> T:
    """The arc tangent of t >= 0."""
    high, middle = t > math.sqrt(2) + 1, t > math.sqrt(2) - 1
    over, under = high.where(-1, middle.where(t - 1, t)), high.where(t, middle.where(t + 1, 1))
    r = over / under
    z = r * r
    quarters = high.cast(t.dtype) + middle.cast(t.dtype)
    rest = r * z * _polynomial(z, _of(t, *_ATAN)) + quarters * _of(t, *_QUARTER_PI_REST)
    return quarters * _of(t, *_QUARTER_PI) + (r + rest)


def _odd(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """An odd function, by one of magnitudes."""
    def of(x: T) -> T:
        value = function(abs(x))
        return (x < 0).where(-value, value)

    return of


def _is_negative(x: T) -> T:
    """By the sign: -0 is."""
    return x.bitcast(f"i{x.dtype.bits}") < 0


def _ratio(a: T, b: T) -> tuple[T, T, T]:
    """Whether the second magnitude is larger, the larger one, and the quotient of the smaller and the larger: 0 of two zeros, 1 of
    two infinities."""
    x, y = abs(a), abs(b)
    swap = x < y
    large, small = swap.where(y, x), swap.where(x, y)
    both = x.eq(y) & x.eq(math.inf)
    return swap, large, both.where(1, small / large.eq(0).where(1, large))


def _atan2(y: T, x: T) -> T:
    swap, _, quotient = _ratio(x, y)
    first = _arc(quotient)
    upper = swap.where(math.pi / 2 - first, first)
    value = _is_negative(x).where(math.pi - upper, upper)
    return _is_negative(y).where(-value, value)


def _hypot(a: T, b: T) -> T:
    _, large, quotient = _ratio(a, b)
    infinite = abs(a).eq(math.inf) | abs(b).eq(math.inf)
    return infinite.where(math.inf, large * (quotient * quotient + 1).sqrt())


cos, tan = composed(_cos), composed(lambda x: x.sin() / _cos(x))
atan = composed(_odd(_arc))
asin = composed(_odd(lambda a: _arc(a / (((1 - a) * (1 + a)).sqrt() + 1)) * 2))
acos = composed(lambda x: _arc(((1 - x) / (1 + x)).sqrt()) * 2)
atan2, hypot = composed(_atan2), composed(_hypot)


# Quotients.


def round_to_even(x: T) -> T:
    """The nearest integer, of two the even one."""
    low = x.floor()
    rest, half = x - low, low * 0.5
    return ((rest > 0.5) | (rest.eq(0.5) & half.ne(half.floor()))).where(low + 1, low)


def _upper_half(x: T) -> T:
    """The leading half of a float's bits: 12 of f32's, 26 of f64's."""
    bits = x.bitcast(f"i{x.dtype.bits}")
    return (bits & _of(x, ~0xfff, ~0x7ffffff)).bitcast(x.dtype)


def _remainder(a: T, b: T) -> T:
    """C's fmod, exact for quotients below 2^36 of f32 and 2^52 of f64."""
    upper = _upper_half(b)
    lower, rest = b - upper, a
    for _ in range(_of(a, 3, 2)):
        quotient = _upper_half((rest / b).trunc())
        rest = (rest - quotient * upper) - quotient * lower
    below, size = a < 0, abs(b)
    over = rest.ne(0) & (rest < 0).ne(below)  # a quotient that rounded up left a rest of the other sign
    rest = over.where(below.where(rest - size, rest + size), rest)
    return (size.eq(math.inf) & (abs(a) < math.inf)).where(a, rest)


def _opposed(rest: T, b: T) -> T:
    """Whether a remainder has not the sign that its divisor has."""
    return rest.ne(0) & (rest < 0).ne(b < 0)


def _floor_remainder(a: T, b: T) -> T:
    rest = _remainder(a, b)
    return _opposed(rest, b).where(rest + b, rest)


def _floor_quotient(a: T, b: T) -> T:
    rest = _remainder(a, b)
    whole, quotient = round_to_even((a - rest) / b), a / b
    infinite = b.eq(0) | (abs(quotient).eq(math.inf) & (abs(a) < math.inf))
    return infinite.where(quotient, _opposed(rest, b).where(whole - 1, whole))


remainder, floor_remainder, floor_quotient = composed(_remainder), composed(_floor_remainder), composed(_floor_quotient)
