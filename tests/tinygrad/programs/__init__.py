"""Small programs over tinygrad's public surface, a module for each group: PROGRAMS maps a name to a function that
realizes tensors. Tensors are tiny: the interpreter of the replay test is a judge, not a runtime."""

import numpy as np
from tinygrad import Tensor, dtypes


def floats(*shape, low=-2.0, high=2.0, dtype=dtypes.float32):
  """A tensor of uniform random numbers. Its bytes come from host memory, so the graph has a COPY."""
  x = Tensor(np.random.uniform(low, high, shape).astype(np.float32))
  # tinygrad computes narrow types in f32 and rounds what it stores, so inputs are narrow only once they are stored.
  if dtype is dtypes.float64: return x.cast(dtype)
  return x if dtype is dtypes.float32 else x.cast(dtype).contiguous().realize()


def ints(*shape, low=-10, high=10, dtype=dtypes.int32):
  return Tensor(np.random.randint(low, high, shape).astype(np.int32)).cast(dtype)


def bools(*shape): return Tensor(np.random.randint(0, 2, shape).astype(np.bool_))


def scalar_loss(x): return (x.float().square() * (x.float() + 1)).mean()


def forward(fn, *make):
  """A program: fn of new inputs; everything it returns is realized in one graph."""
  def program():
    out = fn(*(m() for m in make))
    Tensor.realize(*(out if isinstance(out, (tuple, list)) else (out,)))
  return program


def backward(fn, *make):
  """A program: fn of new inputs, and the gradients of a loss by all of them, in one graph. (The loss is not just a mean of
  squares: of normalized values that is a constant, whose gradient is all rounding errors.)"""
  def program():
    inputs = [m() for m in make]
    out = fn(*inputs)
    loss = sum(scalar_loss(o) for o in (out if isinstance(out, (tuple, list)) else (out,)))
    Tensor.realize(loss, *loss.gradient(*inputs))
  return program
