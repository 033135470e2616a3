// Elementwise operations and activations: value cases, see cases.h.
#include <gtest/gtest.h>

#include "tests/frontend/cases.h"

namespace telegrad::testing {
namespace {

constexpr auto kElement = Case::kElement, kLargest = Case::kLargest;

// A method of one tensor, or of two.
template <auto F>
Inputs One(Builder&, const Inputs& in) {
  return {(in[0].*F)()};
}
template <auto F>
Inputs Two(Builder&, const Inputs& in) {
  return {(in[0].*F)(in[1])};
}
using In = const Inputs&;

constexpr Case kCases[] = {
    // Functions of one number.
    {"Sqrt", "sqrt", One<&Tensor::Sqrt>, 0.5, kElement, true, 0.1, 2},
    {"Rsqrt", "rsqrt", One<&Tensor::Rsqrt>, 1, kElement, true, 0.1, 2},
    {"Reciprocal", "reciprocal", One<&Tensor::Reciprocal>, 0.5, kElement, true, 0.1, 2},
    {"Exp", "exp", One<&Tensor::Exp>, 90, kElement, true},
    {"Exp", "exp_small", One<&Tensor::Exp>, 10},
    {"Exp2", "exp2", One<&Tensor::Exp2>, 2, kElement, true},
    {"Expm1", "expm1", One<&Tensor::Expm1>, 90, kElement, true},
    {"Log", "log", One<&Tensor::Log>, 4, kElement, true, 0.1, 3},
    {"Log2", "log2", One<&Tensor::Log2>, 2, kElement, true, 0.1, 3},
    {"Log10", "log10", One<&Tensor::Log10>, 4, kElement, true, 0.1, 3},
    {"Log1p", "log1p", One<&Tensor::Log1p>, 5, kElement, true, -0.9, 3},
    {"Sin", "sin", One<&Tensor::Sin>, 2, kElement, true},
    {"Cos", "cos", One<&Tensor::Cos>, 4, kElement, true},
    {"Cos", "cos_far", One<&Tensor::Cos>, 5, kLargest},
    {"Tan", "tan", One<&Tensor::Tan>, 6, kElement, true, -1, 1},
    {"Asin", "asin", One<&Tensor::Asin>, 5, kElement, true, -0.9, 0.9},
    {"Acos", "acos", One<&Tensor::Acos>, 5, kElement, true, -0.9, 0.9},
    {"Atan", "atan", One<&Tensor::Atan>, 3, kElement, true, -4, 4},
    {"Sinh", "sinh", One<&Tensor::Sinh>, 90, kElement, true},
    {"Cosh", "cosh", One<&Tensor::Cosh>, 90, kElement, true},
    {"Tanh", "tanh", One<&Tensor::Tanh>, 8, kElement, true},
    {"Asinh", "asinh", One<&Tensor::Asinh>, 6, kElement, true},
    {"Acosh", "acosh", One<&Tensor::Acosh>, 8, kElement, true, 1.1, 4},
    {"Atanh", "atanh", One<&Tensor::Atanh>, 8, kElement, true, -0.9, 0.9},
    {"Erf", "erf", One<&Tensor::Erf>, 8, kElement, true, -3, 3},
    {"Sigmoid", "sigmoid", One<&Tensor::Sigmoid>, 100, kElement, true},
    {"Neg", "neg", One<&Tensor::Neg>, 0, kElement, true},
    {"Sign", "sign", One<&Tensor::Sign>, 0},
    {"Abs", "abs", One<&Tensor::Abs>, 0, kElement, true},
    {"Square", "square", One<&Tensor::Square>, 0, kElement, true},
    {"Floor", "floor", One<&Tensor::Floor>, 0},
    {"Ceil", "ceil", One<&Tensor::Ceil>, 0},
    {"Trunc", "trunc", One<&Tensor::Trunc>, 0},
    {"Round", "round", One<&Tensor::Round>, 0},
    {"IsNan", "is_nan", One<&Tensor::IsNan>, 0},
    {"IsInf", "is_inf",
     [](Builder&, In in) {
       return Inputs{in[0].IsInf(), in[0].IsInf(true, false), in[0].IsInf(false, true)};
     },
     0},
    {"IsFinite", "is_finite", One<&Tensor::IsFinite>, 0},
    {"LogicalNot", "logical_not", One<&Tensor::Not>, 0},
    {"BitwiseNot", "bitwise_not", One<&Tensor::BitwiseNot>, 0},
    {"Cast", "cast", [](Builder&, In in) { return Inputs{in[0].Cast(DType::kInt32)}; }, 0},
    {"Bitcast", "bitcast",
     [](Builder&, In in) {
       return Inputs{in[0].Bitcast(DType::kInt32), in[0].Bitcast(DType::kInt16),
                     in[0].Bitcast(DType::kInt64)};
     },
     0},

    // Of several.
    {"Add", "add", Two<&Tensor::Add>, 0, kElement, true},
    {"Sub", "sub", Two<&Tensor::Sub>, 0, kElement, true},
    {"Mul", "mul", Two<&Tensor::Mul>, 0, kElement, true},
    {"Div", "div", [](Builder&, In in) { return Inputs{in[0].Div(in[1])}; }, 0, kElement, true, 0.5,
     2},
    {"Maximum", "maximum", Two<&Tensor::Maximum>, 0, kElement, true},
    {"Minimum", "minimum", Two<&Tensor::Minimum>, 0, kElement, true},
    {"Lt", "compare",
     [](Builder&, In in) {
       return Inputs{in[0].Lt(in[1]), in[0].Le(in[1]), in[0].Gt(in[1]),
                     in[0].Ge(in[1]), in[0].Eq(in[1]), in[0].Ne(in[1])};
     },
     0},
    {"Where", "where",
     [](Builder&, In in) {
       Tensor first = in[0];
       for (int64_t axis = 0; axis < first.rank(); ++axis) first = first.Slice(axis, 0, 1);
       return Inputs{in[0].Eq(first).Where(in[0], in[1])};
     },
     0, kElement, true},
    {"And", "bits",
     [](Builder&, In in) { return Inputs{in[0].And(in[1]), in[0].Or(in[1]), in[0].Xor(in[1])}; },
     0},
    {"LogicalAnd", "logical",
     [](Builder&, In in) {
       return Inputs{in[0].LogicalAnd(in[1]), in[0].LogicalOr(in[1]), in[0].LogicalXor(in[1])};
     },
     0},
    {"Add", "promote", Two<&Tensor::Add>, 0},
    {"Add", "numbers",
     [](Builder&, In in) {
       return Inputs{in[0] + 2, 3 - in[0], in[0] + 0.5, in[0] / 4, in[0].Lt(1)};
     },
     0},
    {"FloorDiv", "floor_div", Two<&Tensor::FloorDiv>, 0},
    {"FloorMod", "floor_mod", [](Builder&, In in) { return Inputs{in[0] % in[1]}; }, 0},
    {"TruncDiv", "trunc_div",
     [](Builder&, In in) { return Inputs{in[0].Div(in[1], Rounding::kTrunc)}; }, 0},
    {"TruncMod", "trunc_mod", Two<&Tensor::TruncMod>, 0},
    {"Pow", "pow", Two<&Tensor::Pow>, 4, kElement, true, 0.5, 2},
    {"Pow", "pow_root",
     [](Builder&, In in) {
       return Inputs{in[0].Pow(1),  in[0].Pow(2),  in[0].Pow(3),
                     in[0].Pow(.5), in[0].Pow(-1), in[0].Pow(2.5)};
     },
     4, kElement, true, 0.5, 2},
    {"Pow", "pow_int", Two<&Tensor::Pow>, 0},
    {"Pow", "pow_negative", Two<&Tensor::Pow>, 0},
    {"Pow", "pow_number",
     [](Builder&, In in) { return Inputs{in[0].Pow(3), in[0].Pow(-2), in[0].Pow(0)}; }, 0},
    {"ShiftLeft", "shift",
     [](Builder&, In in) { return Inputs{in[0] << in[1], in[0].ShiftRight(in[1])}; }, 0},
    {"LogAddExp", "log_add_exp", Two<&Tensor::LogAddExp>, 8, kElement, true},
    {"Hypot", "hypot", Two<&Tensor::Hypot>, 3, kElement, true},
    {"Atan2", "atan2", Two<&Tensor::Atan2>, 4, kElement, true},
    {"CopySign", "copy_sign",
     [](Builder&, In in) {
       // Of a zero its reciprocal shows the sign.
       return Inputs{in[0].CopySign(in[1]), in[0].ZerosLike().CopySign(in[1]).Reciprocal()};
     },
     0},
    {"IsClose", "is_close",
     [](Builder&, In in) {
       return Inputs{in[0].IsClose(in[1]), in[0].IsClose(in[1], 1e-2, 0),
                     in[0].IsClose(in[1], 1e-5, 1e-8, true)};
     },
     0},
    {"Lerp", "lerp", [](Builder&, In in) { return Inputs{in[0].Lerp(in[1], in[2])}; }, 2, kLargest,
     true},
    {"Clamp", "clamp",
     [](Builder&, In in) {
       return Inputs{in[0].Clamp(-1, 2), in[0].Clamp(0.5, {}), in[0].Clamp({}, 0.5)};
     },
     0, kElement, true},
    {"Clamp", "clamp_tensors", [](Builder&, In in) { return Inputs{in[0].Clamp(in[1], in[2])}; },
     0},
    {"MaskedFill", "masked_fill",
     [](Builder&, In in) { return Inputs{in[0].MaskedFill(in[1], -7)}; }, 0, kElement, true},

    // Activations; relative to the largest where a difference cancels, as PyTorch's does.
    {"Relu", "relu", One<&Tensor::Relu>, 0, kElement, true},
    {"Relu6", "relu6", One<&Tensor::Relu6>, 0, kElement, true},
    {"LogSigmoid", "log_sigmoid", One<&Tensor::LogSigmoid>, 100, kElement, true},
    {"HardSigmoid", "hard_sigmoid", [](Builder&, In in) { return Inputs{in[0].HardSigmoid()}; }, 1,
     kLargest, true},
    {"HardSwish", "hard_swish", One<&Tensor::HardSwish>, 2, kElement, true},
    {"HardTanh", "hard_tanh", [](Builder&, In in) { return Inputs{in[0].HardTanh()}; }, 0, kElement,
     true},
    {"LeakyRelu", "leaky_relu", [](Builder&, In in) { return Inputs{in[0].LeakyRelu(0.2)}; }, 1,
     kElement, true},
    {"PRelu", "prelu", Two<&Tensor::PRelu>, 0, kElement, true},
    {"Elu", "elu", [](Builder&, In in) { return Inputs{in[0].Elu(1.5)}; }, 8, kElement, true},
    {"Celu", "celu", [](Builder&, In in) { return Inputs{in[0].Celu(1.5)}; }, 8, kElement, true},
    {"Selu", "selu", One<&Tensor::Selu>, 8, kElement, true},
    {"Gelu", "gelu", One<&Tensor::Gelu>, 2, kLargest, true},
    {"GeluTanh", "gelu_tanh", One<&Tensor::GeluTanh>, 2, kLargest, true},
    {"QuickGelu", "quick_gelu", One<&Tensor::QuickGelu>, 2, kLargest, true},
    {"Silu", "silu", One<&Tensor::Swish>, 2, kLargest, true},
    {"Softplus", "softplus", [](Builder&, In in) { return Inputs{in[0].Softplus(2)}; }, 100,
     kElement, true},
    {"Softsign", "softsign", One<&Tensor::Softsign>, 1, kElement, true},
    {"Mish", "mish", One<&Tensor::Mish>, 2, kLargest, true},
    {"Glu", "glu", [](Builder&, In in) { return Inputs{in[0].Glu(1)}; }, 4, kLargest, true},

    // Gradients at edges, which PyTorch's say.
    {"Abs", "abs_gradient", One<&Tensor::Abs>, 0, kElement, true},
    {"Sigmoid", "sigmoid_gradient", One<&Tensor::Sigmoid>, 100, kElement, true},
    {"Cos", "cos_gradient", One<&Tensor::Cos>, 4, kElement, true},
    {"Tanh", "tanh_gradient", One<&Tensor::Tanh>, 8, kElement, true},
    {"Expm1", "expm1_gradient", One<&Tensor::Expm1>, 24, kElement, true},
    {"Log1p", "log1p_gradient", One<&Tensor::Log1p>, 8, kElement, true, -0.9, 3},
    {"LogAddExp", "log_add_exp_gradient", Two<&Tensor::LogAddExp>, 8, kElement, true},
    {"Pow", "pow_gradient", [](Builder&, In in) { return Inputs{in[0].Pow(2)}; }, 0, kElement,
     true},
    {"FloorMod", "mod_gradient", Two<&Tensor::FloorMod>, 0, kElement, true, 0.6, 0.9},
};

TEST(ElementwiseTest, Values) { CheckValues("elementwise", kCases); }
TEST(ElementwiseTest, Gradients) { CheckGradients("elementwise", kCases); }

}  // namespace

std::span<const Case> ElementwiseCases() { return kCases; }

}  // namespace telegrad::testing
