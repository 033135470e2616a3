// ResNet-50 (He et al. 2015) for inference, with each batch normalization as a scale and a
// shift.
#include "engine/base/strings.h"
#include "engine/frontend/nn/nn.h"
#include "engine/frontend/tensor/builder.h"
#include "tests/models/models.h"

namespace telegrad::testing {
namespace {

class Maker {
 public:
  Tensor Logits(const Tensor& images) {
    Tensor x = Conv("stem", images, 64, 7, {.stride = {2}, .pads = {3}}).Relu();
    x = x.MaxPool({3, 3}, {.stride = {2}, .pads = {1}});
    constexpr struct {
      int blocks;
      int64_t channels;
    } kStages[] = {{3, 64}, {4, 128}, {6, 256}, {3, 512}};
    for (int s = 0; s < 4; ++s) {
      for (int block = 0; block < kStages[s].blocks; ++block) {
        const int64_t stride = s > 0 && block == 0 ? 2 : 1;
        x = Bottleneck(StrCat("stage", s, ".block", block), x, kStages[s].channels, stride);
      }
    }
    return nn::Linear(&b, "classes", 2048, 1000)(x.Mean({2, 3}));
  }

  Builder b;

 private:
  // A convolution without bias, then the scale and shift.
  Tensor Conv(std::string_view name, const Tensor& x, int64_t out, int64_t kernel,
              const Window& window) {
    const Tensor y = nn::Conv2d(&b, name, x.dim(1), out, kernel, window, 1, {.bias = false})(x);
    const Tensor scale =
        b.State(DType::kFloat32, {out, 1, 1}, StrCat(name, ".scale"), Init::Constant(1));
    const Tensor shift =
        b.State(DType::kFloat32, {out, 1, 1}, StrCat(name, ".shift"), Init::Constant(0));
    return y * scale + shift;
  }

  Tensor Bottleneck(const std::string& name, const Tensor& x, int64_t channels, int64_t stride) {
    Tensor y = Conv(name + ".reduce", x, channels, 1, {}).Relu();
    y = Conv(name + ".window", y, channels, 3, {.stride = {stride}, .pads = {1}}).Relu();
    y = Conv(name + ".expand", y, 4 * channels, 1, {});
    const bool same = x.dim(1) == 4 * channels;
    return (y + (same ? x : Conv(name + ".skip", x, 4 * channels, 1, {.stride = {stride}}))).Relu();
  }
};

}  // namespace

absl::StatusOr<Plan> ResNet50(int64_t batch) {
  Maker m;
  m.b.Output(m.Logits(m.b.Param(DType::kFloat32, {batch, 3, 224, 224}, "images")), "logits");
  return m.b.Finish();
}

}  // namespace telegrad::testing
