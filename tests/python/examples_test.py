"""The examples and the command, as programs, against the real daemon."""

import re
import subprocess
import sys

from support import DaemonTest, main, path


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

    def command(self, *args):
        return subprocess.run([sys.executable, "-B", "-m", "telegrad", *args], text=True, timeout=120,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_the_command_asks_the_server(self):
        devices = self.command("--address", self.daemon.address, "devices")
        self.assertEqual((devices.returncode, devices.stdout[:6]), (0, "CPU:0 "))
        stats = self.command("--address", self.daemon.address, "stats")
        self.assertRegex(stats.stdout, "(?m)^telegrad_devices 1$")
        nobody = self.command("--address", "127.0.0.1:1", "devices")
        self.assertEqual(nobody.returncode, 3)
        self.assertIn("127.0.0.1:1", nobody.stdout)
        wrong = self.command("--address", self.daemon.address, "run", "model.onnx", "--dim", "n")
        self.assertEqual((wrong.returncode, wrong.stdout), (1, "telegrad: 'n': expected NAME=VALUE\n"))


if __name__ == "__main__":
    main()
