"""Calls of the operators of core ATen, at least one of each: what core_test.py compares with eager."""

import math

import torch


class Call:
    """Arguments of an operator, and of its results those whose values are defined; None: all."""

    def __init__(self, *args, values=None, **named):
        self.args, self.named, self.values = args, named, values


def _unary():
    """Elementwise functions, on numbers of both signs, on what is in their range, and on what is not finite."""
    wide = torch.tensor([-30.0, -2.5, -1.5, -1, -0.5, -1e-3, -0.0, 0, 1e-3, 0.25, 0.5, 1, 1.5, 2.5, 7, math.inf, -math.inf, math.nan])
    names = ("abs acos acosh alias asin asinh atan atanh ceil clone cos cosh erf exp expm1 floor gelu elu hardtanh isinf isnan "
             "leaky_relu log log10 log1p log2 logical_not neg reciprocal relu round rsqrt sigmoid sign sin sinh sqrt tan tanh "
             "trunc any").split()
    out = {f"{name}.default": [Call(wide), Call(wide.reshape(3, 6).T)] for name in names}
    whole = torch.tensor([-7, -1, 0, 1, 12])
    for name in "abs neg sign relu round ceil floor trunc".split():
        out[f"{name}.default"].append(Call(whole))
    out["gelu.default"] = [Call(wide[:-3]), Call(wide[:-3], approximate="tanh")]  # eager has NaN of infinity, where it has vectors
    out["bitwise_not.default"] = [Call(whole), Call(whole > 0), Call(whole.to(torch.uint8))]
    out["elu.default"].append(Call(wide, 0.7, 1.3, 0.5))
    out["hardtanh.default"].append(Call(wide, -0.3, 4.0))
    out["leaky_relu.default"].append(Call(wide, 0.2))
    return out


def _binary():
    x, y = torch.randn(4, 3), torch.randn(3)
    a, b = torch.tensor([-7, 3, 12, -12, 5]), torch.tensor([2, -2, 5, 5, 1])
    out = {}
    for name in "add sub".split():
        out[f"{name}.Tensor"] = [Call(x, y), Call(x, y, alpha=2), Call(a, b), Call(a, y[:1])]
        out[f"{name}.Scalar"] = [Call(x, 3), Call(a, 2.5), Call(a, 3, 2)]
    for name in "mul div".split():
        out[f"{name}.Tensor"] = [Call(x, y), Call(a, b), Call(a > 0, y[:1])]
        out[f"{name}.Scalar"] = [Call(x, 3), Call(a, 2.5)]
    for mode in ("floor", "trunc", None):
        out.setdefault("div.Tensor_mode", []).extend([Call(x, y, rounding_mode=mode), Call(a, b, rounding_mode=mode)])
        out.setdefault("div.Scalar_mode", []).extend([Call(x, 0.3, rounding_mode=mode), Call(a, -4, rounding_mode=mode)])
    for name in "fmod remainder".split():
        out[f"{name}.Tensor"] = [Call(x, y), Call(a, b)]
        out[f"{name}.Scalar"] = [Call(x, 0.3), Call(a, -4), Call(a, 4)]
    for name in "eq ne lt le gt ge".split():
        out[f"{name}.Tensor"] = [Call(x, x.roll(1, 0)), Call(a, b), Call(a > 0, b > 0), Call(a, b.float())]
        out[f"{name}.Scalar"] = [Call(x, 0.1), Call(a, 3), Call(a, 2.5)]
    for name in "and or xor".split():
        out[f"bitwise_{name}.Tensor"] = [Call(a, b), Call(a > 0, b > 0)]
        out[f"bitwise_{name}.Scalar"] = [Call(a, 6), Call(a > 0, True)]
        out[f"logical_{name}.default"] = [Call(a, b - 5), Call(a > 0, b > 3), Call(x.trunc(), y.trunc())]
    out["maximum.default"] = out["minimum.default"] = [Call(x, y), Call(a, b), Call(torch.tensor([math.nan, 1]), torch.tensor([2.0, math.nan]))]
    out["atan2.default"] = [Call(x, y), Call(torch.tensor([0.0, -0.0, 0.0, -0.0]), torch.tensor([1.0, -1, -1, 1]))]
    out["pow.Tensor_Tensor"] = [Call(x.abs(), y), Call(a, b.abs())]
    out["pow.Tensor_Scalar"] = [Call(x.abs(), 1.7), Call(x, 3), Call(a, 2), Call(x, 0.0)]
    out["pow.Scalar"] = [Call(2.5, x), Call(2, b.abs())]
    out["where.self"] = [Call(x > 0, x, y), Call(y > 0, x, torch.tensor(2.0))]
    out["clamp.default"] = [Call(x, -0.5, 0.5), Call(a, None, 4), Call(x, 0.1)]
    out["clamp.Tensor"] = [Call(x, y, y + 1), Call(x, None, y)]
    out["copy.default"] = [Call(x, y), Call(a, y[:1])]
    return out


