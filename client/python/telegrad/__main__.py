"""python3 -m telegrad: what a thin client does from the command line."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Callable, TypeVar

import numpy as np

import telegrad

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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m telegrad", description=__doc__)
    parser.add_argument("--address", help="HOST:PORT or unix:PATH (default: $TELEGRAD_ADDRESS, "
                        "else the daemon of this machine, else 127.0.0.1:50055)")
    parser.add_argument("--version", action="version", version=f"telegrad {telegrad.__version__}")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS",
                        help="how long to wait for the server to answer")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("devices", help="the server's devices").set_defaults(do=devices)
    commands.add_parser("stats", help="the server's counters").set_defaults(do=stats)
    benches = commands.add_parser("bench", help="how fast transfers, runs and launches are from here")
    benches.add_argument("--size", type=int, default=1024, metavar="N", help="of the matrices")
    benches.add_argument("--megabytes", type=int, default=64, metavar="N", help="of the transfers")
    benches.set_defaults(do=bench)
    runs = commands.add_parser("run", help="run an ONNX model, which the server imports")
    runs.set_defaults(do=run)
    runs.add_argument("model", help="the .onnx file")
    for flag, what in (("input", "FILE.npy: the content of an input"),
                       ("output", "FILE.npy: where an output goes"),
                       ("shape", "AxBxC: the shape of an input"),
                       ("dim", "N: the size of a dimension that the model names")):
        runs.add_argument(f"--{flag}", action="append", default=[],
                          metavar=f"NAME={what.split(':')[0]}", help=what)
    args = parser.parse_args()
    try:
        with telegrad.connect(args.address, timeout=args.timeout) as connection:
            args.do(connection, args)
    except (telegrad.TelegradError, argparse.ArgumentTypeError, OSError, ValueError) as error:
        print(f"telegrad: {error}", file=sys.stderr)
        return 3 if getattr(error, "code", None) == telegrad.Code.UNAVAILABLE else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
