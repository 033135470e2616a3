// ResNet-50 (He et al. 2015), inference: the five most likely classes of an image.
//
//   resnet50 --weights resnet50.safetensors --image cat.npy
//
// Weights are named as torchvision names them, so that its files load as they are (.safetensors,
// PyTorch's .pth, .npz, .gguf). Without --weights they are random, and so are the classes: good for
// a look at speed only.
#include <algorithm>
#include <cmath>

#include "client/examples/example.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/host_random.h"

namespace telegrad::examples {
namespace {

struct Config {
  std::vector<int64_t> blocks;  // in each of the four stages
  int64_t width;                // channels of the first stage
  int64_t classes, size;
};

class ResNet {
 public:
  ResNet(Builder* b, const Config& config) : b_(b), config_(config) {}

  // images [batch, 3, size, size] -> logits [batch, classes].
  Tensor operator()(const Tensor& images) {
    Tensor x = ConvNorm("conv1", "bn1", images, config_.width, 7, 2).Relu();
    x = x.MaxPool({3, 3}, {.stride = {2}, .pads = {1}});
    for (size_t stage = 0; stage < config_.blocks.size(); ++stage) {
      const int64_t inner = config_.width << stage;
      for (int64_t block = 0; block < config_.blocks[stage]; ++block) {
        const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
        x = Bottleneck(StrCat("layer", stage + 1, ".", block), x, inner, stride);
      }
    }
    const Tensor features = x.Mean({2, 3});
    return features.Linear(Weight("fc.weight", {config_.classes, features.dim(1)}),
                           Weight("fc.bias", {config_.classes}));
  }

 private:
  Tensor Weight(const std::string& name, const Shape& shape) {
    const double fan_in = static_cast<double>(NumElements(shape)) / static_cast<double>(shape[0]);
    const double range = std::sqrt(3 / std::max(fan_in, 1.0));
    return b_->State(DType::kFloat32, shape, name,
                     Init::Uniform(-range, range, NamedSeed(1, name)));
  }

  Tensor ConvNorm(const std::string& conv, const std::string& norm, const Tensor& x, int64_t out,
                  int64_t kernel, int64_t stride) {
    const Tensor y = x.Conv(Weight(conv + ".weight", {out, x.dim(1), kernel, kernel}),
                            {.stride = {stride}, .pads = {kernel / 2}});
    const auto state = [&](const char* part, double initial) {
      return b_->State(DType::kFloat32, {out}, norm + part, Init::Constant(initial));
    };
    return y.BatchNorm(state(".running_mean", 0), state(".running_var", 1), state(".weight", 1),
                       state(".bias", 0));
  }

  Tensor Bottleneck(const std::string& name, const Tensor& x, int64_t inner, int64_t stride) {
    Tensor y = ConvNorm(name + ".conv1", name + ".bn1", x, inner, 1, 1).Relu();
    y = ConvNorm(name + ".conv2", name + ".bn2", y, inner, 3, stride).Relu();
    y = ConvNorm(name + ".conv3", name + ".bn3", y, 4 * inner, 1, 1);
    const bool same = x.dim(1) == 4 * inner && stride == 1;
    const Tensor around =
        same ? x
             : ConvNorm(name + ".downsample.0", name + ".downsample.1", x, 4 * inner, 1, stride);
    return (y + around).Relu();
  }

