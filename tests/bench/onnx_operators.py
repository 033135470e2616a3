#!/usr/bin/env python3
"""Measures single operators and small parts of models (onnx_operator_rows.py) against ONNX Runtime: their time over
ours, so that above 1 ours is faster, and what loading takes.

Both run the same file on the same inputs with the same number of threads, in alternating turns; the medians count.
All outputs are compared. A row that Telegrad refuses and ONNX Runtime accepts, and one whose outputs differ, is an
error; one that ONNX Runtime refuses is only named.

Needs onnx, numpy and onnxruntime. Exits 0 and says so where they are not installed, 1 where a row is an error, or
below --least.

Usage: onnx_operators.py [--build DIR] [--threads N] [--turns N] [--least RATIO] [--seconds S] [PATTERN...]
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import numpy as np
    import onnxruntime
    import onnx_operator_rows as rows
    import onnx_rows_models  # noqa: F401, adds rows, as the next two do
    import onnx_rows_steps  # noqa: F401
    import onnx_rows_vision  # noqa: F401
except ImportError as error:
    print(f"not measured: {error}; pip install onnx onnxruntime")
    sys.exit(0)

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
TURN_MS = 60  # that a turn's runs take, about


class Peer:
    def __init__(self, path, inputs, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        # Its threads spin only during a run: ours has the processor to itself.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        begin = time.perf_counter()
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.load = time.perf_counter() - begin
        self.inputs = inputs
        self.results = self.session.run(None, inputs)

    def median(self, runs):
        times = []
        for _ in range(runs):
            begin = time.perf_counter()
            self.session.run(None, self.inputs)
            times.append((time.perf_counter() - begin) * 1e3)
        return statistics.median(times)


class Ours:
    def __init__(self, build, path, threads, folder, seconds):
        self.process = subprocess.Popen(
            ["timeout", str(seconds), os.path.join(build, "tests/bench/onnx_run_bench"), path, str(threads), folder],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            message = self.process.stderr.read().strip()
            raise RuntimeError(message.splitlines()[-1][:300] if message else f"ends with {self.process.returncode}")
        words = line.split()
        self.load, self.compile = float(words[0]), float(words[1])
        self.launches, self.kernels = int(words[2]), int(words[3])

    def median(self, runs):
        self.process.stdin.write(f"{runs}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        return self.process.stderr.read().strip()


def difference(got, want):
    """What is wrong with an output, or nothing: floats agree to a thousandth of the largest value, quantized to 1."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"is {got.dtype} {list(got.shape)}, expected {want.dtype} {list(want.shape)}"
    if not want.size or got.tobytes() == want.tobytes():
        return ""
    if want.dtype.kind == "f":
        scale = float(np.nanmax(np.abs(want.astype(np.float64))))
        bound = scale * (1e-2 if want.dtype == np.float16 else 1e-3)
        off = ~np.isclose(got.astype(np.float64), want.astype(np.float64), rtol=0, atol=bound, equal_nan=True)
    elif want.dtype.itemsize == 1 and want.dtype.kind != "b":
        off = np.abs(got.astype(int) - want.astype(int)) > 1
    else:
        off = got != want
    # A quantized value in between is rounded to either side.
    if off.sum() <= off.size // 10000:
        return ""
    at = tuple(int(i[0]) for i in np.nonzero(off))
    return f"differs in {int(off.sum())} of {want.size} elements, at {at}: {got[at]}, expected {want[at]}"


def measure(name, arguments):
    """The cells of the row, and its ratio."""
    with tempfile.TemporaryDirectory(prefix="telegrad_operators_") as folder:
        made = rows.ROWS[name]()
        path = os.path.join(folder, "row.onnx")
        with open(path, "wb") as file:
            file.write(made.model().SerializeToString())
        for key, value in made.inputs.items():
            np.save(os.path.join(folder, f"{key}.npy"), value)
        try:
            peer = Peer(path, made.inputs, arguments.threads)
        except Exception as error:
            peer = str(error).replace("\n", " ")[:200]
        try:
            ours = Ours(arguments.build, path, arguments.threads, folder, arguments.seconds)
        except RuntimeError as error:
            return [f"refused: {error}"], 1.0 if isinstance(peer, str) else 0.0
        if isinstance(peer, str):
            ours.close()
            return [f"ONNX Runtime refuses: {peer}"], 1.0
        wrong = ""
        for output, want in zip(made.outputs, peer.results):
            text = difference(np.load(os.path.join(folder, f"{output}.npy")), want)
            wrong = wrong or (f"output {output} {text}" if text else "")
        try:
            sides = [ours, peer]
            runs = [max(2, min(300, int(TURN_MS / max(side.median(1), 1e-3)))) for side in sides]
            turns = [[], []]
            for turn in range(arguments.turns):
                for i in ([0, 1] if turn % 2 == 0 else [1, 0]):
                    turns[i].append(sides[i].median(runs[i]))
            mine, theirs = (statistics.median(side) for side in turns)
        except ValueError:
            ours.close()
            return [f"did not end within {arguments.seconds} s"], 0.0
        note = ours.close()
        cells = [f"{mine:.3g}", f"{theirs:.3g}", f"{theirs / mine:.2f}", f"{ours.load + ours.compile:.2f}", f"{peer.load:.2f}",
                 str(ours.launches), str(ours.kernels), (wrong + (" values" if "needs values" in note else ""))]
        return cells, 0.0 if wrong else theirs / mine


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="rows whose names match (default: all)")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"), metavar="DIR",
                        help="folder of the build (default: build/release)")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="threads of each side (default: 2)")
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="turns of each side (default: 3)")
    parser.add_argument("--least", type=float, default=0, metavar="RATIO", help="fail where a ratio is lower (default: never)")
    parser.add_argument("--seconds", type=int, default=120, metavar="S", help="time that a row may take (default: 120)")
    arguments = parser.parse_args()
    chosen = [name for name in rows.ROWS
              if not arguments.patterns or any(re.search(p, name) for p in arguments.patterns)]
    print("| row | Telegrad, ms | ONNX Runtime, ms | ratio | load, s | its load, s | launches | kernels | |")
    print("|---|---|---|---|---|---|---|---|---|")
    failed = False
    for name in chosen:
        cells, ratio = measure(name, arguments)
        failed |= ratio == 0 or ratio < arguments.least
        print("|", name, "|", " | ".join(cells), "|", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
