"""Runs that ask the server to search for faster kernels: what they cause, and what a server says that does not search."""

import time
import unittest

import support
from telegrad import _operations as operations

import numpy as np
import telegrad
from telegrad.errors import Code


def product():
    g = telegrad.Graph()
    g.output("y", g.input("a", (64, 64)) @ g.input("b", (64, 64)))
    return g


class SearchTest(unittest.TestCase):
    def connect(self, *flags):
        daemon = support.Daemon(*flags)
        self.addCleanup(daemon.stop)
        connection = telegrad.connect(daemon.address)
        self.addCleanup(connection.close)
        return connection, connection.session()

    def test_a_server_that_does_not_search_says_so(self):
        connection, session = self.connect()
        program = session.put(product())
        values = {"a": np.ones((64, 64)), "b": np.ones((64, 64))}
        self.assertFalse(connection.server.searches)
        with support.raises(self, Code.FAILED_PRECONDITION, "does not search", "--search-seconds"):
            program.run(values, search=True)
        # A client that asks all the same is told by the server, and its session goes on.
        run = operations.run(program.hash, program.handles(), {}, (), None, search=True)
        with support.raises(self, Code.FAILED_PRECONDITION, "does not search", "--search-seconds"):
            session._wait(session._asked(run), 60)
        np.testing.assert_array_equal(program(values)["y"], np.full((64, 64), 64))

    def test_a_kernel_is_searched_for_because_a_run_asks(self):
        # The threshold of a kernel that nobody asks for is days of device time.
        connection, session = self.connect("--search-seconds", "1", "--search-threshold", str(1 << 30))
        self.assertTrue(connection.server.searches)
        program = session.put(product())
        values = {"a": np.ones((64, 64)), "b": np.ones((64, 64))}
        program.run(values)
        program.run(values, search=True)
        end = time.monotonic() + 120
        while connection.stats()["telegrad_searches_total"] < 1:
            self.assertLess(time.monotonic(), end, "no search has ended")
            np.testing.assert_array_equal(program(values)["y"], np.full((64, 64), 64))
        self.assertGreater(connection.stats()["telegrad_search_programs_total"], 0)


if __name__ == "__main__":
    support.main()
