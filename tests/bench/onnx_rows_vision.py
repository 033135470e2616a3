"""Detection, indices, images and windows: rows of onnx_operators.py."""

import numpy as np
from onnx import helper

from onnx_operator_rows import Row, boxes, floats, ints, one, random, row, scores


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
