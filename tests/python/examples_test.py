"""The examples and the command, as programs, against the real daemon."""

import os
import re
import subprocess
import sys
import textwrap

import numpy as np
from support import DaemonTest, main, path, run_async

import telegrad


class ExamplesTest(DaemonTest):
    def run_example(self, name, *args):
        return subprocess.run(
            [sys.executable, "-B", path("client", "python", "examples", name), *args],
            stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout

    def test_linear_fit_finds_the_line(self):
        out = self.run_example("linear_fit.py", self.daemon.address)
        a, b = map(float, re.search(r"y = (\S+) x \+ (\S+)", out).groups())
        self.assertAlmostEqual(a, 3, delta=0.05)
        self.assertAlmostEqual(b, -2, delta=0.05)

    def test_the_guide_does_what_it_says(self):
        with open(path("docs", "python.md"), encoding="utf-8") as file:
            blocks = re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)
        first, pipelined, gathered = blocks
        os.environ["TELEGRAD_ADDRESS"] = self.daemon.address
        self.addCleanup(os.environ.pop, "TELEGRAD_ADDRESS")
        with telegrad.connect(self.daemon.address) as connection:
            session = connection.session(timeout=60)
            names = {"session": session, "batches": [np.full(4, i) for i in range(3)]}
            exec(first, names)
            names["session"] = session  # the one of the first program has ended
            names["program"] = session.put(names["g"])
            exec(pipelined, names)
            self.assertEqual([r.tolist() for r in names["results"]],
                             [[1] * 4, [2] * 4, [np.float32(0.9) * 2 + 1] * 4])
        exec("import asyncio\nasync def main():\n" + textwrap.indent(gathered, "  ")
             + "  globals()['outputs'] = outputs", names)
        run_async(names["main"]())
        self.assertEqual(len(names["outputs"]), 3)

    def command(self, *args):
        return subprocess.run([sys.executable, "-B", "-m", "telegrad", *args], text=True, timeout=120,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_the_command_asks_the_server(self):
        devices = self.command("--address", self.daemon.address, "devices")
        self.assertEqual((devices.returncode, devices.stdout[:6]), (0, "CPU:0 "))
        stats = self.command("--address", self.daemon.address, "stats")
        self.assertRegex(stats.stdout, "(?m)^telegrad_devices 1$")
        bench = self.command("--address", self.daemon.address, "bench", "--size", "16", "--megabytes", "1")
        self.assertEqual(bench.returncode, 0, bench.stdout)
        self.assertEqual(re.findall(r"(?m)^(.*?)  +[\d.]+ \S", bench.stdout), [
            "round trip", "upload", "download", "compilation", "the product", "a launch"])
        nobody = self.command("--address", "127.0.0.1:1", "devices")
        self.assertEqual(nobody.returncode, 3)
        self.assertIn("127.0.0.1:1", nobody.stdout)
        wrong = self.command("--address", self.daemon.address, "run", "model.onnx", "--dim", "n")
        self.assertEqual((wrong.returncode, wrong.stdout), (1, "telegrad: 'n': expected NAME=VALUE\n"))
        # Before it connects: no server answers here.
        absent = self.command("--address", "127.0.0.1:1", "run", "model.onnx", "--output", "y=absent/y.npy")
        self.assertEqual((absent.returncode, absent.stdout), (
            1, "telegrad: cannot write absent/y.npy: there is no folder absent; make it, or name another file\n"))


if __name__ == "__main__":
    main()
