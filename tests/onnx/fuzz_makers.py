"""Random cases of each operator, for fuzz.py."""

import numpy as np


def register(maker, Case, FLOATS, INTS):
    """Registers a function (draw, name) -> Case for each operator."""
    numbers = FLOATS + INTS

    @maker("Abs", "Neg", "Sign", "Ceil", "Floor", "Round", "Exp", "Sqrt", "Reciprocal", "Sigmoid",
           "Tanh", "Erf", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Asinh", "Relu", "Softplus",
           "Softsign", "HardSwish", "Mish", "Identity", "IsNaN")
    def unary(d, name):
        dtype = d.one(*FLOATS)
        if name in ("Abs", "Neg", "Sign", "Identity") and d.int(0, 1):
            dtype = d.one(np.int8, np.int32, np.int64)
        x = d.any(d.shape(), dtype)
        return Case(name, [np.abs(x) if name == "Sqrt" else x], opset=22)

    @maker("Log", "Asin", "Acos", "Atanh", "Acosh")
    def ranged(d, name):
        x = d.np.uniform(0.01, 0.99, d.shape())
        x = 1 + 5 * x if name == "Acosh" else x
        return Case(name, [np.asarray(x).astype(d.one(np.float32, np.float64, np.float16))], opset=22)

    @maker("Elu", "Celu", "Selu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Shrink", "Swish",
           "Gelu")
    def activation(d, name):
        attributes = {}
        if name in ("Selu", "Elu", "Celu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Swish"):
            attributes["alpha"] = d.maybe(d.one(0.1, 0.7, 1.5))
        if name == "Selu":
            attributes["gamma"] = d.maybe(0.9)
        if name == "HardSigmoid":
            attributes["beta"] = d.maybe(0.3)
        if name == "Shrink":
            attributes.update(lambd=d.maybe(0.8), bias=d.maybe(0.3))
        if name == "Gelu":
            attributes["approximate"] = d.maybe("tanh")
        dtype = np.float32 if name in ("Celu", "Shrink", "Swish") else d.one(np.float32, np.float64)
        return Case(name, [d.float(d.shape(), dtype)], opset=24 if name == "Swish" else 22, **attributes)

    @maker("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Equal", "Less", "Greater", "LessOrEqual",
           "GreaterOrEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift", "And", "Or", "Xor",
           "PRelu")
    def binary(d, name):
        dtype = d.one(*numbers)
        attributes = {}
        if name.startswith("Bit"):
            dtype = d.one(*INTS)
        if name == "BitShift":
            dtype = d.one(np.uint8, np.uint16, np.uint32, np.uint64)
            attributes["direction"] = d.one("LEFT", "RIGHT")
        if name in ("And", "Or", "Xor"):
            dtype = np.bool_
        if name == "Pow":
            dtype = d.one(np.float32, np.float64, np.int32, np.int64)
        if name == "PRelu":
            dtype = d.one(np.float32, np.float64, np.int32)
        shape = d.shape()
        a, b = d.any(shape, dtype), d.any(d.broadcast(shape), dtype)
        if name == "BitShift":
            b = d.ints(b.shape, dtype, 0, 7)
        if name in ("Div", "Mod"):
            b = np.where(b == 0, np.ones_like(b), b)
            if name == "Mod":
                attributes["fmod"] = 1 if np.issubdtype(dtype, np.floating) else d.int(0, 1)
        if name == "Pow":
            a = np.abs(a) + np.asarray(1, dtype) if np.issubdtype(dtype, np.floating) else d.ints(shape, dtype, -3, 3)
            b = d.ints(b.shape, d.one(np.int32, np.int64), 0, 4) if d.int(0, 1) else d.float(b.shape, np.float32)
            if not np.issubdtype(dtype, np.floating):
                b = np.abs(np.round(b)).astype(b.dtype)
        return Case(name, [a, b], opset=18, **attributes)

    @maker("Sum", "Max", "Min", "Mean")
    def variadic(d, name):
        dtype = d.one(*(numbers if name in ("Max", "Min") else [np.float32, np.float64]))
        shape = d.shape()
        return Case(name, [d.any(d.broadcast(shape), dtype) for _ in range(d.int(1, 4))], opset=13)

    @maker("Where")
    def where(d, name):
        shape, dtype = d.shape(), d.one(*numbers)
        return Case(name, [d.any(d.broadcast(shape), np.bool_), d.any(shape, dtype),
                           d.any(d.broadcast(shape), dtype)], opset=16)

    @maker("Clip")
    def clip(d, name):
        dtype = d.one(*numbers)
        low, high = sorted([d.any((), dtype), d.any((), dtype)])
        return Case(name, [d.any(d.shape(), dtype), d.maybe(np.asarray(low)), d.maybe(np.asarray(high))],
                    opset=13)

    @maker("Not")
    def logical_not(d, name):
        return Case(name, [d.any(d.shape(), np.bool_)])

    @maker("IsInf")
    def is_inf(d, name):
        x = d.float(d.shape(1), np.float32)
        x[d.np.uniform(size=x.shape) < 0.3] = np.inf
        x[d.np.uniform(size=x.shape) < 0.3] = -np.inf
        return Case(name, [x], opset=20, detect_positive=d.maybe(d.int(0, 1)),
                    detect_negative=d.maybe(d.int(0, 1)))

    @maker("Cast")
    def cast(d, name):
        from onnx import TensorProto as t
        source = d.any(d.shape(), d.one(np.bool_, *numbers))
        if np.issubdtype(source.dtype, np.floating):
            source = np.abs(source)
        return Case(name, [source], to=d.one(t.FLOAT, t.DOUBLE, t.FLOAT16, t.INT8, t.INT16, t.INT32,
                                             t.INT64, t.UINT8, t.UINT16, t.UINT32, t.UINT64, t.BOOL))

    @maker("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
           "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
    def reduce(d, name):
        x = d.any(d.shape(0, 4, 4), d.one(np.float32, np.float64, np.int32, np.int64))
        if name.startswith("ReduceLog") or name in ("ReduceMean", "ReduceL2"):
            x = x.astype(d.one(np.float32, np.float64))
        if name == "ReduceLogSum":
            x = np.abs(x) + 1
        axes = d.r.sample(range(-x.ndim, 0), d.int(0, x.ndim)) if x.ndim else []
        axes = [a + x.ndim if d.int(0, 1) else a for a in axes]
        keep, noop = d.maybe(d.int(0, 1)), d.maybe(d.int(0, 1))
        since = 13 if name == "ReduceSum" else 18
        if d.int(0, 1):
            return Case(name, [x] + ([np.array(axes, np.int64)] if d.int(0, 2) else []), opset=since,
                        fixed={1}, keepdims=keep, noop_with_empty_axes=noop)
        return Case(name, [x], opset=since - 2 if since == 13 else 13, keepdims=keep, axes=axes or None)

    @maker("ArgMax", "ArgMin")
    def arg(d, name):
        x = d.ints(d.shape(1), np.int32, -3, 3) if d.int(0, 1) else d.float(d.shape(1))
        return Case(name, [x.astype(d.one(np.float32, np.int32))], opset=13, axis=d.maybe(d.axis(x.ndim)),
                    keepdims=d.maybe(d.int(0, 1)), select_last_index=d.maybe(d.int(0, 1)))

    @maker("Softmax", "LogSoftmax", "Hardmax")
    def softmax(d, name):
        x = d.float(d.shape(1), d.one(np.float32, np.float64))
        opset = d.one(11, 13)
        # Before opset 13 the default, 1, is no axis of a vector.
        axis = d.axis(x.ndim)
        return Case(name, [x], opset=opset, axis=axis if opset < 13 and x.ndim < 2 else d.maybe(axis))

    @maker("TopK")
    def top_k(d, name):
        x = d.np.permutation(60)[:int(np.prod(s := d.shape(1, 3, 3)))].reshape(s).astype(d.one(np.float32, np.int64))
        axis = d.axis(x.ndim)
        return Case(name, [x, np.array([d.int(1, x.shape[axis])], np.int64)], opset=11, outputs=2,
                    fixed={1}, axis=axis, largest=d.maybe(d.int(0, 1)))

    @maker("CumSum")
    def cum_sum(d, name):
        x = d.any(d.shape(1), d.one(np.float32, np.float64, np.int32, np.int64))
        return Case(name, [x, np.array(d.axis(x.ndim), np.int64)], opset=14, fixed={1},
                    exclusive=d.maybe(1), reverse=d.maybe(1))

    @maker("MatMul")
    def mat_mul(d, name):
        m, k, n = d.int(1, 5), d.int(1, 5), d.int(1, 5)
        batch = d.shape(0, 2, 3)
        dtype = d.one(np.float32, np.float64, np.int32, np.int64)
        a, b = d.any(batch + (m, k), dtype), d.any(d.broadcast(batch) + (k, n), dtype)
        return Case(name, [a if d.int(0, 5) else a.reshape(-1)[:k], b], opset=13)

    @maker("Gemm")
    def gemm(d, name):
        m, k, n, ta, tb = d.int(1, 5), d.int(1, 5), d.int(1, 5), d.int(0, 1), d.int(0, 1)
        dtype = d.one(np.float32, np.float64)
        c = d.float(d.broadcast((m, n)), dtype)
        return Case(name, [d.float((k, m) if ta else (m, k), dtype), d.float((n, k) if tb else (k, n), dtype),
                           d.maybe(c)], opset=13, transA=ta, transB=tb, alpha=d.maybe(0.5), beta=d.maybe(0.3))

    @maker("Einsum")
    def einsum(d, name):
        sizes = {c: d.int(1, 4) for c in "bijk"}
        formula = d.one("ij,jk->ik", "bij,bjk->bik", "ij->ji", "bij->b", "ii->i", "ij,ij->", "b...,b...->...", "ij , jk")
        parts = formula.replace(" ", "").split("->")[0].split(",")
        extra = (2, 3)
        inputs = []
        for part in parts:
            shape = ()
            for c in part.replace("...", "."):
                shape += extra if c == "." else (sizes[c],)
            inputs.append(d.float(shape))
        return Case(name, inputs, opset=12, equation=formula)

    def window(d, n, spatial, kernel, same=True):
        out = {"strides": d.maybe([d.int(1, 3) for _ in range(n)]),
               "dilations": d.maybe([d.int(1, 2) for _ in range(n)], 0.3)}
        mode = d.one("pads", "auto", "none")
        if mode == "pads":
            out["pads"] = [d.int(0, k - 1) for k in kernel] + [d.int(0, k - 1) for k in kernel]
        elif mode == "auto" and same:
            out["auto_pad"] = d.one("SAME_UPPER", "SAME_LOWER", "VALID")
            out["dilations"] = None
        return out

    @maker("Conv", "ConvTranspose")
    def conv(d, name):
        n, groups = d.int(1, 3), d.one(1, 1, 2)
        kernel = [d.int(1, 3) for _ in range(n)]
        spatial = [d.int(6, 9) if n < 3 else d.int(5, 6) for _ in range(n)]
        i, o = d.int(1, 3), d.int(1, 3)
        x = d.float((d.int(1, 2), i * groups, *spatial))
        w = d.float((o * groups, i, *kernel) if name == "Conv" else (i * groups, o, *kernel))
        attributes = window(d, n, spatial, kernel, name == "Conv")
        if name == "ConvTranspose" and attributes["strides"] and d.int(0, 1):
            attributes["output_padding"] = [d.int(0, s - 1) for s in attributes["strides"]]
        return Case(name, [x, w] + ([d.float((o * groups,))] if d.int(0, 1) else []), opset=11,
                    group=groups, kernel_shape=d.maybe(kernel), **attributes)

    @maker("MaxPool", "AveragePool", "LpPool")
    def pool(d, name):
        n = d.int(1, 3)
        kernel = [d.int(1, 3) for _ in range(n)]
        x = d.float((d.int(1, 2), d.int(1, 3), *[d.int(6, 9) for _ in range(n)]))
        attributes = window(d, n, x.shape[2:], kernel)
        if name == "AveragePool":
            attributes["count_include_pad"] = d.maybe(1)
        if name == "LpPool":
            attributes["p"] = d.maybe(d.int(1, 3))
        attributes["ceil_mode"] = d.maybe(1, 0.3)
        return Case(name, [x], opset=22, kernel_shape=kernel,
                    outputs=2 if name == "MaxPool" and d.int(0, 1) else 1, **attributes)

    @maker("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
    def global_pool(d, name):
        return Case(name, [d.float((2, 3, *d.shape(1, 3)))], opset=13,
                    p=d.int(1, 3) if name == "GlobalLpPool" else None)

    @maker("BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization",
           "LpNormalization", "MeanVarianceNormalization", "LRN", "RMSNormalization")
    def norm(d, name):
        channels = d.one(2, 4)
        x = d.float((d.int(1, 3), channels, d.int(2, 4), d.int(2, 4)))
        eps = d.maybe(0.01)
        vector = lambda: d.float((channels,))
        if name == "BatchNormalization":
            train = d.int(0, 1)
            return Case(name, [x, vector(), vector(), vector(), np.abs(vector())], opset=15,
                        outputs=3 if train else 1, training_mode=train, epsilon=eps, momentum=d.maybe(0.7))
        if name == "InstanceNormalization":
            return Case(name, [x, vector(), vector()], opset=22, epsilon=eps)
        if name in ("LayerNormalization", "RMSNormalization"):
            axis = d.axis(4)
            inputs = [x, d.float(x.shape[axis:])] + ([d.float(x.shape[axis:])] if name[0] == "L" and d.int(0, 1) else [])
            return Case(name, inputs, opset=23, axis=axis, epsilon=eps)
        if name == "GroupNormalization":
            return Case(name, [x, vector(), vector()], opset=21, num_groups=d.one(1, 2), epsilon=eps)
        if name == "LpNormalization":
            return Case(name, [x], opset=22, p=d.one(1, 2), axis=d.axis(4))
        if name == "LRN":
            return Case(name, [x], opset=13, size=d.one(1, 3, 5), alpha=d.maybe(0.2), beta=d.maybe(0.6), bias=d.maybe(1.3))
        return Case(name, [x], opset=13, axes=d.maybe([0, 2]))

    @maker("Resize")
    def resize(d, name):
        x = d.float((1, 2, d.int(2, 6), d.int(2, 6)), d.one(np.float32, np.float32, np.float32))
        mode = d.one("nearest", "linear", "cubic")
        coordinate = d.one("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
        attributes = {}
        inputs = [x, None]
        if d.int(0, 1):
            inputs += [np.array([1, 1, d.one(0.5, 0.7, 1.5, 2.0, 2.6), d.one(0.5, 0.8, 1.0, 2.0, 3.0)], np.float32)]
        else:
            inputs += [None, np.array([1, 2, d.int(1, 9), d.int(1, 9)], np.int64)]
        if mode == "cubic":
            attributes = {"cubic_coeff_a": d.maybe(-0.5), "exclude_outside": d.maybe(1, 0.3)}
        if mode == "nearest":
            attributes["nearest_mode"] = d.maybe(d.one("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"))
        elif d.int(0, 3) == 0:
            attributes["antialias"] = 1
        return Case(name, inputs, opset=19, fixed={2, 3}, mode=mode,
                    coordinate_transformation_mode=coordinate, **attributes)

    @maker("GridSample")
    def grid_sample(d, name):
        n = d.one(2, 2, 3)
        x = d.float((2, 2, *[d.int(2, 5) for _ in range(n)]))
        grid = d.np.uniform(-1.4, 1.4, (2, *[d.int(1, 4) for _ in range(n)], n)).astype(np.float32)
        return Case(name, [x, grid], opset=20, mode=d.one("linear", "nearest", *(["cubic"] if n == 2 else [])),
                    padding_mode=d.one("zeros", "border", "reflection"), align_corners=d.int(0, 1))

    @maker("RoiAlign")
    def roi_align(d, name):
        x = d.float((2, 2, 6, 7))
        corner = d.np.uniform(0, 5, (3, 2))
        rois = np.concatenate([corner, corner + d.np.uniform(0.5, 5, (3, 2))], 1).astype(np.float32)
        return Case(name, [x, rois, d.ints((3,), np.int64, 0, 1)], opset=16, mode=d.one("avg", "avg", "max"),
                    output_height=d.int(1, 3), output_width=d.int(1, 3), sampling_ratio=d.int(0, 3),
                    spatial_scale=d.one(0.5, 1.0), coordinate_transformation_mode=d.maybe("output_half_pixel"))

    @maker("MaxRoiPool")
    def max_roi_pool(d, name):
        x = d.float((2, 2, 6, 7))
        corner = d.ints((3, 2), np.int64, 0, 3)
        rois = np.concatenate([d.ints((3, 1), np.int64, 0, 1), corner, corner + d.ints((3, 2), np.int64, 0, 3)], 1)
        return Case(name, [x, rois.astype(np.float32)], opset=22, pooled_shape=[d.int(1, 3), d.int(1, 3)],
                    spatial_scale=d.one(0.5, 1.0))

    @maker("AffineGrid")
    def affine_grid(d, name):
        n = d.one(2, 3)
        size = [2, 1] + [d.int(2, 4) for _ in range(n)]
        return Case(name, [d.float((2, n, n + 1)), np.array(size, np.int64)], opset=20, fixed={1},
                    align_corners=d.maybe(1))

    @maker("QuantizeLinear", "DequantizeLinear")
    def quantize(d, name):
        x = d.float((3, 4, 5), scale=20)
        axis, block = d.int(0, 2), 0
        kind = d.one("tensor", "axis", "block")
        shape = {"tensor": (), "axis": (x.shape[axis],)}.get(kind)
        if kind == "block":
            block = d.int(1, x.shape[axis])
            shape = tuple(-(-n // block) if i == axis else n for i, n in enumerate(x.shape))
        dtype = d.one(np.int8, np.uint8, np.int16, np.uint16)
        scale = (np.abs(d.float(shape)) + 0.1).astype(np.float32)
        zero = d.ints(shape, dtype)
        first = x if name[0] == "Q" else d.ints(x.shape, dtype)
        return Case(name, [first, scale, zero], opset=21, axis=axis, block_size=block or None)

    @maker("DynamicQuantizeLinear")
    def dynamic_quantize(d, name):
        return Case(name, [d.float(d.shape(1))], opset=11, outputs=3)

    @maker("MatMulInteger", "QLinearMatMul")
    def integer_matmul(d, name):
        m, k, n = d.int(1, 4), d.int(1, 5), d.int(1, 4)
        ta, tb = d.one(np.uint8, np.int8), d.one(np.uint8, np.int8)
        a, b = d.ints((m, k), ta, high=100), d.ints((k, n), tb, high=100)
        za, zb = d.ints((), ta), d.ints((), tb)
        if name == "MatMulInteger":
            return Case(name, [a, b, za, zb], opset=10)
        scale = lambda: np.asarray(d.np.uniform(0.01, 0.3), np.float32)
        return Case(name, [a, scale(), za, b, scale(), zb, scale(), d.ints((), ta)], opset=21)

    @maker("ConvInteger", "QLinearConv")
    def integer_conv(d, name):
        x, w = d.ints((1, 2, 6, 6), np.uint8, high=100), d.ints((3, 2, 3, 3), np.uint8, high=50)
        zx, zw = d.ints((), np.uint8), d.ints((), np.uint8)
        attributes = window(d, 2, (6, 6), (3, 3))
        if name == "ConvInteger":
            return Case(name, [x, w, zx, zw], opset=10, **attributes)
        scale = lambda: np.asarray(d.np.uniform(0.01, 0.3), np.float32)
        bias = d.ints((3,), np.int32)
        return Case(name, [x, scale(), zx, w, scale(), zw, scale(), d.ints((), np.uint8), bias], opset=10,
                    **attributes)

    @maker("RNN", "LSTM", "GRU")
    def recurrent(d, name):
        gates = {"RNN": 1, "LSTM": 4, "GRU": 3}[name]
        steps, batch, inputs, hidden = d.int(1, 4), d.int(1, 3), d.int(1, 3), d.int(1, 4)
        direction = d.one("forward", "reverse", "bidirectional")
        n = 2 if direction == "bidirectional" else 1
        part = lambda *shape: d.float(shape, scale=0.7)
        lengths = d.ints((batch,), np.int32, 1, steps)
        args = [part(steps, batch, inputs), part(n, gates * hidden, inputs), part(n, gates * hidden, hidden),
                d.maybe(part(n, 2 * gates * hidden)), d.maybe(lengths), d.maybe(part(n, batch, hidden))]
        if name == "LSTM":
            args += [d.maybe(part(n, batch, hidden)), d.maybe(part(n, 3 * hidden))]
        attributes = {"hidden_size": hidden, "direction": direction, "clip": d.maybe(0.8, 0.3)}
        if name == "GRU":
            attributes["linear_before_reset"] = d.maybe(1)
        if d.int(0, 2) == 0:
            f = ["Sigmoid", "Tanh", "Relu", "HardSigmoid", "Softsign", "Softplus"]
            attributes["activations"] = [d.one(*f) for _ in range(n * {"RNN": 1, "LSTM": 3, "GRU": 2}[name])]
        while args[-1] is None:
            args.pop()
        return Case(name, args, opset=14, outputs=3 if name == "LSTM" else 2, **attributes)

    @maker("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile", "Concat", "Slice",
           "Split", "Pad", "Trilu", "DepthToSpace", "SpaceToDepth", "Shape", "Size", "EyeLike",
           "ReverseSequence", "OneHot")
    def movement(d, name):
        x = d.any(d.shape(1, 4), d.one(*numbers))
        vector = lambda values: np.array(values, np.int64)
        if name == "Transpose":
            return Case(name, [x], perm=d.maybe(d.r.sample(range(x.ndim), x.ndim)))
        if name == "Reshape":
            shape = [0] + [-1] if x.ndim > 1 else [-1, 1]
            return Case(name, [x, vector(shape)], fixed={1})
        if name == "Flatten":
            return Case(name, [x], axis=d.maybe(d.int(-x.ndim, x.ndim)))
        if name == "Squeeze":
            return Case(name, [x.reshape((1,) + x.shape), vector([0])], fixed={1})
        if name == "Unsqueeze":
            return Case(name, [x, vector([d.int(0, x.ndim)])], fixed={1})
        if name == "Expand":
            return Case(name, [x, vector([2] + [1] * x.ndim)], fixed={1})
        if name == "Tile":
            return Case(name, [x, vector([d.int(0, 3) for _ in range(x.ndim)])], fixed={1})
        if name == "Concat":
            return Case(name, [x] * d.int(1, 3), axis=d.axis(x.ndim))
        if name == "Slice":
            axes = d.r.sample(range(x.ndim), d.int(1, x.ndim))
            return Case(name, [x, vector([d.int(-6, 6) for _ in axes]), vector([d.int(-6, 6) for _ in axes]),
                               vector(axes), vector([d.one(-2, -1, 1, 2) for _ in axes])], fixed={1, 2, 3, 4})
        if name == "Split":
            axis = d.axis(x.ndim)
            first = d.int(0, x.shape[axis])
            return Case(name, [x, vector([first, x.shape[axis] - first])], axis=axis, outputs=2, fixed={1}, opset=18)
        if name == "Pad":
            mode = d.one("constant", "reflect", "edge", "wrap")
            x = x.astype(d.one(np.float32, np.int32))
            low = -1 if mode == "constant" else 0
            pads = [d.int(low, max(low, min(s) - 1)) if (s := (n,)) else 0 for n in x.shape] * 2
            pads = [p if n > 2 else max(p, 0) for p, n in zip(pads, list(x.shape) * 2)]
            value = d.maybe(np.asarray(3, x.dtype)) if mode == "constant" else None
            return Case(name, [x, vector(pads), value], mode=mode, fixed={1}, opset=19)
        if name == "Trilu":
            return Case(name, [d.any(d.shape(2), d.one(np.float32, np.int64)), np.asarray(d.int(-3, 3), np.int64)],
                        upper=d.maybe(0), fixed={1}, opset=14)
        if name == "DepthToSpace":
            return Case(name, [d.float((2, 8, 2, 3))], blocksize=2, mode=d.one("DCR", "CRD"), opset=13)
        if name == "SpaceToDepth":
            return Case(name, [d.float((2, 3, 4, 6))], blocksize=2, opset=13)
        if name == "EyeLike":
            return Case(name, [d.any((d.int(1, 4), d.int(1, 4)), d.one(np.float32, np.int64))], k=d.maybe(d.int(-3, 3)))
        if name == "ReverseSequence":
            x = d.float((4, 3, 2))
            batch = d.int(0, 1)
            return Case(name, [x, d.ints((x.shape[batch],), np.int64, 1, x.shape[1 - batch])], batch_axis=batch,
                        time_axis=1 - batch, opset=10)
        if name == "OneHot":
            index = d.ints(d.shape(0, 3), np.int64, -5, 4)
            return Case(name, [index, np.asarray(5, np.int64), np.array([2, 7], d.one(np.float32, np.int64))],
                        axis=d.maybe(d.int(-index.ndim - 1, index.ndim)), fixed={1}, opset=11)
        return Case(name, [x], start=d.maybe(d.int(-3, 3)) if name == "Shape" else None,
                    end=d.maybe(d.int(-3, 3)) if name == "Shape" else None, opset=19)

    @maker("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND")
    def indexing(d, name):
        x = d.any(d.shape(1, 3, 4), d.one(np.float32, np.float64, np.int64))
        axis = d.axis(x.ndim)
        n = x.shape[axis]
        if name == "Gather":
            return Case(name, [x, d.ints(d.shape(0, 2), d.one(np.int32, np.int64), -n, n - 1)], axis=axis, opset=13)
        shape = list(x.shape)
        shape[axis] = d.int(1, n)
        if name == "GatherElements":
            return Case(name, [x, d.ints(shape, np.int64, -n, n - 1)], axis=axis, opset=13)
        if name == "ScatterElements":
            reduction = d.one("none", "add", "mul", "min", "max")
            index = d.ints(shape, np.int64, -n, n - 1)
            if reduction == "none":
                index = np.broadcast_to(np.arange(shape[axis]).reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]), shape)
            return Case(name, [x, np.ascontiguousarray(index), d.any(shape, x.dtype)], axis=axis, reduction=reduction, opset=18)
        width = d.int(1, x.ndim)
        rows = d.int(1, 3) if name == "GatherND" else 1
        index = np.stack([d.ints((rows,), np.int64, -x.shape[i], x.shape[i] - 1) for i in range(width)], -1)
        if name == "GatherND":
            return Case(name, [x, index], opset=13)
        return Case(name, [x, index, d.any((rows,) + x.shape[width:], x.dtype)],
                    reduction=d.one("none", "add", "mul", "min", "max"), opset=18)

    @maker("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
    def loss(d, name):
        classes, rest = d.int(2, 5), d.shape(0, 2, 3)
        shape = (d.int(1, 3), classes) + rest
        labels = d.ints(shape[:1] + rest, np.int64, 0, classes - 1)
        weights = np.abs(d.float((classes,))) + 0.1
        ignored = d.maybe(d.int(0, classes - 1))
        if ignored is not None and (labels == ignored).all():
            ignored = None
        return Case(name, [d.float(shape), labels] + ([weights.astype(np.float32)] if d.int(0, 1) else []),
                    opset=13, outputs=1, ignore_index=ignored, reduction=d.one("none", "sum", "mean"))

    @maker("DFT", "STFT", "HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix")
    def signal(d, name):
        scalar = lambda v, t=np.int64: np.asarray(v, t)
        if name == "DFT":
            x = d.float((2, d.int(2, 9), d.int(1, 2)))
            one = d.int(0, 1) if x.shape[2] == 1 else 0
            return Case(name, [x, d.maybe(scalar(d.int(2, 9)), 0.3), scalar(1)], opset=20, fixed={1, 2}, onesided=one,
                        inverse=d.maybe(1) if not one and x.shape[2] == 2 else None)
        if name == "STFT":
            length = d.int(2, 6)
            return Case(name, [d.float((2, 16, 1)), scalar(d.int(1, 4)), d.maybe(d.float((length,))), scalar(length)],
                        opset=17, fixed={1, 3}, onesided=d.maybe(d.int(0, 1)))
        if name == "MelWeightMatrix":
            return Case(name, [scalar(8), scalar(64), scalar(8000), scalar(10.0, np.float32), scalar(3900.0, np.float32)],
                        opset=17, fixed={0, 1, 2, 3, 4})
        return Case(name, [scalar(d.int(2, 12))], opset=17, fixed={0}, periodic=d.maybe(d.int(0, 1)))

    @maker("Attention")
    def attention(d, name):
        b, kv, rep, lq, lk, size, vsize = 2, d.one(1, 2), d.one(1, 2), d.int(1, 4), d.int(1, 5), d.one(2, 4), d.one(2, 3)
        past = d.maybe(d.int(1, 3))
        q, k, v = d.float((b, kv * rep, lq, size)), d.float((b, kv, lk, size)), d.float((b, kv, lk, vsize))
        total = lk + (past or 0)
        mask = d.float((lq, total)) if d.int(0, 1) else d.any((lq, total), np.bool_) | np.eye(lq, total, dtype=bool)
        inputs = [q, k, v, d.maybe(mask)]
        if past:
            inputs += [d.float((b, kv, past, size)), d.float((b, kv, past, vsize))]
        return Case(name, inputs, opset=24, outputs=3 if past else 1, is_causal=d.maybe(1), scale=d.maybe(0.3),
                    softcap=d.maybe(2.0, 0.3))

    @maker("RotaryEmbedding")
    def rotary(d, name):
        b, heads, steps, size = 2, 2, d.int(1, 4), 4
        part = d.maybe(2, 0.3)
        half = (part or size) // 2
        ids = d.maybe(d.ints((b, steps), np.int64, 0, 7))
        table = (8, half) if ids is not None else (b, steps, half)
        x = d.float((b, heads, steps, size))
        if d.int(0, 1):
            x = d.float((b, steps, heads * size))
        return Case(name, [x, d.float(table), d.float(table), ids], opset=23, interleaved=d.maybe(1),
                    rotary_embedding_dim=part, num_heads=heads if x.ndim == 3 else None)

    @maker("Det")
    def det(d, name):
        n = d.int(1, 4)
        return Case(name, [d.float(d.shape(0, 2, 3) + (n, n))], opset=22)

    @maker("MaxUnpool")
    def max_unpool(d, name):
        x = d.float((1, 2, 2, 3))
        where = np.sort(d.np.permutation(2 * 4 * 6)[:12]).reshape(x.shape).astype(np.int64)
        return Case(name, [x, where], opset=22, kernel_shape=[2, 2], strides=[2, 2])

    @maker("Col2Im")
    def col2im(d, name):
        block, image = (d.int(1, 3), d.int(1, 3)), (d.int(4, 6), d.int(4, 6))
        strides = [d.int(1, 2), d.int(1, 2)]
        count = int(np.prod([(n - k) // s + 1 for n, k, s in zip(image, block, strides)]))
        return Case(name, [d.float((2, 2 * block[0] * block[1], count)), np.array(image, np.int64),
                           np.array(block, np.int64)], opset=18, strides=strides, fixed={1, 2})

    @maker("com.microsoft.BiasGelu", "com.microsoft.FastGelu", "com.microsoft.QuickGelu",
           "com.microsoft.FusedMatMul", "com.microsoft.SkipLayerNormalization",
           "com.microsoft.SkipSimplifiedLayerNormalization", "com.microsoft.FusedConv",
           "com.microsoft.MatMulNBits", "com.microsoft.DynamicQuantizeMatMul",
           "com.microsoft.MultiHeadAttention", "com.microsoft.Attention", "com.microsoft.GroupQueryAttention",
           "com.microsoft.QLinearAdd", "com.microsoft.QLinearMul", "com.microsoft.RotaryEmbedding",
           "com.microsoft.EmbedLayerNormalization", "com.microsoft.QLinearSigmoid",
           "com.microsoft.QLinearLeakyRelu", "com.microsoft.MatMulIntegerToFloat")
    def contrib(d, full):
        domain, _, name = full.rpartition(".")
        make = lambda inputs, **more: Case(name, inputs, domain=domain, opset=17, **more)
        b, steps, heads, size = 2, d.int(1, 4), 2, 4
        hidden = heads * size
        x = d.float((b, steps, hidden))
        scale = lambda: np.asarray(d.np.uniform(0.05, 0.3), np.float32)
        if name == "BiasGelu":
            return make([x, d.float((hidden,))])
        if name == "FastGelu":
            return make([x] + ([d.float((hidden,))] if d.int(0, 1) else []))
        if name == "QuickGelu":
            return make([x], alpha=d.maybe(1.1))
        if name == "FusedMatMul":
            ta, tb = d.int(0, 1), d.int(0, 1)
            m, k, n = d.int(1, 4), d.int(1, 4), d.int(1, 4)
            return make([d.float((2, k, m) if ta else (2, m, k)), d.float((2, n, k) if tb else (2, k, n))],
                        transA=ta, transB=tb, alpha=d.maybe(0.5))
        if name == "SkipLayerNormalization":
            return make([x, d.float(x.shape), d.float((hidden,)), d.maybe(d.float((hidden,))),
                         d.maybe(d.float((hidden,)))], epsilon=d.maybe(1e-3))
        if name == "SkipSimplifiedLayerNormalization":
            return make([x, d.float(x.shape), d.float((hidden,)), d.maybe(d.float((hidden,)))], epsilon=1e-5)
        if name == "FusedConv":
            return make([d.float((1, 2, 5, 5)), d.float((3, 2, 3, 3)), d.float((3,))],
                        activation=d.one("Relu", "Tanh", "Sigmoid"), kernel_shape=[3, 3])
        if name == "MatMulNBits":
            k, n, block = d.int(10, 40), d.int(1, 5), 16
            blocks = -(-k // block)
            zero = d.ints((n, (blocks + 1) // 2), np.uint8, 0, 255)
            return make([d.float((3, k)), d.ints((n, blocks, block // 2), np.uint8, 0, 255),
                         d.float((n, blocks), scale=0.1), d.maybe(zero)], K=k, N=n, bits=4, block_size=block, fixed={1, 2, 3})
        if name == "DynamicQuantizeMatMul":
            t = d.one(np.int8, np.uint8)
            return make([d.float((3, 5)), d.ints((5, 4), t), scale(), d.ints((), t), d.maybe(d.float((4,)))], fixed={1, 2, 3})
        if name == "MatMulIntegerToFloat":
            return make([d.ints((3, 5), np.uint8), d.ints((5, 4), np.uint8), scale(), scale(), d.ints((), np.uint8),
                         d.ints((), np.uint8), d.maybe(d.float((4,)))])
        if name in ("QLinearAdd", "QLinearMul"):
            t = d.one(np.int8, np.uint8)
            return make([d.ints((3, 4), t), scale(), d.ints((), t), d.ints((3, 4), t), scale(), d.ints((), t), scale(),
                         d.ints((), t)])
        if name in ("QLinearSigmoid", "QLinearLeakyRelu"):
            return make([d.ints((3, 4), np.uint8), scale(), d.ints((), np.uint8), scale(), d.ints((), np.uint8)],
                        alpha=0.1 if name == "QLinearLeakyRelu" else None, fixed={1, 2, 3, 4})
        if name == "EmbedLayerNormalization":
            ids = d.ints((b, steps), np.int32, 0, 8)
            return make([ids, d.ints((b, steps), np.int32, 0, 1), d.float((9, hidden)), d.float((6, hidden)),
                         d.float((2, hidden)), d.float((hidden,)), d.float((hidden,)), np.ones((b, steps), np.int32)],
                        outputs=2, epsilon=1e-5)
        if name == "RotaryEmbedding":
            return make([x, np.tile(np.arange(steps), (b, 1)).astype(np.int64), d.float((8, size // 2)),
                         d.float((8, size // 2))], interleaved=d.maybe(1))
        if name == "Attention":
            return make([x, d.float((hidden, 3 * hidden), scale=0.3), d.float((3 * hidden,)),
                         d.maybe(d.ints((b,), np.int32, 1, steps))], num_heads=heads, unidirectional=d.maybe(1))
        if name == "MultiHeadAttention":
            past = d.maybe(d.int(1, 3))
            inputs = [x, d.float((b, steps, hidden)), d.float((b, steps, hidden)), d.maybe(d.float((3 * hidden,))), None,
                      d.maybe(d.float((b, heads, steps, steps + (past or 0))))]
            if past:
                inputs += [d.float((b, heads, past, size)), d.float((b, heads, past, size))]
            return make(inputs, num_heads=heads, outputs=3 if past else 1, unidirectional=d.maybe(1))
        groups, past, size = 1, d.int(0, 4), 16
        steps = 1 if past else steps
        total = past + steps
        cos = d.float((total + 2, size // 2))
        part = lambda h: d.float((b, steps, h * size))
        return make([part(heads), part(groups), part(groups), d.float((b, groups, past, size)), d.float((b, groups, past, size)),
                     np.full((b,), total - 1, np.int32), np.asarray(total, np.int32), cos, d.float(cos.shape)],
                    num_heads=heads, kv_num_heads=groups, do_rotary=1, outputs=3, fixed={6},
                    local_window_size=d.maybe(2, 0.3))
