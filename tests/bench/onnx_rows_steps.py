"""Sums, orders, normalization, signals, recurrences and control flow: rows of onnx_operators.py."""

import numpy as np
from onnx import TensorProto, helper

from onnx_operator_rows import ROWS, Row, floats, ints, one, row


# Sums and orders.
one("cumsum 64x4096", "CumSum", {"x": lambda: floats(64, 4096)}, {"axis": np.int64(1)})
one("cumsum 1M", "CumSum", {"x": lambda: floats(1 << 20)}, {"axis": np.int64(0)})
one("cumsum axis 0", "CumSum", {"x": lambda: floats(4096, 64)}, {"axis": np.int64(0)})
one("cumsum int64", "CumSum", {"x": lambda: ints(0, 2, 32, 512)}, {"axis": np.int64(1)}, dtype=np.int64)
one("reducelogsumexp", "ReduceLogSumExp", {"x": lambda: floats(64, 32000)}, {"axes": np.int64([-1])}, keepdims=1)
one("reducemean hw", "ReduceMean", {"x": lambda: floats(1, 256, 56, 56)}, {"axes": np.int64([2, 3])})
one("reducesum axis 0", "ReduceSum", {"x": lambda: floats(4096, 1024)}, {"axes": np.int64([0])})
one("reducemax all", "ReduceMax", {"x": lambda: floats(1 << 22)}, keepdims=0)
one("reduceprod", "ReduceProd", {"x": lambda: floats(1024, 512, low=0.9, high=1.1)}, {"axes": np.int64([1])})
one("reducel2", "ReduceL2", {"x": lambda: floats(1024, 1024)}, {"axes": np.int64([1])})
one("softmax 50257", "Softmax", {"x": lambda: floats(32, 50257)}, axis=-1)
one("logsoftmax axis 1", "LogSoftmax", {"x": lambda: floats(1, 21, 256, 256)}, axis=1)
one("hardmax", "Hardmax", {"x": lambda: floats(256, 1000)}, axis=-1)
one("einsum bhqk", "Einsum", {"a": lambda: floats(2, 128, 12, 64), "b": lambda: floats(2, 128, 12, 64)},
    equation="bqhd,bkhd->bhqk")
one("einsum outer", "Einsum", {"a": lambda: floats(64, 256), "b": lambda: floats(64, 256)}, equation="bi,bj->bij")
one("einsum 3", "Einsum", {"a": lambda: floats(64, 32), "b": lambda: floats(32, 48, 16), "c": lambda: floats(64, 48)},
    equation="ai,ijk,aj->ak")
one("einsum relative", "Einsum", {"a": lambda: floats(8, 14, 14, 12, 64), "b": lambda: floats(14, 14, 64)},
    equation="bhwnc,hkc->bnhwk")
one("det", "Det", {"x": lambda: floats(64, 8, 8)})
one("trilu", "Trilu", {"x": lambda: floats(16, 1024, 1024)}, upper=0)
one("tile", "Tile", {"x": lambda: floats(1, 64, 32, 32)}, {"r": np.int64([4, 1, 2, 2])})
one("expand", "Expand", {"x": lambda: floats(1, 64, 1, 128)}, {"shape": np.int64([16, 64, 32, 128])})
one("bitshift", "BitShift", {"x": lambda: ints(0, 1 << 30, 1 << 20, dtype=np.uint32),
                             "s": lambda: ints(0, 32, 1 << 20, dtype=np.uint32)}, dtype=np.uint32, direction="LEFT")
one("mod int64", "Mod", {"x": lambda: ints(-1000, 1000, 1 << 20), "y": lambda: ints(1, 50, 1 << 20)}, dtype=np.int64)
one("fmod", "Mod", {"x": lambda: floats(1 << 20), "y": lambda: floats(1 << 20, low=0.1)}, fmod=1)
one("pow", "Pow", {"x": lambda: floats(1 << 20, low=0.1)}, {"e": np.float32(2.5)})
one("erf", "Erf", {"x": lambda: floats(1 << 20)})
one("div int64", "Div", {"x": lambda: ints(-10000, 10000, 1 << 20), "y": lambda: ints(1, 50, 1 << 20)}, dtype=np.int64)
one("transpose 4d", "Transpose", {"x": lambda: floats(8, 128, 12, 64)}, perm=[0, 2, 1, 3])
one("transpose nchw", "Transpose", {"x": lambda: floats(1, 256, 56, 56)}, perm=[0, 2, 3, 1])
one("transpose 2d", "Transpose", {"x": lambda: floats(2048, 2048)}, perm=[1, 0])
one("slice step", "Slice", {"x": lambda: floats(1, 64, 256, 256)},
    {"starts": np.int64([0, 0]), "ends": np.int64([1 << 30] * 2), "axes": np.int64([2, 3]), "steps": np.int64([2, 2])})
