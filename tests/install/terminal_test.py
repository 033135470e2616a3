"""What people see at a terminal, played by a pseudo terminal: progress with a rate and the time left, and the loss drawn;
and nothing of either, nor any escape sequence, where output is a file."""

import os
import pty
import re
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

import support
from support import RESNET50, TELEGRAD, TELEGRADD, run

FLAGS = ["--", "--cpu-memory", "1073741824", "--compile-workers", "1"]


def at_terminal(*command, env, code=0):
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
    assert process.wait(timeout=60) == code, out.decode()
    return out.decode()


def field(number, value):
    """A field of a protobuf message: of bytes, or an integer."""
    def varint(n):
        out = b""
        while n > 127:
            out, n = out + bytes([n & 127 | 128]), n >> 7
        return out + bytes([n])

    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def model_of(rows):
    """An ONNX model, y = x + w, of which w is rows x 1024 floats and x one of them."""
    float32 = 1
    shape = lambda *dims: field(2, b"".join(field(1, field(1, d)) for d in dims))  # noqa: E731
    value = lambda name, *dims: field(1, name) + field(2, field(1, field(1, float32) + shape(*dims)))  # noqa: E731
    weight = field(1, rows) + field(1, 1024) + field(2, float32) + field(8, b"w") + field(9, bytes(rows * 4096))
    node = field(1, b"x") + field(1, b"w") + field(2, b"y") + field(4, b"Add")
    graph = (field(1, node) + field(2, b"g") + field(5, weight) + field(11, value(b"x", 1, 1)) +
             field(12, value(b"y", rows, 1024)))
    return field(1, 8) + field(7, graph) + field(8, field(2, 17))


class SlowNetwork:
    """Connections to a server that pass so many bytes a second each way, all together."""

    def __init__(self, target, rate):
        self.target, self.rate = target, rate
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.turn, self.due = threading.Lock(), time.monotonic()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            host, port = self.target.rsplit(":", 1)
            far = socket.create_connection((host, int(port)))
            for ends in ((near, far), (far, near)):
                threading.Thread(target=self.pump, args=ends, daemon=True).start()

    def pump(self, source, to):
        try:
            while data := source.recv(1 << 16):
                with self.turn:
                    self.due = max(self.due, time.monotonic()) + len(data) / self.rate
                    wait = self.due - time.monotonic()
                time.sleep(max(wait, 0))
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()

    def close(self):
        self.listener.close()


class TransferTest(unittest.TestCase):
    """What moves through a network of 8 MiB a second: 24 MiB of a model, and as much of its result."""

    ROWS = 6 << 10

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = os.path.join(cls.folder.name, "add.onnx")
        with open(cls.model, "wb") as file:
            file.write(model_of(cls.ROWS))
        cls.x = os.path.join(cls.folder.name, "x.npy")
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1), }".ljust(117) + b"\n"
        with open(cls.x, "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack("<f", 1))
        cls.daemon = subprocess.Popen(
            [TELEGRADD, "--listen", "127.0.0.1:0", "--log-level", "off", "--cpu-memory", str(1 << 30),
             "--compile-workers", "1", "--bulk-listen", "none"],
            stdout=subprocess.PIPE, text=True, env=support.CLEAN)
        cls.network = SlowNetwork(support.line(cls.daemon, "listening on "), 8 << 20)
        cls.env = {**support.CLEAN, "TERM": "xterm", "TELEGRAD_ADDRESS": cls.network.address}

    @classmethod
    def tearDownClass(cls):
        cls.network.close()
        cls.daemon.terminate()
        cls.daemon.wait()
        cls.daemon.stdout.close()
        cls.folder.cleanup()

    def amounts(self, text, what):
        """What was done by each redraw, of the line of that name."""
        line = what + r": (\d+) of 24 MiB, \d+%, [0-9.]+ MiB/s, \d+:\d\d left"
        return [int(done) for done in re.findall(line, text)]

    def test_a_model_is_sent_and_its_result_read(self):
        out = os.path.join(self.folder.name, "y.npy")
        seen = at_terminal(TELEGRAD, "run", self.model, "-i", self.x, "-o", out, env=self.env)
        for what in ("sending the model", "reading results"):
            done = self.amounts(seen, what)
            self.assertTrue(done, seen)
            self.assertEqual(done, sorted(done), "more and more has moved")
            self.assertLess(0, done[-1])
        self.assertEqual(os.path.getsize(out), 128 + self.ROWS * 4096)

    def test_a_file_that_the_server_imports(self):
        seen = at_terminal(TELEGRAD, "run", self.model, "-i", self.x, "--server-import", env=self.env)
        self.assertTrue(self.amounts(seen, "sending the model"), seen)

    def test_load_of_many_runs(self):
        seen = at_terminal(TELEGRAD, "bench", "--seconds", "3", env=self.env)
        self.assertRegex(seen, r"sending runs: \d+ answered, \d+ runs/s, 0:0\d left")

    def test_an_example_sends_its_weights_and_runs(self):
        small = ["--size", "32", "--width", "48", "--classes", "10"]
        # Until the runs have taken long enough to show progress, however fast this machine is.
        runs = 400
        while True:
            seen = at_terminal(RESNET50, *small, "--runs", str(runs), env=self.env)
            if "runs/s" in seen or runs > 100_000:
                break
            runs *= 4
        totals = re.findall(r"sending weights: \d+ of (\d+) MiB, \d+%, [0-9.]+ MiB/s, \d+:\d\d left", seen)
        self.assertTrue(totals, seen)
        self.assertIn(int(totals[-1]) - int(totals[0]), (0, 1), "all weights are counted from the beginning")
        self.assertRegex(seen, r"running: \d+ of \d+ runs, \d+%, [0-9.e+]+ runs/s, \d+:\d\d left")

    def test_nothing_of_it_where_there_is_no_terminal(self):
        for command in ([TELEGRAD, "run", self.model, "-i", self.x],
                        [RESNET50, "--size", "32", "--width", "48", "--classes", "10", "--runs", "2"]):
            result = subprocess.run(command, env=self.env, check=True, timeout=60, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True)
            self.assertNotIn("\033", result.stdout)
            self.assertNotIn("left", result.stdout)


class WaitingTest(unittest.TestCase):
    """A server that takes a connection and says nothing."""

    def test_the_time_is_shown(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            env = {**support.CLEAN, "TERM": "xterm"}
            address = "127.0.0.1:%d" % silent.getsockname()[1]
            for command in (["devices"], ["admin", "queues"], ["models", "load", "m"]):
                seen = at_terminal(TELEGRAD, *command, "--address", address, "--timeout", "3", env=env, code=3)
                self.assertRegex(seen, "connecting to " + address + ": 0:03")


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
