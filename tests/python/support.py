"""What the Python tests share: the package, the real daemon, and the reason to skip.

Each test file runs as a program of its own. It exits 77 where python3-grpcio or NumPy is missing, which CTest
shows as skipped.
"""

import asyncio
import contextlib
import functools
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGE = os.path.join(ROOT, "client", "python")
DAEMON = os.environ.get("TELEGRADD", os.path.join(ROOT, "build", "release", "server", "telegradd"))
SKIPPED = 77

sys.path.insert(0, PACKAGE)
os.environ["PYTHONPATH"] = PACKAGE  # of the programs that tests start
for name in [name for name in os.environ if name.startswith("TELEGRAD_") or name == "SSLKEYLOGFILE"]:
    del os.environ[name]  # the environment of whoever runs the tests means another server

try:
    import grpc  # noqa: F401
    import numpy  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}; install python3-grpcio and python3-numpy")
    sys.exit(SKIPPED)


def path(*parts):
    """A file of the repository."""
    return os.path.join(ROOT, *parts)


def seeded(test):
    """Random numbers of a seed that is printed; SEED in the environment repeats one."""
    seed = int(os.environ.get("SEED", random.randrange(1 << 32)))
    print(f"{test}: SEED={seed}", flush=True)
    return random.Random(seed)


def status_of(child):
    """How a fork ends in which `child` runs, for at most 20 seconds."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(20)
            child()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]


class Daemon:
    """telegradd on a free port. `address` is where it listens."""

    def __init__(self, *flags):
        self.process = subprocess.Popen(
            [DAEMON, "--listen", "127.0.0.1:0", "--log-level", "off", "--cpu-memory", str(1 << 30),
             *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        first = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(first,), daemon=True)
        self._reader.start()
        self.address = first.get(timeout=60)
        if self.address is None:
            raise RuntimeError("telegradd did not start:\n" + "".join(self.lines))

    def _read(self, first):
        """Keeps the pipe empty; the first address goes to whoever waits for it."""
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith("listening on "):
                first.put(line.removeprefix("listening on ").strip())
        first.put(None)

    def stop(self):
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()


class DaemonTest(unittest.TestCase):
    """A test with one daemon for all of its methods."""

    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(*cls.FLAGS)
        cls.addClassCleanup(cls.daemon.stop)


class ConnectedTest(DaemonTest):
    """The same with a connection, whose sessions end with a test."""

    @classmethod
    def setUpClass(cls):
        import telegrad

        super().setUpClass()
        cls.connection = telegrad.connect(cls.daemon.address)
        cls.addClassCleanup(cls.connection.close)

    def session(self, **options):
        session = self.connection.session(timeout=60, **options)
        self.addCleanup(session._abort)
        return session


def slow_graph(trips=3000, n=512):
    """Many seconds of products, in segments of milliseconds: who waits for its end waits too long."""
    from telegrad import Graph

    g = Graph()
    carried = g.op("arg", arg=(1, 0, n, n), dtype="f32")
    body = g.op("tuple", (carried @ carried) * 0.5)
    loop = g.op("loop", body, g.const(trips, "i64"), g.input("x", (n, n)))
    g.output("y", g.op("gettuple", loop, arg=(0,)))
    return g


def run_async(coroutine):
    """On the one event loop of the program: grpc.aio of Debian 12 does not get on with a second one."""
    global _loop
    _loop = _loop or asyncio.new_event_loop()
    return _loop.run_until_complete(coroutine)


_loop = None


class AsyncTestCase(unittest.TestCase):
    """Test methods that are coroutines, between `async_setup` and what that handed to `on_exit`."""

    def __init_subclass__(cls):
        for name, method in list(vars(cls).items()):
            if name.startswith("test_"):
                setattr(cls, name, functools.wraps(method)(
                    lambda self, method=method: run_async(self._around(method))))

    async def _around(self, method):
        async with contextlib.AsyncExitStack() as stack:
            self.on_exit = stack.push_async_callback
            await self.async_setup()
            await method(self)

    async def async_setup(self):
        """What every test begins with."""


class _Raised:
    error = None


@contextlib.contextmanager
def raises(test, code, *words):
    """TelegradError with that code, whose text has the words."""
    import telegrad

    caught = _Raised()
    with test.assertRaises(telegrad.TelegradError) as context:
        yield caught
    caught.error = context.exception
    test.assertEqual(context.exception.code, code, str(context.exception))
    for word in words:
        test.assertIn(word, str(context.exception))


def main():
    """Where a test hangs, says where, just before CTest ends it."""
    import faulthandler

    faulthandler.dump_traceback_later(280, exit=True)
    unittest.main(verbosity=2)
