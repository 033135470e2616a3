// ONNX operators on the CPU device against the reference evaluator, and what their runs launch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/test_model.h"
#include "engine/frontend/onnx/test_node.h"
#include "engine/ir/content_hash.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/run_graph.h"

namespace telegrad {
namespace {

using onnx::test::ModelWriter;
using onnx::test::Random;
using Numbers = std::vector<int64_t>;

// What the slots of a model hold after a run on the CPU device.
absl::StatusOr<testing::Slots> RunOnTheDevice(const OnnxPlan& model,
                                              const std::vector<HostTensor>& inputs) {
  TG_ASSIGN_OR_RETURN(const auto runner, testing::CpuRunner::Open());
  testing::Slots slots;
  for (const Slot& slot : model.plan.slots) {
    slots.emplace_back(BytesOf(slot.dtype, NumElements(slot.shape)));
  }
  const auto bind = [&](int slot, const HostTensor& value) {
    slots[slot].assign(value.bytes.begin(), value.bytes.end());
  };
  for (const OnnxWeight& weight : model.weights) bind(weight.slot, model.Value(weight));
  for (size_t i = 0; i < inputs.size(); ++i) bind(model.inputs[i].slot, inputs[i]);
  TG_RETURN_IF_ERROR(runner->Run(model.plan.graph.root(), {}, &slots));
  return slots;
}

void ExpectSameOnTheDevice(const std::string& file, const std::vector<HostTensor>& inputs) {
  const auto model = ImportOnnx(file);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto want = onnx::test::Run(*model, inputs);
  ASSERT_TRUE(want.ok()) << want.status();
  const auto slots = RunOnTheDevice(*model, inputs);
  ASSERT_TRUE(slots.ok()) << slots.status();
  const auto content = [&](int number) {
    const Slot& slot = model->plan.slots[number];
    return HostTensor{slot.dtype, slot.shape,
                      std::string((*slots)[number].begin(), (*slots)[number].end())};
  };
  for (size_t i = 0; i < want->size(); ++i) {
    const OnnxValue& output = model->outputs[i];
    HostTensor all = content(output.slot);
    if (output.shape_slot >= 0) {
      auto cut = Cut(all, content(output.shape_slot).Values<int64_t>());
      ASSERT_TRUE(cut.ok()) << cut.status();
      all = *std::move(cut);
    }
    ASSERT_EQ(all.shape, (*want)[i].shape);
    if (!IsFloat(all.dtype)) {
      EXPECT_EQ(all.bytes, (*want)[i].bytes) << output.name;
      continue;
    }
    const std::vector<double> got = all.AsDoubles(), expected = (*want)[i].AsDoubles();
    for (size_t k = 0; k < got.size(); ++k) {
      ASSERT_NEAR(got[k], expected[k], 1e-4 * (1 + std::abs(expected[k]))) << "element " << k;
    }
  }
}

struct Launches {
  size_t all = 0, kernels = 0;  // of which so many are different
  int reductions = 0;           // of the kernel that has most
};

Launches LaunchesOf(const std::string& file) {
  Launches out;
  const auto model = ImportOnnx(file);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return out;
  Budget budget;
  const auto schedule = ScheduleGraph(model->plan.graph.root(), &budget);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  if (!schedule.ok()) return out;
  std::set<Digest> kernels;
  for (const ScheduledKernel& kernel : schedule->kernels) {
    kernels.insert(ContentHash(kernel.graph.root()));
    int reductions = 0;
    for (const uint32_t id : PostOrder(kernel.graph.root())) {
      reductions += kernel.graph.graph->op(id) == Op::kReduce ? 1 : 0;
    }
    out.reductions = std::max(out.reductions, reductions);
  }
  out.all = schedule->kernels.size();
  out.kernels = kernels.size();
  return out;
}

// The channels of an image lie in several buffers: each part is a sum of its own.
TEST(OnnxKernels, WindowsOverConcatenatedChannels) {
  std::mt19937_64 random(3);
  for (const int64_t side : {8, 9}) {
    SCOPED_TRACE(side);
    const std::string file =
        ModelWriter()
            .Input("x", DType::kFloat32, {1, 20, side, side})
            .Input("y", DType::kFloat32, {1, 12, side, side})
            .Input("z", DType::kFloat32, {1, 3, side, side})
            .Initializer("w", Random({24, 35, 3, 3}, &random))
            .Node("Concat", {"x", "y", "z"}, {"all"}, {{"axis", int64_t{1}}})
            .Node("Conv", {"all", "w"}, {"out"}, {{"pads", Numbers{1, 1, 1, 1}}})
            .Output("out")
            .File(13);
    ExpectSameOnTheDevice(
        file, {Random({1, 20, side, side}, &random), Random({1, 12, side, side}, &random),
               Random({1, 3, side, side}, &random)});
  }
}

// What a product is added to is read no more, and has a prime number of rows.
TEST(OnnxKernels, ProductsAddedToWhatDies) {
  std::mt19937_64 random(5);
  for (const int64_t rows : {37, 48}) {
    SCOPED_TRACE(rows);
    const std::string file = ModelWriter()
                                 .Input("x", DType::kFloat32, {rows, 64})
                                 .Initializer("v", Random({64, 64}, &random))
                                 .Initializer("w", Random({64, 64}, &random))
                                 .Node("MatMul", {"x", "v"}, {"first"})
                                 .Node("Softmax", {"first"}, {"soft"})
                                 .Node("MatMul", {"soft", "w"}, {"second"})
                                 .Node("Add", {"second", "first"}, {"sum"})
                                 .Node("Softmax", {"sum"}, {"out"})
                                 .Output("out")
                                 .File(13);
    ExpectSameOnTheDevice(file, {Random({rows, 64}, &random)});
  }
}

// NonMaxSuppression among `boxes` boxes.
Launches OfSuppression(int64_t boxes) {
  return LaunchesOf(ModelWriter()
                        .Input("boxes", DType::kFloat32, {1, boxes, 4})
                        .Input("scores", DType::kFloat32, {1, 2, boxes})
                        .Input("most", DType::kInt64, {1})
                        .Node("NonMaxSuppression", {"boxes", "scores", "most"}, {"y"})
                        .Output("y")
                        .File(13));
}

// Blocks of 64 boxes share their kernels. Twice as many are sorted in more steps, and go on once
// more without half of the blocks. What does not depend on the turns before is not a part of each
// turn, from which the kernels of several would get it.
TEST(OnnxKernels, OfSuppressionDoNotGrowWithTheBoxes) {
  const Launches few = OfSuppression(2048), many = OfSuppression(4096);
  EXPECT_GT(few.kernels, 0u);
  EXPECT_LE(many.kernels, few.kernels + 12);
  EXPECT_LE(many.reductions, 3) << "of the last levels of a scan";
}

// A detector's few best boxes of many: some of the best are sorted and go in blocks; for rows that
// need more, a round of picking is some launches of the same kernels, which go over the boxes of
// all classes.
TEST(OnnxKernels, OfSuppressionThatTakesFewDoNotGrow) {
  const auto launches = [](int64_t boxes, int64_t classes, int64_t most) {
    return LaunchesOf(ModelWriter()
                          .Input("boxes", DType::kFloat32, {1, boxes, 4})
                          .Input("scores", DType::kFloat32, {1, classes, boxes})
                          .Initializer("most", HostTensor::Of<int64_t>({1}, {most}))
                          .Node("NonMaxSuppression", {"boxes", "scores", "most"}, {"y"})
                          .Output("y")
                          .File(13));
  };
  const Launches few = launches(2000, 80, 70), many = launches(8400, 80, 134);
  EXPECT_LE(few.all, 3u * 70);
  EXPECT_LE(many.all, few.all + 3 * 64);
  EXPECT_LE(many.kernels, few.kernels + 12);
  EXPECT_LE(many.kernels, 64u);
  std::mt19937_64 random(2);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<float> corners, scores(2 * 500);
  for (int i = 0; i < 500; ++i) {
    const float y = 3 * uniform(random), x = 3 * uniform(random);
    corners.insert(corners.end(), {y, x, y + uniform(random), x + uniform(random)});
  }
  for (float& score : scores) score = uniform(random);
  ExpectSameOnTheDevice(
      ModelWriter()
          .Input("boxes", DType::kFloat32, {1, 500, 4})
          .Input("scores", DType::kFloat32, {1, 2, 500})
          .Initializer("most", HostTensor::Of<int64_t>({1}, {40}))
          .Initializer("overlap", HostTensor::Of<float>({1}, {0.4f}))
          .Node("NonMaxSuppression", {"boxes", "scores", "most", "overlap"}, {"y"})
          .Output("y")
          .File(13),
      {HostTensor::Of<float>({1, 500, 4}, corners), HostTensor::Of<float>({1, 2, 500}, scores)});
}

// A recurrence with the products of `gates` gates: two directions, sequences of several lengths.
std::string Recurrence(std::string_view op, int64_t gates, int64_t steps, int64_t hidden,
                       std::mt19937_64* random) {
  return ModelWriter()
      .Input("x", DType::kFloat32, {steps, 2, 12})
      .Input("lengths", DType::kInt32, {2})
      .Initializer("w", Random({2, gates * hidden, 12}, random))
      .Initializer("r", Random({2, gates * hidden, hidden}, random))
      .Node(op, {"x", "w", "r", "", "lengths"}, {"y", "last"},
            {{"hidden_size", hidden}, {"direction", std::string("bidirectional")}})
      .Output("y")
      .Output("last")
      .File(13);
}

// All steps but the first ones and the last are the same kernels.
TEST(OnnxKernels, OfARecurrenceDoNotGrowWithTheSteps) {
  for (const auto& [op, gates] : {std::pair("LSTM", 4), std::pair("GRU", 3), std::pair("RNN", 1)}) {
    SCOPED_TRACE(op);
    // 12 x 2 elements of a step do not fill whole units of alignment.
    for (const int64_t hidden : {6, 16}) {
      std::mt19937_64 random(7);
      const Launches few = LaunchesOf(Recurrence(op, gates, 80, hidden, &random));
      const Launches many = LaunchesOf(Recurrence(op, gates, 144, hidden, &random));
      EXPECT_GE(many.all, few.all + 128);
      EXPECT_LE(many.kernels, few.kernels + 6);
      EXPECT_LE(many.kernels, 40u);
    }
    std::mt19937_64 random(8);
    const std::string file = Recurrence(op, gates, 70, 6, &random);
    ExpectSameOnTheDevice(file,
                          {Random({70, 2, 12}, &random), HostTensor::Of<int32_t>({2}, {70, 41})});
  }
}

// A Scan over rows of inputs that no kernel computes, forward and backward, and a Loop that stacks.
TEST(OnnxKernels, OfAScanDoNotGrowWithTheSteps) {
  using onnx::test::Graph;
  const std::vector<float> weights(25, 0.125f);
  const auto file = [&](int64_t steps) {
    const Graph body{ModelWriter()
                         .Input("h", DType::kFloat32, {5})
                         .Input("a", DType::kFloat32, {5})
                         .Input("b", DType::kFloat32, {5})
                         .Node("MatMul", {"h", "w"}, {"p"})
                         .Node("Mul", {"p", "a"}, {"m"})
                         .Node("Sub", {"b", "m"}, {"d"})
                         .Node("Tanh", {"d"}, {"next"})
                         .Node("Add", {"next", "a"}, {"y"})
                         .Output("next")
                         .Output("y")
                         .graph()};
    return ModelWriter()
        .Input("h0", DType::kFloat32, {5})
        .Input("x", DType::kFloat32, {steps, 5})
        .Input("z", DType::kFloat32, {5, steps})
        .Initializer("w", HostTensor::Of<float>({5, 5}, weights))
        .Node("Scan", {"h0", "x", "z"}, {"last", "all"},
              {{"body", body},
               {"num_scan_inputs", int64_t{2}},
               {"scan_input_axes", Numbers{0, 1}},
               {"scan_input_directions", Numbers{0, 1}}})
        .Output("last")
        .Output("all")
        .File(13);
  };
  const Launches few = LaunchesOf(file(70)), many = LaunchesOf(file(134));
  EXPECT_GE(many.all, few.all + 64);
  EXPECT_LE(many.kernels, few.kernels + 6);
  std::mt19937_64 random(9);
  ExpectSameOnTheDevice(file(70),
                        {Random({5}, &random), Random({70, 5}, &random), Random({5, 70}, &random)});
}

// Regions are read with their channels side by side, from a copy of the image in that order.
TEST(OnnxKernels, OfRegionsReadChannelsTogether) {
  constexpr int64_t kChannels = 24, kSide = 11, kRegions = 5;
  const std::string file = ModelWriter()
                               .Input("x", DType::kFloat32, {1, kChannels, kSide, kSide})
                               .Input("rois", DType::kFloat32, {kRegions, 4})
                               .Input("image", DType::kInt64, {kRegions})
                               .Node("RoiAlign", {"x", "rois", "image"}, {"y"},
                                     {{"output_height", int64_t{3}}, {"output_width", int64_t{3}}})
                               .Output("y")
                               .File(16);
  const auto model = ImportOnnx(file);
  ASSERT_TRUE(model.ok()) << model.status();
  Budget budget;
  const auto schedule = ScheduleGraph(model->plan.graph.root(), &budget);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  const auto stored = [&](int64_t elements) {
    return std::ranges::any_of(schedule->temporaries, [&](const Temporary& t) {
      return t.bytes == BytesOf(DType::kFloat32, elements);
    });
  };
  EXPECT_TRUE(stored(kSide * kSide * kChannels));
  EXPECT_TRUE(stored(kRegions * 3 * 3 * kChannels));
  std::mt19937_64 random(6);
  const HostTensor rois = HostTensor::Of<float>(
      {kRegions, 4}, {0, 0, 5, 5, 1, 2, 9, 4, -3, 2, 20, 8, 4, 4, 4.5f, 4.5f, 7, 1, 2, 9});
  ExpectSameOnTheDevice(file, {Random({1, kChannels, kSide, kSide}, &random), rois,
                               HostTensor::Of<int64_t>({kRegions}, {0, 0, 0, 0, 0})});
}

// Elements of type u8 that the kernels of a model load, all iterations counted.
int64_t BytesLoaded(const std::string& file) {
  const auto model = ImportOnnx(file);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return 0;
  Budget budget;
  const auto schedule = ScheduleGraph(model->plan.graph.root(), &budget);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  if (!schedule.ok()) return 0;
  int64_t loads = 0;
  for (const ScheduledKernel& kernel : schedule->kernels) {
    const Graph& graph = *kernel.graph.graph;
    for (const uint32_t id : PostOrder(kernel.graph.root())) {
      const UOp load = graph.at(id);
      if (!load.is(Op::kLoad) || load.dtype() != DType::kUInt8) continue;
      int64_t times = 1;
      for (const uint32_t of : PostOrder(load)) {
        if (graph.op(of) == Op::kRange) times *= graph.at(of).src(0).const_word();
      }
      loads += times;
    }
  }
  return loads;
}

// One row times a matrix of 4 bits, as a language model that writes one word: each byte is loaded
// once, not once for each of its two elements.
TEST(OnnxKernels, OfAMatrixOfFewBitsLoadEachByteOnce) {
  constexpr int64_t kN = 64, kK = 256, kBlock = 32;
  const auto file = [&](int64_t rows) {
    return ModelWriter()
        .Input("a", DType::kFloat32, {rows, kK})
        .Input("b", DType::kUInt8, {kN, kK / kBlock, kBlock / 2})
        .Input("s", DType::kFloat32, {kN * kK / kBlock})
        .Node("MatMulNBits", {"a", "b", "s"}, {"y"},
              {{"K", kK}, {"N", kN}, {"bits", int64_t{4}}, {"block_size", kBlock}}, "com.microsoft")
        .Output("y")
        .File(17);
  };
  EXPECT_EQ(BytesLoaded(file(1)), kN * kK / 2);
  std::mt19937_64 random(3);
  std::vector<uint8_t> bytes(kN * kK / 2);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  const auto packed = HostTensor::Of<uint8_t>({kN, kK / kBlock, kBlock / 2}, bytes);
  for (const int64_t rows : {1, 5}) {
    ExpectSameOnTheDevice(
        file(rows), {Random({rows, kK}, &random), packed, Random({kN * kK / kBlock}, &random)});
  }
}

// A thousand keys cost one comparison, not a thousand.
TEST(OnnxKernels, OfALabelEncoderSearch) {
  Numbers keys(1000), values(1000);
  for (int64_t i = 0; i < 1000; ++i) {
    keys[i] = i * 7919 % 1009;
    values[i] = i;
  }
  const auto model =
      ImportOnnx(ModelWriter()
                     .Input("x", DType::kInt64, {5000})
                     .Node("LabelEncoder", {"x"}, {"y"},
                           {{"keys_int64s", keys}, {"values_int64s", values}}, "ai.onnx.ml")
                     .Output("y")
                     .File(17, 4));
  ASSERT_TRUE(model.ok()) << model.status();
  Budget budget;
  const auto schedule = ScheduleGraph(model->plan.graph.root(), &budget);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  // The element, a bucket's number, a key, its position and the value.
  int64_t loads = 0;
  for (const ScheduledKernel& kernel : schedule->kernels) {
    for (const uint32_t id : PostOrder(kernel.graph.root())) {
      EXPECT_FALSE(kernel.graph.graph->at(id).is(Op::kReduce));
      loads += kernel.graph.graph->at(id).is(Op::kLoad) ? 1 : 0;
    }
  }
  EXPECT_LE(loads, 5);
}

// Products of 8 bits are computed in f32 and are exact; a window that could be computed from
// transformed tiles is not, because these are not whole numbers.
TEST(OnnxKernels, OfIntegerProductsAreExactFloats) {
  std::mt19937_64 random(4);
  std::vector<uint8_t> x(64 * 12 * 12);
  std::vector<int8_t> w(64 * 64 * 9);
  for (uint8_t& v : x) v = static_cast<uint8_t>(random());
  for (int8_t& v : w) v = static_cast<int8_t>(random());
  const std::string file =
      ModelWriter()
          .Input("x", DType::kUInt8, {1, 64, 12, 12})
          .Initializer("w", HostTensor::Of<int8_t>({64, 64, 3, 3}, w))
          .Initializer("z", HostTensor::Of<uint8_t>({}, {uint8_t{9}}))
          .Node("ConvInteger", {"x", "w", "z"}, {"y"}, {{"pads", Numbers{1, 1, 1, 1}}})
          .Output("y")
          .File(13);
  ExpectSameOnTheDevice(file, {HostTensor::Of<uint8_t>({1, 64, 12, 12}, x)});
  const auto model = ImportOnnx(file);
  ASSERT_TRUE(model.ok()) << model.status();
  Budget budget;
  const auto schedule = ScheduleGraph(model->plan.graph.root(), &budget);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  for (const ScheduledKernel& kernel : schedule->kernels) {
    for (const uint32_t id : PostOrder(kernel.graph.root())) {
      const UOp u = kernel.graph.graph->at(id);
      EXPECT_FALSE(u.is(Op::kReduce) && u.dtype() == DType::kInt32);
    }
  }
}

}  // namespace
}  // namespace telegrad
