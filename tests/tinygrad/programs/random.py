"""Random numbers: Threefry on a counter that each graph advances."""
from tinygrad import Context, Tensor, dtypes
from . import floats


def _dropout():
  with Context(TRAINING=1): floats(4, 5).dropout(0.4).realize()


def _attention_dropout():
  with Context(TRAINING=1):
    q = floats(1, 1, 3, 4)
    q.scaled_dot_product_attention(q + 1, q * 2, dropout_p=0.3).realize()


def _two_draws():
  Tensor.realize(Tensor.rand(3), Tensor.rand(5))
  Tensor.realize(Tensor.rand(2), Tensor.randn(3))


PROGRAMS = {
    "rand": lambda: Tensor.rand(3, 5).realize(),
    "rand_odd": lambda: Tensor.rand(7).realize(),
    "rand_half": lambda: Tensor.rand(6, dtype=dtypes.half).realize(),
    "rand_bfloat16": lambda: Tensor.rand(6, dtype=dtypes.bfloat16).realize(),
    "rand_double": lambda: Tensor.rand(6, dtype=dtypes.float64).realize(),
    "rand_like": lambda: floats(2, 3).rand_like().realize(),
    "rand_not_contiguous": lambda: (Tensor.rand(4, contiguous=False) * 2).realize(),
    "randn": lambda: Tensor.randn(3, 5).realize(),
    "randn_like": lambda: floats(2, 3).randn_like().realize(),
    "randint": lambda: Tensor.randint(9, low=-4, high=11).realize(),
    "normal": lambda: Tensor.normal(6, mean=2, std=0.5).realize(),
    "uniform": lambda: Tensor.uniform(6, low=-3, high=5).realize(),
    "uniform_int": lambda: Tensor.uniform(6, low=-3, high=5, dtype=dtypes.int32).realize(),
    "scaled_uniform": lambda: Tensor.scaled_uniform(3, 4).realize(),
    "glorot_uniform": lambda: Tensor.glorot_uniform(3, 4).realize(),
    "kaiming_uniform": lambda: Tensor.kaiming_uniform(3, 4).realize(),
    "kaiming_normal": lambda: Tensor.kaiming_normal(3, 4).realize(),
    "randperm": lambda: Tensor.randperm(6).realize(),
    "multinomial": lambda: Tensor([1.0, 2, 3, 4]).multinomial(5, replacement=True).realize(),
    "multinomial_without": lambda: Tensor([1.0, 2, 3, 4]).multinomial(3).realize(),
    "dropout": _dropout,
    "attention_dropout": _attention_dropout,
    "two_draws": _two_draws,
    "threefry": lambda: Tensor([1, 2, 3], dtype=dtypes.uint64).threefry(Tensor([7, 8, 1 << 40], dtype=dtypes.uint64)).realize(),
}
