"""Single operators and small parts of models at the sizes that real models have, as ONNX files with their inputs.

A row is a name and a function that returns a Row: nodes, inputs and weights as NumPy arrays, names of outputs. Shapes
of outputs are left to whoever loads the file.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from onnx import TensorProto, helper, numpy_helper

ROWS: dict[str, Callable[[], "Row"]] = {}
TYPES = {np.dtype(t): p for t, p in {
    np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16, np.float64: TensorProto.DOUBLE,
    np.int8: TensorProto.INT8, np.uint8: TensorProto.UINT8, np.int32: TensorProto.INT32,
    np.uint32: TensorProto.UINT32, np.int64: TensorProto.INT64, np.bool_: TensorProto.BOOL}.items()}
random = np.random.default_rng(11)


@dataclasses.dataclass
class Row:
    """A graph whose constants are initializers; `outputs` maps names to NumPy types (None: sequences and the like)."""
    nodes: list
    inputs: dict
    weights: dict
    outputs: dict
    opset: int = 19
    strings: dict = dataclasses.field(default_factory=dict)

    def model(self):
        values = [helper.make_tensor_value_info(n, TYPES[v.dtype], v.shape) for n, v in self.inputs.items()]
        outputs = [helper.make_tensor_value_info(n, TYPES[np.dtype(t)], None) for n, t in self.outputs.items()]
        weights = [numpy_helper.from_array(np.asarray(v), n) for n, v in self.weights.items()]
        graph = helper.make_graph(self.nodes, "row", values, outputs, weights)
        return helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1),
            helper.make_opsetid("ai.onnx.ml", 3)])


def floats(*shape, low=-1.0, high=1.0, dtype=np.float32):
    return (random.random(shape, dtype=np.float32) * (high - low) + low).astype(dtype)


def ints(low, high, *shape, dtype=np.int64):
    return random.integers(low, high, shape, dtype=dtype)


def row(name):
    def add(make):
        ROWS[name] = make
        return make
    return add


def one(name, operator, inputs, weights=None, outputs=1, dtype=np.float32, opset=19, domain="", given=None, **attributes):
    """A row of one node: the inputs in their order, then the weights, whose value None leaves one out."""
    def make():
        filled = {k: v() if callable(v) else v for k, v in inputs.items()}
        constant = {k: v() if callable(v) else v for k, v in (weights or {}).items()}
        names = given or [*filled, *[k if v is not None else "" for k, v in constant.items()]]
        types = dtype if isinstance(dtype, list) else [dtype] * outputs
        results = {f"y{i}": t for i, t in enumerate(types)}
        node = helper.make_node(operator, names, list(results), domain=domain, **attributes)
        return Row([node], filled, {k: v for k, v in constant.items() if v is not None}, results, opset)
    ROWS[name] = make


def boxes(batch, n, size=640.0):
    corner = floats(batch, n, 2, low=0, high=size)
    extent = floats(batch, n, 2, low=4, high=size / 6)
    return np.concatenate([corner, corner + extent], -1).astype(np.float32)


def scores(batch, classes, n):
    """A detector's: most are near nothing."""
    return (random.random((batch, classes, n), dtype=np.float32) ** 8).astype(np.float32)


# Detection.
def suppression(name, batch, classes, n, most, threshold, least):
    one(name, "NonMaxSuppression", {"boxes": lambda: boxes(batch, n), "scores": lambda: scores(batch, classes, n)},
        {"most": np.int64([most]), "iou": np.float32([threshold]), "least": np.float32([least])}, dtype=np.int64, opset=11)


suppression("nms 1000x1", 1, 1, 1000, 100, 0.5, 0.05)
suppression("nms 8000x1", 1, 1, 8000, 300, 0.7, 0.0)
suppression("nms 8400x1 any", 1, 1, 8400, 8400, 0.45, 0.25)
suppression("nms 1917x90 ssd", 1, 90, 1917, 100, 0.6, 0.3)
suppression("nms 8400x80 yolo", 1, 80, 8400, 200, 0.45, 0.25)
suppression("nms 1000x80", 1, 80, 1000, 100, 0.5, 0.05)
suppression("nms 4x2000x20", 4, 20, 2000, 100, 0.5, 0.3)


