"""Who the caller is: TLS, client certificates, tokens and the local socket, against the real daemon."""

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import numpy as np
from support import Daemon, main, path, raises, run_async

import telegrad
from telegrad import TLS, Code, _bulk as bulk, aio, credentials


class Keys:
    """What deploy/make-keys.sh makes, and tokens of deploy/make-token.sh."""

    def __init__(self):
        self.folder = tempfile.mkdtemp()
        subprocess.run([path("deploy", "make-keys.sh"), self.folder, "--tenant", "blue", "--tenant",
                        "ops/admin"], stdout=subprocess.DEVNULL, check=True)

    def __call__(self, name):
        return os.path.join(self.folder, name)

    def token(self, tenant, *flags):
        return subprocess.run(
            [path("deploy", "make-token.sh"), "--key", self("token.key"), "--tenant", tenant, *flags],
            stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


class IdentityTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.keys = Keys()
        cls.addClassCleanup(shutil.rmtree, cls.keys.folder)
        server = ("--tls-cert", cls.keys("server.pem"), "--tls-key", cls.keys("server.key"))
        cls.tokens = Daemon(*server, "--jwt-keys", cls.keys("jwt"))
        cls.addClassCleanup(cls.tokens.stop)
        cls.certificates = Daemon(*server, "--tls-client-ca", cls.keys("ca.pem"))
        cls.addClassCleanup(cls.certificates.stop)
        cls.tls = TLS(ca=cls.keys("ca.pem"))

    def certificate(self, name):
        return TLS(ca=self.keys("ca.pem"), cert=self.keys(f"client-{name}.pem"),
                   key=self.keys(f"client-{name}.key"))

    def work(self, connection):
        """A connection by which work is done."""
        with connection.session(timeout=60) as session:
            np.testing.assert_array_equal(session.upload([1, 2]).numpy(), [1, 2])

    def test_tokens(self):
        token = self.keys.token("green")
        with telegrad.connect(self.tokens.address, tls=self.tls, token=token) as connection:
            self.assertEqual(connection.server.tenant, "green")
            self.work(connection)
            self.assertNotIn("telegrad_devices", connection.stats())  # of its tenant alone
        for wrong in (None, token[:-3] + "AAA", "word"):
            with self.subTest(wrong), raises(self, Code.UNAUTHENTICATED):
                telegrad.connect(self.tokens.address, tls=self.tls, token=wrong)

    def test_large_arrays_travel_beside_the_stream_under_tls(self):
        """The server is recognized by the certificate that came with the ticket, on either daemon."""
        array = np.random.default_rng(3).integers(0, 256, bulk.SPLIT_BYTES + 12345, dtype=np.uint8)
        for address, options in ((self.tokens.address, {"tls": self.tls, "token": self.keys.token("ops", "--admin")}),
                                 (self.certificates.address, {"tls": self.certificate("ops")})):
            with telegrad.connect(address, **options) as connection, connection.session(timeout=60) as session:
                def admitted():
                    return connection.stats().get("telegrad_bulk_sockets_admitted_total", 0)
                before = admitted()
                np.testing.assert_array_equal(session.upload(array).numpy(), array)
                self.assertEqual(session._bulk._upload._socket._socket.version(), "TLSv1.3")
                self.assertEqual(admitted() - before, 3)

    def test_another_certificate_or_none_is_not_talked_to(self):
        """The bytes then take the stream, and none of them a socket."""
        array = np.ones(bulk.LEAST_BYTES, np.uint8)
        admit = telegrad.Connection._call
        for changes in ({"certificate_sha256": bytes(32)}, {"certificate_sha256": b""}, {"tls": False, "certificate_sha256": b""}):
            def call(connection, name, request, timeout, changes=changes):
                answer = admit(connection, name, request, timeout)
                return dataclasses.replace(answer, **changes) if name == "AdmitBulk" else answer

            with telegrad.connect(self.tokens.address, tls=self.tls, token=self.keys.token("green")) as connection, \
                    connection.session(timeout=60) as session, unittest.mock.patch.object(telegrad.Connection, "_call", call):
                np.testing.assert_array_equal(session.upload(array).numpy(), array)
                self.assertFalse(any(session._bulk._works.values()), changes)

    def test_a_token_in_a_file_may_be_replaced(self):
        file = self.keys("token")
        for tenant in ("red", "green"):
            with open(file, "w", encoding="ascii") as out:
                out.write(self.keys.token(tenant) + "\n")
            if tenant == "red":
                connection = telegrad.connect(self.tokens.address, tls=self.tls,
                                              token=telegrad.token_from_file(file))
                self.addCleanup(connection.close)
            self.work(connection)
            with telegrad.connect(self.tokens.address, tls=self.tls,
                                  token=telegrad.token_from_file(file)) as again:
                self.assertEqual(again.server.tenant, tenant)
        os.remove(file)
        with raises(self, Code.INVALID_ARGUMENT, file):
            connection.devices()
        session = connection.session(timeout=60)
        with raises(self, Code.INVALID_ARGUMENT, file):
            session.sync()

    def test_certificates(self):
        with telegrad.connect(self.certificates.address, tls=self.certificate("blue")) as connection:
            self.assertEqual(connection.server.tenant, "blue")
            self.work(connection)
        with telegrad.connect(self.certificates.address, tls=self.certificate("ops")) as connection:
            self.assertIn("telegrad_devices", connection.stats())
        with raises(self, Code.UNAVAILABLE, "tls"):
            telegrad.connect(self.certificates.address, tls=self.tls)

    def test_a_server_that_is_not_the_one(self):
        with raises(self, Code.UNAVAILABLE):
            telegrad.connect(self.tokens.address, tls=TLS())  # the system trusts it not
        with raises(self, Code.UNAVAILABLE):
            telegrad.connect(self.tokens.address, tls=TLS(ca=self.keys("ca.pem"), server_name="other"))
        with raises(self, Code.UNAVAILABLE, "tls"):
            telegrad.connect(self.tokens.address)

    def test_with_asyncio(self):
        async def run():
            token = self.keys.token("green")
            async with (await aio.connect(self.tokens.address, tls=self.tls, token=token) as connection,
                        connection.session(resumable=True, timeout=60) as session):
                self.assertEqual(connection.server.tenant, "green")
                buffer = await session.upload([1, 2])
                np.testing.assert_array_equal(await buffer.numpy(), [1, 2])
            with raises(self, Code.UNAUTHENTICATED):
                await aio.connect(self.tokens.address, tls=self.tls)

        run_async(run())

    def test_from_the_environment(self):
        environment = {"TELEGRAD_ADDRESS": self.tokens.address, "TELEGRAD_TLS_CA": self.keys("ca.pem"),
                       "TELEGRAD_TOKEN": self.keys.token("green")}
        out = subprocess.run([sys.executable, "-B", "-m", "telegrad", "devices"], check=True, text=True,
                             stdout=subprocess.PIPE, env={**os.environ, **environment}).stdout
        self.assertIn("CPU:0", out)
        environment["TELEGRAD_TOKEN_FILE"] = "token"
        with raises(self, Code.INVALID_ARGUMENT, "TELEGRAD_TOKEN, TELEGRAD_TOKEN_FILE"):
            credentials.from_environment(None, None, environment)

    def test_a_token_does_not_travel_in_the_clear(self):
        for address in ("example.com:1", "10.0.0.1:1", "[2001:db8::1]:1", "127.example.com:1",
                        "localhost.example.com:1"):
            with self.subTest(address), raises(self, Code.INVALID_ARGUMENT, "in the clear"):
                telegrad.connect(address, token="secret", timeout=1)
        for token in ("two words", "line\nbreak", "", "größer"):
            with self.subTest(token), raises(self, Code.INVALID_ARGUMENT, "one word"):
                telegrad.connect(self.tokens.address, tls=self.tls, token=token)

    def test_files_that_are_not_there(self):
        with raises(self, Code.INVALID_ARGUMENT, "absent.pem"):
            telegrad.connect(self.tokens.address, tls=TLS(ca="absent.pem"))
        with raises(self, Code.INVALID_ARGUMENT, "needs its key"):
            telegrad.connect(self.tokens.address, tls=TLS(cert=self.keys("client-blue.pem")))


class LaptopTest(unittest.TestCase):
    """The guide's commands for a server elsewhere, as they stand there but for the name and the ports."""

    def test_the_guide_from_a_laptop(self):
        with open(path("docs", "python.md"), encoding="utf-8") as file:
            text = file.read()
        (first, *_) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        section = text.split("## From a laptop", 1)[1].split("\n## ", 1)[0]
        server, laptop = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        os.symlink(path("deploy"), os.path.join(folder, "deploy"))
        keys, daemon = re.sub(r"gpu\.example\.org", "localhost", server).split("telegradd ", 1)
        subprocess.run(["bash", "-euc", keys], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        flags = [os.path.join(folder, word) if word.startswith("keys/") else re.sub(r"^0\.0\.0\.0:\d+$", "127.0.0.1:0", word)
                 for word in daemon.replace("\\\n", " ").split()]
        started = Daemon(*flags)
        self.addCleanup(started.stop)
        with open(os.path.join(folder, "program.py"), "w", encoding="utf-8") as file:
            file.write(first)
        port = started.address.rpartition(":")[2]
        commands = laptop.replace("gpu.example.org:50055", f"localhost:{port}").replace("python3", f"{sys.executable} -B")
        ran = subprocess.run(["bash", "-euc", commands], cwd=folder, text=True, capture_output=True, check=False)
        self.assertEqual(ran.stdout, "[1. 2. 3. 4.]\n[1.  0.9 0.8 0.7]\n", ran.stderr)


class LocalSocketTest(unittest.TestCase):
    def test_the_local_socket_gives_a_token(self):
        with tempfile.TemporaryDirectory() as folder:
            socket = os.path.join(folder, "local")
            daemon = Daemon("--local-socket", socket, "--local-users", f"{os.geteuid()}=green")
            self.addCleanup(daemon.stop)
            source = telegrad.token_from_local_socket(socket)
            self.assertEqual(source(), source())  # asked for once
            with telegrad.connect(daemon.address, token=source) as connection:
                self.assertEqual(connection.server.tenant, "green")
                self.assertIn("telegrad_devices", connection.stats())  # the daemon's own user
            with raises(self, Code.UNAUTHENTICATED):
                telegrad.connect(daemon.address)
            with raises(self, Code.UNAVAILABLE, "absent"):
                telegrad.token_from_local_socket(os.path.join(folder, "absent"))()


if __name__ == "__main__":
    main()
