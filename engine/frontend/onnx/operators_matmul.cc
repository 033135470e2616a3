// Products of matrices.
#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {

absl::Status MatMulOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor a, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor b, c.Input(1));
  return c.Output(a.MatMul(b));
}

// alpha A' B' + beta C, where C broadcasts to the product.
absl::Status GemmOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(Tensor a, c.Input(0));
  TG_ASSIGN_OR_RETURN(Tensor b, c.Input(1));
  TG_ASSIGN_OR_RETURN(const float alpha, c.Float("alpha", 1));
  TG_ASSIGN_OR_RETURN(const float beta, c.Float("beta", 1));
  TG_ASSIGN_OR_RETURN(const int64_t transpose_a, c.Int("transA", 0));
  TG_ASSIGN_OR_RETURN(const int64_t transpose_b, c.Int("transB", 0));
  if (c.opset() < 7) c.Ignore("broadcast");  // C broadcasts wherever it can
  if (a.rank() != 2 || b.rank() != 2) {
    return InvalidArgument("the operands have shapes ", ToString(a.shape()), " and ",
                           ToString(b.shape()), ", expected matrices");
  }
  if (transpose_a != 0) a = a.Transpose();
  if (transpose_b != 0) b = b.Transpose();
  const DType dtype = a.dtype();
  Tensor out = a.MatMul(b);
  if (alpha != 1) out = (out * alpha).Cast(dtype);
  if (c.HasInput(2)) {
    TG_ASSIGN_OR_RETURN(Tensor bias, c.Input(2));
    if (beta != 1) bias = (bias * beta).Cast(dtype);
    out = out + bias.Expand(out.dims());
  }
  return c.Output(out);
}

// `equation` may have spaces, which mean nothing.
absl::Status EinsumOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Attribute* equation, c.Required("equation", AttributeType::kString));
  std::string formula;
  for (const char letter : equation->s) {
    if (letter != ' ') formula.push_back(letter);
  }
  std::vector<Tensor> operands;
  for (int i = 0; i < c.num_inputs(); ++i) {
    TG_ASSIGN_OR_RETURN(const Tensor operand, c.Input(i));
    operands.push_back(operand);
  }
  return c.Output(Einsum(formula, operands).Cast(operands[0].dtype()));
}

absl::Status DetOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  return c.Output(x.Determinant());
}

}  // namespace telegrad::onnx