@row("nms without score threshold 2000")
def _():
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "iou"], ["y"])
    return Row([node], {"boxes": boxes(1, 2000), "scores": scores(1, 1, 2000)},
               {"most": np.int64([1000]), "iou": np.float32([0.7])}, {"y": np.int64}, 11)


@row("detection tail: nms, gather, topk")
def _():
    nodes = [
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["picked"]),
        helper.make_node("Gather", ["picked", "two"], ["at"], axis=1),
        helper.make_node("Squeeze", ["at", "one"], ["index"]),
        helper.make_node("Gather", ["boxes", "index"], ["taken"], axis=1),
        helper.make_node("Squeeze", ["scores", "axes01"], ["flat"]),
        helper.make_node("Gather", ["flat", "index"], ["kept"], axis=0),
    ]
    return Row(nodes, {"boxes": boxes(1, 4000), "scores": scores(1, 1, 4000)},
               {"most": np.int64([100]), "iou": np.float32([0.5]), "least": np.float32([0.1]), "two": np.int64([2]),
                "one": np.int64([1]), "axes01": np.int64([0, 1])},
               {"taken": np.float32, "kept": np.float32}, 13)


one("topk 1000 of 100k", "TopK", {"x": lambda: floats(1, 100000)}, {"k": np.int64([1000])}, dtype=[np.float32, np.int64])
one("topk 300 of 8400x80", "TopK", {"x": lambda: floats(1, 672000)}, {"k": np.int64([300])},
    dtype=[np.float32, np.int64])
one("topk 5 of 64x1000", "TopK", {"x": lambda: floats(64, 1000)}, {"k": np.int64([5])}, dtype=[np.float32, np.int64])
one("topk 50 of 50257", "TopK", {"x": lambda: floats(1, 50257)}, {"k": np.int64([50])}, dtype=[np.float32, np.int64])
one("topk 1 of 8x50257", "TopK", {"x": lambda: floats(8, 50257)}, {"k": np.int64([1])}, dtype=[np.float32, np.int64])
one("sort 64x2048", "TopK", {"x": lambda: floats(64, 2048)}, {"k": np.int64([2048])}, dtype=[np.float32, np.int64])
one("sort 200k", "TopK", {"x": lambda: floats(200000)}, {"k": np.int64([200000])}, dtype=[np.float32, np.int64])
one("argmax 32x50257", "ArgMax", {"x": lambda: floats(32, 50257)}, dtype=np.int64, axis=-1)
one("argmax 21x512x512", "ArgMax", {"x": lambda: floats(1, 21, 512, 512)}, dtype=np.int64, axis=1)
one("roialign 1000", "RoiAlign", {"x": lambda: floats(1, 256, 50, 50), "rois": lambda: boxes(1, 1000, 800)[0],
                                  "batch": lambda: np.zeros(1000, np.int64)},
    output_height=7, output_width=7, sampling_ratio=2, spatial_scale=0.0625)
one("roialign 100 adaptive", "RoiAlign", {"x": lambda: floats(1, 256, 50, 50), "rois": lambda: boxes(1, 100, 800)[0],
                                          "batch": lambda: np.zeros(100, np.int64)},
    output_height=14, output_width=14, sampling_ratio=0, spatial_scale=0.0625)
one("maxroipool 300", "MaxRoiPool", {"x": lambda: floats(1, 256, 50, 50), "rois": lambda: np.concatenate(
    [np.zeros((300, 1), np.float32), boxes(1, 300, 800)[0]], 1)}, pooled_shape=[7, 7], spatial_scale=0.0625)

