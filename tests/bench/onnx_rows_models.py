"""Quantized operators, attention, scikit-learn, and what stands before and behind networks: rows of onnx_operators.py."""

import numpy as np
from onnx import TensorProto, helper

from onnx_operator_rows import ROWS, Row, boxes, floats, ints, one, random, row, scores


# Quantized.
def u8(*shape):
    return ints(0, 256, *shape, dtype=np.uint8)


def i8(*shape):
    return ints(-127, 128, *shape, dtype=np.int8)


one("dequantizelinear axis", "DequantizeLinear", {"x": lambda: i8(4096, 1024)},
    {"s": lambda: floats(4096, low=0.01, high=0.02), "z": lambda: i8(4096)}, axis=0)
one("dequantizelinear blocks", "DequantizeLinear", {"x": lambda: i8(4096, 1024)},
    {"s": lambda: floats(4096, 32, low=0.01, high=0.02)}, axis=1, block_size=32, opset=21)
one("quantizelinear", "QuantizeLinear", {"x": lambda: floats(1, 64, 112, 112)}, {"s": np.float32(0.01), "z": np.uint8(128)},
    dtype=np.uint8)
one("dynamicquantizelinear", "DynamicQuantizeLinear", {"x": lambda: floats(128, 768)},
    dtype=[np.uint8, np.float32, np.uint8])
one("qlinearconv 3x3", "QLinearConv", {"x": lambda: u8(1, 64, 56, 56)},
    {"xs": np.float32(0.02), "xz": np.uint8(120), "w": lambda: i8(64, 64, 3, 3),
     "ws": lambda: floats(64, low=0.001, high=0.002), "wz": np.zeros(64, np.int8), "ys": np.float32(0.1),
     "yz": np.uint8(128)}, dtype=np.uint8, pads=[1] * 4)
one("qlinearconv depthwise", "QLinearConv", {"x": lambda: u8(1, 96, 56, 56)},
    {"xs": np.float32(0.02), "xz": np.uint8(120), "w": lambda: i8(96, 1, 3, 3), "ws": np.float32(0.002),
     "wz": np.int8(0), "ys": np.float32(0.01), "yz": np.uint8(128)}, dtype=np.uint8, pads=[1] * 4, group=96)
one("qlinearmatmul", "QLinearMatMul", {"a": lambda: u8(128, 768)},
    {"as": np.float32(0.02), "az": np.uint8(120), "w": lambda: i8(768, 768), "ws": np.float32(0.002),
     "wz": np.int8(0), "ys": np.float32(0.1), "yz": np.uint8(128)}, dtype=np.uint8)
one("matmulinteger", "MatMulInteger", {"a": lambda: u8(128, 768)},
    {"w": lambda: i8(768, 3072), "az": np.uint8(120), "wz": np.int8(0)}, dtype=np.int32)
one("matmulinteger 1 row", "MatMulInteger", {"a": lambda: u8(1, 768)},
    {"w": lambda: i8(768, 3072), "az": np.uint8(120), "wz": np.int8(0)}, dtype=np.int32)
one("convinteger", "ConvInteger", {"x": lambda: u8(1, 32, 28, 28)},
    {"w": lambda: i8(64, 32, 3, 3), "xz": np.uint8(120)}, dtype=np.int32, pads=[1] * 4)


@row("qdq conv")
def _():
    nodes = [helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
             helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
             helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
             helper.make_node("Conv", ["xd", "wd"], ["c"], pads=[1] * 4),
             helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("QuantizeLinear", ["r", "ys", "yz"], ["yq"]),
             helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["y"])]
    return Row(nodes, {"x": floats(1, 64, 56, 56)},
               {"xs": np.float32(0.008), "xz": np.uint8(128), "w": i8(64, 64, 3, 3),
                "ws": floats(64, low=0.001, high=0.002), "wz": np.zeros(64, np.int8), "ys": np.float32(0.05),
                "yz": np.uint8(0)}, {"y": np.float32})


