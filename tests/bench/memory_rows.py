#!/usr/bin/env python3
"""Measures operators that memory bounds, on f32 of ROWS x ROWS, against what memory itself allows on this machine in the
same run: softmax, layer norm, GELU and a transpose against a copy with stores that go past the caches, sums of columns
against a read (memory_peer). Turns alternate; the median of the ratios counts, our time over the peer's.

Needs onnx and numpy; exits 0 and says so where they are not installed, and 1 where a row takes more than --most times
its bound.

Usage: memory_rows.py [--build DIR] [--threads N]... [--pairs N] [--rows ROWS] [--most RATIO]
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"not measured: {error}; pip install onnx")
    sys.exit(0)

TURN_MS = 200  # that a turn's runs take, about
# Operator, what it is measured against, and the largest ratio to that.
ROWS = {
    "softmax": ("Softmax", "copy", 1.5, {"axis": -1}),
    "layer norm": ("LayerNormalization", "copy", 1.5, {"axis": -1}),
    "gelu": ("Gelu", "copy", 1.5, {}),
    "transpose": ("Transpose", "copy", 2.0, {"perm": [1, 0]}),
    "column sums": ("ReduceSum", "read", 1 / 0.85, {"keepdims": 0}),
}


def model(operator, attributes, rows):
    weights = {}
    if operator == "LayerNormalization":
        weights = {"scale": np.ones(rows, np.float32), "bias": np.zeros(rows, np.float32)}
    elif operator == "ReduceSum":
        weights = {"axes": np.array([0], np.int64)}
    node = helper.make_node(operator, ["x", *weights], ["y"], **attributes)
    graph = helper.make_graph(
        [node], "row", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, rows])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return onnx.shape_inference.infer_shapes(made)


class Side:
    """A program that answers a number of runs with their median ms."""

    def __init__(self, *command, greets):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if greets:
            self.process.stdout.readline()

    def median(self, runs):
        self.process.stdin.write(f"{runs}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args[0]} ended: {self.process.wait()}")
        return float(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(ours, peer, pairs):
    sides = (ours, peer)
    runs = [max(3, min(1000, int(TURN_MS / side.median(3)))) for side in sides]
    table = []
    for turn in range(pairs):
        times = [0.0, 0.0]
        for i in (0, 1) if turn % 2 == 0 else (1, 0):
            times[i] = sides[i].median(runs[i])
        table.append((*times, times[0] / times[1]))
    return [statistics.median(column) for column in zip(*table)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release", help="where the programs are (default build/release)")
    parser.add_argument("--threads", type=int, action="append", help="threads, may be repeated (default 1)")
    parser.add_argument("--pairs", type=int, default=9, help="turns of each side (default 9)")
    parser.add_argument("--rows", type=int, default=4096, help="rows and columns, a multiple of 512 (default 4096)")
    parser.add_argument("--most", type=float, default=0, help="fail above so many times a bound (default: never)")
    arguments = parser.parse_args()
    if arguments.rows < 512 or arguments.rows % 512 != 0 or arguments.rows > 16384:
        parser.error(f"--rows is {arguments.rows}, expected a multiple of 512 up to 16384")
    mibs = arguments.rows * arguments.rows * 4 >> 20
    failed = False
    print("| row | threads | Telegrad, ms | memory, ms | ratio | bound |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for threads in arguments.threads or [1]:
            for name, (operator, kind, bound, attributes) in ROWS.items():
                path = os.path.join(folder, f"{operator}.onnx")
                onnx.save(model(operator, attributes, arguments.rows), path)
                bench = os.path.join(arguments.build, "tests/bench")
                ours = Side(f"{bench}/onnx_run_bench", path, str(threads), greets=True)
                peer = Side(f"{bench}/memory_peer", kind, str(mibs), str(threads), greets=False)
                try:
                    mine, theirs, ratio = measure(ours, peer, arguments.pairs)
                finally:
                    ours.close()
                    peer.close()
                failed |= 0 < arguments.most < ratio / bound
                print(f"| {name} | {threads} | {mine:.3g} | {kind} {theirs:.3g} | {ratio:.2f} | {bound:.2f} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
