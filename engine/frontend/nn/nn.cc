#include "engine/frontend/nn/nn.h"

#include "engine/base/status.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad::nn {
namespace {

// One number a channel, axis 1 of a tensor with `spatial` axes behind it.
Tensor BiasOnChannels(const Tensor& parameter, size_t spatial) {
  Shape shape(spatial + 1, 1);
  shape[0] = -1;
  return parameter.Reshape(shape);
}

int64_t InGroup(int64_t channels, int64_t groups) { return groups > 0 ? channels / groups : 0; }

}  // namespace

Linear::Linear(Builder* builder, std::string_view name, int64_t in, int64_t out,
               const Options& options)
    : weight(UniformParameter(builder, name, "weight", {out, in}, FanBound(in), options)) {
  if (options.bias) bias = UniformParameter(builder, name, "bias", {out}, FanBound(in), options);
}

Tensor Linear::operator()(const Tensor& x) const {
  const Tensor y = x.MatMul(weight.Transpose());
  return Has(bias) ? y + bias : y;
}

Conv::Conv(Builder* builder, std::string_view name, int64_t in, int64_t out, const Shape& kernel,
           const Window& window, int64_t groups, const Options& options)
    : window(window), groups(groups) {
  Shape shape = {out, InGroup(in, groups)};
  shape.insert(shape.end(), kernel.begin(), kernel.end());
  const double bound = FanBound(shape[1] * NumElements(kernel));
  weight = UniformParameter(builder, name, "weight", shape, bound, options);
  if (options.bias) bias = UniformParameter(builder, name, "bias", {out}, bound, options);
}

Tensor Conv::operator()(const Tensor& x) const {
  const Tensor y = x.Conv(weight, window, groups);
  return Has(bias) ? y + BiasOnChannels(bias, weight.shape().size() - 2) : y;
}

ConvTranspose::ConvTranspose(Builder* builder, std::string_view name, int64_t in, int64_t out,
                             const Shape& kernel, const Window& window, int64_t groups,
                             const std::vector<int64_t>& output_pads, const Options& options)
    : window(window), groups(groups), output_pads(output_pads) {
  Shape shape = {in, InGroup(out, groups)};
  shape.insert(shape.end(), kernel.begin(), kernel.end());
  const double bound = FanBound(shape[1] * NumElements(kernel));
  weight = UniformParameter(builder, name, "weight", shape, bound, options);
  if (options.bias) bias = UniformParameter(builder, name, "bias", {out}, bound, options);
}

Tensor ConvTranspose::operator()(const Tensor& x) const {
  const Tensor y = x.ConvTranspose(weight, window, groups, output_pads);
  return Has(bias) ? y + BiasOnChannels(bias, weight.shape().size() - 2) : y;
}

Embedding::Embedding(Builder* builder, std::string_view name, int64_t count, int64_t channels,
                     const Options& options)
    : weight(NormalParameter(builder, name, "weight", {count, channels}, 1, options)) {}

Tensor Embedding::operator()(const Tensor& index) const { return weight.Gather(index); }

LstmCell::LstmCell(Builder* builder, std::string_view name, int64_t in, int64_t hidden,
                   const Options& options) {
  const auto parameter = [&](std::string_view what, const Shape& shape) {
    return UniformParameter(builder, name, what, shape, FanBound(hidden), options);
  };
  weight_ih = parameter("weight_ih", {4 * hidden, in});
  weight_hh = parameter("weight_hh", {4 * hidden, hidden});
  if (!options.bias) return;
  bias_ih = parameter("bias_ih", {4 * hidden});
  bias_hh = parameter("bias_hh", {4 * hidden});
}

std::pair<Tensor, Tensor> LstmCell::operator()(const Tensor& x, const Tensor& hidden,
                                               const Tensor& cell) const {
  Tensor sum = x.MatMul(weight_ih.Transpose()) + hidden.MatMul(weight_hh.Transpose());
  if (Has(bias_ih)) sum = sum + bias_ih + bias_hh;
  const int64_t width = weight_hh.dim(1);
  const auto gate = [&](int64_t i) { return sum.Slice(-1, i * width, (i + 1) * width); };
  const Tensor next = gate(1).Sigmoid() * cell + gate(0).Sigmoid() * gate(2).Tanh();
  return {gate(3).Sigmoid() * next.Tanh(), next};
}

Tensor Dropout::operator()(const Tensor& x, bool training) const {
  return training ? rng->Dropout(x, p) : x;
}

}  // namespace telegrad::nn
