"""Models that telegrad.torch.export saved run as PyTorch computes them, through the command line."""

import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "client", "python"))
sys.path.insert(0, os.path.join(ROOT, "tests", "python"))
try:
    import numpy as np
    import torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import models  # noqa: E402
import telegrad.torch  # noqa: E402
from support import Daemon  # noqa: E402

TELEGRAD = os.environ.get("TELEGRAD", os.path.join(ROOT, "build", "release", "client", "cli", "telegrad"))


class Gated(torch.nn.Module):
    """Parameters, a buffer, a constant of the code, two inputs of which one is of integers, and two outputs."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(11, 6)
        self.norm = torch.nn.LayerNorm(6)
        self.out = torch.nn.Linear(6, 3)
        self.register_buffer("scale", torch.tensor([0.5, 2.0, -1.0]))

    def forward(self, tokens, bias):
        h = self.norm(torch.nn.functional.gelu(self.embed(tokens)))
        y = self.out(h) * self.scale + bias
        return y.softmax(-1), (y @ torch.tensor([1.0, 0.0, 1.0])).argmax(-1)


class ExportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon("--compile-workers", "1")
        cls.addClassCleanup(cls.daemon.stop)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = lambda name: os.path.join(folder.name, name)
        torch.manual_seed(3)

    def run_file(self, path, args, outputs, code=0):
        command = [TELEGRAD, "run", path, "--address", self.daemon.address]
        for i, arg in enumerate(args):
            np.save(self.file(f"in{i}.npy"), arg.numpy())
            command += ["-i", self.file(f"in{i}.npy")]
        for i in range(outputs):
            command += ["-o", self.file(f"out{i}.npy")]
        result = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100)
        self.assertEqual(result.returncode, code, result.stdout)
        return [torch.from_numpy(np.load(self.file(f"out{i}.npy"))) for i in range(outputs)] if code == 0 else result.stdout

    def test_a_model_of_everything(self):
        model = Gated().eval()
        args = (torch.randint(0, 11, (2, 5)), torch.randn(3))
        path = self.file("gated.safetensors")
        self.assertEqual(telegrad.torch.export(model, args, path), ["tokens", "bias"])
        again = (torch.randint(0, 11, (2, 5)), torch.randn(3))
        for given in (args, again):
            want = model(*given)
            got = self.run_file(path, given, 2)
            for w, g in zip(want, got):
                self.assertEqual((g.dtype, g.shape), (w.dtype, w.shape))
                torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-6)

    def test_convolutions_and_named_arguments(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8),
                                                torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())

            def forward(self, image, unused, *, gain):
                return self.body(image) * gain

        model = Net().eval()
        image, gain = torch.randn(2, 3, 16, 16), torch.tensor(1.5)
        path = self.file("net.safetensors")
        names = telegrad.torch.export(model, (image, torch.zeros(1)), path, {"gain": gain})
        self.assertEqual(names, ["image", "gain"], "what is not used is no input")
        (got,) = self.run_file(path, (image, gain), 1)
        torch.testing.assert_close(got, model(image, None, gain=gain), rtol=1e-4, atol=1e-5)

    def test_the_tensors_are_those_of_a_safetensors_file(self):
        model = torch.nn.Linear(4, 2).to(torch.bfloat16)
        path = self.file("linear.safetensors")
        telegrad.torch.export(model, (torch.ones(1, 4, dtype=torch.bfloat16),), path)
        out = subprocess.run([TELEGRAD, "tensors", path], text=True, stdout=subprocess.PIPE, check=True).stdout
        self.assertIn("weight  bf16 [2, 4]  16 bytes", out)
        self.assertEqual(sorted(os.listdir(os.path.dirname(path))), ["linear.safetensors"])

    def test_sizes_that_depend_on_the_inputs(self):
        """Batches and lengths of attention, and of convolutions with their batch; one file for all."""
        batch, length = torch.export.Dim("batch", max=16), torch.export.Dim("length", min=2, max=32)

        def ids(*shape):
            return torch.randint(0, 64, shape)

        for name, model, args, dynamic, others in (
                ("gpt", models.Gpt(), (ids(3, 8),), ({0: batch, 1: length},), [(ids(2, 5),), (ids(1, 2),), (ids(5, 16),)]),
                ("bert", models.Bert(), (ids(3, 8), torch.ones(3, 8, dtype=torch.bool)), ({0: batch, 1: length}, {0: batch, 1: length}),
                 [(ids(2, 5), torch.tensor([[True] * 5, [True] * 3 + [False] * 2]))]),
                ("resnet", models.resnet(8, (1, 1, 1, 1), 10), (torch.randn(3, 3, 32, 32),), ({0: batch},),
                 [(torch.randn(n, 3, 32, 32),) for n in (1, 4)])):
            with self.subTest(name):
                model.eval()
                path = self.file(f"{name}.safetensors")
                telegrad.torch.export(model, args, path, dynamic_shapes=dynamic)
                for given in (args, *others):
                    with torch.no_grad():
                        want = model(*given)
                    (got,) = self.run_file(path, given, 1)
                    torch.testing.assert_close(got, want[0] if isinstance(want, tuple) else want, rtol=1e-3, atol=1e-4)
        self.assertIn("(batch) is from 1 to 16", self.run_file(path, (torch.zeros(17, 3, 32, 32),), 0, code=2))
        self.assertIn("expected [2, 3, 32, 32]", self.run_file(path, (torch.zeros(2, 3, 32, 31),), 0, code=2))

    def test_a_size_without_a_bound(self):
        for dim in (torch.export.Dim("batch"), torch.export.Dim.DYNAMIC):
            with self.assertRaisesRegex(telegrad.torch.Unsupported, "no largest size; say it: torch.export.Dim"):
                telegrad.torch.export(torch.nn.Linear(4, 2), (torch.ones(3, 4),), self.file("m.safetensors"), dynamic_shapes=({0: dim},))

    def test_attention_as_one_operator(self):
        class Attention(torch.nn.Module):
            def forward(self, q, k, v):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

        args = tuple(torch.randn(2, 4, 6, 8) for _ in range(3))
        path = self.file("attention.safetensors")
        telegrad.torch.export(Attention(), args, path)
        (got,) = self.run_file(path, args, 1)
        torch.testing.assert_close(got, Attention()(*args), rtol=1e-4, atol=1e-5)

    def test_what_does_not_fit_is_refused(self):
        path = self.file("linear.safetensors")
        telegrad.torch.export(torch.nn.Linear(4, 2), (torch.ones(1, 4),), path)
        self.assertIn("the model has 1 inputs (input), 0 were given", self.run_file(path, (), 0, code=2))
        self.assertIn("expected f32 [1, 4]", self.run_file(path, (torch.ones(2, 4),), 0, code=2))

    def test_models_that_no_file_can_keep(self):
        for model, words in ((torch.nn.BatchNorm1d(4), "model.eval()"), (torch.nn.Dropout(0.5), "model.eval()")):
            with self.assertRaisesRegex(telegrad.torch.Unsupported, words):
                telegrad.torch.export(model.train(), (torch.ones(3, 4),), self.file("m.safetensors"))
        with self.assertRaisesRegex(telegrad.torch.Unsupported, "fft"):
            telegrad.torch.export(FFT(), (torch.ones(8),), self.file("m.safetensors"))
        self.assertEqual(os.listdir(os.path.dirname(self.file(""))), [])


class FFT(torch.nn.Module):
    def forward(self, x):
        return torch.fft.rfft(x).abs()


if __name__ == "__main__":
    unittest.main(verbosity=2)