# Indices.
one("gathernd 100k", "GatherND", {"x": lambda: floats(512, 512, 16), "at": lambda: ints(0, 512, 100000, 2)})
one("gathernd batch", "GatherND", {"x": lambda: floats(8, 512, 256), "at": lambda: ints(0, 512, 8, 300, 1)}, batch_dims=1)
one("scatternd 50k", "ScatterND", {"x": lambda: floats(100000, 16), "at": lambda: ints(0, 100000, 50000, 1),
                                   "u": lambda: floats(50000, 16)}, reduction="add")
one("scatternd set", "ScatterND", {"x": lambda: floats(512, 512), "at": lambda: np.stack(
    np.unravel_index(random.permutation(512 * 512)[:60000], (512, 512)), 1).astype(np.int64),
    "u": lambda: floats(60000)})
one("scatterelements add", "ScatterElements", {"x": lambda: floats(1000, 256), "at": lambda: ints(0, 1000, 5000, 256),
                                               "u": lambda: floats(5000, 256)}, axis=0, reduction="add")
one("scatterelements set", "ScatterElements", {
    "x": lambda: floats(1000, 256), "at": lambda: np.argsort(floats(500, 256), 0).astype(np.int64),
    "u": lambda: floats(500, 256)}, axis=0)
one("gatherelements", "GatherElements", {"x": lambda: floats(1000, 256), "at": lambda: ints(0, 1000, 5000, 256)}, axis=0)
one("gather embedding", "Gather", {"at": lambda: ints(0, 30000, 32, 128)}, {"table": lambda: floats(30000, 256)},
    given=["table", "at"])
one("nonzero 1024x1024", "NonZero", {"x": lambda: floats(1024, 1024) > 0.9}, dtype=np.int64)
one("nonzero 2M half", "NonZero", {"x": lambda: floats(2 << 20) > 0}, dtype=np.int64)
one("compress 1M", "Compress", {"x": lambda: floats(1 << 20), "c": lambda: floats(1 << 20) > 0.5})
one("compress rows", "Compress", {"x": lambda: floats(20000, 64), "c": lambda: floats(20000) > 0.5}, axis=0)
one("unique 100k", "Unique", {"x": lambda: ints(0, 5000, 100000)}, dtype=[np.int64] * 4, sorted=1)
one("unique 100k unsorted", "Unique", {"x": lambda: ints(0, 5000, 100000)}, dtype=[np.int64] * 4, sorted=0)
one("unique rows", "Unique", {"x": lambda: ints(0, 10, 5000, 4)}, dtype=[np.int64] * 4, axis=0)
one("onehot 4096x1000", "OneHot", {"at": lambda: ints(0, 1000, 4096)}, {"depth": np.int64(1000),
                                                                         "values": np.float32([0, 1])})


@row("where chain 1M")
def _():
    nodes, at = [], "x"
    for i in range(12):
        nodes += [helper.make_node("Greater", ["x", f"t{i}"], [f"c{i}"]),
                  helper.make_node("Where", [f"c{i}", f"t{i}", at], [f"v{i}"])]
        at = f"v{i}"
    return Row(nodes, {"x": floats(1 << 20)}, {f"t{i}": np.float32(i / 20) for i in range(12)}, {at: np.float32})


@row("mask: nonzero, gathernd, scatternd")
def _():
    nodes = [helper.make_node("Greater", ["x", "t"], ["m"]), helper.make_node("NonZero", ["m"], ["nz"]),
             helper.make_node("Transpose", ["nz"], ["at"], perm=[1, 0]),
             helper.make_node("GatherND", ["x", "at"], ["v"]), helper.make_node("Mul", ["v", "v"], ["w"]),
             helper.make_node("ScatterND", ["x", "at", "w"], ["y"])]
    return Row(nodes, {"x": floats(512, 512)}, {"t": np.float32(0.5)}, {"y": np.float32})


# Images.
for mode in ("nearest", "linear", "cubic"):
    for transform in ("half_pixel", "align_corners", "asymmetric"):
        one(f"resize {mode} {transform}", "Resize", {"x": lambda: floats(1, 64, 80, 80)},
            {"roi": None, "scales": np.float32([1, 1, 2, 2])}, mode=mode, coordinate_transformation_mode=transform)
