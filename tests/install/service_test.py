"""The daemon under a service manager, played by this test: it is told when the daemon is ready, reloads, lives
and ends, and the sockets that it opened are served."""

import os
import signal
import socket
import subprocess
import tempfile
import unittest

import support
from support import TELEGRAD, TELEGRADD, run

FLAGS = ["--cpu-memory", "1073741824", "--log-level", "off", "--compile-workers", "1"]


class Manager:
    """A daemon with these listening sockets, and the datagrams that it sends."""

    def __init__(self, sockets=(), names="", watchdog=None, flags=()):
        self.folder = tempfile.TemporaryDirectory()
        self.told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.told.bind(os.path.join(self.folder.name, "notify"))
        self.told.settimeout(60)
        env = {**support.CLEAN, "NOTIFY_SOCKET": self.told.getsockname()}
        if sockets:
            env.update(LISTEN_FDS=str(len(sockets)), LISTEN_FDNAMES=names)
        if watchdog is not None:
            env["WATCHDOG_USEC"] = str(watchdog)
        # The sockets become the descriptors 3, 4, ... of a shell that becomes the daemon.
        moves = "".join(f" {20 + i}<&{s.fileno()}" for i, s in enumerate(sockets))
        places = "".join(f" {3 + i}<&{20 + i} {20 + i}<&-" for i, _ in enumerate(sockets))
        script = f'exec{moves}; exec{places}; LISTEN_PID=$$ exec "$@"' if sockets else 'exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "telegradd", TELEGRADD, *FLAGS, *flags], env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", pass_fds=[s.fileno() for s in sockets])

    def next(self):
        return self.told.recv(4096).decode()

    def next_but(self, ignored):
        while (text := self.next()) == ignored:
            pass
        return text

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=60)
        self.told.close()
        self.folder.cleanup()
        return out, err


class ServiceTest(unittest.TestCase):
    def test_ready_reload_stopping(self):
        manager = Manager(flags=["--listen", "127.0.0.1:0"])
        self.assertEqual(manager.next(), "READY=1")
        manager.process.send_signal(signal.SIGHUP)
        self.assertRegex(manager.next(), r"^RELOADING=1\nMONOTONIC_USEC=\d+$")
        self.assertEqual(manager.next(), "READY=1")
        address = support.line(manager.process, "listening on ")
        self.assertIn("CPU:0", run(TELEGRAD, "devices", "--address", address))
        manager.process.send_signal(signal.SIGTERM)
        self.assertEqual(manager.next(), "STOPPING=1")
        manager.end()
        self.assertEqual(manager.process.returncode, 0)

    def test_watchdog_hears_again_and_again(self):
        manager = Manager(watchdog=20000, flags=["--listen", "127.0.0.1:0"])
        self.assertEqual(manager.next(), "READY=1")
        for _ in range(3):
            self.assertEqual(manager.next(), "WATCHDOG=1")
        manager.process.send_signal(signal.SIGTERM)
        self.assertEqual(manager.next_but("WATCHDOG=1"), "STOPPING=1")
        manager.end()
        self.assertEqual(manager.process.returncode, 0)

    def test_passed_sockets_are_served(self):
        tcp = socket.create_server(("127.0.0.1", 0))
        folder = tempfile.TemporaryDirectory()
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = os.path.join(folder.name, "telegradd.sock")
        unix.bind(path)
        unix.listen()
        manager = Manager([tcp, unix], "tcp:unix", flags=["--listen", "systemd"])
        self.assertEqual(manager.next(), "READY=1")
        tcp_address = f"127.0.0.1:{tcp.getsockname()[1]}"
        self.assertEqual(support.line(manager.process, "listening on "), tcp_address)
        self.assertEqual(support.line(manager.process, "listening on "), f"unix:{path}")
        for address in (tcp_address, f"unix:{path}"):
            self.assertIn("CPU:0", run(TELEGRAD, "devices", "--address", address))
        manager.end()
        self.assertEqual(manager.process.returncode, 0)
        self.assertTrue(os.path.exists(path), "the socket belongs to the service manager")
        for s in (tcp, unix):
            s.close()
        folder.cleanup()

    def test_sockets_by_name(self):
        first, second = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
        manager = Manager([first, second], "a:b", flags=["--listen", "systemd:b"])
        self.assertEqual(manager.next(), "READY=1")
        self.assertEqual(support.line(manager.process, "listening on "), f"127.0.0.1:{second.getsockname()[1]}")
        manager.end()
        first.close()
        second.close()

    def test_what_is_refused(self):
        closed = socket.socket()
        closed.bind(("127.0.0.1", 0))
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        everywhere = socket.create_server(("0.0.0.0", 0))
        for passed, flags, expected in [
                ([closed], ["systemd"], "does not listen"),
                ([datagrams], ["systemd"], "is not of the type SOCK_STREAM"),
                ([everywhere], ["systemd"], "other machines reach this address"),
                ([], ["systemd"], "start it through its socket unit"),
                ([everywhere], ["systemd:other"], "start it through its socket unit")]:
            manager = Manager(passed, "x", flags=["--listen", *flags])
            _, err = manager.process.communicate(timeout=60)
            self.assertEqual(manager.process.returncode, 2, err)
            self.assertIn(expected, err)
            manager.end()
        for s in (closed, datagrams, everywhere):
            s.close()


if __name__ == "__main__":
    unittest.main()
