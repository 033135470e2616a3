"""torch.compile(backend="telegrad") when something goes wrong: the error appears at the line that asked, says what and what
to do, and the next call works; skipped (77) without torch.
"""

import os
import unittest
import unittest.mock

import torch_support  # noqa: F401
import support
import torch

import telegrad.torch
from telegrad import Code, TelegradError
from telegrad._host import Host
from telegrad.torch._backend import host


class FailuresTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(7)
        torch._dynamo.reset()
        self.start()
        if host.cache_info().currsize:  # a session with another test's daemon
            host().session._abort()

    def start(self, *flags):
        self.daemon = support.Daemon(*flags)
        self.addCleanup(self.daemon.stop)
        os.environ["TELEGRAD_ADDRESS"] = self.daemon.address

    def agrees(self, compiled, model, *inputs):
        with torch.no_grad():
            torch.testing.assert_close(compiled(*inputs), model(*inputs), rtol=1e-4, atol=1e-5)

    def test_the_server_goes_away_and_comes_back(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        compiled, x = torch.compile(model, backend="telegrad"), torch.randn(3, 4)
        self.agrees(compiled, model, x)
        self.daemon.stop()
        with self.assertRaises(TelegradError) as context, torch.no_grad():
            compiled(x)
        self.assertEqual(context.exception.code, Code.UNAVAILABLE)
        for word in (self.daemon.address, "f32[3, 4]", "connects again"):
            self.assertIn(word, str(context.exception))
        self.start()
        self.agrees(compiled, model, x)

    def test_the_server_goes_away_between_forward_and_backward(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        compiled, x = torch.compile(model, backend="telegrad"), torch.randn(3, 4)
        loss = compiled(x).square().sum()
        self.daemon.stop()
        with self.assertRaises(TelegradError):
            loss.backward()
        self.start()
        with self.assertRaisesRegex(RuntimeError, "Run the step again"):
            loss = compiled(x.clone()).square().sum()
            host().session._abort()
            loss.backward()
        model.zero_grad()
        compiled(x).square().sum().backward()
        got = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        model(x).square().sum().backward()
        torch.testing.assert_close(got, [p.grad for p in model.parameters()], rtol=1e-4, atol=1e-5)

    def test_too_little_memory(self):
        self.daemon.stop()
        self.start("--cpu-memory", str(48 << 20))
        f = torch.compile(lambda x: x @ x, backend="telegrad", dynamic=False)
        with self.assertRaises(TelegradError) as context, torch.no_grad():
            f(torch.ones(3000, 3000))
        self.assertEqual(context.exception.code, Code.RESOURCE_EXHAUSTED)
        for word in ("f32[3000, 3000]", "smaller tensors"):
            self.assertIn(word, str(context.exception))
        with torch.no_grad():
            torch.testing.assert_close(f(torch.ones(4, 4)), torch.full((4, 4), 4.0))

    def test_the_server_goes_away_during_a_step(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        compiled, x = torch.compile(model, backend="telegrad"), torch.randn(3, 4)
        self.agrees(compiled, model, x)
        read_all, daemon = Host.read_all, self.daemon

        def read_of_nobody(self, wanted, first):
            read_all(self, [], first)  # the run is sent
            daemon.stop()
            return read_all(self, wanted)

        with unittest.mock.patch.object(Host, "read_all", read_of_nobody):
            with self.assertRaises(TelegradError) as context, torch.no_grad():
                compiled(x)
        self.assertEqual(context.exception.code, Code.UNAVAILABLE)
        self.assertIn("f32[3, 4]", str(context.exception))
        self.start()
        self.agrees(compiled, model, x)

    def test_a_model_too_large_for_the_quota(self):
        self.daemon.stop()
        self.start("--default-quota", "device_memory=33554432")
        model = torch.nn.Linear(4096, 4096)  # of 64 MiB
        compiled = torch.compile(model, backend="telegrad")
        with self.assertRaises(TelegradError) as context, torch.no_grad():
            compiled(torch.ones(1, 4096))
        self.assertEqual(context.exception.code, Code.RESOURCE_EXHAUSTED)
        for word in ("device_memory", "33554432", "f32[4096, 4096]"):
            self.assertIn(word, str(context.exception))
        small = torch.nn.Linear(4, 2)
        self.agrees(torch.compile(small, backend="telegrad"), small, torch.randn(3, 4))

    def test_shapes_that_overflow(self):
        f = torch.compile(lambda x: x.expand(1 << 20, 1 << 20, 1 << 20).sum(), backend="telegrad")
        with self.assertRaises(TelegradError) as context, torch.no_grad():
            f(torch.ones(1))
        self.assertEqual(context.exception.code, Code.INVALID_ARGUMENT)
        for word in ("expand", "[1048576, 1048576, 1048576]", "the limit of 281474976710656 elements"):
            self.assertIn(word, str(context.exception))
        double = torch.compile(lambda x: (x * 2).sum(), backend="telegrad")
        with torch.no_grad():
            self.assertEqual(double(torch.ones(4)).item(), 8)

    def test_a_token_that_is_no_longer_taken(self):
        """The session ends with UNAUTHENTICATED; the next call shows the token that there is then."""
        model = torch.nn.Linear(2, 2)
        compiled, x = torch.compile(model, backend="telegrad"), torch.randn(3, 2)
        self.agrees(compiled, model, x)
        session = host().session
        with session._changed:
            session._core.end(TelegradError(Code.UNAUTHENTICATED, "the token expired"))
        self.agrees(compiled, model, x)
        self.assertIsNot(host().session, session)


if __name__ == "__main__":
    support.main()
