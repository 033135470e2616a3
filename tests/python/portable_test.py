"""The package where POSIX is missing, as on Windows and macOS: programs run with those parts of Python hidden.

No such system runs these tests, so what Python lacks there is taken away: modules that cannot be imported, and
functions of os, socket and select that do not exist.
"""

import subprocess
import sys
import textwrap
import unittest

from support import DaemonTest, main, path

# What CPython lacks on each system, by its documentation ("Availability").
MODULES = {
    "win32": ["fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "syslog", "readline", "curses", "_posixshmem", "posix"],
    "darwin": ["spwd", "_curses_panel"]}
NAMES = {
    "win32": {"os": ["fork", "geteuid", "getuid", "memfd_create", "posix_fallocate", "pread", "pwrite", "sendfile", "sched_getaffinity",
                     "MFD_CLOEXEC", "MFD_ALLOW_SEALING", "O_CLOEXEC", "O_NOFOLLOW", "eventfd", "chown", "fchmod"],
              "socket": ["AF_UNIX", "SOCK_SEQPACKET", "SOCK_CLOEXEC", "send_fds", "recv_fds", "MSG_WAITALL", "MSG_DONTWAIT", "MSG_NOSIGNAL", "SO_REUSEPORT"],
              "select": ["poll", "epoll"], "signal": ["SIGALRM", "setitimer", "SIGKILL", "pthread_sigmask"]},
    "darwin": {"os": ["memfd_create", "posix_fallocate", "MFD_CLOEXEC", "MFD_ALLOW_SEALING", "sched_getaffinity", "eventfd"],
               "socket": ["SOCK_SEQPACKET", "SOCK_CLOEXEC"], "select": ["epoll"]}}

HIDE = """
    import importlib.abc, os, select, signal, socket, sys
    import asyncio, concurrent.futures, subprocess, tempfile, threading  # of the real system
    import grpc, grpc.aio, numpy as np

    class Hidden(importlib.abc.MetaPathFinder):
        asked = []

        def find_spec(self, name, path=None, target=None):
            if name in MODULES:
                if sys._getframe(2).f_globals.get("__name__", "").startswith(("telegrad", "_telegrad")):
                    self.asked.append(name)
                raise ImportError(f"{name} is not there on {SYSTEM}")
            return None

    sys.meta_path.insert(0, Hidden())
    for name in MODULES:
        sys.modules.pop(name, None)
    for module, names in NAMES.items():
        for name in names:
            for holder in {sys.modules[module], sys.modules.get("_" + module, sys.modules[module])}:
                if hasattr(holder, name):
                    delattr(holder, name)
    sys.platform = SYSTEM
    if SYSTEM == "win32":
        os.name = "nt"

        def missing(self):
            raise AttributeError("sendmsg is not there on win32")

        socket.socket.sendmsg = property(missing)

        def pair():  # as Python makes it where the system has none
            with socket.create_server(("127.0.0.1", 0)) as listener:
                one = socket.create_connection(listener.getsockname())
                return one, listener.accept()[0]

        socket.socketpair = pair
"""

USE = """
    import telegrad
    from telegrad import aio
    array = np.arange(3 << 20, dtype=np.int32)  # beside the stream
    with telegrad.connect(ADDRESS) as connection, connection.session(timeout=60) as session:
        with telegrad.progress(session, "moving"):
            assert (session.upload(array).numpy() == array).all()
        assert all(session._bulk._works.values())
        g = telegrad.Graph()
        g.output("y", g.input("x", (3,)) * 2)
        assert session.put(g)(x=[1, 2, 3])["y"].tolist() == [2, 4, 6]
        try:
            telegrad.SharedArray((4,))
            raise SystemExit("shared memory without memfd_create")
        except telegrad.TelegradError as error:
            assert error.code == telegrad.Code.UNIMPLEMENTED, error
    with telegrad.connect(ADDRESS) as connection, connection.session(resumable=True, timeout=60) as session:
        assert session.upload([1, 2]).numpy().tolist() == [1, 2]

    async def ask():
        async with await aio.connect(ADDRESS) as connection, connection.session(timeout=60) as session:
            return (await (await session.upload([1, 2])).numpy()).tolist()

    assert asyncio.new_event_loop().run_until_complete(ask()) == [1, 2]
    try:
        telegrad.token_from_local_socket("/nowhere")()
        raise SystemExit("a local socket without unix sockets")
    except telegrad.TelegradError as error:
        assert error.code in (telegrad.Code.UNIMPLEMENTED, telegrad.Code.UNAVAILABLE), error
    print("works", Hidden.asked)
"""


class PortableTest(DaemonTest):
    def run_as(self, system, program, **environment):
        lines = [f"SYSTEM, ADDRESS = {system!r}, {self.daemon.address!r}", f"MODULES, NAMES = {MODULES[system]!r}, {NAMES[system]!r}",
                 textwrap.dedent(HIDE), textwrap.dedent(program)]
        return subprocess.run([sys.executable, "-B", "-c", "\n".join(lines)], text=True, timeout=120,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_everything_that_needs_no_posix_works(self):
        for system in MODULES:
            with self.subTest(system):
                ran = self.run_as(system, USE)
                self.assertEqual(ran.returncode, 0, ran.stdout)
                self.assertTrue(ran.stdout.startswith("works"), ran.stdout)

    def test_the_command(self):
        program = """
            import runpy
            sys.argv = ["telegrad", "--address", ADDRESS, "devices"]
            runpy.run_module("telegrad", run_name="__main__")
        """
        for system in MODULES:
            with self.subTest(system):
                ran = self.run_as(system, program)
                self.assertIn("CPU:0", ran.stdout)

    def test_this_machines_daemon_is_not_looked_for_by_unix_sockets(self):
        program = """
            from telegrad import _local, _transport
            print(_local.find_daemon(), _transport.address_of(None))
        """
        ran = self.run_as("win32", program)
        self.assertEqual(ran.stdout, "None 127.0.0.1:50055\n", ran.stdout)

    def test_what_is_hidden_was_there(self):
        """Otherwise the tests above hide nothing."""
        program = "from telegrad._shared import fcntl"
        ran = self.run_as("win32", program)
        self.assertIn("cannot import name 'fcntl'", ran.stdout)
        plain = subprocess.run([sys.executable, "-B", "-c", program], text=True, capture_output=True, check=False)
        self.assertEqual(plain.returncode, 0, plain.stderr)


if __name__ == "__main__":
    main()
