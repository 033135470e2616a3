"""The daemon of this machine: what `telegrad up` started for this user, or the service of the system.

As the command line finds it (client/cc/local_daemon.cc): by a socket that answers, in a folder that nobody
else may write.
"""

from __future__ import annotations

import os
import socket
import stat

_SOCKET = "telegradd.sock"
_SYSTEM_FOLDER = "/run/telegrad"  # only the system makes folders there


def runtime_folder() -> str:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return f"{runtime}/telegrad" if runtime.startswith("/") else f"/tmp/telegrad-{os.geteuid()}"


def find_daemon() -> str | None:
    """Its address; None where there is none, or on systems without unix sockets."""
    if not hasattr(socket, "AF_UNIX") or not hasattr(os, "geteuid"):
        return None
    own = runtime_folder()
    for folder in ([own] if _is_own(own) else []) + [_SYSTEM_FOLDER]:
        path = f"{folder}/{_SOCKET}"
        if _answers(path):
            return f"unix:{path}"
    return None


def _is_own(folder: str) -> bool:
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    others_may_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not others_may_write


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:
            return True  # a full backlog is one of a process that listens
        except OSError:
            return False
        return True
