#!/usr/bin/env python3
"""Dynamic batching of a served network, against fixed batches run back to back and against KServe's Python server.

Usage: serving_batches.py [--build DIR] [--turns N] [--seconds S] [resnet50] [bert] [mnist]

Each turn measures, one after another on the same cores: 16 clients that send single rows to telegradd without pause;
the executable of each fixed batch, run back to back (`onnx_run_bench`); the same clients with a server of KServe's
package that runs ONNX Runtime with as many threads. Prints a Markdown table of the medians; exits 1 if a goal is
missed, and 77 if a package is not there. Needs onnx, onnxruntime, kserve and, for bert, torch; and a machine to itself.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.request

CLIENTS = 16
BATCHES = (1, 2, 4, 8, 16)
INPUTS = {"resnet50": ["x:FP32:{0},3,224,224"], "bert": ["tokens:INT64:{0},128", "mask:FP32:{0},128"],
          "mnist": ["Input3:FP32:{0},1,28,28"]}
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# A model of its own for each file; asks it as KServe's examples do.
SERVER = """
import sys
import numpy, onnxruntime
from kserve import InferOutput, InferResponse, Model, ModelServer


class OnnxModel(Model):
    def __init__(self, name, path, threads):
        super().__init__(name)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.names = [i.name for i in self.session.get_inputs()]
        self.ready = True

    def predict(self, payload, headers=None):
        given = {i.name: i.as_numpy() for i in payload.inputs}
        values = self.session.run(None, {name: given[name] for name in self.names})
        outputs = []
        for described, value in zip(self.session.get_outputs(), values):
            out = InferOutput(described.name, list(value.shape), "FP32")
            out.set_data_from_numpy(value, binary_data=True)
            outputs.append(out)
        return InferResponse(payload.id or "1", self.name, outputs)


name, path, threads, http, grpc = sys.argv[1:]
ModelServer(http_port=int(http), grpc_port=int(grpc), enable_latency_logging=False).start(
    [OnnxModel(name, path, int(threads))])
