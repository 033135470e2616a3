"""What people see at a terminal, played by a pseudo terminal: progress with a rate and the time left, and the loss drawn;
and nothing of either, nor any escape sequence, where output is a file."""

import os
import pty
import tempfile
import subprocess
import unittest

import support
from support import TELEGRAD, run

FLAGS = ["--", "--cpu-memory", "1073741824", "--compile-workers", "1"]


def at_terminal(*command, env):
    """Everything that the command writes to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, close_fds=True)
    os.close(theirs)
    out = b""
    try:
        while chunk := os.read(ours, 65536):
            out += chunk
    except OSError:  # how Linux says that nobody has the terminal open any more
        pass
    os.close(ours)
    assert process.wait(timeout=60) == 0, out.decode()
    return out.decode()


class TerminalTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.env = {**support.CLEAN, "XDG_RUNTIME_DIR": self.folder.name, "TERM": "xterm"}
        run(TELEGRAD, "up", *FLAGS, env=self.env)

    def tearDown(self):
        run(TELEGRAD, "down", env=self.env)
        self.folder.cleanup()

    def test_progress_and_plot_on_terminals_only(self):
        # Until it has taken long enough to show progress, however fast this machine is.
        epochs = 60
        while True:
            seen = at_terminal(TELEGRAD, "train", "digits", "--batch", "8", "--epochs", str(epochs), env=self.env)
            if "left" in seen or epochs > 8000:
                break
            epochs *= 4
        self.assertRegex(seen, r"epoch \d+/\d+: \d+ of \d+ steps, \d+%, [0-9.e+]+ steps/s, \d+:\d\d left")
        self.assertIn("┤█", seen)
        plain = run(TELEGRAD, "train", "digits", "--epochs", "1", env=self.env)
        self.assertNotIn("\033", plain)
        self.assertNotIn("┤", plain)
        dumb = at_terminal(TELEGRAD, "train", "digits", "--epochs", "1", env={**self.env, "NO_COLOR": "1"})
        self.assertNotIn("\033", dumb)


if __name__ == "__main__":
    unittest.main()
