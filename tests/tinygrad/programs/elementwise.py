"""Elementwise math and activations."""
from tinygrad import Tensor, dtypes
from . import backward, bools, floats, forward, ints

# Functions of one float and where they are tried.
_ALL, _POSITIVE, _UNIT = (-3, 3), (0.1, 4), (-0.9, 0.9)
_UNARY = {
    "neg": _ALL, "reciprocal": _POSITIVE, "trunc": _ALL, "ceil": _ALL, "floor": _ALL, "round": _ALL, "sign": _ALL, "abs": _ALL,
    "square": _ALL, "sqrt": _POSITIVE, "rsqrt": _POSITIVE, "exp": _ALL, "exp2": _ALL, "log": _POSITIVE, "log2": _POSITIVE,
    "log10": _POSITIVE, "sin": _ALL, "cos": _ALL, "tan": (-1.2, 1.2), "asin": _UNIT, "acos": _UNIT, "atan": _ALL, "sinh": _ALL,
    "cosh": _ALL, "tanh": _ALL, "asinh": _ALL, "acosh": (1.1, 4), "atanh": _UNIT, "erf": _ALL, "relu": _ALL, "relu6": (-2, 9),
    "sigmoid": _ALL, "logsigmoid": _ALL, "hardsigmoid": (-5, 5), "hardswish": (-5, 5), "hardtanh": _ALL, "leaky_relu": _ALL,
    "elu": _ALL, "celu": _ALL, "selu": _ALL, "gelu": _ALL, "quick_gelu": _ALL, "silu": _ALL, "swish": _ALL, "softplus": _ALL,
    "softsign": _ALL, "mish": _ALL}
_TESTS = ["isnan", "isinf", "isfinite"]
_BINARY = {
    "add": _ALL, "sub": _ALL, "mul": _ALL, "div": _POSITIVE, "pow": _POSITIVE, "maximum": _ALL, "minimum": _ALL, "copysign": _ALL,
    "logaddexp": _ALL, "mod": _POSITIVE, "fmod": _POSITIVE}