one("resize linear image", "Resize", {"x": lambda: floats(1, 3, 1080, 1920)},
    {"roi": None, "scales": None, "sizes": np.int64([1, 3, 640, 640])}, mode="linear")
one("resize linear antialias", "Resize", {"x": lambda: floats(1, 3, 720, 1280)},
    {"roi": None, "scales": None, "sizes": np.int64([1, 3, 224, 224])}, mode="linear", antialias=1)
one("resize cubic antialias", "Resize", {"x": lambda: floats(1, 3, 720, 1280)},
    {"roi": None, "scales": None, "sizes": np.int64([1, 3, 224, 224])}, mode="cubic", antialias=1)
one("resize 3d linear", "Resize", {"x": lambda: floats(1, 16, 16, 64, 64)},
    {"roi": None, "scales": np.float32([1, 1, 2, 2, 2])}, mode="linear")
one("resize u8", "Resize", {"x": lambda: ints(0, 256, 1, 3, 720, 1280, dtype=np.uint8)},
    {"roi": None, "scales": None, "sizes": np.int64([1, 3, 480, 640])}, mode="linear", dtype=np.uint8)
for mode in ("linear", "nearest", "cubic"):
    for padding in ("zeros", "border", "reflection"):
        if (mode, padding) == ("cubic", "border"):
            continue  # as ONNX's evaluator, unlike ONNX Runtime: tests/onnx/differences.md
        one(f"gridsample {mode} {padding}", "GridSample", {
            "x": lambda: floats(1, 32, 128, 128), "grid": lambda: floats(1, 128, 128, 2, low=-1.1, high=1.1)},
            mode=mode, padding_mode=padding, opset=20)
one("affinegrid", "AffineGrid", {"theta": lambda: floats(4, 2, 3)}, {"size": np.int64([4, 3, 256, 256])}, opset=20)
one("col2im", "Col2Im", {"x": lambda: floats(1, 64 * 9, 62 * 62)}, {"image": np.int64([64, 64]),
                                                                      "block": np.int64([3, 3])})
one("centercroppad", "CenterCropPad", {"x": lambda: floats(3, 720, 1280)}, {"shape": np.int64([640, 1500])}, axes=[1, 2])
one("pad reflect", "Pad", {"x": lambda: floats(1, 64, 128, 128)}, {"pads": np.int64([0, 0, 3, 3, 0, 0, 3, 3])},
    mode="reflect")
one("pad wrap", "Pad", {"x": lambda: floats(1, 64, 128, 128)}, {"pads": np.int64([0, 0, 3, 3, 0, 0, 3, 3])}, mode="wrap")
one("pad constant", "Pad", {"x": lambda: floats(1, 64, 128, 128)}, {"pads": np.int64([0, 0, 3, 3, 0, 0, 3, 3])})
one("depthtospace", "DepthToSpace", {"x": lambda: floats(1, 256, 64, 64)}, blocksize=2, mode="CRD")
one("spacetodepth", "SpaceToDepth", {"x": lambda: floats(1, 64, 128, 128)}, blocksize=2)
one("deformconv", "DeformConv", {"x": lambda: floats(1, 64, 32, 32), "w": lambda: floats(64, 64, 3, 3),
                                 "offset": lambda: floats(1, 18, 32, 32)}, pads=[1, 1, 1, 1], kernel_shape=[3, 3])

# Windows.
one("convtranspose 2x2", "ConvTranspose", {"x": lambda: floats(1, 128, 64, 64)}, {"w": lambda: floats(128, 64, 2, 2)},
    strides=[2, 2])
one("convtranspose 4x4", "ConvTranspose", {"x": lambda: floats(1, 256, 32, 32)}, {"w": lambda: floats(256, 128, 4, 4)},
    strides=[2, 2], pads=[1, 1, 1, 1])
