"""Programs of training as people write them, compiled in parts of theirs: the losses are eager's; skipped (77) without torch.

TELEGRADD names the daemon's program, as in tests/python.
"""

from torch_support import TorchTest
import support
import torch

import telegrad.torch  # noqa: F401  (registers the backend)
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class ProgramsTest(TorchTest):
    def check(self, program, tolerance=1e-4):
        """`program` gets what compiles a function, or leaves it as it is, and gives numbers."""
        results = []
        for compiled in (False, True):
            torch._dynamo.reset()
            torch.manual_seed(3)
            results.append(program((lambda f: torch.compile(f, backend="telegrad")) if compiled else lambda f: f))
            results[-1].append(torch.rand(1).item())  # as many random numbers were drawn
        torch.testing.assert_close(results[1], results[0], rtol=tolerance, atol=tolerance)

    def trained(self, model, loss_of, optimizer=None, steps=4):
        optimizer = optimizer or torch.optim.Adam(model.parameters(), 1e-2)
        losses = []
        for _ in range(steps):
            loss = loss_of()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def test_checkpointed_regions_with_dropout(self):
        for reentrant in (False, True):
            def program(compiled, reentrant=reentrant):
                block = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.3))
                run = compiled(lambda x: x + checkpoint(block, x, use_reentrant=reentrant) * torch.rand_like(x))
                return self.trained(block, lambda: run(torch.randn(6, 8, requires_grad=True)).square().mean())

            with self.subTest(reentrant=reentrant):
                self.check(program)

    def test_masks_of_checkpointed_regions_are_saved(self):
        """So no operator that saves and restores torch's random state is in the graph, which torch would have to run."""
        torch._dynamo.reset()
        telegrad.torch._backend.compiled_last.clear()
        torch.compile(lambda x: checkpoint(lambda y: F.dropout(y.tanh(), 0.3), x, use_reentrant=False),
                      backend="telegrad")(torch.randn(4, requires_grad=True)).sum().backward()
        self.assertEqual({type(part).__name__ for part in telegrad.torch._backend.compiled_last}, {"Compiled"})

    def test_sparse_gradients(self):
        def program(compiled):
            table = nn.Embedding(30, 4, sparse=True)
            run = compiled(lambda i: table(i).square().sum())
            losses = self.trained(table, lambda: run(torch.randint(0, 30, (12,))), torch.optim.SparseAdam(table.parameters(), 0.1))
            return losses + [float(table.weight.grad.is_sparse)]

        self.check(program)

    def test_scaled_gradients_of_halves(self):
        def program(compiled):
            model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 5))
            optimizer, scaler, run = torch.optim.AdamW(model.parameters(), 1e-2), torch.amp.GradScaler("cpu"), compiled(model)
            losses = []
            for _ in range(4):
                with torch.autocast("cpu", dtype=torch.float16):
                    loss = F.cross_entropy(run(torch.randn(8, 16)), torch.randint(0, 5, (8,)))
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                losses.append(loss.item())
            return losses + [scaler.get_scale()]

        self.check(program, tolerance=1e-2)

    def test_two_networks_against_each_other(self):
        def program(compiled):
            make, judge = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 2)), nn.Sequential(nn.Linear(2, 16), nn.SiLU(), nn.Linear(16, 1))
            made, judged = compiled(make), compiled(judge)
            optimizers = torch.optim.Adam(make.parameters(), 1e-3), torch.optim.Adam(judge.parameters(), 1e-3)
            one, losses = torch.ones(8, 1), []
            for _ in range(3):
                fake = made(torch.randn(8, 4))
                of_judge = F.binary_cross_entropy_with_logits(judged(torch.randn(8, 2)), one) + \
                    F.binary_cross_entropy_with_logits(judged(fake.detach()), one * 0)
                of_make = F.binary_cross_entropy_with_logits(judged(fake), one)
                for loss, optimizer in zip((of_judge, of_make), optimizers[::-1]):
                    optimizer.zero_grad()
                    loss.backward(inputs=[p for group in optimizer.param_groups for p in group["params"]], retain_graph=True)
                for optimizer in optimizers:
                    optimizer.step()
                losses += [of_judge.item(), of_make.item()]
            return losses

        self.check(program)

    def test_a_function_with_a_gradient_of_its_own(self):
        class Rounded(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x.round()

            @staticmethod
            def backward(ctx, gradient):
                x, = ctx.saved_tensors
                return gradient * (x.abs() < 1)

        def program(compiled):
            layer = nn.Linear(8, 8)
            run = compiled(lambda x: (Rounded.apply(layer(x) * 3) - x).square().mean())
            return self.trained(layer, lambda: run(torch.randn(8, 8)))

        self.check(program)


if __name__ == "__main__":
    support.main()
