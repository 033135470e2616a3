"""The device TELEGRAD in tinygrad, against NumPy and a real daemon; skipped (77) where tinygrad is not installed.

TELEGRADD names the daemon's program, as in tests/python.
"""

import contextlib
import io
import os
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))
import support

os.environ["DEV"] = "TELEGRAD"
try:
  import telegrad.tinygrad
  import tinygrad
except ImportError as error:
  print(f"skipped: {error}")
  sys.exit(77)
if not os.path.exists(support.DAEMON):
  print(f"skipped: there is no {support.DAEMON}")
  sys.exit(77)

import numpy as np
from tinygrad import function, GlobalCounters, Tensor, TinyJit, Variable, dtypes, nn
from tinygrad.helpers import Context
from tinygrad.uop.ops import KernelInfo, UOp


def array(*shape, start=0): return np.arange(start, start + np.prod(shape, dtype=int)).reshape(shape).astype(np.float32)
def real(x): return Tensor(x).realize()


class DeviceTest(unittest.TestCase):
  @classmethod
  def setUpClass(cls):
    cls.daemon = support.Daemon("--cpu-devices", "4")
    cls.addClassCleanup(cls.daemon.stop)
    os.environ["TELEGRAD_ADDRESS"] = cls.daemon.address

  def equal(self, tensor, want): np.testing.assert_allclose(tensor.numpy(), want, rtol=1e-5, atol=1e-6)

  def test_allreduce_of_shards(self):
    from tinygrad.uop import Ops
    x, two = array(4, 3), ("TELEGRAD:0", "TELEGRAD:1")
    t = real(x).shard(two, 0).realize()
    self.equal(Tensor(t.uop.allreduce(Ops.ADD, t.device)), np.concatenate([x[:2] + x[2:]] * 2))

  def test_values(self):
    x, y = array(3, 4), array(4, 5, start=7)
    self.equal(Tensor(x) @ Tensor(y), x @ y)
    self.equal(Tensor(x).softmax(), np.exp(x - x.max(1, keepdims=True)) / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True))
    self.equal(Tensor(5) + 1, 6)
    self.equal(Tensor([3.0, 1, 2]).sort()[0], [1, 2, 3])
    self.equal(Tensor(x)[:, Tensor([3, 0])], x[:, [3, 0]])
    self.assertEqual(Tensor([]).sum().item(), 0)

  def test_gradients_where_a_product_would_be_infinity_times_zero(self):
    def sigmoid(x): return x.exp() / (1 + x.exp())
    points = np.array([-300, -20, -1, 0, 2, 20, 300], np.float64)
    with np.errstate(over="ignore"): s = 1 / (1 + np.exp(-points))
    for function, want in ((sigmoid, s * (1 - s)), (Tensor.sigmoid, s * (1 - s)), (Tensor.softplus, s),
                           (Tensor.tanh, 1 - np.tanh(points) ** 2), (Tensor.silu, s * (1 + points * (1 - s)))):
      for point, value in zip(points, want):  # one by one: a sum of them hides none
        x = Tensor([point], dtype=dtypes.float32)
        got = function(x).sum().gradient(x)[0].item()
        self.assertAlmostEqual(got, value, 5, f"{function.__name__} at {point}")

  def test_what_is_too_large_for_eight_bits(self):
    x = np.array([1, 447, 465, 1e6, -1e6, 60000, np.inf, -np.inf, np.nan], np.float32)
    large, small = Tensor(x).cast(dtypes.fp8e4m3).float().numpy(), Tensor(x).cast(dtypes.fp8e5m2).float().numpy()
    np.testing.assert_array_equal(large[:6], [1, 448, 448, 448, -448, 448])
    np.testing.assert_array_equal(small, [1, 448, 448, 57344, -57344, 57344, np.inf, -np.inf, np.nan])
    eight = Tensor([400.0, -300, 2], dtype=dtypes.fp8e4m3).realize()
    self.equal((eight + eight).float(), [448, -448, 4])
    self.equal((eight * eight).float(), [448, 448, 4])
    self.equal(Tensor([1000, -70000, 7]).cast(dtypes.fp8e4m3).float(), [448, -448, 7])

  def test_buffers_without_elements(self):
    x = Tensor.zeros(3, 0, 4).contiguous().realize()
    self.assertEqual(x.numpy().shape, (3, 0, 4))
    self.equal(x.sum((1, 2)), np.zeros(3))
    self.equal(x.cat(Tensor.ones(3, 2, 4), dim=1), np.ones((3, 2, 4)))

  def test_what_is_stored_where_a_value_is_invalid(self):
    from tinygrad.dtype import Invalid
    place = np.arange(4)
    for value, valid in (
        (lambda x: (Tensor(place) < 2).where(x, Invalid), place < 2),
        (lambda x: ((Tensor(place) < 2).where(Tensor(place), Invalid) < 9).where(x, x), place < 2),
        (lambda x: (Tensor(place) < 2).where(x, Tensor.full((4,), Invalid, dtype=dtypes.float, buffer=False).sqrt()), place < 2),
        (lambda x: (Tensor(place) < 2).where(x, Invalid).reshape(2, 2).sum(1).reshape(2, 1).expand(2, 2).reshape(4), place < 2)):
      before = array(4, start=50)
      t = real(before)
      x = real(array(4))
      t.assign(value(x)).realize()
      kept = np.array(t.tolist()) == before
      np.testing.assert_array_equal(kept, ~valid)

  def test_parts_over_two_axes_of_devices(self):
    from tinygrad.uop.ops import AxisType
    devices = tuple(f"TELEGRAD:{i}" for i in range(4))
    x = array(4, 6)
    rng = UOp.range(4, -1, AxisType.DEVICE)
    u = real(x).uop.copy_to_device(devices)._shard(0, rng // 2)._shard(1, rng % 2).unshard((0, 1), (rng // 2, rng % 2))
    self.equal(Tensor(u) + 1, x + 1)

  def test_a_result_given_to_the_captured_call_that_made_it(self):
    f = TinyJit(lambda buf, new: buf[1:].cat(new).contiguous().realize(), prune=True)
    buf, want = Tensor.zeros(4).contiguous().realize(), [0, 0, 0, 0]
    for i in range(6):
      buf = f(buf, real(np.array([i + 1], np.float32)))
      want = [*want[1:], i + 1]
      self.equal(buf, want)

  def test_files_that_nothing_stores_are_written(self):
    with tempfile.TemporaryDirectory() as folder:
      disk = Tensor([[0.0, 1], [2, 3]]).to(f"disk:{folder}/new")
      disk[1].assign(Tensor([7.0, 8])).realize()
      self.equal(disk, [[0, 1], [7, 8]])
      self.assertEqual(np.fromfile(f"{folder}/new", np.float32).tolist(), [0, 1, 7, 8])

  def test_a_file_computes_nothing(self):
    with tempfile.TemporaryDirectory() as folder:
      disk = Tensor([[0, 1], [2, 3]]).to(f"disk:{folder}/numbers").realize()
      with self.assertRaisesRegex(NotImplementedError, r"cast on DISK:.*move the tensor first, with to\(device\)"):
        disk.cast(dtypes.float32).to(None).realize()
      self.equal(disk.to(None).cast(dtypes.float32) + 0.5, [[0.5, 1.5], [2.5, 3.5]])

  def test_views_are_bound_in_place(self):
    x = array(6, 4)
    t = real(x)
    part = t[2:4].contiguous().realize()
    self.equal(part + 1, x[2:4] + 1)
    part.assign(part * 2).realize()
    x[2:4] *= 2
    self.equal(t, x)
    t[1], t[4:] = t[2] + t[3], -1
    x[1], x[4:] = x[2] + x[3], -1
    self.equal(t, x)

  def test_jit_replays_with_new_inputs(self):
    seen = []
    @TinyJit
    def step(a, b):
      c = (a @ b).realize()
      d = (c + 1).relu().contiguous().realize()
      return (d * c).realize(), c
    for i in range(5):
      a, b = array(4, 4, start=i), array(4, 4, start=-i)
      out, c = step(real(a), real(b))
      self.equal(c, a @ b)
      self.equal(out, np.maximum(a @ b + 1, 0) * (a @ b))
    (call,) = step.captured.linear.src  # three graphs became one, of two inputs and two results; d is in none of its slots
    self.assertEqual(len(call.src) - 1, 4)
    again = pickle.loads(pickle.dumps(step))
    a, b = array(4, 4, start=9), array(4, 4)
    self.equal(again(real(a), real(b))[1], a @ b)

  def test_jit_keeps_the_order_of_what_it_joins(self):
    state, cache, n = real(array(4)), real(np.zeros((6, 4), np.float32)), Variable("n", 0, 5)
    want, wanted_cache = array(4), np.zeros((6, 4), np.float32)
    @TinyJit
    def step(x, place):
      before = (state * 2).realize()
      state.assign(state + x).realize()
      after = (state * 3).realize()
      cache[place] = after
      cache.realize()
      state[1:3] = before[0:2]
      state.realize()
      return before, after, (cache.sum(axis=0) + state).realize()
    for i in range(5):
      x = array(4, start=i)
      before, after, total = step(real(x), n.bind(i))
      self.equal(before, want * 2)
      want_before, want = want * 2, want + x
      self.equal(after, want * 3)
      wanted_cache[i] = want * 3
      want[1:3] = want_before[0:2]
      self.equal(total, wanted_cache.sum(0) + want)
      self.equal(state, want)

  def test_jit_keeps_views_of_written_buffers_apart(self):
    state, want = real(array(6)), array(6)
    @TinyJit
    def step(x):
      state.assign(state + x).realize()
      part = state[2:4].contiguous().realize()
      twice = (part * 2).realize()
      state.assign(state * 2).realize()
      return twice, (state[2:4].contiguous().realize() + 1).realize()
    for i in range(4):
      x = array(6, start=i)
      twice, last = step(real(x))
      want = want + x
      self.equal(twice, want[2:4] * 2)
      want = want * 2
      self.equal(last, want[2:4] + 1)
      self.equal(state, want)

  def test_variables(self):
    x = array(6, 2)
    t, n = real(x), Variable("n", 1, 6)
    for k in (2, 5): self.equal((t[:n.bind(k)] * 2).sum(axis=0), x[:k].sum(axis=0) * 2)

  def test_sizes_that_variables_decide(self):
    x = array(3, 10)
    t = real(x)
    plus = TinyJit(lambda a: (a + 1).realize())
    for n in range(3, 8):
      v = Variable("n", 1, 10).bind(n)
      part = t[:, :v]
      self.equal(part[:, -3:-1], x[:, n - 3:n - 1])
      self.equal(part[:, -1], x[:, n - 1])
      self.equal(plus(part)[:, :n], x[:, :n] + 1)  # captured for another n
    step, first, last = Variable("s", 1, 3), Variable("a", 1, 5), Variable("b", 6, 10)
    self.equal(Tensor.arange(0, 10, step.bind(2))[:5], [0, 2, 4, 6, 8])
    self.equal(Tensor.arange(first.bind(4), last.bind(7))[:3], [4, 5, 6])
    with self.assertRaisesRegex(RuntimeError, "u is unbound"): (Tensor(Variable("u", 1, 10)) + t).numpy()

  def test_functions_of_sizes_that_variables_decide(self):
    @function(precompile=True)
    def double(x: Tensor) -> Tensor: return (x * 2).contiguous() + 1

    n = Variable("n", 1, 8)
    for size in (3, 5):
      out = double(real(array(8))[:n.bind(size)])
      self.assertIsInstance(out.shape[0], UOp)
      np.testing.assert_array_equal(out[:size].numpy(), array(size) * 2 + 1)
    m = Variable("m", 1, 4)
    out = double(real(array(8, 4))[:n.bind(3), :m.bind(2)])
    np.testing.assert_array_equal(out[:3, :2].numpy(), array(8, 4)[:3, :2] * 2 + 1)

  def test_numbers_that_an_integer_does_not_hold(self):
    x = real(np.array([-1.7, -2, -300, 256, 300.5, 70000, -0.5, 7], np.float32))
    for dtype, wanted in ((dtypes.uint8, [255, 254, 212, 0, 44, 112, 0, 7]), (dtypes.int8, [-1, -2, -44, 0, 44, 112, 0, 7]),
                          (dtypes.int16, [-1, -2, -300, 256, 300, 4464, 0, 7]), (dtypes.uint16, [65535, 65534, 65236, 256, 300, 4464, 0, 7]),
                          (dtypes.uint32, [2**32 - 1, 2**32 - 2, 2**32 - 300, 256, 300, 70000, 0, 7])):
      self.assertEqual(x.cast(dtype).tolist(), wanted, dtype)

  def test_functions_of_parameters_without_a_device(self):
    a, b = array(10, 10), array(10, 10, start=7)
    body = UOp.param(0, dtypes.float, (10, 10)) * 2 + UOp.param(1, dtypes.float, (10, 10))
    np.testing.assert_array_equal(Tensor.call(real(a), real(b), fxn=body).numpy(), a * 2 + b)

  def test_what_is_beyond_a_variable_is_not_read(self):
    x = np.array([[1, 2, np.nan, np.inf], [3, 4, np.nan, -np.inf]], np.float32)
    n = Variable("n", 1, 4).bind(2)
    part = real(x)[:, :n]
    for got, want in ((part.sum(), 10), (part.max(), 4), ((part * 2).mean(axis=1), [3, 7]), (part.softmax().sum(axis=1), [1, 1]),
                      (part @ part.T, [[5, 11], [11, 25]])):
      self.equal(got, want)

  def test_copies_of_buffers_are_no_graphs(self):
    from tinygrad.device import Device
    from telegrad.tinygrad._client import client
    x = array(6, 4)
    source = real(x).uop.buffer.ensure_allocated()._buf
    before = set(client().loaded)
    for device in ("TELEGRAD", "TELEGRAD:1"):
      to = Device[device]
      for start, size in ((0, x.nbytes), (16, 48)):
        part, target = to.allocator._offset(source, size, start), to.allocator._alloc(size, None)
        to.allocator._transfer(target, part, size, Device["TELEGRAD"], to)
        got = bytearray(size)
        to.allocator._copyout(memoryview(got), target)
        self.assertEqual(bytes(got), x.tobytes()[start:start + size])
        to.allocator._free(target, None)
    self.assertEqual(set(client().loaded), before)

  def test_no_compiler_is_needed(self):
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    ran = self.run_script("""
        import telegrad.tinygrad, tempfile, os
        from tinygrad import Tensor, nn
        print((Tensor(5) + 1).item(), Tensor.full((), 3.5).item())
        with tempfile.TemporaryDirectory() as folder:
          path = os.path.join(folder, "x.safetensors")
          nn.state.safe_save({"a": Tensor([1, 2]) * 2}, path)
          print(nn.state.safe_load(path)["a"].tolist())""", CC="/nowhere/cc", PATH="/nowhere", CACHEDB=os.path.join(folder.name, "kernels"))
    self.assertEqual(ran.stdout, "6 3.5\n[2, 4]\n", ran.stderr)

  def test_several_devices(self):
    two, x = ("TELEGRAD:1", "TELEGRAD:2"), array(8, 2)
    t = real(x).shard(two, 0)
    self.equal(t * 2, x * 2)
    self.equal(t.sum(axis=0), x.sum(axis=0))
    self.equal(t.to("TELEGRAD"), x)
    self.equal(real(x).to("TELEGRAD:2") + 1, x + 1)
    with self.assertRaisesRegex(RuntimeError, "4 devices that compute: CPU:0, CPU:1, CPU:2, CPU:3"):
      Tensor.ones(4, device="TELEGRAD:7").contiguous().realize()

  def test_training_agrees_with_numpy(self):
    x, w = array(8, 3) / 10, array(3, 2) / 10
    p = real(w.copy()).is_param_()
    optimizer = nn.optim.SGD([p], lr=0.1)
    with Context(TRAINING=1):
      for _ in range(3):
        optimizer.zero_grad()
        (real(x) @ p).square().mean().backward()
        optimizer.step()
        w -= 0.1 * (x.T @ (2 * (x @ w) / 16))
    self.equal(p, w)

  def test_random_numbers_are_tinygrads(self):
    Tensor.manual_seed(3)
    here = Tensor.rand(7).numpy()
    code = "from tinygrad import Tensor; Tensor.manual_seed(3); print(Tensor.rand(7).tolist())"
    there = subprocess.run([sys.executable, "-c", code], env=os.environ | {"DEV": "PYTHON"}, capture_output=True, text=True, check=True)
    np.testing.assert_allclose(here, eval(there.stdout), rtol=1e-6)

  def test_pickle_and_files(self):
    t = real(array(5))
    self.equal(pickle.loads(pickle.dumps(t)), array(5))
    with tempfile.TemporaryDirectory() as folder:
      path = os.path.join(folder, "x.safetensors")
      nn.state.safe_save({"a": t, "b": t + 1}, path)
      state = nn.state.safe_load(path)
      self.equal(state["a"].to(None), array(5))
      self.equal(state["b"].to(None), array(5) + 1)

  def test_host_memory_is_read_and_written(self):
    t = real(array(5))
    self.equal((t * 2).to("PYTHON"), array(5) * 2)
    self.equal(Tensor(array(5), device="PYTHON").to("TELEGRAD") + t, array(5) * 2)

  def test_counters_and_debug(self):
    x = real(array(64, 64))
    (x @ x + 1).realize()
    GlobalCounters.reset()
    (x @ x + 1).realize()
    self.assertGreaterEqual(GlobalCounters.kernel_count, 1)
    self.assertGreaterEqual(GlobalCounters.global_ops, 2 * 64 ** 3)
    out = io.StringIO()
    with Context(DEBUG=2), contextlib.redirect_stdout(out): (x @ x + 2).realize()
    self.assertIn("*** CPU:0", out.getvalue())
    self.assertGreater(GlobalCounters.time_sum_s, 0)

  def test_large_tables(self):
    self.assertEqual(nn.Embedding(50257, 768)(Tensor([[1, 50256]])).shape, (1, 2, 768))
    table = Tensor.arange(50257 * 3).reshape(50257, 3)
    self.equal(table[Tensor([1, 50256])], [[3, 4, 5], [150768, 150769, 150770]])

  def test_custom_kernels_are_refused_by_name(self):
    def kernel(out, a):
      i = UOp.range(out.numel(), 0)
      return out[i].store(a[i] + 1).end(i).sink(arg=KernelInfo(name="plus_one"))
    with self.assertRaisesRegex(RuntimeError, "custom kernel plus_one"):
      Tensor.empty(4).custom_kernel(real(array(4)), fxn=kernel)[0].realize()
    self.equal(real(array(4)) + 1, array(4) + 1)

  def run_script(self, text, **environment):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True,
                          env=os.environ | environment, timeout=120)

  def test_no_server_is_said(self):
    ran = self.run_script("import telegrad.tinygrad\nfrom tinygrad import Tensor\nTensor([1]).numpy()", TELEGRAD_ADDRESS="127.0.0.1:1")
    self.assertIn("no server answers at 127.0.0.1:1", ran.stderr)

  def test_unused_it_costs_nothing(self):
    ran = self.run_script("""
        import _telegrad_tinygrad, sys
        _telegrad_tinygrad.register()
        from tinygrad import Tensor
        print((Tensor([1, 2], device="PYTHON") + 1).tolist(), "telegrad" in sys.modules)""", DEV="PYTHON")
    self.assertEqual(ran.stdout, "[2, 3] False\n", ran.stderr)

  def test_the_guide_does_what_it_says(self):
    text = pathlib.Path(support.path("docs", "tinygrad.md")).read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    out = io.StringIO()
    with contextlib.redirect_stdout(out): exec(program, {})
    self.assertRegex(out.getvalue(), r"^y = (3\.000|2\.999) x \+ -2\.000, loss \S+\n$")


if __name__ == "__main__": unittest.main()
