"""torch.compile(backend="telegrad", options={"resident": True}): parameters, gradients and the optimizer's state stay on the
server; skipped (77) without torch.

TELEGRADD names the daemon's program, as in tests/python.
"""

import copy
import io

from torch_support import TorchTest
import support
import torch

import telegrad.torch
from telegrad.torch._backend import compiled_last, host


_ALONE = r"is on the server alone.*call telegrad\.torch\.fetch"


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
            for tensor in (parameter, parameter.grad):
                with self.assertRaisesRegex(RuntimeError, _ALONE):
                    tensor.sum()
        telegrad.torch.fetch(ours, optimizer)
        for ours_, theirs_ in zip(ours.parameters(), theirs.parameters()):
            torch.testing.assert_close(ours_, theirs_, rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(ours_.grad, theirs_.grad, rtol=1e-3, atol=1e-4)
        self.assertTrue(all(bool(value.isfinite().all()) for state in optimizer.state.values() for value in state.values()))
        self.moved.clear()
        self.assertAlmostEqual(step(), eager(), places=4)  # what was fetched is on the server still
        self.assertLess(max(self.moved), 64 * 3 * 4)

    def test_no_parameter_is_copied_for_the_backward_pass(self):
        compiled_last.clear()
        model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 3))
        torch.compile(model, backend="telegrad")(torch.randn(16, 8)).sum().backward()
        forward = compiled_last[0].lowered
        made = [tuple(slot.shape) for slot in forward.graph.slots if slot.role == "output"]
        self.assertIn((16, 64), made)  # the activation is
        self.assertFalse({(64, 8), (3, 64), (16, 8)} & set(made), made)

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

    def test_no_access_gives_other_numbers(self):
        """Each way to read or write the memory of a resident parameter is refused, also by what shares it."""
        model = self.network()
        before, alias = copy.deepcopy(model), model[0].weight.detach()
        step, optimizer = self.training(model, {"resident": True})
        step()
        weight, x = model[0].weight, torch.randn(2, 8)
        uses = {"arithmetic": lambda: weight + 1, "an alias": lambda: alias.sum(), "a view": lambda: alias[3:].clone(), "text": lambda: repr(weight),
                "numpy": lambda: alias.numpy(), "dlpack": lambda: torch.utils.dlpack.to_dlpack(alias), "eager": lambda: model(x),
                "a file": lambda: torch.save(model.state_dict(), io.BytesIO()), "a copy": lambda: copy.deepcopy(model),
                "a write": lambda: alias.fill_(1), "a part": lambda: alias[0].zero_(), "another type": lambda: weight.double(),
                "data": lambda: weight.data.mul_(2), "clipping": lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0),
                "the optimizer": lambda: torch.optim.SGD(model.parameters(), lr=1.0).step(), "loading": lambda: model.load_state_dict(before.state_dict())}
        with torch.no_grad():
            for use, function in uses.items():
                with self.subTest(use), self.assertRaisesRegex(RuntimeError, _ALONE):
                    function()
        got = torch.compile(model, backend="telegrad")(x)
        telegrad.torch.fetch(model)
        torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-5)
        self.assertTrue(alias.ne(before[0].weight).any())
        self.assertTrue(alias.eq(weight).all())

    def test_parts_beside_resident_ones(self):
        """A part without the option, and one that gets the memory in another shape, have the content that is on the server."""
        x = torch.zeros(2, 3)
        stays = torch.compile(lambda x: x.add_(1), backend="telegrad", options={"resident": True})
        comes = torch.compile(lambda x: x.mul_(5), backend="telegrad")
        with torch.no_grad():
            stays(x)
            comes(x)
            self.assertEqual(x.tolist(), [[5] * 3] * 2)
            stays(x)
            comes(x.view(6))
            self.assertEqual(x.tolist(), [[30] * 3] * 2)
            stays(x.view(6))
            stays(x)
            telegrad.torch.fetch(x.view(3, 2))
        self.assertEqual(x.tolist(), [[32] * 3] * 2)

    def test_gradients_go_through_parts_in_eager(self):
        """Those of parameters stay; those of activations go on to what is not compiled."""
        class Broken(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.up, self.down = torch.nn.Linear(8, 64), torch.nn.Linear(64, 3)

            def forward(self, x):
                x = self.up(x)
                torch._dynamo.graph_break()
                return self.down(x.tanh())

        ours = Broken()
        theirs = copy.deepcopy(ours)
        step = torch.compile(ours, backend="telegrad", options={"resident": True})
        middle = torch.compiler.disable(lambda h: h * h.abs())
        double = torch.compile(lambda h: h * 2, backend="telegrad", options={"resident": True})
        x = torch.randn(4, 8)
        double(middle(step(x))).sum().backward()
        (middle(theirs(x)) * 2).sum().backward()
        telegrad.torch.fetch(ours)
        for a, b in zip(ours.parameters(), theirs.parameters()):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-4)

    def test_a_training_step(self):
        """As eager does it with a schedule; nothing is compiled for another rate, and files have what training has made."""
        ours = self.network()
        theirs = copy.deepcopy(ours)
        x, y = torch.randn(16, 8), torch.randn(16, 3)
        optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-2) for model in (ours, theirs)]
        schedules = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8) for optimizer in optimizers]
        step = telegrad.torch.training_step(lambda x, y: (ours(x) - y).square().mean(), ours, optimizers[0])

        def both():
            got = step(x, y=y)
            optimizers[1].zero_grad()
            loss = (theirs(x) - y).square().mean()
            loss.backward()
            optimizers[1].step()
            for schedule in schedules:
                schedule.step()
            self.assertFalse(got.requires_grad)
            self.assertAlmostEqual(got.item(), loss.item(), places=5)

        for _ in range(3):
            both()
        made = [id(part) for part in compiled_last]
        self.moved.clear()
        for _ in range(6):
            both()
        self.assertEqual([id(part) for part in compiled_last], made)
        self.assertLess(max(self.moved), 64 * 3 * 4)  # the smallest matrix
        file = io.BytesIO()
        torch.save([ours.state_dict(), optimizers[0].state_dict()], file)
        file.seek(0)
        parameters, state = torch.load(file)
        for name, value in theirs.state_dict().items():
            torch.testing.assert_close(parameters[name], value, rtol=1e-4, atol=1e-5)
        saved = copy.deepcopy(theirs.state_dict()), copy.deepcopy(optimizers[1].state_dict())
        for _ in range(2):
            both()
        ours.load_state_dict(parameters)
        optimizers[0].load_state_dict(state)
        theirs.load_state_dict(saved[0])
        optimizers[1].load_state_dict(saved[1])
        for _ in range(2):
            both()

    def test_a_step_asks_for_its_memory_at_once(self):
        """Not in a message for each parameter."""
        model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(20)])
        step = telegrad.torch.training_step(lambda x: model(x).square().mean(), model, torch.optim.AdamW(model.parameters()))
        x = torch.randn(4, 8)
        for _ in range(3):
            step(x)
        session, calls = host().session, []
        submit_all = session._submit_all
        session._submit_all = lambda asked: (calls.append(len(asked)), submit_all(asked))[1]
        self.addCleanup(delattr, session, "_submit_all")
        step(x)
        self.assertGreater(sum(calls), 4 * 40)  # gradients, parameters and AdamW's two moments
        self.assertLess(len(calls), 20)

    def test_an_optimizer_of_some_parameters(self):
        """The gradients of the others are of the last step alone, too; and what torch does not compile is refused at once."""
        model, x = self.network(), torch.randn(4, 8)
        loss_of = lambda x: model(x).square().mean()  # noqa: E731
        step = telegrad.torch.training_step(loss_of, model, torch.optim.SGD(model[0].parameters(), lr=1e-2))
        losses = [step(x).item() for _ in range(3)]
        self.assertEqual(losses, sorted(losses, reverse=True))
        telegrad.torch.fetch(model)
        (gradient,) = torch.autograd.grad(loss_of(x), model[2].bias)
        step(x)
        telegrad.torch.fetch(model)
        torch.testing.assert_close(model[2].bias.grad, gradient, rtol=1e-4, atol=1e-5)
        with self.assertRaisesRegex(ValueError, "fused=True.*make it without"):
            telegrad.torch.training_step(loss_of, model, torch.optim.AdamW(model.parameters(), fused=True))

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
        with self.assertRaisesRegex(RuntimeError, _ALONE):
            alone.tolist()
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
        telegrad.torch.fetch(kept[1])
        kept[1].zero_()  # in eager: what it has now counts
        self.assertEqual(double(kept[1]).abs().max().item(), 0)
        telegrad.torch.fetch(kept)
        torch.testing.assert_close([kept[0], kept[2]], [wanted[0], wanted[2]], rtol=1e-4, atol=1e-4)
        self.assertEqual(kept[1].abs().max().item(), 0)

    def test_the_session_ends(self):
        x, other = torch.zeros(5), torch.zeros(4)
        add = torch.compile(lambda x: x.add_(1), backend="telegrad", options={"resident": True})
        with torch.no_grad():
            add(x)
            add(other)
            host().session.sync()
            host().session._abort()
            for use in (lambda: add(x), lambda: telegrad.torch.fetch(x)):
                with self.assertRaisesRegex(RuntimeError, r"\[5\] was on the server alone.*Load what was saved last"):
                    use()
            x.fill_(3)  # as from a checkpoint
            add(x)
            telegrad.torch.fetch(x)
            with self.assertRaisesRegex(RuntimeError, r"\[4\] was on the server alone.*Load what was saved last"):
                add(other)
            other.copy_(torch.ones(4))
            self.assertEqual([x.tolist(), other.tolist()], [[4] * 5, [1] * 4])

    def test_options_that_there_are_not(self):
        with self.assertRaisesRegex(Exception, "no option 'fast'; it has 'resident'"):
            torch.compile(lambda x: x + 1, backend="telegrad", options={"fast": 1})(torch.ones(2))


if __name__ == "__main__":
    support.main()