def _shapes():
    x, cube = torch.randn(4, 6), torch.randn(2, 3, 4)
    return {
        "as_strided.default": [Call(x, [2, 3], [7, 2], 1), Call(x, [24], [1])],
        "cat.default": [Call([x, x + 1, x[:2]], 0), Call([cube, cube], -1), Call([x, x.long()], 1)],
        "constant_pad_nd.default": [Call(x, [1, 2], 3.0), Call(x, [1, 0, -1, 2])],
        "diagonal.default": [Call(x), Call(cube, 1, 0, 2), Call(x, -2)],
        "expand.default": [Call(x[:1], [5, 6]), Call(x, [2, -1, -1])],
        "flip.default": [Call(cube, [0, 2]), Call(x, [1])],
        "permute.default": [Call(cube, [2, 0, 1]), Call(x, [-1, 0])],
        "repeat.default": [Call(x, [2, 1]), Call(x, [3, 1, 2])],
        "select.int": [Call(cube, 1, 2), Call(x, -1, -2)],
        "slice.Tensor": [Call(x, 0, 1, 3), Call(x, 1, -5, 9223372036854775807, 2), Call(x)],
        "slice_scatter.default": [Call(x, torch.zeros(2, 6), 0, 1, 3), Call(x, torch.ones(4, 3), 1, 0, 6, 2)],
        "select_scatter.default": [Call(cube, torch.zeros(2, 4), 1, -1)],
        "split_with_sizes.default": [Call(x, [1, 3], 0), Call(x, [2, 0, 4], 1)],
        "squeeze.dim": [Call(x[:1], 0), Call(x, 0)], "squeeze.dims": [Call(x[:1, :1], [0, 1]), Call(cube[:, :1], [0, 1])],
        "unsqueeze.default": [Call(x, 1), Call(x, -1)],
        "view.default": [Call(x, [3, 8]), Call(x, [2, -1, 2])],
    }


def _made():
    x = torch.randn(3, 4)
    return {
        "arange.start_step": [Call(1, 10, 3), Call(0.0, 1.0, 0.25), Call(5, 0, -2)],
        "empty.memory_format": [Call([2, 3], values=[])], "empty_strided.default": [Call([2, 3], [3, 1], values=[])],
        "fill.Scalar": [Call(x, 2.5), Call(x.long(), 3)],
        "full.default": [Call([2, 3], 1.5), Call([2], True), Call([], 7)], "full_like.default": [Call(x, 1.5), Call(x.long(), 2)],
        "scalar_tensor.default": [Call(1.5), Call(3, dtype=torch.int32)],
        "rand.default": [Call([3, 4])], "randn.default": [Call([3, 4])], "randperm.default": [Call(9)],
        "native_dropout.default": [Call(x, 0.3, True), Call(x, 0.3, False)],
        "_to_copy.default": [Call(x, dtype=torch.float64), Call(x * 9, dtype=torch.int8), Call(x, dtype=torch.bfloat16), Call(x)],
    }


def _reductions():
    x, a = torch.randn(3, 4, 5), torch.randint(-9, 9, (3, 7))
    tied = torch.tensor([[1.0, 3, 3, 2], [math.nan, 5, math.nan, 1], [-math.inf, -1, -1, -math.inf]])
    out = {f"{name}.default": [Call(x), Call(x, 1), Call(tied, 1, True), Call(a, 0)] for name in ("argmax", "argmin")}
    out |= {f"{name}.default": [Call(x), Call(x, [0, 2]), Call(tied, [1], True), Call(a, [-1])] for name in ("amax", "amin")}
    out |= {f"{name}.dim": [Call(x, 1), Call(tied, -1), Call(a, 0, True)] for name in ("max", "min")}
    out |= {
        "any.dim": [Call(x > 1, 1), Call(a, 0, True)], "any.dims": [Call(x > 1, [0, 2]), Call(a > 3)],
        "cumsum.default": [Call(x, 1), Call(a, -1), Call(a > 0, 0), Call(x, 0, dtype=torch.float64)],
        "mean.default": [Call(x), Call(a, dtype=torch.float32)], "mean.dim": [Call(x, [0, 2]), Call(x, None), Call(x, [1], True)],
        "prod.default": [Call(x), Call(a)], "prod.dim_int": [Call(x, 1), Call(a, 0, True)],
        "sum.dim_IntList": [Call(x, [0, 2]), Call(a, [1], True), Call(x > 0, [0]), Call(x, None)],
        "var.dim": [Call(x, [1]), Call(x, [0, 2], False, True)],
        "var.correction": [Call(x), Call(x, [1], correction=0), Call(x, [0, 2], correction=2, keepdim=True)],
        "_softmax.default": [Call(x, 1, False), Call(x, -1, False)], "_log_softmax.default": [Call(x, 0, False), Call(x, 2, False)],
        "sort.default": [Call(x), Call(a, 0, True)], "topk.default": [Call(x, 2), Call(x, 3, 1, False), Call(a.float() + torch.rand(3, 7), 4, -1)],
        "_cdist_forward.default": [Call(x, x[:, :2] + 1, p, None) for p in (1.0, 2.0, 3.5)],
        "_pdist_forward.default": [Call(x[0], 2.0), Call(x[0], 1.0)],
    }
    out["any.default"] = [Call(x > 9), Call(a)]
    return out


