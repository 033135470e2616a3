#!/usr/bin/env python3
"""Measures runs of ONNX models against ONNX Runtime, and OpenVINO where it is installed: their time over ours, so
that above 1 ours is faster.

A row is a model: a matrix product `MxKxN` with a constant right operand, a convolution
`conv:CxHxW:O:K:S` (channels, rows, columns, channels that come out, window, stride) with bias and ReLU, the same of
bytes (`int8:MxKxN`, MatMulInteger of u8 and i8 with a zero point; `qlinear:CxHxW:O:K:S`, QLinearConv; `dynamic:SxDxF`,
a transformer layer of S tokens, D features and F hidden ones that onnxruntime.quantization quantized), or a network: resnet50, mobilenet_v2, efficientnet_b0, vgg16 (onnx_networks.py), bert, gpt2, vit, unet, lstm, llama
(torch_networks.py). Weights are random. All run the same file on the same number of threads, in alternating
turns of several runs; the median of each turn counts, and the median of the ratios of the turns. All compute the
same: a row whose outputs differ is an error.

Needs onnx, numpy and onnxruntime; those of torch_networks.py torch and torchvision, too. Exits 0 and says so where they are
not installed, 1 where a row is below --least against ONNX Runtime.

Usage: onnxruntime_peer.py [--build DIR] [--threads N]... [--pairs N] [--least RATIO] [NAME...]
       onnxruntime_peer.py --profile NAME        what ONNX Runtime's operators take
"""

import argparse
import collections
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch_networks

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
    import onnx_networks
    import onnx_quantized
except ImportError as error:
    print(f"not measured: {error}; pip install onnx onnxruntime")
    sys.exit(0)

try:
    import openvino
except ImportError:
    openvino = None

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SUMMED = (np.float32, np.int32, np.uint8)  # outputs that are compared
TURN_MS = 150  # that a turn's runs take, about
SQUARES = ["512x512x512", "768x768x768", "1024x1024x1024", "1536x1536x1536", "2048x2048x2048",
           "1023x1023x1023", "1025x1025x1025", "512x2048x1024"]
NETWORKS = [*onnx_networks.NETWORKS, *torch_networks.NETWORKS]
BYTES = ["int8:128x768x3072", "int8:512x1024x1024", "int8:1x1024x4096", "qlinear:64x56x56:64:3:1",
         "qlinear:64x56x56:64:1:1", "qlinear:256x14x14:256:3:1", "dynamic:128x768x3072"]
SKINNY = [f"{m}x{k}x{n}" for m in (1, 8, 128) for k, n in ((768, 768), (768, 3072), (3072, 768), (4096, 4096))]


def random(*shape):
    return (np.random.default_rng(len(shape)).random(shape, dtype=np.float32) - 0.5).astype(np.float32)


def model(nodes, shape, weights):
    graph = helper.make_graph(
        nodes, "row", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made)


def product(name):
    m, k, n = (int(size) for size in name.split("x"))
    return model([helper.make_node("MatMul", ["x", "w"], ["y"])], [m, k], {"w": random(k, n)})


def convolution(name):
    _, image, out, window, stride = name.split(":")
    image, out, window, stride = [int(s) for s in image.split("x")], int(out), int(window), int(stride)
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["z"], kernel_shape=[window] * 2, strides=[stride] * 2,
                              pads=[window // 2] * 4),
             helper.make_node("Relu", ["z"], ["y"])]
    return model(nodes, [1, *image], {"w": random(out, image[0], window, window), "b": random(out)})


def save(name, path):
    """A row of bytes, whose files onnx_quantized.py makes."""
    kind, sizes = name.split(":", 1)
    {"int8": onnx_quantized.product, "qlinear": onnx_quantized.convolution,
     "dynamic": onnx_quantized.layer}[kind](sizes, path)


def write(name, folder):
    """The row's file."""
    path = os.path.join(folder, name.replace(":", "_") + ".onnx")
    if os.path.exists(path):
        return path
    if name.split(":")[0] in ("int8", "qlinear", "dynamic"):
        save(name, path)
    elif name in torch_networks.NETWORKS:
        torch_networks.export(name, path)
    elif name in onnx_networks.NETWORKS:
        onnx.save(onnx_networks.NETWORKS[name](), path)
    else:
        onnx.save(convolution(name) if name.startswith("conv:") else product(name), path)
    return path


def fill(value):
    """As onnx_run_bench fills an input."""
    shape = [size if isinstance(size, int) else 1 for size in value.shape]
    i = np.arange(math.prod(shape))
    if value.type == "tensor(float)":
        return (((i * 7919 % 1000).astype(np.float32)) / 1000 - np.float32(0.5)).reshape(shape)
    if value.type in ("tensor(uint8)", "tensor(int8)"):
        return (i * 7919 % 251).astype(np.uint8).view(np.int8 if "(int8" in value.type else np.uint8).reshape(shape)
    return (i % 2).astype({"tensor(int64)": np.int64, "tensor(int32)": np.int32}[value.type]).reshape(shape)


class Peer:
    def __init__(self, path, threads, profile=False):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.enable_profiling = profile
        options.profile_file_prefix = os.path.join(tempfile.gettempdir(), f"onnxruntime_{os.getpid()}")
        # Its threads spin only during a run: ours has the processor to itself.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        for value in self.session.get_inputs():
            self.binding.bind_cpu_input(value.name, fill(value))
        for value in self.session.get_outputs():
            self.binding.bind_output(value.name)

    def sums(self):
        self.session.run_with_iobinding(self.binding)
        return [float(np.abs(y.astype(np.float64)).sum()) for y in self.binding.copy_outputs_to_cpu()
                if y.dtype in SUMMED]

    def median(self, runs):
        times = []
        for _ in range(runs):
            begin = time.perf_counter()
            self.session.run_with_iobinding(self.binding)
            times.append((time.perf_counter() - begin) * 1e3)
        return statistics.median(times)