  Builder* b_;
  const Config& config_;
};

absl::StatusOr<HostTensor> ReadImage(const std::string& path, int64_t size) {
  const Shape shape = {1, 3, size, size};
  if (path.empty()) {
    std::vector<float> noise(static_cast<size_t>(NumElements(shape)));
    for (size_t i = 0; i < noise.size(); ++i) {
      noise[i] = static_cast<float>(2 * UnitFraction(7, i) - 1);
    }
    return HostTensor::Of<float>(shape, std::span<const float>(noise));
  }
  TG_ASSIGN_OR_RETURN(HostTensor image, ReadTensor(path));
  if (image.dtype != DType::kFloat32 || NumElements(image.shape) != NumElements(shape) ||
      image.shape.size() < 3 || image.shape[image.shape.size() - 3] != 3) {
    return InvalidArgument("--image: ", path, " is ", Name(image.dtype), " ", ToString(image.shape),
                           ", expected f32 [3, ", size, ", ", size, "]");
  }
  image.shape = shape;
  return image;
}

absl::Status Run(const Flags& flags) {
  Config config;
  TG_ASSIGN_OR_RETURN(config.width, IntFlag(flags, "width", 1, 1024));
  TG_ASSIGN_OR_RETURN(config.classes, IntFlag(flags, "classes", 1, 100'000));
  TG_ASSIGN_OR_RETURN(config.size, IntFlag(flags, "size", 32, 4096));
  TG_ASSIGN_OR_RETURN(const int64_t runs, IntFlag(flags, "runs", 1, 100'000));
  TG_ASSIGN_OR_RETURN(const int64_t depth, IntFlag(flags, "depth", 1, 3));
  config.blocks = depth == 1   ? std::vector<int64_t>{1, 1, 1, 1}
                  : depth == 2 ? std::vector<int64_t>{2, 2, 2, 2}
                               : std::vector<int64_t>{3, 4, 6, 3};
  const std::string& to = flags.GetString("logits");
  if (!to.empty()) TG_RETURN_IF_ERROR(CheckReplaceable(to));
  TG_ASSIGN_OR_RETURN(const HostTensor image, ReadImage(flags.GetString("image"), config.size));
  auto progress = std::make_unique<Progress>("building the graph");
  Builder b;
  const Tensor logits =
      ResNet(&b, config)(b.Param(DType::kFloat32, {1, 3, config.size, config.size}, "image"));
  b.Output(logits.Softmax(), "chances");
  b.Output(logits, "logits");
  TG_ASSIGN_OR_RETURN(const Plan plan, b.Finish());
  progress = nullptr;

  TG_ASSIGN_OR_RETURN(const auto connection, Connect(flags));
  TG_ASSIGN_OR_RETURN(const auto session, connection->OpenSession());
  RemoteState state(session.get());
  TG_RETURN_IF_ERROR(LoadWeights(flags, plan, &state));
  TG_ASSIGN_OR_RETURN(const auto net, Send(session.get(), &state, plan));
  TG_RETURN_IF_ERROR(net->Set("image", image));
  TG_ASSIGN_OR_RETURN(const HostTensor chances, RunTimed(net.get(), "chances", runs, "an image"));
  PrintLikely("class", chances);
  if (!to.empty()) {
    TG_ASSIGN_OR_RETURN(const HostTensor out, net->Read("logits"));
    TG_RETURN_IF_ERROR(WriteNpyFile(to, out));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace telegrad::examples

int main(int argc, char** argv) {
  using telegrad::FlagKind;
  return telegrad::examples::Main(
      argc, argv, "Classifies an image with ResNet-50.",
      {
          {"weights", 'w', FlagKind::kString, "", "FILE",
           "File of the weights with torchvision's names (default: random weights)"},
          {"image", 'i', FlagKind::kString, "", "FILE.npy",
           "File of the image, f32 [3, size, size], normalized for the weights (default: noise)"},
          {"runs", 'n', FlagKind::kInt, "10", "N",
           "Number of runs over which the time of one is measured"},
          {"logits", 'o', FlagKind::kString, "", "FILE.npy", "File that the logits are written to"},
          {"size", 0, FlagKind::kInt, "224", "N", "Width and height of the image"},
          {"classes", 0, FlagKind::kInt, "1000", "N", "Number of classes"},
          {"width", 0, FlagKind::kInt, "64", "N", "Number of channels of the first stage"},
          {"depth", 0, FlagKind::kInt, "3", "N",
           "Blocks of each stage: 1 or 2; 3 means the numbers of ResNet-50"},
      },
      &telegrad::examples::Run);
}