def _indices():
    x, rows = torch.randn(4, 5), torch.tensor([3, 0, 0, 2])
    places = torch.randint(0, 4, (3, 5))
    table = torch.randn(7, 3)
    starts = torch.tensor([0, 2, 2])
    out = {
        "embedding.default": [Call(table, torch.tensor([[1, 6], [0, 1]]))],
        "embedding_dense_backward.default": [Call(torch.randn(2, 2, 3), torch.tensor([[1, 6], [0, 1]]), 7, 0, False),
                                             Call(torch.randn(4, 3), torch.tensor([1, 1, 6, 2]), 7, -1, True)],
        "_embedding_bag.default": [Call(table, torch.tensor([1, 6, 0, 1, 2]), starts, False, mode, values=[0]) for mode in (0, 1, 2)],
        "gather.default": [Call(x, 0, places), Call(x, 1, places)],
        "index.Tensor": [Call(x, [rows]), Call(x, [rows, rows]), Call(x, [None, rows]), Call(x, [rows[:, None], rows])],
        "index_put.default": [Call(x, [rows[:2]], torch.zeros(2, 5)), Call(x, [rows, rows], torch.ones(4), True), Call(x, [x > 0], torch.tensor(2.0))],
        "index_select.default": [Call(x, 0, rows), Call(x, 1, rows)],
        "masked_scatter.default": [Call(x, x > 0, torch.arange(20.0))],
        "scatter.src": [Call(x, 0, torch.arange(4).reshape(4, 1).expand(4, 5).flip(0), torch.randn(4, 5))],
        "scatter.value": [Call(x, 0, places, 2.5)], "scatter_add.default": [Call(x, 0, places, torch.randn(3, 5)), Call(x, 1, places, torch.randn(3, 5))],
        "scatter_reduce.two": [Call(x, 0, places, torch.randn(3, 5), how, include_self=with_self)
                               for how in ("sum", "prod", "mean", "amax", "amin") for with_self in (True, False)],
    }
    return out


