"""`telegrad up` starts a daemon that every command then finds without an address, and `telegrad down` stops it."""

import os
import pathlib
import tempfile
import unittest

import support
from support import TELEGRAD, TELEGRADD, run

FLAGS = ["--", "--cpu-memory", "1073741824", "--compile-workers", "1"]


class UpTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.env = {**support.CLEAN, "XDG_RUNTIME_DIR": self.folder.name}
        self.socket = pathlib.Path(self.folder.name, "telegrad", "telegradd.sock")

    def tearDown(self):
        if self.socket.exists():
            run(TELEGRAD, "down", env=self.env)
        self.folder.cleanup()

    def test_up_found_and_down(self):
        self.assertIn('"telegrad up" starts one', run(TELEGRAD, "devices", env=self.env, code=3))
        first = run(TELEGRAD, "up", *FLAGS, env=self.env)
        self.assertRegex(first, r"^telegradd \(process \d+\) listens on unix:")
        again = run(TELEGRAD, "up", *FLAGS, env=self.env)
        process = first.split("process ")[1].split(")")[0]
        self.assertEqual(again, f"telegradd (process {process}) already listens on unix:{self.socket}\n")
        self.assertIn("CPU:0", run(TELEGRAD, "devices", env=self.env))
        self.assertEqual(os.stat(self.socket.parent).st_mode & 0o777, 0o700)
        # What is said goes before what is found.
        nowhere = {**self.env, "TELEGRAD_ADDRESS": "unix:/nonexistent"}
        self.assertIn("/nonexistent", run(TELEGRAD, "devices", env=nowhere, code=3))
        self.assertEqual(run(TELEGRAD, "down", env=self.env), f"telegradd (process {process}) has stopped\n")
        self.assertFalse(pathlib.Path(f"/proc/{process}/fd/0").exists())
        run(TELEGRAD, "down", env=self.env, code=3)

    def test_a_daemon_that_does_not_start_says_why(self):
        err = run(TELEGRAD, "up", "--", "--cpu-devices", "0", env=self.env, code=1)
        self.assertIn("--cpu-devices: 0 is not from 1 to 256", err)
        err = run(TELEGRAD, "up", "--program", "/nonexistent", env=self.env, code=1)
        self.assertIn("cannot start /nonexistent", err)

    def test_a_folder_that_others_may_write_is_not_used(self):
        self.socket.parent.mkdir(mode=0o700)
        os.chmod(self.socket.parent, 0o777)
        self.assertIn("that others may not write", run(TELEGRAD, "up", *FLAGS, env=self.env, code=1))
        os.chmod(self.socket.parent, 0o700)
        run(TELEGRAD, "up", "--program", TELEGRADD, *FLAGS, env=self.env)
        os.chmod(self.socket.parent, 0o777)
        refused = run(TELEGRAD, "devices", "--timeout", "1", env={**self.env, "TELEGRAD_ADDRESS": ""}, code=3)
        self.assertIn("127.0.0.1:50055", refused)
        os.chmod(self.socket.parent, 0o700)


if __name__ == "__main__":
    unittest.main()
