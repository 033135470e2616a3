"""torch.compile(backend="telegrad", options={"resident": True}): parameters, gradients and the optimizer's state stay on the
server; skipped (77) without torch.

TELEGRADD names the daemon's program, as in tests/python.
"""

import copy

from torch_support import TorchTest
import support
import torch

import telegrad.torch
from telegrad.torch._backend import host


class ResidentTest(TorchTest):
    def setUp(self):
        torch.manual_seed(7)
        torch._dynamo.reset()
        self.moved = []  # bytes of each read and write
        for name in ("read_all", "write"):
            self.addCleanup(setattr, host(), name, getattr(host(), name))
        read_all, write = host().read_all, host().write
        host().read_all = lambda wanted, first=None: read_all(self.count(wanted), first)
        host().write = lambda memory, data: (self.moved.append(memory.nbytes), write(memory, data))

    def count(self, wanted):
        wanted = list(wanted)
        self.moved += [memory.nbytes for memory, _ in wanted]
        return wanted

    def training(self, model, options, make=torch.optim.AdamW):
        """A step of a model whose every part is compiled; None: eager."""
        optimizer = make(model.parameters(), lr=1e-2)
        update = optimizer.step
        run = model
        if options is not None:
            run = torch.compile(model, backend="telegrad", options=options)
            update = torch.compile(lambda: optimizer.step(), backend="telegrad", options=options)
        x, y = torch.randn(16, 8), torch.randn(16, 3)

        def step():
            optimizer.zero_grad()
            loss = (run(x) - y).square().mean()
            loss.backward()
            update()
            return loss.item()

        return step, optimizer

    def network(self):
        return torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 3))

    def test_training_moves_no_parameters(self):
        ours, theirs = self.network(), None
        theirs = copy.deepcopy(ours)
        torch.manual_seed(1)
        step, optimizer = self.training(ours, {"resident": True})
        torch.manual_seed(1)
        eager, _ = self.training(theirs, None)
        for _ in range(3):  # state is made in the first
            self.assertAlmostEqual(step(), eager(), places=4)
        self.moved.clear()
        for _ in range(5):
            self.assertAlmostEqual(step(), eager(), places=4)
        self.assertLess(max(self.moved), 64 * 3 * 4)  # the smallest matrix
        for parameter in ours.parameters():
            self.assertTrue(parameter.isnan().all() and parameter.grad.isnan().all())
        telegrad.torch.fetch(ours, optimizer)
        for ours_, theirs_ in zip(ours.parameters(), theirs.parameters()):
            torch.testing.assert_close(ours_, theirs_, rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(ours_.grad, theirs_.grad, rtol=1e-3, atol=1e-4)
        self.assertTrue(all(bool(value.isfinite().all()) for state in optimizer.state.values() for value in state.values()))
        self.moved.clear()
        self.assertAlmostEqual(step(), eager(), places=4)  # what was fetched is on the server still
        self.assertLess(max(self.moved), 64 * 3 * 4)

    def test_what_was_fetched_and_changed_travels(self):
        model = self.network()
        step, optimizer = self.training(model, {"resident": True}, torch.optim.SGD)
        for _ in range(3):
            step()
        telegrad.torch.fetch(model)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        step()
        telegrad.torch.fetch([model, {"more": optimizer}])
        self.assertGreater(model[2].bias.abs().max().item(), 0)
        self.assertEqual(model[2].weight.abs().max().item(), 0)  # of zero activations

    def test_shared_memory_stays_here(self):
        """A tensor that is a part of another's memory, and memory that is not torch's."""
        whole = torch.zeros(8)
        add = torch.compile(lambda x: x.add_(1), backend="telegrad", options={"resident": True})
        with torch.no_grad():
            for _ in range(3):
                add(whole[2:6])
            borrowed, lent, whole_number = torch.frombuffer(bytearray(32), dtype=torch.float32), torch.zeros(8), torch.zeros(3, dtype=torch.int64)
            array = lent.numpy()
            for x in (borrowed, lent, whole_number):
                add(x)
            alone = torch.zeros(5)
            add(alone)
            add(alone)
        self.assertEqual(whole.tolist(), [0, 0, 3, 3, 3, 3, 0, 0])
        self.assertEqual([borrowed.tolist(), array.tolist(), whole_number.tolist()], [[1] * 8, [1] * 8, [1] * 3])
        self.assertTrue(alone.isnan().all())
        telegrad.torch.fetch(alone)
        self.assertEqual(alone.tolist(), [2] * 5)

    def test_gradients_that_are_kept(self):
        """A gradient of an earlier step is still its own, though later ones have memory for the same results."""
        model = self.network()
        run = torch.compile(model, backend="telegrad", options={"resident": True})
        double = torch.compile(lambda x: x * 2, backend="telegrad")
        kept, wanted = [], []
        for i in range(3):
            x = torch.randn(4, 8)
            model.zero_grad()
            run(x).square().sum().backward()
            kept.append(model[2].weight.grad)
            weight, bias = model[0].weight.detach(), model[0].bias.detach()
            hidden = (x @ weight.T + bias).tanh()
            wanted.append(2 * (hidden @ model[2].weight.detach().T + model[2].bias.detach()).T @ hidden)
        for got, want in zip(kept, wanted):
            torch.testing.assert_close(double(got), want * 2, rtol=1e-4, atol=1e-4)
        kept[1].zero_()  # in eager: what it has now counts
        self.assertEqual(double(kept[1]).abs().max().item(), 0)
        telegrad.torch.fetch(kept)
        torch.testing.assert_close([kept[0], kept[2]], [wanted[0], wanted[2]], rtol=1e-4, atol=1e-4)
        self.assertEqual(kept[1].abs().max().item(), 0)

    def test_the_session_ends(self):
        x = torch.zeros(5)
        add = torch.compile(lambda x: x.add_(1), backend="telegrad", options={"resident": True})
        with torch.no_grad():
            add(x)
            host().session.sync()
            host().session._abort()
            for use in (lambda: add(x), lambda: telegrad.torch.fetch(x)):
                with self.assertRaisesRegex(RuntimeError, r"\[5\] was on the server alone.*Load what was saved last"):
                    use()
            x.fill_(3)  # as from a checkpoint
            add(x)
            telegrad.torch.fetch(x)
        self.assertEqual(x.tolist(), [4] * 5)

    def test_options_that_there_are_not(self):
        with self.assertRaisesRegex(Exception, "no option 'fast'; it has 'resident'"):
            torch.compile(lambda x: x + 1, backend="telegrad", options={"fast": 1})(torch.ones(2))


if __name__ == "__main__":
    support.main()