_COMPARE = ["__lt__", "__le__", "__gt__", "__ge__", "eq", "ne"]
_INT_BINARY = ["add", "sub", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor", "mod", "fmod"]


def _method(name, *args, **kwargs): return lambda x, *more: getattr(x, name)(*more, *args, **kwargs)
def _f(low, high, *shape): return lambda: floats(*(shape or (3, 5)), low=low, high=high)
def _i(*shape, low=-20, high=20, dtype=dtypes.int32): return lambda: ints(*(shape or (3, 5)), low=low, high=high, dtype=dtype)
def _divisor(dtype=dtypes.int32): return lambda: ints(3, 5, low=1, high=9, dtype=dtype) * Tensor([-1, 1, -1, 1, 1], dtype=dtype)


_SPECIAL = [0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 0.5, 1e-30, 3e38]

PROGRAMS = {
    **{name: backward(_method(name), _f(*where)) for name, where in _UNARY.items()},
    **{f"{name}_broadcast": backward(_method(name), _f(*where), _f(*where, 5)) for name, where in _BINARY.items()},
    **{f"special_{name}": forward(_method(name), lambda: Tensor(_SPECIAL)) for name in _TESTS},
    **{f"special_{name}": forward(_method(name), lambda: Tensor(_SPECIAL))
       for name in ["neg", "abs", "sqrt", "reciprocal", "floor", "round", "sign", "relu", "exp2", "log2", "sigmoid", "tanh"]},
    **{f"compare{name}": forward(_method(name), _i(low=-2, high=3), _i(5, low=-2, high=3)) for name in _COMPARE},
    **{f"compare_float{name}": forward(_method(name), lambda: Tensor(_SPECIAL).reshape(10, 1), lambda: Tensor(_SPECIAL)) for name in _COMPARE},
    **{f"int_{name}": forward(_method(name), _i(), _divisor()) for name in _INT_BINARY},
    "int_floordiv": forward(lambda x, y: x // y, _i(), _divisor()),
    "int_truncdiv": forward(lambda x, y: x.div(y, rounding_mode="trunc"), _i(), _divisor()),
    "int_floordiv_mode": forward(lambda x, y: x.div(y, rounding_mode="floor") + 1, _i(), _divisor()),
    "int_truediv": forward(lambda x, y: x / y, _i(), _divisor()),
    "float_floordiv": forward(lambda x, y: x.div(y, rounding_mode="floor"), _f(-9, 9), _f(0.5, 4)),
    "float_truncdiv": forward(lambda x, y: x.div(y, rounding_mode="trunc"), _f(-9, 9), _f(0.5, 4)),
    "int_pow": forward(lambda x: x ** 3, _i(low=-5, high=5)),
    "int_pow_tensor": forward(lambda x, y: x.pow(y), _i(low=1, high=5), _i(low=0, high=4)),
    "pow_scalar_base": backward(lambda x: 2.5 ** x, _f(-2, 2)),
    "pow_half": backward(lambda x: x ** 0.5, _f(*_POSITIVE)),
    "pow_negative_base": forward(lambda x: x.pow(3.0), _f(-2, 2)),
    "pow_negative_exponent": backward(lambda x: x ** -2, _f(*_POSITIVE)),
    "lshift": forward(lambda x: x << 3, _i(dtype=dtypes.uint32, low=0)),
    "rshift": forward(lambda x: x >> 2, _i(dtype=dtypes.uint32, low=0, high=900)),
    "rshift_signed": forward(lambda x: x >> 2, _i(low=-900, high=900)),
    "shift_by_tensor": forward(lambda x, y: (x << y) + (x >> y), _i(dtype=dtypes.uint32, low=0), _i(dtype=dtypes.uint32, low=0, high=9)),
    "bitwise_not": forward(lambda x: ~x, _i()),
    "logical_not": forward(lambda x: x.logical_not(), bools_ := (lambda: bools(3, 5))),
    "bool_and_or_xor": forward(lambda x, y: (x & y, x | y, x ^ y), bools_, bools_),
    "bool_arithmetic": forward(lambda x, y: (x + y, x * y, x.maximum(y)), bools_, bools_),
    "where": backward(lambda x, y: (x > 0).where(x, y * 2), _f(*_ALL), _f(*_ALL)),
    "where_scalar": backward(lambda x: (x > 0.5).where(1.0, x), _f(*_ALL)),
    "masked_fill": backward(lambda x: x.masked_fill(x > 1, -3.0), _f(*_ALL)),
    "lerp": backward(lambda x, y: x.lerp(y, 0.3), _f(*_ALL), _f(*_ALL)),
    "clamp": backward(lambda x: x.clamp(-1, 0.7), _f(*_ALL)),
    "clip_int": forward(lambda x: x.clip(-3, 4), _i()),
    "isclose": forward(lambda x: x.isclose(x + 1e-6), _f(*_ALL)),
    "scalar_chain": forward(lambda x: (x + 1) * 2 - 3 / (x + 7) + 0.1, _f(*_ALL)),
    "scalar_int_chain": forward(lambda x: (x + 1) * 2 - 3, _i()),
    "gelu_exact": backward(_method("gelu", approximate="none"), _f(*_ALL)),
    "leaky_relu_slope": backward(_method("leaky_relu", neg_slope=0.2), _f(*_ALL)),
    "elu_alpha": backward(_method("elu", alpha=0.5), _f(*_ALL)),
    "softplus_beta": backward(_method("softplus", beta=3.0), _f(*_ALL)),
    "sin_wide": forward(_method("sin"), _f(-500, 500)),
    "sin_huge": forward(_method("sin"), _f(-1e6, 1e6)),
    "exp_wide": forward(_method("exp"), _f(-80, 80)),
    "log_wide": forward(_method("log"), _f(1e-30, 1e30)),
    "usum_uprod": forward(lambda x, y, z: (x.usum(y, z), x.uprod(y, z)), _f(*_ALL), _f(*_ALL), _f(*_ALL)),
    "detach": backward(lambda x: x * x.detach() + x, _f(*_ALL)),
    "contiguous": backward(lambda x: (x * 2).contiguous() + x.contiguous_backward(), _f(*_ALL)),
    "same_value_twice": forward(lambda x: (x.exp().sum(0), x.exp().sum(1)), _f(*_ALL)),
}
