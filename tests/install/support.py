"""Programs of the build, and a child process whose output is read line by line."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build" / "release"))
VERSION = os.environ.get("VERSION", "0.1.0")
TELEGRADD = str(BUILD / "server" / "telegradd")
WORKER = str(BUILD / "server" / "telegrad-compile-worker")
DEVICE_WORKER = str(BUILD / "server" / "telegrad-device-worker")
TELEGRAD = str(BUILD / "client" / "cli" / "telegrad")
RESNET50 = str(BUILD / "client" / "examples" / "resnet50")
OPT = str(BUILD / "engine" / "tools" / "telegrad-opt")
# One that has nothing of whoever runs the tests.
CLEAN = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


def run(*command, env=None, text=None, code=0):
    """Standard output; an error where the exit code is another one."""
    result = subprocess.run(command, env=env if env is not None else CLEAN, input=text, timeout=60,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=False)
    assert result.returncode == code, f"{command}: exit code {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout if code == 0 else result.stderr


def line(process, prefix):
    """The rest of the next line of standard output that begins with `prefix`."""
    for text in process.stdout:
        if text.startswith(prefix):
            return text[len(prefix):].strip()
    raise AssertionError(f"{process.args}: the output ended without {prefix!r}")