def nbits(name, rows, k, n, zero):
    one(name, "MatMulNBits", {"a": lambda: floats(rows, k)},
        {"b": lambda: u8(n, k // 32, 16), "s": lambda: floats(n * k // 32, low=0.001, high=0.002),
         "z": (lambda: u8(n * (k // 32) // 2)) if zero else None}, domain="com.microsoft", K=k, N=n, bits=4, block_size=32)


nbits("matmulnbits 1x2048x2048", 1, 2048, 2048, False)
nbits("matmulnbits 1x2048x8192 zero points", 1, 2048, 8192, True)
nbits("matmulnbits 4x2048x2048", 4, 2048, 2048, False)
nbits("matmulnbits 8x2048x2048", 8, 2048, 2048, False)
nbits("matmulnbits 16x2048x2048", 16, 2048, 2048, False)
nbits("matmulnbits 128x2048x2048", 128, 2048, 2048, False)

# Attention.
one("attention com.microsoft", "Attention", {"x": lambda: floats(1, 128, 768)},
    {"w": lambda: floats(768, 2304, low=-0.05, high=0.05), "b": lambda: floats(2304)}, domain="com.microsoft", num_heads=12)
one("multiheadattention", "MultiHeadAttention", {n: lambda: floats(1, 256, 512) for n in "qkv"}, domain="com.microsoft",
    num_heads=8)
one("groupqueryattention decode", "GroupQueryAttention", {
    "q": lambda: floats(1, 1, 2048), "k": lambda: floats(1, 1, 512), "v": lambda: floats(1, 1, 512),
    "pk": lambda: floats(1, 8, 255, 64), "pv": lambda: floats(1, 8, 255, 64)},
    {"len": np.int32([255]), "total": np.int32(256)}, dtype=[np.float32] * 3, domain="com.microsoft", num_heads=32,
    kv_num_heads=8)
one("attention 23", "Attention", {"q": lambda: floats(1, 12, 256, 64), "k": lambda: floats(1, 12, 256, 64),
                                  "v": lambda: floats(1, 12, 256, 64)}, opset=23, is_causal=1)
one("rotary", "RotaryEmbedding", {"x": lambda: floats(1, 32, 128, 64), "p": lambda: np.arange(128)[None].astype(np.int64)},
    {"cos": lambda: floats(128, 32), "sin": lambda: floats(128, 32)}, domain="com.microsoft",
    given=["x", "p", "cos", "sin"])
one("skiplayernorm", "SkipLayerNormalization", {"x": lambda: floats(8, 128, 768), "s": lambda: floats(8, 128, 768)},
    {"g": lambda: floats(768), "b": lambda: floats(768)}, domain="com.microsoft")
one("matmul batch", "MatMul", {"a": lambda: floats(12, 128, 64), "b": lambda: floats(12, 64, 128)})
one("gemm 1x2048x1000", "Gemm", {"a": lambda: floats(1, 2048)}, {"w": lambda: floats(1000, 2048), "c": lambda: floats(1000)},
    transB=1)
one("matmul f16", "MatMul", {"a": lambda: floats(128, 512, dtype=np.float16)},
    {"w": lambda: floats(512, 512, dtype=np.float16)}, dtype=np.float16)
one("matmul f64", "MatMul", {"a": lambda: floats(128, 512, dtype=np.float64)},
    {"w": lambda: floats(512, 512, dtype=np.float64)}, dtype=np.float64)


def ml(name, operator, inputs, outputs, **attributes):
    def make():
        node = helper.make_node(operator, list(inputs), list(outputs), domain="ai.onnx.ml", **attributes)
        return Row([node], {k: v() for k, v in inputs.items()}, {}, outputs)
    ROWS[name] = make


def forest(trees, depth, features):
    """Complete trees of thresholds at random."""
    out = {k: [] for k in ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes",
                           "nodes_truenodeids", "nodes_falsenodeids", "target_treeids", "target_nodeids", "target_ids",
                           "target_weights")}
    inner = 2 ** depth - 1
    for tree in range(trees):
        for node in range(2 * inner + 1):
            leaf = node >= inner
            out["nodes_treeids"].append(tree)
            out["nodes_nodeids"].append(node)
            out["nodes_featureids"].append(0 if leaf else int(random.integers(features)))
            out["nodes_values"].append(0.0 if leaf else float(random.random() * 2 - 1))
            out["nodes_modes"].append("LEAF" if leaf else "BRANCH_LEQ")
            out["nodes_truenodeids"].append(0 if leaf else 2 * node + 1)
            out["nodes_falsenodeids"].append(0 if leaf else 2 * node + 2)
            if leaf:
                out["target_treeids"].append(tree)
                out["target_nodeids"].append(node)
                out["target_ids"].append(0)
                out["target_weights"].append(float(random.random()))
    return out


@row("trees 100 depth 6")
def _():
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, **forest(100, 6, 30))
    made = Row([node], {"x": floats(1000, 30)}, {}, {"y": np.float32})
    return made


@row("trees 500 depth 8, one row")
def _():
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, **forest(500, 8, 30))
    return Row([node], {"x": floats(1, 30)}, {}, {"y": np.float32})


ml("svm regressor", "SVMRegressor", {"x": lambda: floats(1000, 20)}, {"y": np.float32}, kernel_type="RBF",
   kernel_params=[0.1, 0.0, 3.0], n_supports=200, coefficients=[float(v) for v in floats(200)],
   support_vectors=[float(v) for v in floats(4000)], rho=[0.1])


# More of com.microsoft.
one("qlinearadd", "QLinearAdd", {"a": lambda: u8(1, 256, 56, 56)},
    {"as": np.float32(0.02), "az": np.uint8(120), "b": lambda: u8(1, 256, 56, 56), "bs": np.float32(0.03),
     "bz": np.uint8(110), "ys": np.float32(0.05), "yz": np.uint8(128)}, dtype=np.uint8, domain="com.microsoft")
one("dynamicquantizematmul", "DynamicQuantizeMatMul", {"a": lambda: floats(128, 768)},
    {"b": lambda: i8(768, 768), "s": np.float32(0.01), "z": np.int8(0)}, domain="com.microsoft")
one("matmulintegertofloat", "MatMulIntegerToFloat", {"a": lambda: u8(128, 768)},
    {"b": lambda: i8(768, 768), "as": np.float32(0.01), "bs": np.float32(0.01), "az": np.uint8(128)},
    domain="com.microsoft")
one("fusedmatmul", "FusedMatMul", {"a": lambda: floats(12, 128, 64), "b": lambda: floats(12, 128, 64)},
    domain="com.microsoft", transB=1, alpha=0.125)
one("biasgelu", "BiasGelu", {"a": lambda: floats(128, 3072)}, {"b": lambda: floats(3072)}, domain="com.microsoft")
one("embedlayernorm", "EmbedLayerNormalization", {"ids": lambda: ints(0, 1000, 8, 128, dtype=np.int32),
                                                  "seg": lambda: ints(0, 2, 8, 128, dtype=np.int32)},
    {"w": lambda: floats(30522, 768), "p": lambda: floats(512, 768), "s": lambda: floats(2, 768), "g": lambda: floats(768),
     "b": lambda: floats(768), "mask": np.ones((8, 128), np.int32)}, dtype=[np.float32, np.int32], domain="com.microsoft")
one("groupqueryattention prompt", "GroupQueryAttention", {
    "q": lambda: floats(1, 128, 2048), "k": lambda: floats(1, 128, 512), "v": lambda: floats(1, 128, 512)},
    {"pk": None, "pv": None, "len": np.int32([127]), "total": np.int32(128)}, dtype=[np.float32] * 3,
    domain="com.microsoft", num_heads=32, kv_num_heads=8)
one("attention 23 decode", "Attention", {"q": lambda: floats(1, 32, 1, 64), "k": lambda: floats(1, 8, 1, 64),
                                         "v": lambda: floats(1, 8, 1, 64)},
    {"mask": None, "pk": lambda: floats(1, 8, 511, 64), "pv": lambda: floats(1, 8, 511, 64)}, dtype=[np.float32] * 3,
    opset=23)
one("cdist", "CDist", {"a": lambda: floats(500, 64), "b": lambda: floats(300, 64)}, domain="com.microsoft",
    metric="euclidean")
one("gatherblockquantized", "GatherBlockQuantized", {"at": lambda: ints(0, 4000, 1, 128)},
    {"w": lambda: u8(4000, 512), "s": lambda: floats(4000, 32, low=0.01, high=0.02)}, domain="com.microsoft",
    given=["w", "at", "s"], bits=4, block_size=32, quantize_axis=1)

# Of scikit-learn.
ml("scaler", "Scaler", {"x": lambda: floats(10000, 50)}, {"y": np.float32}, offset=[0.1] * 50, scale=[2.0] * 50)
ml("normalizer", "Normalizer", {"x": lambda: floats(10000, 50)}, {"y": np.float32}, norm="L2")
ml("linear classifier", "LinearClassifier", {"x": lambda: floats(10000, 50)}, {"label": np.int64, "y": np.float32},
   coefficients=[float(v) for v in floats(500)], intercepts=[0.0] * 10, classlabels_ints=list(range(10)), multi_class=0,
   post_transform="SOFTMAX")
ml("label encoder", "LabelEncoder", {"x": lambda: ints(0, 1000, 10000)}, {"y": np.int64}, keys_int64s=list(range(1000)),
   values_int64s=[7 * i for i in range(1000)], default_int64=-1)
ml("one hot encoder", "OneHotEncoder", {"x": lambda: ints(0, 100, 10000, 4)}, {"y": np.float32}, cats_int64s=list(range(100)))


@row("tree classifier")
def _():
    trees = {k.replace("target_", "class_"): v for k, v in forest(100, 6, 30).items()}
    trees["class_ids"] = [int(random.integers(10)) for _ in trees["class_ids"]]
    node = helper.make_node("TreeEnsembleClassifier", ["x"], ["label", "y"], domain="ai.onnx.ml",
                            classlabels_int64s=list(range(10)), post_transform="SOFTMAX", **trees)
    return Row([node], {"x": floats(1000, 30)}, {}, {"label": np.int64, "y": np.float32})


# Before and behind networks.
@row("image to tensor")
def _():
    nodes = [helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
             helper.make_node("Transpose", ["f"], ["t"], perm=[0, 3, 1, 2]),
             helper.make_node("Resize", ["t", "", "", "sizes"], ["r"], mode="linear"),
             helper.make_node("Sub", ["r", "mean"], ["s"]), helper.make_node("Div", ["s", "std"], ["y"])]
    return Row(nodes, {"x": u8(1, 720, 1280, 3)},
               {"sizes": np.int64([1, 3, 640, 640]), "mean": floats(1, 3, 1, 1), "std": floats(1, 3, 1, 1, low=0.5)},
               {"y": np.float32})


@row("yolo head and nms")
def _():
    """Boxes and scores of three levels, and what is taken of them."""
    nodes, boxes_of, weights, inputs = [], [], {}, {}
    for level, side in enumerate((80, 40, 20)):
        inputs[f"x{level}"] = floats(1, 144, side, side, low=-6, high=1)
        weights[f"shape{level}"] = np.int64([1, 144, side * side])
        nodes.append(helper.make_node("Reshape", [f"x{level}", f"shape{level}"], [f"f{level}"]))
        boxes_of.append(f"f{level}")
    weights.update({"parts": np.int64([64, 80]), "dfl": np.int64([1, 4, 16, 8400]),
                    "bins": np.arange(16, dtype=np.float32).reshape(1, 1, 16, 1), "axis": np.int64([2]),
                    "centre": floats(1, 2, 8400, low=0, high=80), "sides": np.int64([2, 2]),
                    "stride": np.float32(8), "most": np.int64([300]), "iou": np.float32([0.45]), "least": np.float32([0.25])})
    nodes += [
        helper.make_node("Concat", boxes_of, ["all"], axis=2),
        helper.make_node("Split", ["all", "parts"], ["distances", "logits"], axis=1),
        helper.make_node("Reshape", ["distances", "dfl"], ["d4"]), helper.make_node("Softmax", ["d4"], ["p4"], axis=2),
        helper.make_node("Mul", ["p4", "bins"], ["w4"]),
        helper.make_node("ReduceSum", ["w4", "axis"], ["d"], keepdims=0),
        helper.make_node("Split", ["d", "sides"], ["lt", "rb"], axis=1),
        helper.make_node("Sub", ["centre", "lt"], ["low"]), helper.make_node("Add", ["centre", "rb"], ["high"]),
        helper.make_node("Concat", ["low", "high"], ["xyxy"], axis=1), helper.make_node("Mul", ["xyxy", "stride"], ["b"]),
        helper.make_node("Transpose", ["b"], ["boxes"], perm=[0, 2, 1]), helper.make_node("Sigmoid", ["logits"], ["scores"]),
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["y"])]
    return Row(nodes, inputs, weights, {"y": np.int64}, 13)


@row("log mel spectrogram")
def _():
    nodes = [helper.make_node("STFT", ["x", "step", "window"], ["s"]),
             helper.make_node("ReduceSumSquare", ["s"], ["p"], axes=[-1], keepdims=0),
             helper.make_node("MatMul", ["p", "mel"], ["m"]), helper.make_node("Add", ["m", "tiny"], ["a"]),
             helper.make_node("Log", ["a"], ["y"])]
    return Row(nodes, {"x": floats(1, 80000, 1)},
               {"step": np.int64(160), "window": np.hanning(400).astype(np.float32), "mel": floats(201, 80, low=0),
                "tiny": np.float32(1e-5)}, {"y": np.float32}, 17)


@row("beam step: log softmax, topk, gather")
def _():
    nodes = [helper.make_node("LogSoftmax", ["x"], ["l"], axis=-1), helper.make_node("Add", ["l", "so_far"], ["s"]),
             helper.make_node("Reshape", ["s", "flat"], ["f"]), helper.make_node("TopK", ["f", "k"], ["v", "i"], axis=-1),
             helper.make_node("Div", ["i", "vocabulary"], ["beam"]), helper.make_node("Mod", ["i", "vocabulary"], ["token"]),
             helper.make_node("Gather", ["cache", "beam"], ["kept"], axis=0)]
    return Row(nodes, {"x": floats(4, 50257, high=9), "so_far": floats(4, 1), "cache": floats(4, 12, 64, 64)},
               {"flat": np.int64([-1]), "k": np.int64([4]), "vocabulary": np.int64(50257)},
               {"v": np.float32, "token": np.int64, "kept": np.float32})


@row("swin windows")
def _():
    nodes = [helper.make_node("Slice", ["x", "three", "end", "two"], ["a"]),
             helper.make_node("Slice", ["x", "zero", "three", "two"], ["b"]), helper.make_node("Concat", ["a", "b"], ["r"], axis=1),
             helper.make_node("Reshape", ["r", "split"], ["s"]),
             helper.make_node("Transpose", ["s"], ["t"], perm=[0, 1, 3, 2, 4, 5]), helper.make_node("Reshape", ["t", "rows"], ["y"])]
    return Row(nodes, {"x": floats(1, 56, 56, 96)},
               {"three": np.int64([3]), "zero": np.int64([0]), "end": np.int64([56]), "two": np.int64([1]),
                "split": np.int64([1, 8, 7, 8, 7, 96]), "rows": np.int64([64, 49, 96])}, {"y": np.float32})
