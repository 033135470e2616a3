"""torch.compile(backend="telegrad") of models with operators that have no graph on the server: torch runs them, between programs of
the server's; skipped (77) without torch.

TELEGRADD names the daemon's program, as in tests/python.
"""

import warnings

from torch_support import TorchTest
import support
import torch

import telegrad.torch
from telegrad.torch import _parts
from telegrad.torch._backend import Compiled, compiled_last

L = torch.linalg


def positive(x):
    return x @ x.T + 3 * torch.eye(4)


LINEAR = {
    "cholesky": lambda x: L.cholesky(positive(x)) * 2, "solve": lambda x: L.solve(positive(x), x * 2) + 1,
    "inv": lambda x: L.inv(positive(x)).sum(), "det": lambda x: L.det(positive(x)) * 2, "slogdet": lambda x: L.slogdet(positive(x))[1],
    "qr": lambda x: L.qr(x * 2)[1].abs() + 1, "svd": lambda x: L.svd(x + 1)[1] * 2, "eigh": lambda x: L.eigh(positive(x))[0] * 2,
    "lstsq": lambda x: L.lstsq(positive(x), x).solution * 2, "pinv": lambda x: L.pinv(x * 2), "lu": lambda x: L.lu(positive(x))[2] * 2,
    "matrix_exp": lambda x: L.matrix_exp(x * 0.1) * 2, "matrix_norm": lambda x: L.matrix_norm(x, 2) * 2, "cond": lambda x: L.cond(positive(x)),
    "solve_triangular": lambda x: L.solve_triangular(torch.tril(x) + 4 * torch.eye(4), x * 1, upper=False)}
SPECTRA = {
    "rfft": lambda x: torch.fft.rfft(x * 2).abs() + 1, "irfft": lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2) + 1,
    "fft": lambda x: torch.fft.fft(x + 1).real * 2, "fft2": lambda x: torch.fft.fft2(x * 2).imag + 1,
    "a spectrum as the result": lambda x: torch.fft.fft(x * 2),
    "stft": lambda x: torch.stft(x.reshape(16), 8, return_complex=True, window=torch.ones(8)).abs() * 2,
    "a convolution": lambda x: torch.fft.irfft(torch.fft.rfft(x, n=8) * torch.fft.rfft(x * 2, n=8), n=8).relu()}
COMPLEX = {
    "complex": lambda x: (torch.complex(x * 2, x + 1) * (1 + 2j)).abs() + 1, "polar": lambda x: torch.polar(x.abs(), x).real * 2,
    "views": lambda x: torch.view_as_real(torch.view_as_complex((x * 2).reshape(8, 2)) * 1j) + 1,
    "rotary": lambda x: torch.view_as_real(torch.view_as_complex(x.reshape(8, 2)) * torch.polar(torch.ones(8), torch.arange(8.0))) * 2}


class PartsTest(TorchTest):
    def setUp(self):
        torch.manual_seed(3)
        _parts._told.clear()
        warnings.simplefilter("ignore")
        self.addCleanup(warnings.resetwarnings)

    def agrees(self, function, fullgraph=True, **named):
        """Results and gradients are those of eager."""
        torch._dynamo.reset()
        x = torch.randn(4, 4)
        got, want = [], []
        for run, out in ((torch.compile(function, backend="telegrad", fullgraph=fullgraph, **named), got), (function, want)):
            y = x.clone().requires_grad_()
            result = run(y)
            (result.abs() if result.is_complex() else result * result.detach()).sum().backward()
            out += [result.detach(), y.grad]
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)

    def test_linear_algebra(self):
        for name, function in LINEAR.items():
            with self.subTest(name):
                self.agrees(function, fullgraph=name != "lstsq")  # where torch ends the part itself

    def test_spectra(self):
        for name, function in SPECTRA.items():
            with self.subTest(name):
                self.agrees(function)

    def test_complex_numbers(self):
        for name, function in COMPLEX.items():
            with self.subTest(name):
                self.agrees(function)

    def test_symbolic_sizes(self):
        for function in (LINEAR["inv"], SPECTRA["irfft"], COMPLEX["polar"]):
            self.agrees(function, dynamic=True)

    def test_what_is_without_them_is_the_servers(self):
        """The operators around are programs, as long as possible."""
        compiled_last.clear()
        self.agrees(lambda x: ((x * 2).exp() @ torch.fft.fft(x).real.relu()).sum())
        forward = next(part for part in compiled_last if isinstance(part, _parts.Parts))
        here = [step for step in forward.steps if step.program is None]
        names = {str(node.target) for step in here for node in step.nodes}
        self.assertIn("aten._fft_r2c.default", names)
        self.assertFalse({"aten.exp.default", "aten.relu.default", "aten.mm.default", "aten.sum.default"} & names)
        self.assertEqual([type(step.program) for step in forward.steps], [Compiled, type(None), Compiled])

    def test_branches_and_loops_on_values(self):
        """Operators with graphs as operands."""
        from torch._higher_order_ops.while_loop import while_loop

        x = torch.randn(4)
        for function in (lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x * 2,)) + 1,
                         lambda x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x + 1))[1] * 2):
            for value in (x, -x):
                torch._dynamo.reset()
                torch.testing.assert_close(torch.compile(function, backend="telegrad", fullgraph=True)(value), function(value))

    def test_warnings_say_what_and_where_once(self):
        for expected in (1, 0):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self.agrees(SPECTRA["rfft"])
            texts = [str(w.message) for w in caught if "_fft_r2c" in str(w.message)]
            self.assertEqual(len(texts), expected)
            for text in texts:
                self.assertRegex(text, "no graph on Telegrad's server, so torch runs it.*parts_test.py")

    def test_writes_and_random_numbers_are_in_order(self):
        """Arguments are written as eager writes them, also those on the server alone, and numbers are drawn in eager's order."""
        def function(x, y):
            x.mul_(2)
            z = torch.rand(4, 4) + L.inv(positive(x)) + torch.rand(4, 4)
            y.add_(torch.fft.fft(z).real)
            return z.exp().multinomial(3, replacement=True) * 1.0 + torch.rand(4, 3)

        results = []
        add = torch.compile(lambda x: x.add_(1), backend="telegrad", options={"resident": True})
        for run in (torch.compile(function, backend="telegrad"), function):
            x, y = torch.arange(16.0).reshape(4, 4), torch.ones(4, 4)
            with torch.no_grad():
                if run is function:
                    x += 1
                else:
                    add(x)
                torch.manual_seed(5)
                results.append([run(x, y), x, y, run(x, y), torch.rand(2)])
        torch.testing.assert_close(*results, rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    support.main()
