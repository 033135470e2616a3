#!/usr/bin/env python3
"""The house has floors: a file includes only its own folder and lower floors.

Every folder with C++ sources has a row in one of the tables below; this is the list that is checked. Test
sources and the named mains may include everything, and nothing but tests includes test sources. Prints one
line for each include that goes where it may not and exits 1 if there is one.

Usage: floors.py [ROOT]
"""

import fnmatch
import os
import re
import sys

# The engine: a folder includes folders of lower floors only, never another of its own floor.
FLOOR = {
    "engine/base": 0,
    "engine/net": 1,
    "engine/process": 1,
    "engine/types": 1,
    "engine/opencl": 2,
    "engine/ir": 2,
    "devices/api": 2,
    "engine/wire": 3,
    "engine/rewrite": 3,
    "engine/rules": 4,
    "engine/reference": 4,
    "engine/frontend": 5,
    "engine/schedule": 5,
    "engine/lowering": 5,
    "engine/explain": 6,
    "engine/render": 6,
    "engine/compile": 7,
    "engine/execution": 8,
    "engine/tools": 9,
}

# The rooms of a folder that has several, from the lowest: a file includes its own room and lower ones. So a session
# knows no operation, and only the pool's queues know how executables are submitted to a device.
ROOMS = {
    "server": {"admin": 0, "identity": 1, "pool": 1, "tenant": 2, "data": 3, "session": 4, "operations": 5,
               "serving": 5, "http": 6, "service": 7},
    "engine/frontend": {"image": 0, "tensor": 0, "ops": 1, "autograd": 2, "nn": 3, "io": 3, "onnx": 4},
}

# Everything else, by pattern, first match: what a folder may include besides itself.
CONTRACT = ["devices/api", "engine/base", "engine/types"]  # all that a driver knows
ALLOWED = [
    ("devices", ["devices/*"] + CONTRACT),  # drivers.cc, the one list of drivers
    ("devices/reference", ["engine/ir", "engine/reference"] + CONTRACT),  # hosts the interpreter
    ("devices/remote", ["client/cc"] + CONTRACT),  # a device behind a channel
    ("devices/nv", ["devices/cubin", "devices/hcq", "devices/stream"] + CONTRACT),  # writes its queues itself
    ("devices/cuda", ["devices/cubin", "devices/stream"] + CONTRACT),  # a table of functions over it
    ("devices/hip", ["devices/stream"] + CONTRACT),  # the same
    ("devices/opencl", ["engine/opencl"] + CONTRACT),  # whose loader the compiler opens, too
    ("devices/worker", ["devices/cpu", "engine/process"] + CONTRACT),  # a processor in another process
    ("devices/hosted", ["devices/worker", "engine/process"] + CONTRACT),  # any driver in another process
    ("devices/*", CONTRACT),
    ("server", ["engine/base"]),  # the table of flags
    ("server/data", ["proto", "server/*", "engine/*", "devices/api"]),
    ("server/service", ["proto", "server", "server/*", "engine/*", "devices/api"]),
    ("server/*", ["server/*", "engine/*", "devices/api"]),  # as far as the rooms allow
    ("proto", []),  # what both ends of a channel must agree on beyond the .proto files
    ("client/cc", ["proto", "engine/base", "engine/net", "engine/types", "engine/ir", "engine/wire", "engine/frontend"]),
    ("client/terminal", ["client/cc", "engine/base"]),
    ("client/examples", ["client/cc", "client/terminal", "engine/base", "engine/types", "engine/ir", "engine/frontend"]),
    ("client/cli", ["client/cc", "client/terminal", "engine/base", "engine/types", "engine/ir", "engine/frontend", "engine/explain"]),
]

MAINS = ["engine/tools/main.cc", "devices/worker/main.cc", "server/main.cc", "server/device_watch.cc", "server/device_watch.h",
         "server/http_front_end.cc", "server/http_front_end.h", "server/lifetime.cc", "server/lifetime.h",
         "server/model_serving.cc", "server/model_serving.h", "server/no_http_front_end.cc", "server/options.cc",
         "server/options.h"]  # may include everything

