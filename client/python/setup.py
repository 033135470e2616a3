"""What pyproject.toml cannot say: telegrad.pth goes beside the packages, so that installing makes the device TELEGRAD
known to tinygrad, and uninstalling takes it away; and that building leaves nothing in the source tree, where modules of an
earlier version would get into the next build."""

import os
import shutil
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py


class WithPth(build_py):
    def run(self):
        super().run()
        shutil.copy("telegrad.pth", os.path.join(self.build_lib, "telegrad.pth"))

    def get_source_files(self):
        return [*super().get_source_files(), "telegrad.pth"]


with tempfile.TemporaryDirectory(prefix="telegrad-build-") as built:
    setup(cmdclass={"build_py": WithPth}, options={"build": {"build_base": built}, "egg_info": {"egg_base": built}})