def _networks():
    image, weight, bias = torch.randn(2, 4, 7, 6), torch.randn(6, 2, 3, 3), torch.randn(6)
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    volume, line = torch.randn(1, 2, 5, 6, 4), torch.randn(2, 3, 9)
    gain, shift = torch.rand(4), torch.randn(4)
    pooled, where = torch.ops.aten.max_pool2d_with_indices(image, [3, 2], [2, 2], [1, 1])
    normed, mean, rstd = torch.ops.aten.native_layer_norm(image, [7, 6], None, None, 1e-5)
    grouped, means, rstds = torch.ops.aten.native_group_norm(image, gain, shift, 2, 4, 42, 2, 1e-5)
    convolved = torch.ops.aten.convolution(image, weight, bias, [2, 1], [1, 0], [1, 2], False, [0, 0], 2)
    deconvolved = torch.ops.aten.convolution(image, torch.randn(4, 3, 2, 3), None, [2, 2], [1, 0], [1, 1], True, [1, 0], 1)
    column = torch.nn.functional.unfold(image, (2, 3), padding=1, stride=2)
    return {
        "addmm.default": [Call(torch.randn(5), a, b), Call(torch.randn(3, 5), a, b, beta=0.5, alpha=2)],
        "bmm.default": [Call(torch.randn(2, 3, 4), torch.randn(2, 4, 5))], "mm.default": [Call(a, b), Call(a.long(), b.long())],
        "convolution.default": [
            Call(image, weight, bias, [2, 1], [1, 0], [1, 2], False, [0, 0], 2), Call(line, torch.randn(5, 3, 2), None, [1], [1], [1], False, [0], 1),
            Call(image, torch.randn(4, 3, 2, 3), None, [2, 2], [1, 0], [1, 1], True, [1, 0], 1),
            Call(volume, torch.randn(3, 2, 2, 2, 2), None, [1] * 3, [0] * 3, [1] * 3, False, [0] * 3, 1)],
        "convolution_backward.default": [
            Call(torch.randn_like(convolved), image, weight, [6], [2, 1], [1, 0], [1, 2], False, [0, 0], 2, [True, True, True]),
            Call(torch.randn_like(deconvolved), image, torch.randn(4, 3, 2, 3), None, [2, 2], [1, 0], [1, 1], True, [1, 0], 1, [True, True, False])],
        "native_layer_norm.default": [Call(image, [7, 6], torch.randn(7, 6), torch.randn(7, 6), 1e-5), Call(image, [6], None, None, 1e-3)],
        "native_layer_norm_backward.default": [Call(torch.randn_like(normed), image, [7, 6], mean, rstd, torch.randn(7, 6), torch.randn(7, 6), [True] * 3)],
        "native_group_norm.default": [Call(image, gain, shift, 2, 4, 42, 2, 1e-5)],
        "native_group_norm_backward.default": [Call(torch.randn_like(grouped), image, means, rstds, gain, 2, 4, 42, 2, [True] * 3)],
        "_native_batch_norm_legit.default": [Call(image, gain, shift, torch.zeros(4), torch.ones(4), True, 0.1, 1e-5),
                                             Call(image, gain, shift, shift, gain + 1, False, 0.1, 1e-5, values=[0])],
        "_native_batch_norm_legit.no_stats": [Call(image, gain, shift, True, 0.1, 1e-5)],
        "_native_batch_norm_legit_no_training.default": [Call(image, gain, shift, shift, gain + 1, 0.1, 1e-5, values=[0])],
        "adaptive_avg_pool1d.default": [Call(line, [4])], "_adaptive_avg_pool2d.default": [Call(image, [3, 2]), Call(image, [1, 1])],
        "_adaptive_avg_pool2d_backward.default": [Call(torch.randn(2, 4, 3, 2), image)],
        "_adaptive_avg_pool3d.default": [Call(volume, [2, 3, 2])],
        "avg_pool1d.default": [Call(line, [3], [2], [1])],
        "avg_pool2d.default": [Call(image, [3, 2], [2, 2], [1, 1]), Call(image, [3, 3], [2, 2], [1, 1], True, False), Call(image, [2, 2], [], 0, False, True, 3)],
        "avg_pool2d_backward.default": [Call(torch.randn(2, 4, 4, 4), image, [3, 2], [2, 2], [1, 1], False, True, None)],
        "avg_pool3d.default": [Call(volume, [2, 2, 2], [2, 2, 2], [1, 0, 1])],
        "max_pool2d_with_indices.default": [Call(image, [3, 2], [2, 2], [1, 1]), Call(image, [2, 2], [], 0, 2, True)],
        "max_pool2d_with_indices_backward.default": [Call(torch.randn_like(pooled), image, [3, 2], [2, 2], [1, 1], [1, 1], False, where)],
        "max_pool3d_with_indices.default": [Call(volume, [2, 2, 2], [2, 2, 2])],
        "reflection_pad1d.default": [Call(line, [2, 1])], "reflection_pad2d.default": [Call(image, [1, 2, 3, 0])],
        "reflection_pad3d.default": [Call(volume, [1, 2, 0, 1, 2, 1])],
        "replication_pad2d.default": [Call(image, [1, 2, 3, 0])], "replication_pad3d.default": [Call(volume, [1, 2, 0, 1, 2, 1])],
        "grid_sampler_2d.default": [Call(image, torch.rand(2, 3, 3, 2) * 2 - 1, how, pads, corners)
                                    for how, pads, corners in ((0, 0, False), (1, 1, True), (2, 0, False), (0, 2, True))],
        "upsample_bilinear2d.vec": [Call(image, [11, 4], False, None), Call(image, None, True, [2.0, 1.5])],
        "upsample_nearest2d.vec": [Call(image, [11, 4], None), Call(image, None, [2.0, 1.5])],
        "col2im.default": [Call(column, [7, 6], [2, 3], [1, 1], [1, 1], [2, 2])],
    }


def calls():
    """By name without "aten.": calls of each operator of core ATen that gives tensors."""
    torch.manual_seed(5)
    out = {}
    for table in (_unary, _binary, _shapes, _made, _reductions, _indices, _networks):
        out.update(table())
    return out
