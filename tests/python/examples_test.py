"""The examples, as programs, against the real daemon."""

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


if __name__ == "__main__":
    main()
