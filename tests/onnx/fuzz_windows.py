"""Random cases of windows, norms, sampling and quantized operators, for fuzz.py."""

import numpy as np


def register(maker, Case, FLOATS, INTS):
    """Registers a function (draw, name) -> Case for each operator."""
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
