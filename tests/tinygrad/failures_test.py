"""tinygrad on a server that goes away or has too little memory: the error appears where the value is asked for, says what
and what to do, and the next graph works; skipped (77) where tinygrad is not installed.
"""

import os
import pathlib
import sys
import time
import unittest
import unittest.mock

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

from telegrad import Code, TelegradError
from telegrad._host import Host
from telegrad.tinygrad import _device
from tinygrad import Tensor, TinyJit
from tinygrad.helpers import Context


class FailuresTest(unittest.TestCase):
  def setUp(self):
    self.start()
    if _device.client.cache_info().currsize:  # a session with another test's daemon
      _device.client().session._abort()

  def start(self, *flags):
    self.daemon = support.Daemon(*flags)
    self.addCleanup(self.daemon.stop)
    os.environ["TELEGRAD_ADDRESS"] = self.daemon.address

  def test_the_server_goes_away_and_comes_back(self):
    f = TinyJit(lambda x: (x * 2).realize())
    for n in range(3): self.assertEqual(f(Tensor([n + 1.0]).contiguous().realize()).item(), 2 * n + 2)
    old = Tensor([1.0, 2]).realize()
    self.daemon.stop()
    with self.assertRaises(TelegradError) as context: (old + 1).tolist()
    self.assertEqual(context.exception.code, Code.UNAVAILABLE)
    for word in (self.daemon.address, "float[2]", "connects again"): self.assertIn(word, str(context.exception))
    self.start()
    self.assertEqual((Tensor([1.0, 2]) + 1).tolist(), [2, 3])
    self.assertEqual(TinyJit(lambda x: (x * 2).realize())(Tensor([4.0]).realize()).item(), 8)
    with self.assertRaisesRegex(TelegradError, "Make the tensor again"): old.tolist()
    with self.assertRaisesRegex(TelegradError, "Make the tensor again"): (old + 1).tolist()

  def test_too_little_memory(self):
    self.daemon.stop()
    self.start("--cpu-memory", str(48 << 20))
    with self.assertRaises(TelegradError) as context: Tensor.ones(5000, 5000).contiguous().realize()
    self.assertEqual(context.exception.code, Code.RESOURCE_EXHAUSTED)
    for word in ("float[25000000]", "smaller tensors"): self.assertIn(word, str(context.exception))
    self.assertEqual(Tensor.ones(5).contiguous().sum().item(), 5)

  def test_beam_where_the_server_does_not_search(self):
    with Context(BEAM=2), self.assertRaises(TelegradError) as context: (Tensor.ones(64, 64).contiguous() * 3).realize()
    self.assertEqual(context.exception.code, Code.FAILED_PRECONDITION)
    for word in ("BEAM=2", self.daemon.address, "--search-seconds"): self.assertIn(word, str(context.exception))
    self.assertEqual((Tensor.ones(2).contiguous() * 3).tolist(), [3, 3])

  def test_beam_asks_for_a_search(self):
    self.daemon.stop()
    self.start("--search-seconds", "1", "--search-threshold", str(1 << 30))
    a = Tensor.ones(64, 64).contiguous().realize()
    with Context(BEAM=1):
      for _ in range(2): self.assertEqual((a @ a).sum().item(), 64 ** 3)
    stats, end = _device.client().connection.stats, time.monotonic() + 120
    while stats()["telegrad_searches_total"] < 1: self.assertLess(time.monotonic(), end, "no search has ended")

  def test_the_server_goes_away_while_a_value_is_asked_for(self):
    made = (Tensor([1.0, 2]).realize() * 3).realize()
    read_all, daemon = Host.read_all, self.daemon

    def read_of_nobody(self, wanted):
      daemon.stop()
      return read_all(self, wanted)

    with unittest.mock.patch.object(Host, "read_all", read_of_nobody):
      with self.assertRaises(TelegradError) as context: made.tolist()
    self.assertEqual(context.exception.code, Code.UNAVAILABLE)
    self.start()
    self.assertEqual((Tensor([1.0, 2]) * 3).tolist(), [3, 6])

  def test_a_model_too_large_for_the_quota(self):
    self.daemon.stop()
    self.start("--default-quota", "device_memory=33554432")
    with self.assertRaises(TelegradError) as context: Tensor.ones(4096, 4096).contiguous().realize()
    self.assertEqual(context.exception.code, Code.RESOURCE_EXHAUSTED)
    for word in ("device_memory", "33554432", "float[16777216]"): self.assertIn(word, str(context.exception))
    self.assertEqual(Tensor.ones(5).contiguous().sum().item(), 5)

  def test_shapes_that_overflow(self):
    huge = Tensor([1.0]).reshape(1, 1, 1).expand(1 << 20, 1 << 20, 1 << 20)
    with self.assertRaises(TelegradError) as context: huge.sum().item()
    for word in ("expand", "[1048576, 1048576, 1048576]", "limit"): self.assertIn(word, str(context.exception))
    self.assertEqual(Tensor.ones(5).contiguous().sum().item(), 5)


if __name__ == "__main__": support.main()
