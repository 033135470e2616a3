// Products, windows and layers: value cases, see cases.h.
#include <gtest/gtest.h>

#include "tests/frontend/cases.h"

namespace telegrad::testing {
namespace {

constexpr auto kLargest = Case::kLargest;
constexpr auto kElement = Case::kElement;
constexpr double kRounding = 8;  // of sums in another order

#define RUN(expression) [](Builder&, const Inputs& in) -> Inputs { return {expression}; }
#define EINSUM(name, formula) \
  {"Einsum", "einsum_" name, RUN(Einsum(formula, in)), kRounding, kLargest, true}

constexpr auto kLinear = Interpolation::kLinear;
constexpr auto kNearest = Interpolation::kNearest;
constexpr auto kExact = Interpolation::kNearestExact;

constexpr Case kCases[] = {
    {"Dot", "dot", RUN(in[0].Dot(in[1])), kRounding, kLargest, true},
    {"MatMul", "matmul", RUN(in[0].MatMul(in[1])), kRounding, kLargest, true},
    {"Linear", "linear", RUN(in[0].Linear(in[1], in[2])), kRounding, kLargest, true},
    {"Linear", "linear_plain", RUN(in[0].Linear(in[1])), kRounding, kLargest, true},
    EINSUM("matrix", "ij,jk->ik"),
    EINSUM("implicit", "kj, ji"),
    EINSUM("transpose", "ba"),
    EINSUM("trace", "ii"),
    EINSUM("diagonal", "ii->i"),
    EINSUM("diagonals", "iijj->ji"),
    EINSUM("triple", "iii->i"),
    EINSUM("sum", "ij->"),
    EINSUM("rows", "ij->i"),
    EINSUM("outer", "i,j->ji"),
    EINSUM("inner", "i,i"),
    EINSUM("scalar", ",ij->ij"),
    EINSUM("batch", "...ij,...jk->...ik"),
    EINSUM("middle", "i...j->j..."),
    EINSUM("ellipsis", "a...,..."),
    EINSUM("chain", "ab,bc,cd,de->ae"),
    EINSUM("shared", "ij,kj,lj->ikl"),
    EINSUM("broadcast", "ij,jk->ik"),
    EINSUM("upper", "Ab,bC"),
    EINSUM("tensor", "abcd,ebcf->adef"),
    EINSUM("attention", "bqhd,bkhd->bhqk"),
    EINSUM("empty", "ij,jk->ik"),
    {"Windows", "windows", RUN(in[0].Windows({3, 3}, {.stride = {2}})), 0, kElement, true},
    {"Windows", "windows_dilated",
     RUN(in[0].Windows({3, 3}, {.dilation = {1, 2}, .pads = {1, 2, 0, 1}})),
     0, kElement, true},
    {"Windows", "windows_disjoint", RUN(in[0].Windows({2}, {.stride = {3}})), 0},
    {"Conv", "conv1", RUN(in[0].Conv(in[1])), kRounding, kLargest, true},
    {"Conv", "conv2", RUN(in[0].Conv(in[1], {.stride = {2}, .pads = {1}})), kRounding, kLargest,
     true},
    {"Conv", "conv2_uneven",
     RUN(in[0].Conv(in[1], {.stride = {1, 2}, .dilation = {2, 1}, .pads = {0, 2, 1, 0}}, 2)),
     kRounding, kLargest, true},
    {"Conv", "conv2_depthwise", RUN(in[0].Conv(in[1], {.pads = {1}}, 4)), kRounding, kLargest,
     true},
    {"Conv", "conv2_point", RUN(in[0].Conv(in[1], {.stride = {2}})), kRounding, kLargest, true},
    {"Conv", "conv3", RUN(in[0].Conv(in[1], {.stride = {1, 2, 1}, .pads = {0, 0, 1, 1, 0, 0}})),
     kRounding, kLargest, true},
    {"ConvTranspose", "conv_transpose1", RUN(in[0].ConvTranspose(in[1])), kRounding, kLargest,
     true},
    {"ConvTranspose", "conv_transpose2",
     RUN(in[0].ConvTranspose(in[1], {.stride = {2}, .pads = {1}}, 1, {1})), kRounding, kLargest,
     true},
    {"ConvTranspose", "conv_transpose2_groups",
     RUN(in[0].ConvTranspose(in[1], {.stride = {2, 1}, .dilation = {1, 2}}, 2)), kRounding,
     kLargest, true},
    {"ConvTranspose", "conv_transpose2_dilated",
     RUN(in[0].ConvTranspose(in[1], {.stride = {2}, .dilation = {3}, .pads = {2}}, 1, {1})),
     kRounding, kLargest, true},
    {"ConvTranspose", "conv_transpose3",
     RUN(in[0].ConvTranspose(in[1], {.pads = {0, 0, 1, 1, 0, 0}})), kRounding, kLargest, true},
    {"MaxPool", "max_pool", RUN(in[0].MaxPool({3, 3}, {.stride = {2}, .pads = {1}})), 0, kElement,
     true},
    {"MaxPool", "max_pool_disjoint", RUN(in[0].MaxPool({2, 2}, {.stride = {2}})), 0, kElement,
     true},
    {"MaxPool", "max_pool_ceil",
     RUN(in[0].MaxPool({3, 2}, {.stride = {2, 3},
                                .dilation = {2, 1},
                                .pads = {1, 1, 0, 0},
                                .ceil_mode = true})),
     0, kElement, true},
    {"MaxPool", "max_pool1", RUN(in[0].MaxPool({3}, {})), 0, kElement, true},
    {"MaxPoolIndices", "max_pool_indices",
     [](Builder&, const Inputs& in) -> Inputs {
       const auto [values, positions] =
           in[0].MaxPoolIndices({3, 3}, {.stride = {2}, .pads = {1}});
       return {values, positions};
     },
     0, kElement, true},
    {"MaxUnpool", "max_unpool", RUN(in[0].MaxUnpool(in[1], {6, 4})), 0, kElement, true},
    {"AvgPool", "avg_pool", RUN(in[0].AvgPool({3, 3}, {.stride = {2}, .pads = {1}})), kRounding,
     kLargest, true},
    {"AvgPool", "avg_pool_inside",
     RUN(in[0].AvgPool({3, 3}, {.stride = {2}, .pads = {1}}, /*count_pads=*/false)), kRounding,
     kLargest, true},
    {"AvgPool", "avg_pool_ceil",
     RUN(in[0].AvgPool({3, 2}, {.stride = {2, 4}, .pads = {1, 1, 0, 0}, .ceil_mode = true})),
     kRounding, kLargest, true},
    {"AvgPool", "avg_pool_ceil_inside",
     RUN(in[0].AvgPool({3, 2}, {.stride = {2, 4}, .pads = {1, 1, 0, 0}, .ceil_mode = true},
                       false)),
     kRounding, kLargest, true},
    {"LpPool", "lp_pool", RUN(in[0].LpPool({3, 3}, {.stride = {2}})), kRounding, kElement, true},
    {"LpPool", "lp_pool3", RUN(in[0].LpPool({2, 2}, {}, 3)), kRounding, kElement, true},
    {"LpPool", "lp_pool1", RUN(in[0].LpPool({2, 2}, {}, 1)), kRounding, kElement, true},
#define RESAMPLE(name, mode, corners, a, b)       \
  {"Interpolate",                                 \
   "interpolate_" name "_" #a "x" #b,             \
   RUN(in[0].Interpolate({a, b}, mode, corners)), \
   kRounding,                                     \
   kLargest,                                      \
   true}
    RESAMPLE("nearest", kNearest, false, 6, 10),
    RESAMPLE("nearest", kNearest, false, 7, 3),
    RESAMPLE("nearest", kNearest, false, 1, 5),
    RESAMPLE("nearest", kNearest, false, 4, 12),
    RESAMPLE("exact", kExact, false, 6, 10),
    RESAMPLE("exact", kExact, false, 7, 3),
    RESAMPLE("exact", kExact, false, 1, 5),
    RESAMPLE("exact", kExact, false, 4, 12),
    RESAMPLE("linear", kLinear, false, 6, 10),
    RESAMPLE("linear", kLinear, false, 7, 3),
    RESAMPLE("linear", kLinear, false, 1, 4),
    RESAMPLE("linear", kLinear, false, 2, 13),
    RESAMPLE("linear_corners", kLinear, true, 6, 10),
    RESAMPLE("linear_corners", kLinear, true, 7, 3),
    RESAMPLE("linear_corners", kLinear, true, 1, 4),
    RESAMPLE("linear_corners", kLinear, true, 2, 13),
    {"Interpolate", "interpolate_linear1", RUN(in[0].Interpolate({7})), kRounding, kLargest, true},
    {"Interpolate", "interpolate_linear3", RUN(in[0].Interpolate({3, 2, 4})), kRounding, kLargest,
     true},
    {"Interpolate", "interpolate_nearest1", RUN(in[0].Interpolate({6}, kNearest)), 0},
    {"BatchNorm", "batch_norm", RUN(in[0].BatchNorm(in[1], in[2], in[3], in[4])), kRounding,
     kLargest, true, 0.1, 2},
    {"BatchNorm", "batch_norm_plain", RUN(in[0].BatchNorm(in[1], in[2], {}, {})), kRounding,
     kLargest, true, 0.1, 2},
    {"LayerNorm", "layer_norm", RUN(in[0].LayerNorm()), kRounding, kLargest, true},
    {"LayerNorm", "layer_norm2", RUN(in[0].LayerNorm({-2, -1}, 0.1)), kRounding, kLargest, true},
    {"GroupNorm", "group_norm", RUN(in[0].GroupNorm(2)), kRounding, kLargest, true},
    {"RmsNorm", "rms_norm", RUN(in[0].RmsNorm()), kRounding, kLargest, true},
    {"ScaledDotProductAttention", "attention", RUN(in[0].ScaledDotProductAttention(in[1], in[2])),
     2 * kRounding, kLargest, true},
    {"ScaledDotProductAttention", "attention_causal",
     RUN(in[0].ScaledDotProductAttention(in[1], in[2], {}, true, 0.3)), 2 * kRounding, kLargest,
     true},
    {"ScaledDotProductAttention", "attention_masked",
     RUN(in[0].ScaledDotProductAttention(in[1], in[2], in[3])), 2 * kRounding, kLargest, true},
    {"ScaledDotProductAttention", "attention_bias",
     RUN(in[0].ScaledDotProductAttention(in[1], in[2], in[3])), 2 * kRounding, kLargest, true},
    {"ScaledDotProductAttention", "attention_grouped",
     RUN(in[0].ScaledDotProductAttention(in[1], in[2], {}, false, {}, true)), 2 * kRounding,
     kLargest, true},
    {"ScaledDotProductAttention", "attention_grouped_masked",
     RUN(in[0].ScaledDotProductAttention(in[1], in[2], in[3], false, {}, true)), 2 * kRounding,
     kLargest, true},
    {"Rope", "rope", RUN(in[0].Rope(in[1], in[2])), kRounding, kLargest, true},
    {"Rope", "rope_interleaved", RUN(in[0].Rope(in[1], in[2], true)), kRounding, kLargest, true},
};

TEST(ProductTest, Values) { CheckValues("product", kCases); }
TEST(ProductTest, Gradients) { CheckGradients("product", kCases); }

}  // namespace

std::span<const Case> ProductCases() { return kCases; }

}  // namespace telegrad::testing
