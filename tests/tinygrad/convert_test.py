"""The converter against tinygrad itself, skipped (77) where tinygrad is not installed.

A program runs on tinygrad's PYTHON device, which needs no compiler, and its graph, converted, on numpy_eval.py. The
programs here are the converter's own difficulties; the captured ones are the replay test's."""

import os
import sys
import unittest

os.environ["DEV"] = "PYTHON"
try:
  import numpy as np
  import tinygrad
except ImportError as error:
  print(f"skipped: {error}")
  sys.exit(77)

from tinygrad import Tensor, UOp, Variable, dtypes
from tinygrad.function import function
from tinygrad.uop.ops import KernelInfo

import capture
import numpy_eval
from telegrad._messages import Graph as GraphMessage
from telegrad.tinygrad._graph_builder import DTYPES, OPS

_NAMES = {row.wire: name for name, row in DTYPES.items()}


def x(*shape): return Tensor(np.arange(1, 1 + np.prod(shape, dtype=int)).reshape(shape).astype(np.float32))


def realized(*shape): return x(*shape).contiguous().realize()


class ConvertTest(unittest.TestCase):
  def graphs(self, program):
    """Runs a program and compares each of its graphs; returns how often each op of ours occurs in them."""
    recorder = capture.Recorder()
    capture.capture(recorder, self.id(), program)
    self.refused = recorder.refused
    counts = {}
    for record in recorder.records:
      graph = GraphMessage.decode(record.graph)
      slots = [(_NAMES[s.dtype], numpy_eval.from_bytes(s.before, _NAMES[s.dtype])) for s in record.slots]
      stored = numpy_eval.evaluate(graph, slots, record.variables)
      for number, slot in enumerate(record.slots):
        if slot.after is None: continue
        want = numpy_eval.from_bytes(slot.after, _NAMES[slot.dtype])
        np.testing.assert_allclose(stored[number].reshape(-1), want, rtol=1e-4, atol=1e-5, err_msg=record.name)
      for node in graph.nodes: counts[_OPS[node.op]] = counts.get(_OPS[node.op], 0) + 1
    return counts

  def test_literals_take_the_width_of_their_consumer(self):
    self.graphs(lambda: (Tensor([250, 3], dtype=dtypes.uint8) + 10).realize())
    self.graphs(lambda: ((x(3) + 1) * 2 - 0.5).realize())
    self.graphs(lambda: (Tensor([1, 2]) * (1 << 40)).realize())
    self.graphs(lambda: ((x(3) > 1).where(1, 2) + 0.5).realize())

  def test_broadcasting_is_spelled_out(self):
    ops = self.graphs(lambda: (x(2, 1, 3) + x(4, 1)).realize())
    self.assertGreaterEqual(ops["expand"], 2)

  def test_bool_arithmetic_is_logic(self):
    a, b = [True, True, False], [False, True, False]
    ops = self.graphs(lambda: Tensor.realize(Tensor(a) + Tensor(b), Tensor(a) * Tensor(b)))
    self.assertNotIn("add", ops)
    self.graphs(lambda: Tensor.realize(Tensor(a).any(), Tensor(a).all()))

  def test_powers_of_integers(self):
    self.graphs(lambda: (Tensor([-3, 2, 0]) ** 5).realize())
    self.graphs(lambda: (Tensor([-3, 2, 0]) ** 0).realize())

  def test_special_constants(self):
    self.graphs(lambda: (x(3) * float("-inf") + Tensor([float("nan"), -0.0, 1.0])).realize())
    self.graphs(lambda: (Tensor([1, 2], dtype=dtypes.uint64) + 0xffffffffffffff00).realize())

  def test_stores_to_views_in_order(self):
    def program():
      t = realized(4, 4)
      t[1:3, ::2] = 7
      t[0] = t[1] + t[2]
      t.realize()
    self.assertGreaterEqual(self.graphs(program)["store"], 3)

  def test_strided_store_leaves_the_rest(self):
    def program():
      t = realized(5)
      t[1::3] = -1
      t.realize()
    self.graphs(program)

  def test_store_through_bitcast(self):
    def program():
      t = realized(4)
      t.bitcast(dtypes.int32).assign(Tensor([0x3f800000] * 4, dtype=dtypes.int32)).realize()
    self.assertIn("bitcast", self.graphs(program))

  def test_reads_see_the_state_they_were_built_on(self):
    def program():
      t = realized(3)
      before = t + 0
      t.assign(t * 2)
      Tensor.realize(before, t, t + 1)
    self.graphs(program)

  def test_functions(self):
    @function
    def affine(a, w): return a @ w + 1, a.sum()
    ops = self.graphs(lambda: Tensor.realize(*affine(x(2, 3), x(3, 2))))
    self.assertEqual(ops["call"], 1)
    self.assertEqual(ops["gettuple"], 2)

  def test_nested_functions(self):
    @function
    def inner(a): return a.exp2() + 1
    @function
    def outer(a, b): return inner(a) * inner(b) + inner(inner(a))
    self.assertGreaterEqual(self.graphs(lambda: outer(x(2), x(2) * 0.5).realize())["call"], 2)

  def test_precompiled_functions_are_put_in_place(self):
    @function(precompile=True)
    def affine(a, w): return a @ w + 1
    self.assertNotIn("call", self.graphs(lambda: affine(x(2, 3), x(3, 2)).realize()))

  def test_variables(self):
    n = Variable("n", 1, 6)
    ops = self.graphs(lambda: (realized(6, 2)[:n.bind(4)] * 2).sum(axis=0).realize())
    self.assertEqual(ops["var"], 1)

  def test_random_numbers(self):
    self.assertIn("threefry", self.graphs(lambda: Tensor.rand(3).realize()))

  def test_shards(self):
    two = ("PYTHON:1", "PYTHON:2")
    self.graphs(lambda: (realized(4, 2).shard(two, 0).sum(axis=0) + 1).realize())
    self.graphs(lambda: (realized(4, 2).shard(two, 0) * 2).to("PYTHON:1").realize())

  def test_arange_is_counted_not_summed(self):
    ops = self.graphs(lambda: (realized(50) + Tensor.arange(3, 153, 3)).realize())
    self.assertEqual((ops["iota"], ops.get("reduce", 0)), (1, 0))
    self.graphs(lambda: (realized(6) + Tensor.arange(1.5, 4.5, 0.5)).realize())
    self.assertIn("reduce", self.graphs(lambda: realized(50).cumsum().realize()))

  def test_gradients_far_from_zero_are_numbers(self):
    def program():
      z = Tensor([-400.0, -100.0, 0.0, 3.0])
      Tensor.realize(*z.sigmoid().sum().gradient(z), *z.tanh().sum().gradient(z), *z.silu().sum().gradient(z))
    self.graphs(program)

  def test_nothing_to_store_is_no_graph(self):
    self.graphs(lambda: Tensor([]).realize())

  def test_custom_kernels_are_refused(self):
    def kernel(out, a):
      i = UOp.range(out.numel(), 0)
      return out[i].store(a[i] + 1).end(i).sink(arg=KernelInfo(name="plus_one"))
    self.graphs(lambda: Tensor.empty(4).custom_kernel(realized(4), fxn=kernel)[0].realize())
    self.assertIn("custom kernel plus_one", self.refused[0][1])


_OPS = {row.wire: name for name, row in OPS.items()}

if __name__ == "__main__": unittest.main()
