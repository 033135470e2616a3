// How long importing an ONNX file takes, from its bytes in memory to the graph: ResNet-50 (He et
// al. 2015; the stride of a stage on its 3x3 convolution), whose weights stay where they are in the
// file. Prints ms of processor time, the median in the last line.
//
// Usage: onnx_bench [REPEATS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "engine/base/strings.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/test_model.h"

namespace telegrad {
namespace {

using onnx::test::Attributes;
using onnx::test::ModelWriter;
using Numbers = std::vector<int64_t>;

constexpr int kConvolutions = 53;

class ResNet {
 public:
  std::string File() {
    model_.Input("image", DType::kFloat32, {1, 3, 224, 224});
    std::string x = Relu(Convolution("image", 3, 64, 7, 2));
    model_.Node("MaxPool", {x}, {"pooled"},
                {{"kernel_shape", Numbers{3, 3}},
                 {"strides", Numbers{2, 2}},
                 {"pads", Numbers{1, 1, 1, 1}}});
    x = "pooled";
    int64_t channels = 64;
    const int blocks[] = {3, 4, 6, 3};
    for (int stage = 0; stage < 4; ++stage) {
      const int64_t width = 64 << stage;
      for (int block = 0; block < blocks[stage]; ++block) {
        const int64_t stride = block == 0 && stage > 0 ? 2 : 1;
        std::string y = Relu(Convolution(x, channels, width, 1, 1));
        y = Relu(Convolution(y, width, width, 3, stride));
        y = Convolution(y, width, 4 * width, 1, 1);
        if (block == 0) x = Convolution(x, channels, 4 * width, 1, stride);
        channels = 4 * width;
        const std::string sum = Name();
        model_.Node("Add", {y, x}, {sum});
        x = Relu(sum);
      }
    }
    model_.Node("GlobalAveragePool", {x}, {"mean"});
    model_.Node("Flatten", {"mean"}, {"flat"}, {{"axis", int64_t{1}}});
    const std::string w = Weight({1000, channels}), b = Weight({1000});
    model_.Node("Gemm", {"flat", w, b}, {"scores"}, {{"transB", int64_t{1}}});
    return model_.Output("scores").File(13);
  }
  int convolutions() const { return convolutions_; }

 private:
  std::string Name() { return StrCat("v", names_++); }
  std::string Weight(const Shape& shape) {
    const std::string name = Name();
    HostTensor w{DType::kFloat32, shape, {}};
    w.bytes.resize(static_cast<size_t>(NumElements(shape) * 4));
    model_.Initializer(name, w);
    return name;
  }
  std::string Relu(const std::string& x) {
    const std::string y = Name();
    model_.Node("Relu", {x}, {y});
    return y;
  }
  // And the normalization behind it.
  std::string Convolution(const std::string& x, int64_t in, int64_t out, int64_t size,
                          int64_t stride) {
    ++convolutions_;
    const std::string w = Weight({out, in, size, size}), y = Name(), z = Name();
    model_.Node("Conv", {x, w}, {y},
                {{"kernel_shape", Numbers{size, size}},
                 {"strides", Numbers{stride, stride}},
                 {"pads", Numbers(4, size / 2)}});
    std::vector<std::string> inputs = {y};
    for (int i = 0; i < 4; ++i) inputs.push_back(Weight({out}));
    model_.Node("BatchNormalization", inputs, {z}, {{"epsilon", 1e-5f}});
    return z;
  }

  ModelWriter model_;
  int names_ = 0, convolutions_ = 0;
};

int Main(int repeats) {
  ResNet net;
  const std::string file = net.File();
  if (net.convolutions() != kConvolutions) {
    std::fprintf(stderr, "onnx_bench: %d convolutions\n", net.convolutions());
    return 1;
  }
  std::vector<double> seconds;
  unsigned nodes = 0;
  for (int i = 0; i < repeats; ++i) {
    const std::clock_t begin = std::clock();
    const auto onnx = ImportOnnx(file);
    seconds.push_back(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    if (!onnx.ok()) {
      std::fprintf(stderr, "onnx_bench: %s\n", onnx.status().ToString().c_str());
      return 1;
    }
    nodes = onnx->plan.graph.graph->size();
  }
  std::ranges::sort(seconds);
  std::printf("%zu bytes, %u nodes; best %.3f ms\n%.3f\n", file.size(), nodes,
              1e3 * seconds.front(), 1e3 * seconds[seconds.size() / 2]);
  return 0;
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) {
  return telegrad::Main(argc > 1 ? std::max(1, std::atoi(argv[1])) : 21);
}
