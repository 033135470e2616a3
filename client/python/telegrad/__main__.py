"""The command line of the Python client: python3 -m telegrad."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Callable, TypeVar

import numpy as np

import telegrad

DESCRIPTION = "Lists and measures the devices of a Telegrad server, and runs ONNX models on it."
T = TypeVar("T")


def _pairs(values: list[str], convert: Callable[[str], T]) -> dict[str, T]:
    """NAME=VALUE of each."""
    out = {}
    for text in values:
        name, equals, value = text.rpartition("=")
        if not equals:
            raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=VALUE")
        out[name] = convert(value)
    return out


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split("x"))


def _check_writable(path: str) -> None:
    """Raises an OSError unless numpy.save can write the file: now, and not after a long run."""
    if not path.endswith(".npy"):
        path += ".npy"
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        why = "it is a folder; name a file in it"
    elif not os.path.isdir(folder):
        why = f"there is no folder {folder}; make it, or name another file"
    elif not os.access(path if os.path.exists(path) else folder, os.W_OK):
        why = "permission denied; name a file in another folder"
    else:
        return
    raise OSError(f"cannot write {path}: {why}")


def devices(connection: telegrad.Connection, args: argparse.Namespace) -> None:
    for device in connection.devices():
        health = "healthy" if device.healthy else f"not healthy: {device.health}"
        print(f"{device.name}  {device.threads} threads  "
              f"{device.memory_used / 1e9:.1f} of {device.memory_limit / 1e9:.1f} GB  "
              f"{device.target}  {health}")


def stats(connection: telegrad.Connection, args: argparse.Namespace) -> None:
    for name, value in sorted(connection.stats().items()):
        print(f"{name} {value:g}")


def run(connection: telegrad.Connection, args: argparse.Namespace) -> None:
    inputs = _pairs(args.input, np.load)
    outputs = _pairs(args.output, str)
    with connection.session() as session:
        with telegrad.progress(session, "sending and importing the model"):
            program = session.import_model(args.model, input_shapes=_pairs(args.shape, _shape),
                                           dims=_pairs(args.dim, int))
        for name in program.names("input"):
            slot = program.slot(name)
            print(f"input  {name}: {slot.dtype}{list(slot.shape)}")
        files = {program.slot(name).name: file for name, file in outputs.items()}
        with telegrad.progress(session, "compiling and running"):
            results = program(inputs)
        for name, array in results.items():
            print(f"output {name}: {program.slot(name).dtype}{list(array.shape)}")
            if name in files:
                np.save(files[name], array)


def bench(connection: telegrad.Connection, args: argparse.Namespace) -> None:
    """The best of some tries each, as this client sees them."""
    def best(tries: int, work: Callable[[], object]) -> float:
        times = []
        for _ in range(tries):
            begin = time.perf_counter()
            work()
            times.append(time.perf_counter() - begin)
        return min(times)

    n, nbytes = args.size, args.megabytes << 20
    with connection.session() as session:
        print(f"round trip     {best(100, session.sync) * 1e6:8.0f} us")
        data = np.zeros(nbytes, np.uint8)
        buffer = session.upload(data)
        out = buffer.numpy()

        def upload() -> None:
            session.write(buffer, data)
            session.sync()

        print(f"upload         {nbytes / best(3, upload) / 2**30:8.2f} GiB/s")
        print(f"download       {nbytes / best(3, lambda: buffer.numpy(out)) / 2**30:8.2f} GiB/s")
        graph = telegrad.Graph()
        x = graph.state("x", init=np.ones((n, n), np.float32))
        graph.output("y", x @ x)
        program = session.put(graph)
        first = program.run()
        ran = min((program.run() for _ in range(3)), key=lambda result: result.device_ns)
        print(f"compilation    {first.compile_ns / 1e6:8.0f} ms, of a product of {n} x {n}")
        print(f"the product    {2 * n**3 / max(ran.device_ns, 1):8.1f} GFLOP/s")
        empty = telegrad.Graph()
        empty.store(empty.state("z", (1,)), 1.0)
        small = session.put(empty)
        small.run()

        def launches() -> None:
            for _ in range(200):
                small.launch()
            session.sync()

        print(f"a launch       {best(3, launches) / 200 * 1e6:8.0f} us")


def add_connection(parser: argparse.ArgumentParser, timeout: float | str, address: str | None) -> None:
    """The flags that say how to connect. They may stand before the command, or after it, where they have no defaults."""
    parser.add_argument("--address", default=address, help="address of the server, HOST:PORT or unix:PATH (default: "
                        "$TELEGRAD_ADDRESS, else the daemon of this machine, else 127.0.0.1:50055)")
    parser.add_argument("--timeout", type=float, default=timeout, metavar="SECONDS",
                        help="time to wait for an answer of the server (default 10)")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m telegrad", description=DESCRIPTION)
    add_connection(parser, 10.0, None)
    parser.add_argument("--version", action="version", version=f"telegrad {telegrad.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    Action = Callable[[telegrad.Connection, argparse.Namespace], None]

    def command(name: str, do: Action, what: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=what, description=what)
        add_connection(added, argparse.SUPPRESS, argparse.SUPPRESS)
        added.set_defaults(do=do)
        return added

    command("devices", devices, "list the devices of the server")
    command("stats", stats, "show the counters of the server")
    benches = command("bench", bench, "measure transfers, runs and launches")
    benches.add_argument("--size", type=int, default=1024, metavar="N",
                         help="number of rows of the square matrices that are multiplied (default 1024)")
    benches.add_argument("--megabytes", type=int, default=64, metavar="N",
                         help="size of the uploads and downloads in megabytes (default 64)")
    runs = command("run", run, "run an ONNX model, which the server imports")
    runs.add_argument("model", help="the .onnx file")
    for flag, value, what in (("input", "FILE.npy", "file with the content of an input"),
                              ("output", "FILE.npy", "file that an output is written to"),
                              ("shape", "AxBxC", "shape of an input"),
                              ("dim", "N", "size of a named dimension of the model")):
        runs.add_argument(f"--{flag}", action="append", default=[], metavar=f"NAME={value}", help=what)
    args = parser.parse_args()
    try:
        for file in _pairs(getattr(args, "output", []), str).values():
            _check_writable(file)
        with telegrad.connect(args.address, timeout=args.timeout) as connection:
            args.do(connection, args)
    except (telegrad.TelegradError, argparse.ArgumentTypeError, OSError, ValueError) as error:
        print(f"telegrad: {error}", file=sys.stderr)
        return 3 if getattr(error, "code", None) == telegrad.Code.UNAVAILABLE else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
