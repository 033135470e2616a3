"""What the tests of telegrad.torch share: a daemon, and the reason for skipping (77) where torch or the daemon is not there.

Import it first: it makes `support` of tests/python known. TELEGRADD names the daemon's program, as there.
"""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import support

try:
    import torch  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
if not os.path.exists(support.DAEMON):
    print(f"skipped: there is no {support.DAEMON}")
    sys.exit(77)


class TorchTest(unittest.TestCase):
    """A test with one daemon for all of its methods, which telegrad.torch finds."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = support.Daemon()
        cls.addClassCleanup(cls.daemon.stop)
        os.environ["TELEGRAD_ADDRESS"] = cls.daemon.address