one("slice reverse", "Slice", {"x": lambda: floats(1, 64, 256, 256)},
    {"starts": np.int64([-1]), "ends": np.int64([-(1 << 40)]), "axes": np.int64([3]), "steps": np.int64([-1])})
one("reversesequence", "ReverseSequence", {"x": lambda: floats(128, 32, 64), "n": lambda: ints(1, 128, 32)}, batch_axis=1,
    time_axis=0)
one("cast f16", "Cast", {"x": lambda: floats(1 << 20)}, dtype=np.float16, to=TensorProto.FLOAT16)


@row("concat 16")
def _():
    return Row([helper.make_node("Concat", [f"x{i}" for i in range(16)], ["y"], axis=1)],
               {f"x{i}": floats(1, 32, 56, 56) for i in range(16)}, {}, {"y": np.float32})


@row("split 12")
def _():
    return Row([helper.make_node("Split", ["x"], [f"y{i}" for i in range(12)], axis=2, num_outputs=12)],
               {"x": floats(8, 128, 768)}, {}, {f"y{i}": np.float32 for i in range(12)})


# Normalization.
one("instancenorm", "InstanceNormalization", {"x": lambda: floats(1, 64, 128, 128)},
    {"s": lambda: floats(64), "b": lambda: floats(64)})
one("groupnorm", "GroupNormalization", {"x": lambda: floats(1, 320, 64, 64)},
    {"s": lambda: floats(320), "b": lambda: floats(320)}, num_groups=32, opset=21)
one("layernorm", "LayerNormalization", {"x": lambda: floats(8, 128, 768)},
    {"s": lambda: floats(768), "b": lambda: floats(768)})
one("rmsnorm", "RMSNormalization", {"x": lambda: floats(1, 128, 4096)}, {"s": lambda: floats(4096)}, opset=23)
one("mvn", "MeanVarianceNormalization", {"x": lambda: floats(1, 64, 128, 128)})
one("lpnorm", "LpNormalization", {"x": lambda: floats(1000, 512)}, axis=1, p=2)
one("batchnorm", "BatchNormalization", {"x": lambda: floats(1, 64, 112, 112)},
    {"s": lambda: floats(64), "b": lambda: floats(64), "m": lambda: floats(64), "v": lambda: floats(64, low=0.5)})

# Signals.
one("dft 512", "DFT", {"x": lambda: floats(64, 512, 1)}, {"n": None, "axis": np.int64(1)}, onesided=1, opset=20)
one("dft 4096", "DFT", {"x": lambda: floats(16, 4096, 2)}, {"n": None, "axis": np.int64(1)}, opset=20)
one("dft 1000", "DFT", {"x": lambda: floats(16, 1000, 2)}, {"n": None, "axis": np.int64(1)}, opset=20)
one("dft 1009 prime", "DFT", {"x": lambda: floats(16, 1009, 2)}, {"n": None, "axis": np.int64(1)}, opset=20)
one("dft 4099 prime", "DFT", {"x": lambda: floats(16, 4099, 2)}, {"n": None, "axis": np.int64(1)}, opset=20)
one("dft 4096 real", "DFT", {"x": lambda: floats(16, 4096, 1)}, {"n": None, "axis": np.int64(1)}, onesided=1, opset=20)
one("stft 10 s", "STFT", {"x": lambda: floats(1, 160000, 1)}, {"step": np.int64(160), "w": lambda: np.hanning(400).astype(
    np.float32)}, opset=17)
one("stft 512", "STFT", {"x": lambda: floats(1, 80000, 1)}, {"step": np.int64(128), "w": lambda: np.hanning(512).astype(
    np.float32)}, opset=17)


# Recurrences.
def recurrent(operator, gates, steps, batch, width, hidden, direction="forward", **attributes):
    directions = 2 if direction == "bidirectional" else 1
    outputs = [np.float32] * (3 if operator == "LSTM" else 2)
    one(f"{operator.lower()} {steps}x{batch}x{width}x{hidden} {direction}", operator,
        {"x": lambda: floats(steps, batch, width)},
        {"w": lambda: floats(directions, gates * hidden, width, low=-0.1, high=0.1),
         "r": lambda: floats(directions, gates * hidden, hidden, low=-0.1, high=0.1),
         "b": lambda: floats(directions, 2 * gates * hidden, low=-0.1, high=0.1)},
        dtype=outputs, hidden_size=hidden, direction=direction, **attributes)


recurrent("LSTM", 4, 100, 1, 128, 256)
recurrent("LSTM", 4, 500, 1, 80, 128, "bidirectional")
recurrent("LSTM", 4, 128, 16, 256, 256)
recurrent("LSTM", 4, 100, 1, 64, 64, "reverse")
recurrent("GRU", 3, 100, 1, 128, 256)
recurrent("GRU", 3, 500, 1, 128, 128, linear_before_reset=1)
recurrent("GRU", 3, 200, 8, 128, 256, "bidirectional", linear_before_reset=1)
recurrent("RNN", 1, 200, 4, 128, 128)