"""


def need(*names):
    for name in names:
        try:
            __import__(name)
        except ImportError:
            print(f"skipped: there is no Python package {name}")
            sys.exit(77)


def with_batch(model, batch):
    """The model with that first dimension of its inputs and outputs."""
    for value in [*model.graph.input, *model.graph.output]:
        dim = value.type.tensor_type.shape.dim[0]
        dim.Clear()
        if isinstance(batch, str):
            dim.dim_param = batch
        else:
            dim.dim_value = batch
    del model.graph.value_info[:]
    return model


def write(name, folder):
    """The files of the network by batch: "N" is the one that is served."""
    import onnx
    if name == "mnist":  # its file fixes a batch of 1
        path = folder / "mnist.onnx"
        shutil.copy(ROOT / "tests/data/onnx/mnist_8/model.onnx", path)
        return {"N": path, 1: path}
    import onnx_networks
    import torch_networks
    path = folder / f"{name}.onnx"
    if name in torch_networks.NETWORKS:
        torch_networks.export(name, str(path), batch="N")
    else:
        onnx.save(onnx_networks.NETWORKS[name](), path)
    files = {}
    for batch in ("N", *BATCHES):
        files[batch] = folder / f"{name}_{batch}.onnx"
        onnx.save(with_batch(onnx.load(path), batch), files[batch])
    return files


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Process:
    """A program that serves until the end of the `with` block."""

    def __init__(self, arguments, **more):
        self.process = subprocess.Popen([str(a) for a in arguments], text=True, **more)

    def address(self):
        for line in self.process.stdout:
            if line.startswith("listening on "):
                return line.removeprefix("listening on ").strip()
        sys.exit("telegradd has not started")

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.kill()
        self.process.wait()


class Bench:
    def __init__(self, build, seconds):
        self.tests, self.server, self.seconds = build / "tests/bench", build / "server/telegradd", seconds

    def infer(self, address, name, count):
        """Requests a second, the median and the 99th percentile in ms, and the first output's sum."""
        out = subprocess.run([self.tests / "serving_bench", address, "infer", name, str(count), str(CLIENTS),
                              *(text.format(1) for text in INPUTS[name])], stdout=subprocess.PIPE, text=True, check=True)
        return [float(word) for word in out.stdout.split()]

    def settle(self, address, name, count, metrics):
        """Asks until nothing more is compiled: sizes of batches are compiled in the background and then tried."""
        before = None
        while True:
            self.infer(address, name, count)
            with urllib.request.urlopen(f"http://{metrics}/metrics") as page:
                now = sorted(line for line in page.read().decode().splitlines()
                             if line.startswith(("telegrad_kernels_compiled_total ", "telegrad_compiling ",
                                                 "telegrad_executables_compiled_total ")))
            if now == before and "telegrad_compiling 0" in now:
                return
            before = now

    def batch_ms(self, runner, count):
        runner.stdin.write(f"{count}\n")
        runner.stdin.flush()
        return float(runner.stdout.readline())

    def measure(self, name, turns, folder):
        files = write(name, folder)
        threads = len(os.sched_getaffinity(0))
        models = folder / "models"
        (models / name / "1").mkdir(parents=True)
        shutil.copy(files["N"], models / name / "1" / "model.onnx")
        runners = {}
        for batch in files:
            if batch == "N":
                continue
            runners[batch] = subprocess.Popen([self.tests / "onnx_run_bench", files[batch], str(threads)], text=True,
                                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            runners[batch].stdout.readline()
        (folder / "server.py").write_text(SERVER)
        http, grpc = free_port(), free_port()
        metrics = f"127.0.0.1:{free_port()}"
        rows = []
        with Process([self.server, "--models", models, "--listen", "127.0.0.1:0", "--metrics", metrics, "--log-level",
                      "off"],
                     stdout=subprocess.PIPE) as ours, \
                Process([sys.executable, folder / "server.py", name, files["N"], threads, http, grpc],
                        stdout=subprocess.DEVNULL, stderr=(folder / "kserve.log").open("w")):
            address = ours.address()
            once = self.batch_ms(runners[1], 3)
            count = max(CLIENTS * 6, int(self.seconds * 1e3 / once))
            self.settle(address, name, count, metrics)
            for _ in range(turns):
                mine = self.infer(address, name, count)
                fixed = {b: self.batch_ms(runner, max(3, int(self.seconds * 1e3 / once / b / 2)))
                         for b, runner in runners.items()}
                theirs = self.infer(f"127.0.0.1:{grpc}", name, count)
                if abs(theirs[3] - mine[3]) > 1e-3 * abs(theirs[3]):
                    sys.exit(f"{name}: the outputs sum to {mine[3]}, those of KServe's server to {theirs[3]}")
                rows.append((mine, fixed, theirs))
        for runner in runners.values():
            runner.kill()
            runner.wait()
        return rows


def report(name, rows):
    """Prints the table's rows; whether all goals are met."""
    middle = statistics.median
    best = max(BATCHES, key=lambda b: middle(b / fixed[b] if b in fixed else 0 for _, fixed, _ in rows))
    rate = middle(mine[0] for mine, _, _ in rows)
    of_fixed = middle(mine[0] / (1e3 * best / fixed[best]) for mine, fixed, _ in rows)
    late = middle(mine[2] / fixed[best] for mine, fixed, _ in rows)
    peer = middle(mine[0] / theirs[0] for mine, _, theirs in rows)
    limit = CLIENTS / best + 0.5
    goal = 3 if name == "mnist" else 1
    ms = ", ".join(f"{b}: {middle(fixed[b] for _, fixed, _ in rows):.3g}" for b in rows[0][1])
    print(f"| {name} | {rate:.1f}/s, p50 {middle(m[1] for m, _, _ in rows):.1f} ms, "
          f"p99 {middle(m[2] for m, _, _ in rows):.1f} ms | {ms} | {best} | {of_fixed:.2f}x | {late:.2f} of {limit:.2f} | "
          f"{middle(t[0] for _, _, t in rows):.1f}/s, {peer:.2f}x of {goal}x |", flush=True)
    # A network without a dimension for the batch has no other fixed batch, and is served row by row.
    return peer >= goal and (name == "mnist" or (of_fixed >= 0.95 and late <= limit))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NETWORK", help=" ".join(INPUTS))
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", metavar="DIR")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6, help="that a network's single rows take in each turn, about")
    args = parser.parse_args()
    for name in args.names:
        if name not in INPUTS:
            parser.error(f"there is no network {name}; there are {' '.join(INPUTS)}")
    need("onnx", "onnxruntime", "kserve")
    sys.path.insert(0, str(ROOT / "tests/bench"))
    print(f"| {CLIENTS} clients, {args.turns} turns | Telegrad | fixed batches, ms | best | of its rate, goal 0.95x | p99 "
          "in its times | KServe with ONNX Runtime |\n|---|---|---|---|---|---|---|", flush=True)
    good = True
    for name in args.names or INPUTS:
        with tempfile.TemporaryDirectory() as folder:
            rows = Bench(args.build.resolve(), args.seconds).measure(name, args.turns, pathlib.Path(folder))
        good &= report(name, rows)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