class OpenVino:
    """Of f32 as the others, where it would choose f16 or bf16."""

    def __init__(self, path, threads):
        core = openvino.Core()
        self.model = core.compile_model(path, "CPU", {
            "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32", "ENABLE_CPU_PINNING": False})
        self.request = self.model.create_infer_request()
        peer = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])  # knows the inputs
        for i, value in enumerate(peer.get_inputs()):
            self.request.set_input_tensor(i, openvino.Tensor(fill(value)))

    def sums(self):
        self.request.infer()
        outputs = [self.request.get_output_tensor(i).data for i in range(len(self.model.outputs))]
        return [float(np.abs(y.astype(np.float64)).sum()) for y in outputs if y.dtype in SUMMED]

    def median(self, runs):
        times = []
        for _ in range(runs):
            begin = time.perf_counter()
            self.request.infer()
            times.append((time.perf_counter() - begin) * 1e3)
        return statistics.median(times)


class Ours:
    def __init__(self, build, path, threads):
        self.process = subprocess.Popen([os.path.join(build, "tests/bench/onnx_run_bench"), path, str(threads)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.sums = [float(word) for word in self.process.stdout.readline().split()]

    def median(self, runs):
        self.process.stdin.write(f"{runs}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(build, path, threads, turns):
    """The medians of all sides' ms, and of the ratios of the peers' to ours."""
    ours = Ours(build, path, threads)
    sides = [ours, Peer(path, threads)] + ([OpenVino(path, threads)] if openvino else [])
    try:
        for peer in sides[1:]:
            theirs = peer.sums()
            if len(ours.sums) != len(theirs) or not np.allclose(ours.sums, theirs, rtol=1e-3):
                raise RuntimeError(f"{os.path.basename(path)}: outputs differ: {ours.sums} against "
                                   f"{theirs} of {type(peer).__name__}")
        runs = [max(3, min(1000, int(TURN_MS / side.median(5)))) for side in sides]
        table = []
        for turn in range(turns):
            order = list(range(len(sides)))
            row = [0.0] * len(sides)
            for i in order if turn % 2 == 0 else reversed(order):
                row[i] = sides[i].median(runs[i])
            table.append(row + [theirs / row[0] for theirs in row[1:]])
        medians = [statistics.median(column) for column in zip(*table)]
        return medians[:len(sides)], medians[len(sides):]
    finally:
        ours.close()


def profile(path, threads):
    """Prints what the peer's operators take in a run, the slowest first."""
    peer = Peer(path, threads, profile=True)
    runs = 20
    for _ in range(runs):
        peer.session.run_with_iobinding(peer.binding)
    file = peer.session.end_profiling()
    with open(file, encoding="utf-8") as text:
        events = json.load(text)
    os.remove(file)
    times = collections.defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            arguments = event["args"]
            shapes = [list(s.values())[0] for s in arguments.get("input_type_shape", [])]
            times[(arguments["op_name"], str(shapes))].append(event["dur"] / 1e3)
    rows = sorted(((sum(v) / runs, len(v) // runs, k) for k, v in times.items()), reverse=True)
    for ms, count, (operator, shapes) in rows:
        print(f"{ms:9.3f} ms {count:4d}x  {operator} {shapes}")
    print(f"{sum(row[0] for row in rows):9.3f} ms all")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows (default: the products and networks)")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"), metavar="DIR",
                        help="folder of the build (default: build/release)")
    parser.add_argument("--threads", type=int, action="append", metavar="N",
                        help="number of threads of Telegrad and of its peer (default: 1, then 2)")
    parser.add_argument("--pairs", type=int, default=9, metavar="N",
                        help="number of turns of each side for each row (default: 9)")
    parser.add_argument("--least", type=float, default=0, metavar="RATIO",
                        help="fail where a ratio is lower (default: never)")
    parser.add_argument("--models", help="folder where the files are kept (default: a temporary one)")
    parser.add_argument("--profile", metavar="NAME", help="print the peer's time by operator, and nothing else")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="telegrad_onnx_") as temporary:
        folder = arguments.models or temporary
        if arguments.profile:
            profile(write(arguments.profile, folder), (arguments.threads or [1])[0])
            return 0
        failed = False
        ratios = collections.defaultdict(list)
        peers = ["ONNX Runtime"] + (["OpenVINO"] if openvino else [])
        print("| row | threads | Telegrad, ms |", " ".join(f"{peer}, ms | ratio |" for peer in peers))
        print("|---|---|---|" + "---|---|" * len(peers))
        for name in arguments.names or SQUARES + SKINNY + BYTES + NETWORKS:
            path = write(name, folder)
            for threads in arguments.threads or [1, 2]:
                ms, against = measure(arguments.build, path, threads, arguments.pairs)
                ratios[threads].append(against)
                failed |= against[0] < arguments.least
                print(f"| {name} | {threads} | {ms[0]:.4g} |",
                      " ".join(f"{theirs:.4g} | {ratio:.3f} |" for theirs, ratio in zip(ms[1:], against)), flush=True)
        for threads, rows in ratios.items():
            means = [f"| {statistics.geometric_mean(column):.3f}, {min(column):.3f} |" for column in zip(*rows)]
            print(f"| geometric mean, worst | {threads} | |", " ".join(means))
        return int(failed)


if __name__ == "__main__":
    sys.exit(main())
