"""Random cases at the edges: empty tensors, NaN and infinities, extreme integers, vectors where matrices are
usual, attributes that exporters seldom write; for fuzz.py. The names end in ":edge" which is no part of the operator."""

import numpy as np

SPECIALS = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -0.5, -2.5, 1e30, -1e30, 1e-30]


def register(maker, Case, FLOATS, INTS):
    """Registers a function (draw, name) -> Case for each operator."""
    numbers = FLOATS + INTS
    vector = lambda values: np.array(values, np.int64)

    def empty(d, shape):
        """Sometimes with an axis of no elements."""
        out = list(shape)
        if out and d.int(0, 3) == 0:
            out[d.int(0, len(out) - 1)] = 0
        return tuple(out)

    def special(d, shape, dtype):
        """Numbers of which many are at an edge of their type."""
        if dtype == np.bool_:
            return d.any(shape, dtype)
        out = d.any(shape, dtype)
        if np.issubdtype(dtype, np.floating):
            edges = np.array(SPECIALS, np.float64).astype(dtype)
        else:
            info = np.iinfo(dtype)
            edges = np.array([info.min, info.max, 0, 1, info.max - 1, info.max // 2 + 1], dtype)
        mask = d.np.uniform(size=shape) < 0.4
        return np.where(mask, edges[d.np.randint(0, len(edges), size=shape)], out).astype(dtype)

    @maker(*(f"{op}:edge" for op in (
        "Abs", "Neg", "Sign", "Ceil", "Floor", "Round", "Exp", "Log", "Sqrt", "Reciprocal", "Sigmoid", "Tanh", "Erf",
        "Relu", "Softplus", "Softsign", "HardSwish", "Identity", "IsNaN", "IsInf", "Elu", "Selu", "LeakyRelu",
        "HardSigmoid", "Atan", "Asin", "Acosh", "Atanh", "Sinh", "Gelu", "Not", "BitwiseNot", "Celu",
        "ThresholdedRelu")))
    def unary(d, label):
        name = label.split(":")[0]
        dtype = d.one(np.float32, np.float32, np.float64)
        if name in ("Abs", "Neg", "Sign", "Identity", "Relu") and d.int(0, 1):
            dtype = d.one(np.int8, np.int16, np.int32, np.int64)
        if name == "BitwiseNot":
            dtype = d.one(*INTS)
        if name == "Not":
            dtype = np.bool_
        if name in ("IsInf", "Celu"):
            dtype = np.float32
        return Case(name, [special(d, empty(d, d.shape()), dtype)], opset=22 if name != "IsInf" else 20)

    @maker(*(f"{op}:edge" for op in (
        "Add", "Sub", "Mul", "Div", "Mod", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Max", "Min",
        "BitShift", "Pow", "BitwiseXor", "PRelu", "Where", "Clip", "Mean", "Sum")))
    def binary(d, label):
        name = label.split(":")[0]
        dtype = d.one(*INTS) if name.startswith("Bit") or d.int(0, 1) else d.one(np.float32, np.float64)
        attributes = {}
        if name in ("Mean", "Sum", "PRelu", "Pow"):
            dtype = d.one(np.float32, np.float64)
        if name == "BitShift":
            dtype = d.one(np.uint8, np.uint16, np.uint32, np.uint64)
            attributes["direction"] = d.one("LEFT", "RIGHT")
        shape = empty(d, d.shape())
        a, b = special(d, shape, dtype), special(d, d.broadcast(shape), dtype)
        if name == "BitShift":
            b = d.ints(b.shape, dtype, 0, 8 * dtype().itemsize - 1)
        if name in ("Div", "Mod") and not np.issubdtype(dtype, np.floating):
            # What a division by zero or an overflow gives is not in the standard.
            b = np.where((b == 0) | (b == -1 if np.issubdtype(dtype, np.signedinteger) else False), 3, b).astype(dtype)
        if name == "Mod":
            attributes["fmod"] = 1 if np.issubdtype(dtype, np.floating) else d.int(0, 1)
            if attributes["fmod"] and np.issubdtype(dtype, np.floating):
                # Remainders are exact for quotients below 2^36 (tests/onnx/differences.md).
                a = np.where(np.isfinite(a), a.clip(-1e6, 1e6), a).astype(dtype)
                b = np.where(np.abs(b) < 1e-3, 1.5, b).astype(dtype)
        if name == "Where":
            return Case(name, [d.any(shape, np.bool_), a, b], opset=16)
        if name == "Clip":
            return Case(name, [a, d.maybe(special(d, (), dtype)), d.maybe(special(d, (), dtype))], opset=13)
        return Case(name, [a, b], opset=18, **attributes)

    @maker("Cast:edge")
    def cast(d, label):
        from onnx import TensorProto as t
        source = special(d, empty(d, d.shape()), d.one(np.float32, np.float64, *INTS))
        to = [t.FLOAT, t.DOUBLE, t.BOOL]
        # What a float outside of an integer type's range gives is not in the standard.
        if not np.issubdtype(source.dtype, np.floating):
            to += [t.INT8, t.INT16, t.INT32, t.INT64, t.UINT8, t.UINT16, t.UINT32, t.UINT64]
        return Case("Cast", [source], to=d.one(*to))

    @maker(*(f"{op}:edge" for op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
                                     "ReduceSumSquare", "ReduceLogSumExp", "ArgMax", "ArgMin", "CumSum", "Softmax",
                                     "LogSoftmax")))
    def reduce(d, label):
        name = label.split(":")[0]
        x = special(d, d.shape(1, 4, 4), d.one(np.float32, np.float64))
        x = np.where(np.isnan(x), 1, x).astype(x.dtype) if name.startswith("Arg") else x
        axis = d.axis(x.ndim)
        if name.startswith("Arg"):
            return Case(name, [x], opset=13, axis=axis, keepdims=d.maybe(0), select_last_index=d.maybe(1))
        if name == "CumSum":
            return Case(name, [x, np.asarray(axis, np.int32)], opset=14, exclusive=d.maybe(1), reverse=d.maybe(1))
        if name.endswith("oftmax"):
            return Case(name, [x], opset=13, axis=axis)
        if name in ("ReduceSum", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare"):
            x = d.any(empty(d, d.shape(1, 4, 4)), d.one(np.float32, np.float64, np.int32))
            x = x.astype(np.float32) if name == "ReduceL2" else x
            axis = d.axis(x.ndim)
        return Case(name, [x, vector([axis])], opset=18, keepdims=d.maybe(0))

    @maker(*(f"{op}:edge" for op in ("Concat", "Slice", "Transpose", "Reshape", "Expand", "Tile", "Pad", "Split", "Gather",
                                     "Squeeze", "Unsqueeze", "Flatten", "Shape", "Size", "MatMul", "Range",
                                     "ConstantOfShape", "Trilu", "NonZero", "Compress", "Unique", "TopK", "GatherND",
                                     "ScatterElements", "ScatterND", "OneHot", "EyeLike", "DepthToSpace")))
    def moving(d, label):
        name = label.split(":")[0]
        shape = empty(d, d.shape(1, 4))
        x = d.any(shape, d.one(np.bool_, *numbers))
        rank = x.ndim
        if name == "Concat":
            axis = d.axis(rank)
            parts = []
            for _ in range(d.int(1, 4)):
                part = list(shape)
                part[axis] = d.int(0, 3)
                parts.append(d.any(tuple(part), x.dtype))
            return Case(name, parts, axis=axis)
        if name == "Slice":
            axes = d.r.sample(range(rank), d.int(1, rank))
            far = [-2**63, -2**31, -7, -1, 0, 1, 7, 2**31 - 1, 2**63 - 1]
            inputs = [x, vector([d.one(*far) for _ in axes]), vector([d.one(*far) for _ in axes])]
            if d.int(0, 2) or axes != list(range(len(axes))):
                inputs += [vector([a - rank if d.int(0, 1) else a for a in axes])]
                if d.int(0, 1):
                    inputs += [vector([d.one(-3, -2, -1, 1, 2, 5) for _ in axes])]
            if d.int(0, 1):
                inputs[1:] = [v.clip(-2**31, 2**31 - 1).astype(np.int32) for v in inputs[1:]]
            return Case(name, inputs)
        if name == "Reshape":
            sizes = list(shape)
            d.r.shuffle(sizes)
            if 0 in sizes:
                return Case(name, [x, vector(sizes)], allowzero=1)
            if d.int(0, 1):
                sizes[d.int(0, rank - 1)] = -1
            return Case(name, [x, vector(sizes)])
        if name == "Expand":
            target = [n if n != 1 or d.int(0, 1) else d.int(0, 3) for n in shape]
            return Case(name, [x, vector([d.int(1, 2)] * d.int(0, 2) + target)])
        if name == "Tile":
            return Case(name, [x, vector([d.int(0, 3) for _ in shape])])
        if name == "Pad":
            x = d.any(tuple(max(n, 2) for n in shape), d.one(np.float32, np.int64, np.float64))
            mode = d.one("constant", "reflect", "edge", "wrap")
            axes = d.r.sample(range(rank), d.int(1, rank))
            most = {"reflect": d.one(1, 7), "wrap": d.one(2, 9)}.get(mode, 3)
            pads = [d.int(0, most) for _ in axes] * 2
            return Case(name, [x, vector(pads), d.maybe(np.asarray(3, x.dtype)) if mode == "constant" else None,
                               vector([a - rank if d.int(0, 1) else a for a in axes])], mode=mode, opset=19)
        if name == "Split":
            axis = d.axis(rank)
            count = d.int(1, 3)
            x = d.any(tuple(5 if i == axis % rank else n for i, n in enumerate(shape)), x.dtype)
            return Case(name, [x], axis=axis, num_outputs=count, outputs=count, opset=18)
        if name == "Gather":
            x = d.any(tuple(max(n, 1) if i == 0 else n for i, n in enumerate(shape)), x.dtype)
            return Case(name, [x, d.ints(empty(d, d.shape(0, 3, 3)), d.one(np.int32, np.int64), -x.shape[0], x.shape[0] - 1)])
        if name == "GatherND":
            x = d.any((2, 3, 2), x.dtype)
            return Case(name, [x, d.ints((2, d.int(0, 2), d.int(1, 2)), np.int64, -2, 1)], batch_dims=d.int(0, 1), opset=13)
        if name == "ScatterElements":
            x = d.any((3, 4), d.one(np.float32, np.int32, np.float64))
            index = d.ints((d.int(0, 3), d.int(0, 4)), np.int64, -3, 2)
            return Case(name, [x, index, d.any(index.shape, x.dtype)], reduction=d.one("add", "min", "max", "mul"), opset=18)
        if name == "ScatterND":
            x = d.any((3, 4), d.one(np.float32, np.int32))
            index = d.ints((d.int(0, 3), 1), np.int64, -3, 2)
            return Case(name, [x, index, d.any((index.shape[0], 4), x.dtype)], reduction=d.one("add", "min", "max"), opset=18)
        if name == "OneHot":
            index = d.ints(d.shape(0, 2), np.int64, -6, 6).astype(d.one(np.int64, np.int32, np.float32))
            return Case(name, [index, np.asarray(d.int(1, 6), np.int64), d.any((2,), d.one(np.float32, np.int64, np.int32))],
                        axis=d.int(-index.ndim - 1, index.ndim), opset=11)
        if name == "EyeLike":
            return Case(name, [d.any((d.int(0, 4), d.int(0, 4)), np.float32)], k=d.int(-6, 6), dtype=d.maybe(d.one(1, 7, 9, 11)))
        if name == "DepthToSpace":
            return Case(name, [d.any((d.int(0, 2), 9 * d.int(1, 2), d.int(0, 2), 2), np.float32)], blocksize=3, mode=d.one("DCR", "CRD"), opset=13)
        if name == "Squeeze":
            x = d.any((1,) + shape + (1,), x.dtype)
            return Case(name, [x, vector([-1, 0])] if d.int(0, 1) or 1 in shape else [x])
        if name == "Unsqueeze":
            return Case(name, [x, vector(d.r.sample(range(-rank - 2, 0), 2))])
        if name == "Flatten":
            return Case(name, [x], axis=d.int(-rank, rank))
        if name == "MatMul":
            k = d.int(0, 3)
            a, b = d.float(empty(d, d.shape(0, 3, 3)) + (k,)), d.float((k,) if d.int(0, 2) == 0 else (k, d.int(1, 3)))
            return Case(name, [a, b], opset=13)
        if name == "Range":
            t = d.one(np.float32, np.int64, np.int32, np.float64)
            return Case(name, [np.asarray(v, t) for v in (d.int(-4, 4), d.int(-9, 9), d.one(-3, -2, -1, 1, 2, 3))], opset=11)
        if name == "ConstantOfShape":
            return Case(name, [vector(list(shape)[:d.int(0, rank)])])
        if name == "Trilu":
            return Case(name, [d.any(empty(d, d.shape(2)), x.dtype), d.maybe(np.asarray(d.int(-6, 6), np.int64))],
                        upper=d.maybe(0), opset=14)
        if name in ("NonZero", "Unique"):
            x = d.any(shape, d.one(np.float32, np.int64)).round() * d.any(shape, np.bool_)
            if name == "NonZero":
                return Case(name, [x], opset=13)
            x = x if x.size else d.any((3,), np.float32)
            return Case(name, [x.clip(-2, 2)], outputs=4, sorted=d.maybe(0), opset=11,
                        axis=d.maybe(d.axis(x.ndim)))
        if name == "Compress":
            axis = d.maybe(d.axis(rank))
            length = x.size if axis is None else shape[axis]
            return Case(name, [x, d.any((d.int(0, length),), np.bool_)], axis=axis, opset=11)
        if name == "TopK":
            x = d.ints(d.shape(1, 3, 4), np.int64, -2, 2).astype(d.one(np.int64, np.int32, np.float32, np.float64))
            axis = d.axis(x.ndim)
            return Case(name, [x, vector([d.int(0, x.shape[axis])])], axis=axis, largest=d.int(0, 1), sorted=1, outputs=2, opset=11)
        return Case(name, [x], opset=19)

    @maker("Einsum:edge")
    def einsum(d, label):
        letters = d.r.sample("abcdeij", d.int(2, 4))
        sizes = {c: d.int(1, 3) for c in letters}
        terms = ["".join(d.r.sample(letters, d.int(1, len(letters)))) for _ in range(d.int(1, 3))]
        used = sorted(set("".join(terms)))
        out = "".join(d.r.sample(used, d.int(0, len(used))))
        formula = ",".join(terms) + ("->" + out if d.int(0, 2) else "")
        return Case("Einsum", [d.float(tuple(sizes[c] for c in term)) for term in terms], opset=12, equation=formula)

    @maker("Resize:edge")
    def resize(d, label):
        x = d.float((1, 2, d.int(1, 6), d.int(1, 6)))
        mode = d.one("nearest", "linear", "cubic")
        kind = d.one("axes", "policy", "crop")
        if kind == "axes":
            axes = d.one([2, 3], [3, 2], [3], [-1, -2])
            sizes = vector([d.int(1, 9) for _ in axes])
            return Case("Resize", [x, None, None, sizes], axes=axes, mode=mode, opset=19)
        if kind == "policy":
            return Case("Resize", [x, None, None, vector([d.int(1, 9), d.int(1, 9)])], axes=[2, 3], mode=mode, opset=19,
                        keep_aspect_ratio_policy=d.one("not_larger", "not_smaller"))
        roi = np.array([0, 0, *sorted(d.np.uniform(0, 1, 2)), 1, 1, *sorted(d.np.uniform(0.3, 1.2, 2))], np.float32)
        return Case("Resize", [x, roi, None, vector([1, 2, d.int(1, 7), d.int(1, 7)])], mode=d.one("linear", "nearest"), opset=19,
                    coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=d.maybe(7.0))

    @maker("LSTM:edge", "GRU:edge", "RNN:edge")
    def batchwise(d, label):
        name = label.split(":")[0]
        gates = {"RNN": 1, "LSTM": 4, "GRU": 3}[name]
        steps, batch, inputs, hidden = d.int(1, 4), d.int(1, 3), d.int(1, 3), d.int(1, 4)
        part = lambda *shape: d.float(shape, scale=0.7)
        args = [part(batch, steps, inputs), part(1, gates * hidden, inputs), part(1, gates * hidden, hidden),
                part(1, 2 * gates * hidden)]
        return Case(name, args, opset=14, outputs=3 if name == "LSTM" else 2, hidden_size=hidden, layout=1)

    @maker("NonMaxSuppression:edge")
    def non_max_suppression(d, label):
        n, classes, batch = d.int(1, 9), d.int(1, 3), d.int(1, 2)
        low = d.np.uniform(0, 1, (batch, n, 2))
        center = d.int(0, 1)
        high = d.np.uniform(0.1, 0.8, (batch, n, 2)) + (0 if center else low)
        scores = d.np.permutation(batch * classes * n).reshape(batch, classes, n) / 10
        return Case("NonMaxSuppression", [np.concatenate([low, high], 2).astype(np.float32), scores.astype(np.float32),
                                          d.maybe(vector([d.int(0, 5)]), 0.9), np.array([d.one(0.2, 0.5, 0.7)], np.float32),
                                          d.maybe(np.array([d.one(0.5, 1.5)], np.float32))],
                    opset=11, center_point_box=d.maybe(center) if not center else 1)

    @maker("BatchNormalization:edge", "InstanceNormalization:edge", "LayerNormalization:edge")
    def norm(d, label):
        name = label.split(":")[0]
        rank, channels = d.int(2, 5), d.int(1, 3)
        if name == "LayerNormalization":
            x = d.float(d.shape(1, 4))
            axis = d.axis(x.ndim)
            return Case(name, [x, d.float(x.shape[axis:])], opset=17, axis=axis, outputs=3)
        x = d.float((d.int(1, 2), channels) + tuple(d.int(1, 3) for _ in range(max(rank - 2, int(name[0] == "I")))))
        one = lambda: d.float((channels,))
        if name[0] == "I":
            return Case(name, [x, one(), one()], opset=6)
        return Case(name, [x, one(), one(), one(), np.abs(one())], opset=d.one(9, 14, 15))

    @maker("ConvTranspose:edge", "Conv:edge", "MaxPool:edge", "AveragePool:edge")
    def window(d, label):
        name = label.split(":")[0]
        if name == "ConvTranspose":
            x, w = d.float((1, 2, d.int(3, 5), d.int(3, 5))), d.float((2, 2, 3, d.int(1, 3)))
            out = [x.shape[2] * 2 + d.int(0, 1), x.shape[3] * 2]
            return Case(name, [x, w], opset=11, strides=[2, 2], output_shape=out, auto_pad=d.maybe(d.one("SAME_UPPER", "SAME_LOWER")))
        if name == "Conv":
            x, w = d.float((1, 4, d.int(1, 3), 7)), d.float((4, 1, 3, 3))
            return Case(name, [x, w], opset=11, group=4, pads=[d.int(1, 3), 1, d.int(1, 3), d.int(0, 4)])
        x = d.float((1, 1, d.int(4, 9), d.int(4, 9)), scale=1) - 5
        attributes = {"storage_order": d.maybe(1), "outputs": 2} if name == "MaxPool" else {"count_include_pad": d.int(0, 1)}
        return Case(name, [x], opset=d.one(11, 12) if name == "MaxPool" else d.one(11, 19), kernel_shape=[d.int(2, 4)] * 2,
                    strides=[d.int(1, 3), d.int(1, 3)], pads=[d.int(0, 1) for _ in range(4)], ceil_mode=d.int(0, 1), **attributes)

    @maker("QLinearConv:edge", "MatMulInteger:edge", "QLinearMatMul:edge", "QuantizeLinear:edge", "DynamicQuantizeLinear:edge")
    def quantized(d, label):
        name = label.split(":")[0]
        scale = lambda n=(): d.np.uniform(0.01, 0.3, n).astype(np.float32)
        if name == "QLinearConv":
            x, w = d.ints((1, 2, 5, 5), np.uint8), d.ints((3, 2, 3, 3), np.int8)
            per = (3,) if d.int(0, 1) else ()
            return Case(name, [x, scale(), d.ints((), np.uint8), w, scale(per), np.zeros(per, np.int8), scale(), d.ints((), np.uint8)],
                        opset=10, fixed={3, 4, 5})
        if name == "MatMulInteger":
            a, b = d.ints((2, 3, 4), np.uint8), d.ints((4, 2), d.one(np.uint8, np.int8))
            return Case(name, [a, b, d.maybe(d.ints((), np.uint8)), d.maybe(d.ints((2,), b.dtype))], opset=10)
        if name == "QLinearMatMul":
            a, b = d.ints((3, 4), np.uint8), d.ints((4, 2), np.int8)
            return Case(name, [a, scale(), d.ints((), np.uint8), b, scale((2,)), np.zeros((2,), np.int8), scale(), d.ints((), np.uint8)], opset=10)
        if name == "QuantizeLinear":
            x = special(d, (2, 3), np.float32)
            x = np.where(np.isnan(x), 0, x).astype(np.float32)
            return Case(name, [x, scale(), d.ints((), d.one(np.int8, np.uint8))], opset=d.one(10, 13, 19))
        return Case(name, [np.abs(d.float((5,))) * d.one(-1, 0, 1)], opset=11, outputs=3)
