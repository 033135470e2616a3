#include "engine/frontend/nn/models.h"

#include "engine/frontend/autograd/gradient.h"
#include "engine/frontend/nn/nn.h"
#include "engine/frontend/tensor/builder.h"

namespace telegrad {
namespace {

Tensor Logits(Builder* builder, const Tensor& images, uint64_t seed) {
  const nn::Options options{.seed = seed};
  const Window same{.pads = {1}};
  const nn::Conv2d conv1(builder, "conv1", 1, 16, 3, same, 1, options);
  const nn::Conv2d conv2(builder, "conv2", 16, 32, 3, same, 1, options);
  const nn::Linear linear1(builder, "linear1", 32 * 4 * 4, 64, options);
  const nn::Linear linear2(builder, "linear2", 64, 10, options);
  Tensor x = conv1(images).Relu();
  x = conv2(x).Relu().MaxPool({2, 2}, {.stride = {2}});
  return linear2(linear1(x.Flatten(1)).Relu());
}

}  // namespace

absl::StatusOr<Plan> DigitsCnn::TrainStep(int64_t batch) const {
  Builder b;
  const Tensor images = b.Param(DType::kFloat32, {batch, 1, 8, 8}, "images");
  const Tensor labels = b.Param(DType::kInt32, {batch}, "labels");
  const Tensor logits = Logits(&b, images, seed);
  const Tensor loss = logits.CrossEntropy(labels);
  optim::Adam(&b, b.trainable(), Gradients(loss, b.trainable()), adam);
  b.Output(loss.Reshape({1}), "loss");
  b.Output(logits.ArgMax(-1).Eq(labels).Sum().Reshape({1}), "correct");
  return b.Finish();
}

absl::StatusOr<Plan> DigitsCnn::Eval(int64_t batch) const {
  Builder b;
  const Tensor images = b.Param(DType::kFloat32, {batch, 1, 8, 8}, "images");
  const Tensor logits = Logits(&b, images, seed);
  b.Output(logits, "logits");
  b.Output(logits.ArgMax(-1), "predictions");
  return b.Finish();
}

}  // namespace telegrad
