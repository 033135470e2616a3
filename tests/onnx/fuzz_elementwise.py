"""Random cases of elementwise operators, reductions and products, for fuzz.py."""

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
        # The evaluator has the Hardmax of opset 13 for earlier ones too, and ORT has none of them.
        opset = 13 if name == "Hardmax" else d.one(11, 13)
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
