"""Random cases of recurrent operators and of those that move elements, for fuzz.py."""

import numpy as np


def register(maker, Case, FLOATS, INTS):
    """Registers a function (draw, name) -> Case for each operator."""
    numbers = FLOATS + INTS

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
