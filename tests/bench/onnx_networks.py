"""Convolution networks as ONNX files, written node by node, with random weights: shapes to measure, no results.

Batch normalization is folded into weights and biases, as exporters do. Each function makes the network of the paper
that it names, for one image of 224 x 224.
"""

import math

import numpy as np
from onnx import TensorProto, helper, numpy_helper


class Net:
    """A network under construction: nodes are added after the value that `self.at` names."""

    def __init__(self):
        self.nodes, self.weights, self.random = [], [], np.random.default_rng(7)
        self.at, self.channels, self.values = "x", 3, 0

    def weight(self, *shape):
        fan = math.prod(shape[1:]) if len(shape) > 1 else 0
        value = self.random.standard_normal(shape, dtype=np.float32)
        value *= np.float32(math.sqrt(2 / fan) if fan else 0.1)
        self.weights.append(numpy_helper.from_array(value, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def add(self, operator, inputs, **attributes):
        self.values += 1
        self.at = f"v{self.values}"
        self.nodes.append(helper.make_node(operator, inputs, [self.at], **attributes))
        return self.at

    def activate(self, kind):
        if kind == "relu6":
            bounds = [self.constant(0.0), self.constant(6.0)]
            self.add("Clip", [self.at, *bounds])
        elif kind == "swish":
            before = self.at
            self.add("Mul", [before, self.add("Sigmoid", [before])])
        elif kind:
            self.add("Relu", [self.at])

    def constant(self, value):
        self.weights.append(numpy_helper.from_array(np.array(value, np.float32), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def conv(self, out, window=1, stride=1, groups=1, act="relu"):
        """Padded so that a stride of 1 keeps the size."""
        inputs = [self.at, self.weight(out, self.channels // groups, window, window), self.weight(out)]
        self.add("Conv", inputs, kernel_shape=[window] * 2, strides=[stride] * 2, pads=[window // 2] * 4, group=groups)
        self.channels = out
        self.activate(act)

    def residual(self, branch, shortcut=None, act="relu"):
        """What `branch` makes of the value, plus the value or what `shortcut` makes of it."""
        begin, channels = self.at, self.channels
        branch()
        end, out = self.at, self.channels
        self.at, self.channels = begin, channels
        if shortcut:
            shortcut()
        self.add("Add", [end, self.at])
        self.channels = out
        self.activate(act)

    def pool(self, window, stride, padding=0):
        self.add("MaxPool", [self.at], kernel_shape=[window] * 2, strides=[stride] * 2, pads=[padding] * 4)

    def linear(self, k, n, act=None):
        self.add("Gemm", [self.at, self.weight(n, k), self.weight(n)], transB=1)
        self.activate(act)

    def classify(self):
        self.add("GlobalAveragePool", [self.at])
        self.add("Flatten", [self.at])
        self.linear(self.channels, 1000)

    def model(self):
        graph = helper.make_graph(
            self.nodes, "network", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 224, 224])],
            [helper.make_tensor_value_info(self.at, TensorProto.FLOAT, [1, 1000])], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def resnet50():
    """He et al. 2015; a stage's stride is that of its 3 x 3 convolution."""
    net = Net()
    net.conv(64, 7, 2)
    net.pool(3, 2, 1)
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            step = stride if block == 0 else 1

            def branch(width=width, step=step):
                net.conv(width)
                net.conv(width, 3, step)
                net.conv(4 * width, act=None)

            def shortcut(width=width, step=step):
                net.conv(4 * width, 1, step, act=None)

            net.residual(branch, shortcut if block == 0 else None)
    net.classify()
    return net.model()


def inverted(net, out, expand, window, stride, act, squeeze=False):
    """A block of Sandler et al. 2018, with the gate of Hu et al. 2017 where it squeezes."""
    def branch():
        channels = net.channels
        if expand != 1:
            net.conv(channels * expand, act=act)
        net.conv(net.channels, window, stride, groups=net.channels, act=act)
        if squeeze:
            value, wide = net.at, net.channels
            net.add("GlobalAveragePool", [net.at])
            net.conv(max(1, channels // 4), act=act)
            net.conv(wide, act=None)
            net.add("Mul", [value, net.add("Sigmoid", [net.at])])
        net.conv(out, act=None)

    if stride == 1 and out == net.channels:
        net.residual(branch, act=None)
    else:
        branch()


def mobilenet_v2():
    net = Net()
    net.conv(32, 3, 2, act="relu6")
    for expand, out, blocks, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                        (6, 160, 3, 2), (6, 320, 1, 1)):
        for block in range(blocks):
            inverted(net, out, expand, 3, stride if block == 0 else 1, "relu6")
    net.conv(1280, act="relu6")
    net.classify()
    return net.model()


def efficientnet_b0():
    """Tan and Le 2019."""
    net = Net()
    net.conv(32, 3, 2, act="swish")
    for expand, out, blocks, window, stride in ((1, 16, 1, 3, 1), (6, 24, 2, 3, 2), (6, 40, 2, 5, 2), (6, 80, 3, 3, 2),
                                                (6, 112, 3, 5, 1), (6, 192, 4, 5, 2), (6, 320, 1, 3, 1)):
        for block in range(blocks):
            inverted(net, out, expand, window, stride if block == 0 else 1, "swish", squeeze=True)
    net.conv(1280, act="swish")
    net.classify()
    return net.model()


def vgg16():
    """Simonyan and Zisserman 2014."""
    net = Net()
    for width, layers in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(layers):
            net.conv(width, 3)
        net.pool(2, 2)
    net.add("Flatten", [net.at])
    net.linear(512 * 7 * 7, 4096, "relu")
    net.linear(4096, 4096, "relu")
    net.linear(4096, 1000)
    return net.model()


NETWORKS = {"resnet50": resnet50, "mobilenet_v2": mobilenet_v2, "efficientnet_b0": efficientnet_b0, "vgg16": vgg16}