one("convtranspose 3d", "ConvTranspose", {"x": lambda: floats(1, 32, 8, 32, 32)}, {"w": lambda: floats(32, 16, 2, 2, 2)},
    strides=[2, 2, 2])
one("convtranspose 1d", "ConvTranspose", {"x": lambda: floats(1, 256, 200)}, {"w": lambda: floats(256, 128, 16)},
    strides=[8], pads=[4, 4])
one("conv 3d", "Conv", {"x": lambda: floats(1, 16, 16, 56, 56)}, {"w": lambda: floats(32, 16, 3, 3, 3)}, pads=[1] * 6)
one("conv 1d", "Conv", {"x": lambda: floats(1, 80, 3000)}, {"w": lambda: floats(384, 80, 3)}, pads=[1, 1])
one("conv depthwise", "Conv", {"x": lambda: floats(1, 144, 56, 56)}, {"w": lambda: floats(144, 1, 3, 3)},
    pads=[1] * 4, group=144)
one("conv depthwise 7x7", "Conv", {"x": lambda: floats(1, 96, 56, 56)}, {"w": lambda: floats(96, 1, 7, 7)},
    pads=[3] * 4, group=96)
one("conv grouped", "Conv", {"x": lambda: floats(1, 128, 56, 56)}, {"w": lambda: floats(128, 4, 3, 3)}, pads=[1] * 4,
    group=32)
one("conv dilated", "Conv", {"x": lambda: floats(1, 256, 28, 28)}, {"w": lambda: floats(256, 256, 3, 3)}, pads=[4] * 4,
    dilations=[4, 4])
one("conv weight input", "Conv", {"x": lambda: floats(1, 64, 28, 28), "w": lambda: floats(64, 64, 3, 3)}, pads=[1] * 4)
one("conv patch 16", "Conv", {"x": lambda: floats(1, 3, 224, 224)}, {"w": lambda: floats(768, 3, 16, 16)},
    strides=[16, 16])
one("maxpool 3d", "MaxPool", {"x": lambda: floats(1, 64, 16, 56, 56)}, kernel_shape=[3, 3, 3], strides=[2, 2, 2],
    pads=[1] * 6)
one("maxpool indices", "MaxPool", {"x": lambda: floats(1, 64, 112, 112)}, dtype=[np.float32, np.int64],
    kernel_shape=[2, 2], strides=[2, 2])
one("maxpool 13x13", "MaxPool", {"x": lambda: floats(1, 256, 20, 20)}, kernel_shape=[13, 13], pads=[6] * 4)
one("averagepool 3d", "AveragePool", {"x": lambda: floats(1, 64, 16, 56, 56)}, kernel_shape=[2, 2, 2],
    strides=[2, 2, 2])
one("averagepool 3x3", "AveragePool", {"x": lambda: floats(1, 192, 56, 56)}, kernel_shape=[3, 3], pads=[1] * 4)
one("lppool", "LpPool", {"x": lambda: floats(1, 64, 56, 56)}, kernel_shape=[3, 3], strides=[2, 2], p=2)
one("globalaveragepool", "GlobalAveragePool", {"x": lambda: floats(8, 512, 7, 7)})
one("maxunpool", "MaxUnpool", {"x": lambda: floats(1, 64, 56, 56), "at": lambda: (
    np.arange(64)[:, None, None] * 112 * 112 + (np.arange(56)[:, None] * 2 * 112 + np.arange(56) * 2)
    )[None].astype(np.int64)}, kernel_shape=[2, 2], strides=[2, 2])
one("lrn", "LRN", {"x": lambda: floats(1, 96, 56, 56)}, size=5, alpha=1e-4, beta=0.75, bias=1.0)

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
one("qlinearsoftmax", "QLinearSoftmax", {"a": lambda: u8(12, 128, 128)},
    {"as": np.float32(0.05), "az": np.uint8(120), "ys": np.float32(1 / 256), "yz": np.uint8(0)}, dtype=np.uint8,
    domain="com.microsoft", axis=-1, opset=17)
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
