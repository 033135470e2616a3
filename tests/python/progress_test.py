"""Progress of transfers: what has moved, and the line about it on terminals alone."""

import io
import os
import unittest
import unittest.mock

from support import DaemonTest, main

import numpy as np

import telegrad
from telegrad import Amount, _bulk as bulk, _progress as progress

MIB = 1 << 20


class Terminal(io.StringIO):
    def isatty(self):
        return True


class LineTest(unittest.TestCase):
    def test_rate_and_time_left(self):
        before = Amount(3 * MIB, 3 * MIB)
        for now, seconds, want in (
                (Amount(23 * MIB, 83 * MIB), 4, "sending: 20 of 80 MiB, 25%, 5 MiB/s, 0:12 left"),
                (Amount(4 * MIB, 7203 * MIB), 1, "sending: 1 of 7200 MiB, 0%, 1 MiB/s, 1:59:59 left"),
                (Amount(3 * MIB, 83 * MIB), 4, "sending: 0 of 80 MiB, 0%"),
                (Amount(83 * MIB, 83 * MIB), 61.2, "sending: 1:02"),
                (before, 3, "sending: 0:03")):
            self.assertEqual(progress.line("sending", before, now, seconds), want)


class ProgressTest(DaemonTest):
    def setUp(self):
        self.connection = telegrad.connect(self.daemon.address)
        self.addCleanup(self.connection.close)
        self.session = self.connection.session(timeout=60)

    def test_every_byte_is_counted_once(self):
        total = 0
        for nbytes in (1000, 5 * MIB, 20 * MIB):
            buffer = self.session.upload(np.zeros(nbytes, np.uint8))
            buffer.numpy()
            total += 2 * nbytes
            self.assertEqual(self.session.transferred, (total, total))

    def test_what_moves_again_is_not_counted_twice(self):
        self.session.upload(np.zeros(5 * MIB, np.uint8)).numpy()
        send, calls = bulk.BulkSocket.send, [0]

        def breaks_once(socket, *args):
            calls[0] += 1
            if calls[0] == 3:
                socket.shutdown()
                raise bulk.Broken("so says the test")
            return send(socket, *args)

        with unittest.mock.patch.object(bulk.BulkSocket, "send", breaks_once):
            self.session.upload(np.zeros(7 * MIB, np.uint8))
            self.session.sync()
        self.assertEqual(self.session.transferred, (17 * MIB, 17 * MIB))

    def draw(self, file, **environment):
        with unittest.mock.patch.dict(os.environ, {"TERM": "xterm", "NO_COLOR": "", **environment}), \
                unittest.mock.patch.object(progress, "QUIET_SECONDS", 0.0), \
                unittest.mock.patch.object(progress, "REDRAW_SECONDS", 0.0):
            with telegrad.progress(self.session, "sending", file):
                while isinstance(file, Terminal) and not environment and "sending" not in file.getvalue():
                    self.session.sync()
        return file.getvalue()

    def test_kernels_while_nothing_moves(self):
        counts = [progress.Kernels(0, 0), progress.Kernels(3, 12)]
        with unittest.mock.patch.object(telegrad.Session, "compiling", property(lambda _: counts[-1])), \
                unittest.mock.patch.object(telegrad.Session, "transferred", Amount(5, 5)):
            self.assertIn("sending: 3 of 12 kernels, 25%, ", self.draw(Terminal()))
            counts.append(progress.Kernels(12, 12))
            self.assertNotIn("kernels", self.draw(Terminal()))

    def test_the_server_counts_the_kernels(self):
        self.assertEqual(self.session.compiling, (0, 0))
        graph = telegrad.Graph()
        graph.output("y", (graph.input("x", (7,)) * 3 + 1).sum())
        self.session.put(graph)(x=np.arange(7))
        done, total = self.session.compiling
        self.assertEqual(done, total)
        self.assertGreaterEqual(total, 1)

    def test_on_terminals_alone(self):
        seen = self.draw(Terminal())
        self.assertIn("\r\033[Ksending: 0:0", seen)
        self.assertTrue(seen.endswith("\r\033[K"), "the line is gone at the end")
        self.assertEqual(self.draw(io.StringIO()), "")
        self.assertEqual(self.draw(Terminal(), NO_COLOR="1"), "")
        self.assertEqual(self.draw(Terminal(), TERM="dumb"), "")


if __name__ == "__main__":
    main()