# Headers from outside that only some folders may know.
OUTSIDE = [
    (re.compile(r"^(grpc|grpcpp)/|\.grpc\.pb\.h$"), "gRPC", ["proto", "server/service", "client/cc"]),
    (re.compile(r"^google/protobuf/|\.pb\.h$"), "Protobuf",
     ["proto", "server/service", "server/data", "engine/wire", "client/cc"]),
    (re.compile(r"^microhttpd"), "libmicrohttpd", ["server/http"]),
    (re.compile(r"^(llvm|llvm-c)/"), "LLVM", ["engine/compile", "devices/cpu"]),
]

OURS = ("proto/", "engine/", "devices/", "server/", "client/", "tests/", "deploy/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def is_test(path):
    """Tests, and what only tests include: tests/, x_test.cc, test_x.h, and folders named testing."""
    name = os.path.basename(path)
    return (path.startswith("tests/") or "/testing/" in path or name.startswith("test_")
            or name.endswith(("_test.cc", "_test.h")))


def may_include(folder, target):
    """Whether a file in `folder` may include one in `target`; None if `folder` has no row."""
    if folder == target:
        return True
    if folder in FLOOR:
        return target in FLOOR and FLOOR[target] < FLOOR[folder]
    for pattern, allowed in ALLOWED:
        if fnmatch.fnmatchcase(folder, pattern):
            return any(fnmatch.fnmatchcase(target, a) for a in allowed)
    return None


def house(folder):
    """The folder that has the row: engine/frontend/onnx belongs to engine/frontend."""
    return "/".join(folder.split("/")[:2])


def wrong_room(path, header):
    """What is wrong with `path` including `header` of the same house with rooms, or None."""
    building = next((b for b in ROOMS if path.startswith(b + "/") and header.startswith(b + "/")), None)
    if building is None:
        return None
    depth = building.count("/") + 1
    rooms = ROOMS[building]
    room, target = (name.split("/")[depth] if name.count("/") > depth else "" for name in (path, header))
    if "" in (room, target):  # of no room: the house's own table, which all may read
        return None
    if room not in rooms or target not in rooms:
        return f"{room if room not in rooms else target} has no row in ROOMS of tests/tools/floors.py"
    if room != target and rooms[room] <= rooms[target]:
        return f"the room {room} may not include {target}"
    return None


def check_include(path, header, quoted, exists):
    """What is wrong with `path` including `header`, or None."""
    folder = house(os.path.dirname(path))
    if header.startswith(OURS):
        if not quoted:
            return "our own headers are included with quotes"
        if not exists(header):
            return "there is no such file"
        if is_test(header):
            return "only tests may include tests"
        target = house(os.path.dirname(header))
        allowed = may_include(folder, target)
        if allowed is None:
            return f"{folder} has no row in tests/tools/floors.py"
        if not allowed:
            return f"{folder} may not include {target}"
        return wrong_room(path, header)
    for pattern, name, folders in OUTSIDE:
        if pattern.search(header):
            return None if folder in folders else f"{name} belongs only in {', '.join(folders)}"
    if quoted and "/" not in header:
        return "write the path from the repository's root"
    return None


def sources(root):
    for directory, subdirectories, files in os.walk(root):
        subdirectories[:] = sorted(
            d for d in subdirectories if not d.startswith(".") and d not in ("build", "third_party"))
        for name in sorted(files):
            if name.endswith((".h", ".cc", ".def")):
                yield os.path.relpath(os.path.join(directory, name), root).replace(os.sep, "/")


def check(root):
    """All violations as (path, line, header, what), and how many files were looked at."""
    violations = []
    count = 0
    exists = lambda header: os.path.isfile(os.path.join(root, header))
    for path in sources(root):
        count += 1
        if is_test(path) or path in MAINS:
            continue
        with open(os.path.join(root, path), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                what = check_include(path, match[2], match[1] == '"', exists)
                if what:
                    violations.append((path, number, match[2], what))
    return violations, count


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "..")
    violations, count = check(os.path.abspath(root))
    for path, number, header, what in violations:
        print(f"{path}:{number}: {header}: {what}")
    print(f"{count} files, {len(violations)} includes that go where they may not")
    return 1 if violations or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
