"""What installing the package puts where, and that it leaves nothing else: skipped where pip or setuptools are missing."""

import glob
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile

from support import PACKAGE, main


def tree(folder):
    """All files, but for what Python writes when it imports."""
    return {path for path in glob.glob(os.path.join(folder, "**"), recursive=True) if "__pycache__" not in path}


@unittest.skipUnless(importlib.util.find_spec("pip") and importlib.util.find_spec("setuptools"), "there is no pip, or no setuptools")
class PackageTest(unittest.TestCase):
    def test_a_wheel_of_the_source_tree(self):
        before = tree(PACKAGE)
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "TMPDIR": folder}
            done = subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
                                   "--disable-pip-version-check", "--wheel-dir", os.path.join(folder, "out"), PACKAGE],
                                  env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual(done.returncode, 0, done.stdout)
            (wheel,) = glob.glob(os.path.join(folder, "out", "telegrad-*.whl"))
            self.assertEqual([name for name in os.listdir(folder) if name.startswith("telegrad-build-")], [])
            with zipfile.ZipFile(wheel) as archive:
                names = [name for name in archive.namelist() if ".dist-info/" not in name]
                (points,) = [archive.read(name).decode() for name in archive.namelist() if name.endswith("entry_points.txt")]
        self.assertEqual(tree(PACKAGE), before, "modules of this version would get into the next one's build")
        ours = {os.path.relpath(path, PACKAGE) for path in before if path.startswith(os.path.join(PACKAGE, "telegrad", ""))}
        ours = {path for path in ours if path.endswith((".py", "py.typed"))}
        self.assertEqual(set(names), ours | {"telegrad.pth", "_telegrad_tinygrad.py"})
        self.assertIn("telegrad.torch:backend", points)


if __name__ == "__main__":
    main()
