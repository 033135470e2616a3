#include "engine/frontend/onnx/operators.h"

#include <algorithm>

namespace telegrad::onnx {
namespace {

constexpr Operator kOperators[] = {
    {"Abs", 1, 1, UnaryOp<&Tensor::Abs>},
    {"Add", 2, 2, AddOp},
    {"And", 2, 2, AndOp},
    {"AveragePool", 1, 1, AveragePoolOp},
    {"BatchNormalization", 5, 5, BatchNormalizationOp},
    {"Cast", 1, 1, CastOp},
    {"CastLike", 2, 2, CastLikeOp},
    {"Ceil", 1, 1, UnaryOp<&Tensor::Ceil>},
    {"Clip", 1, 3, ClipOp},
    {"Concat", 1, -1, ConcatOp},
    {"Constant", 0, 0, ConstantOp},
    {"ConstantOfShape", 1, 1, ConstantOfShapeOp},
    {"Conv", 2, 3, ConvOp},
    {"Div", 2, 2, DivOp},
    {"Dropout", 1, 3, DropoutOp},
    {"Equal", 2, 2, EqualOp},
    {"Erf", 1, 1, UnaryOp<&Tensor::Erf>},
    {"Exp", 1, 1, UnaryOp<&Tensor::Exp>},
    {"Expand", 2, 2, ExpandOp},
    {"Flatten", 1, 1, FlattenOp},
    {"Floor", 1, 1, UnaryOp<&Tensor::Floor>},
    {"Gather", 2, 2, GatherOp},
    {"GatherND", 2, 2, GatherNdOp},
    {"Gelu", 1, 1, GeluOp},
    {"Gemm", 2, 3, GemmOp},
    {"GlobalAveragePool", 1, 1, GlobalAveragePoolOp},
    {"GlobalMaxPool", 1, 1, GlobalMaxPoolOp},
    {"Greater", 2, 2, GreaterOp},
    {"GreaterOrEqual", 2, 2, GreaterOrEqualOp},
    {"Identity", 1, 1, IdentityOp},
    {"InstanceNormalization", 3, 3, InstanceNormalizationOp},
    {"IsNaN", 1, 1, UnaryOp<&Tensor::IsNan>},
    {"LRN", 1, 1, LrnOp},
    {"LayerNormalization", 2, 3, LayerNormalizationOp},
    {"LeakyRelu", 1, 1, LeakyReluOp},
    {"Less", 2, 2, LessOp},
    {"LessOrEqual", 2, 2, LessOrEqualOp},
    {"Log", 1, 1, UnaryOp<&Tensor::Log>},
    {"LogSoftmax", 1, 1, LogSoftmaxOp},
    {"MatMul", 2, 2, MatMulOp},
    {"Max", 1, -1, MaxOp},
    {"MaxPool", 1, 1, MaxPoolOp},
    {"Mean", 1, -1, MeanOp},
    {"Min", 1, -1, MinOp},
    {"Mod", 2, 2, ModOp},
    {"Mul", 2, 2, MulOp},
    {"Neg", 1, 1, UnaryOp<&Tensor::Neg>},
    {"Not", 1, 1, UnaryOp<&Tensor::Not>},
    {"Or", 2, 2, OrOp},
    {"Pad", 1, 4, PadOp},
    {"Pow", 2, 2, PowOp},
    {"Range", 3, 3, RangeOp},
    {"Reciprocal", 1, 1, UnaryOp<&Tensor::Reciprocal>},
    {"ReduceMax", 1, 2, ReduceMaxOp},
    {"ReduceMean", 1, 2, ReduceMeanOp},
    {"ReduceMin", 1, 2, ReduceMinOp},
    {"ReduceSum", 1, 2, ReduceSumOp},
    {"Relu", 1, 1, UnaryOp<&Tensor::Relu>},
    {"Reshape", 2, 2, ReshapeOp},
    {"ScatterND", 3, 3, ScatterNdOp},
    {"Shape", 1, 1, ShapeOp},
    {"Sigmoid", 1, 1, UnaryOp<&Tensor::Sigmoid>},
    {"Slice", 1, 5, SliceOp},
    {"Softmax", 1, 1, SoftmaxOp},
    {"Split", 1, 2, SplitOp},
    {"Sqrt", 1, 1, UnaryOp<&Tensor::Sqrt>},
    {"Squeeze", 1, 2, SqueezeOp},
    {"Sub", 2, 2, SubOp},
    {"Sum", 1, -1, SumOp},
    {"Tanh", 1, 1, UnaryOp<&Tensor::Tanh>},
    {"Tile", 2, 2, TileOp},
    {"Transpose", 1, 1, TransposeOp},
    {"Trilu", 1, 2, TriluOp},
    {"Unsqueeze", 1, 2, UnsqueezeOp},
    {"Where", 3, 3, WhereOp},
    {"Xor", 2, 2, XorOp},
};
static_assert(std::ranges::is_sorted(kOperators, {}, &Operator::name));

}  // namespace

std::span<const Operator> AllOperators() { return kOperators; }

const Operator* FindOperator(std::string_view domain, std::string_view name) {
  std::string full(name);
  if (!domain.empty() && domain != "ai.onnx") full = StrCat(domain, ".", name);
  const auto it = std::ranges::lower_bound(kOperators, full, {}, &Operator::name);
  return it != std::end(kOperators) && it->name == full ? it : nullptr;
}

}  // namespace telegrad::onnx