@row("lstm lengths")
def _():
    node = helper.make_node("LSTM", ["x", "w", "r", "b", "lengths"], ["y0", "y1", "y2"], hidden_size=128)
    return Row([node], {"x": floats(100, 8, 64), "lengths": ints(10, 100, 8, dtype=np.int32)},
               {"w": floats(1, 512, 64, low=-0.1, high=0.1), "r": floats(1, 512, 128, low=-0.1, high=0.1),
                "b": floats(1, 1024)},
               {f"y{i}": np.float32 for i in range(3)})


def subgraph(nodes, inputs, outputs, name="body"):
    info = helper.make_tensor_value_info
    return helper.make_graph(nodes, name, [info(n, t, s) for n, t, s in inputs], [info(n, t, s) for n, t, s in outputs])


def loop(trips, trips_known):
    body = subgraph(
        [helper.make_node("Identity", ["cond"], ["go"]), helper.make_node("MatMul", ["h", "w"], ["m"]),
         helper.make_node("Tanh", ["m"], ["t"]), helper.make_node("Identity", ["t"], ["scan"])],
        [("i", TensorProto.INT64, []), ("cond", TensorProto.BOOL, []), ("h", TensorProto.FLOAT, [1, 128])],
        [("go", TensorProto.BOOL, []), ("t", TensorProto.FLOAT, [1, 128]), ("scan", TensorProto.FLOAT, [1, 128])])
    node = helper.make_node("Loop", ["n", "", "h0"], ["h_end", "all"], body=body)
    weights = {"w": floats(128, 128, low=-0.1, high=0.1)}
    inputs = {"h0": floats(1, 128)}
    (weights if trips_known else inputs)["n"] = np.array(trips, np.int64)
    return Row([node], inputs, weights, {"h_end": np.float32, "all": np.float32})


ROWS["loop 100 matmul"] = lambda: loop(100, True)
ROWS["loop 500 matmul"] = lambda: loop(500, True)
ROWS["loop n input"] = lambda: loop(100, False)


@row("loop until")
def _():
    """Newton steps until all have converged: the condition is a value."""
    body = subgraph(
        [helper.make_node("Mul", ["v", "half"], ["w"]), helper.make_node("ReduceMax", ["w"], ["top"], keepdims=0),
         helper.make_node("Greater", ["top", "limit"], ["go"])],
        [("i", TensorProto.INT64, []), ("cond", TensorProto.BOOL, []), ("v", TensorProto.FLOAT, [1000])],
        [("go", TensorProto.BOOL, []), ("w", TensorProto.FLOAT, [1000])])
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    return Row([node], {"x": floats(1000, low=0.1)}, {"n": np.int64(50), "half": np.float32(0.5), "limit": np.float32(0.01)},
               {"y": np.float32})


@row("scan 200")
def _():
    body = subgraph(
        [helper.make_node("MatMul", ["h", "w"], ["m"]), helper.make_node("Add", ["m", "x_t"], ["a"]),
         helper.make_node("Tanh", ["a"], ["h2"]), helper.make_node("Identity", ["h2"], ["y_t"])],
        [("h", TensorProto.FLOAT, [4, 128]), ("x_t", TensorProto.FLOAT, [4, 128])],
        [("h2", TensorProto.FLOAT, [4, 128]), ("y_t", TensorProto.FLOAT, [4, 128])])
    node = helper.make_node("Scan", ["h0", "x"], ["h_end", "y"], body=body, num_scan_inputs=1)
    return Row([node], {"h0": floats(4, 128), "x": floats(200, 4, 128)}, {"w": floats(128, 128, low=-0.1, high=0.1)},
               {"h_end": np.float32, "y": np.float32})


@row("if")
def _():
    then = subgraph([helper.make_node("MatMul", ["x", "w"], ["t"])], [], [("t", TensorProto.FLOAT, [64, 256])], "then")
    other = subgraph([helper.make_node("Relu", ["x"], ["e"])], [], [("e", TensorProto.FLOAT, [64, 256])], "else")
    nodes = [helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0), helper.make_node("Greater", ["s", "zero"], ["c"]),
             helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    return Row(nodes, {"x": floats(64, 256)}, {"w": floats(256, 256), "zero": np.float32(0)}, {"y": np.float32})


@row("sequence split, at, concat")
def _():
    nodes = [helper.make_node("SplitToSequence", ["x", "parts"], ["s"], axis=0),
             helper.make_node("SequenceAt", ["s", "three"], ["a"]), helper.make_node("Relu", ["a"], ["r"]),
             helper.make_node("SequenceInsert", ["s", "r"], ["s2"]),
             helper.make_node("ConcatFromSequence", ["s2"], ["y"], axis=0)]
    return Row(nodes, {"x": floats(1024, 256)}, {"parts": np.int64(64), "three": np.int64(3)}, {"y": np.float32})
