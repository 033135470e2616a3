"""ONNX models of quantized products, for onnxruntime_peer.py: random bytes, written to a file."""

import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, U8, I32 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT32


def numbers(text):
    return [int(size) for size in text.split("x")]


def save(nodes, given, result, weights, path):
    graph = helper.make_graph(nodes, "row", [helper.make_tensor_value_info("x", *given)],
                              [helper.make_tensor_value_info("y", *result)],
                              [numpy_helper.from_array(value, name) for name, value in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def product(sizes, path):
    """u8 [M, K] less a zero point, times i8 [K, N]."""
    m, k, n = numbers(sizes)
    weight = np.random.default_rng(1).integers(-128, 128, (k, n)).astype(np.int8)
    save([helper.make_node("MatMulInteger", ["x", "w", "zero"], ["y"])], (U8, [m, k]), (I32, [m, n]),
         {"w": weight, "zero": np.array(117, np.uint8)}, path)


def convolution(sizes, path):
    """With scales for each channel that comes out, whose zero points are 0, and a bias."""
    image, out, window, stride = sizes.split(":")
    (channels, rows, columns), out, window, stride = numbers(image), int(out), int(window), int(stride)
    random = np.random.default_rng(2)
    weights = {"w": random.integers(-127, 128, (out, channels, window, window)).astype(np.int8),
               "bias": random.integers(-1000, 1000, out).astype(np.int32),
               "x_scale": np.array(0.02, np.float32), "x_zero": np.array(117, np.uint8),
               "w_scale": np.full(out, 0.01, np.float32), "w_zero": np.zeros(out, np.int8),
               "y_scale": np.array(0.5, np.float32), "y_zero": np.array(120, np.uint8)}
    node = helper.make_node("QLinearConv", ["x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero",
                                            "bias"], ["y"],
                            kernel_shape=[window] * 2, strides=[stride] * 2, pads=[window // 2] * 4)
    shape = [1, out, *((size + 2 * (window // 2) - window) // stride + 1 for size in (rows, columns))]
    save([node], (U8, [1, channels, rows, columns]), (U8, shape), weights, path)


def layer(sizes, path):
    """An encoder's layer of f32 with heads of 64, whose products with weights are then quantized dynamically."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    tokens, size, hidden = numbers(sizes)
    random, nodes = np.random.default_rng(3), []
    weights = {"heads": np.array([1, tokens, size // 64, 64]), "whole": np.array([1, tokens, size]),
               "scale": np.array(1 / math.sqrt(64), np.float32)}

    def weight(name, *shape):
        weights[name] = (random.standard_normal(shape) * 0.03).astype(np.float32)
        return name

    def node(op, inputs, output, **attributes):
        nodes.append(helper.make_node(op, inputs, [output], **attributes))

    def dense(x, name, rows, columns):
        node("MatMul", [x, weight(f"w_{name}", rows, columns)], f"{name}_sum")
        node("Add", [f"{name}_sum", weight(f"b_{name}", columns)], name)

    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        dense("x", name, size, size)
        node("Reshape", [name, "heads"], f"{name}_heads")
        node("Transpose", [f"{name}_heads"], f"{name}_turned", perm=order)
    node("MatMul", ["q_turned", "k_turned"], "scores")
    node("Mul", ["scores", "scale"], "scaled")
    node("Softmax", ["scaled"], "p", axis=-1)
    node("MatMul", ["p", "v_turned"], "values")
    node("Transpose", ["values"], "turned", perm=[0, 2, 1, 3])
    node("Reshape", ["turned", "whole"], "joined")
    dense("joined", "attention", size, size)
    node("Add", ["x", "attention"], "first")
    node("LayerNormalization", ["first", weight("g1", size), weight("e1", size)], "normal", axis=-1)
    dense("normal", "hidden", size, hidden)
    node("Relu", ["hidden"], "active")
    dense("active", "out", hidden, size)
    node("Add", ["normal", "out"], "second")
    node("LayerNormalization", ["second", weight("g2", size), weight("e2", size)], "y", axis=-1)
    shape = [1, tokens, size]
    floats = path + ".f32"
    save(nodes, (FLOAT, shape), (FLOAT, shape), weights, floats)
    quantize_dynamic(floats, path, weight_type=QuantType.QInt8)
