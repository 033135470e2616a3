"""Without an address, the daemon of this machine is found where `telegrad up` puts it."""

import os
import tempfile
import unittest
import unittest.mock

from support import Daemon, main

import telegrad
from telegrad import _local as local, _transport as transport


class LocalTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        environment = unittest.mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": folder.name})
        environment.start()
        self.addCleanup(environment.stop)
        system = unittest.mock.patch.object(local, "_SYSTEM_FOLDER", folder.name + "/system")
        system.start()
        self.addCleanup(system.stop)
        self.own, self.system = local.runtime_folder(), folder.name + "/system"

    def start(self, folder):
        os.makedirs(folder, 0o700)
        daemon = Daemon("--listen", f"unix:{folder}/telegradd.sock")
        self.addCleanup(daemon.stop)
        return f"unix:{folder}/telegradd.sock"

    def test_the_users_own_comes_before_the_systems(self):
        self.assertIsNone(local.find_daemon())
        self.assertEqual(transport.address_of(None), transport.DEFAULT_ADDRESS)
        theirs = self.start(self.system)
        self.assertEqual(local.find_daemon(), theirs)
        ours = self.start(self.own)
        with telegrad.connect() as connection:
            self.assertEqual(connection.address, ours)
        with unittest.mock.patch.dict(os.environ, {"TELEGRAD_ADDRESS": theirs}):
            self.assertEqual(transport.address_of(None), theirs, "what is said goes before what is found")

    def test_a_folder_that_others_may_write_is_not_used(self):
        ours = self.start(self.own)
        self.assertEqual(local.find_daemon(), ours)
        os.chmod(self.own, 0o777)
        self.assertIsNone(local.find_daemon())

    def test_a_socket_that_nobody_answers(self):
        os.makedirs(self.own, 0o700)
        open(self.own + "/telegradd.sock", "w").close()
        self.assertIsNone(local.find_daemon())


if __name__ == "__main__":
    main()
