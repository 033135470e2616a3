// Convolutions as products of transformed tiles: of several shapes, with and without padding, for
// images that tiles do not divide, batches, inputs that are computed, and what follows the sum,
// against the evaluator of tensor graphs, in the interpreter and on the CPU. And which convolutions
// are left as they are.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "engine/base/strings.h"
#include "engine/execution/written_first.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/lowering/lower.h"
#include "engine/reference/tensor_eval.h"
#include "engine/schedule/schedule.h"
#include "engine/types/machine_costs.h"
#include "tests/conformance/run_graph.h"
#include "tests/conformance/run_lowered.h"

namespace telegrad {
namespace {

using testing::Slots;

enum class Input { kPlain, kJoined, kUpsampled };
enum class After { kNothing, kBiasAndRelu, kResidual };

struct Convolution {
  int64_t batch = 1, channels = 16, outputs = 16, rows = 8, columns = 8;
  int64_t window = 3, stride = 1, dilation = 1, pad = 1, groups = 1;
  Input input = Input::kPlain;
  After after = After::kNothing;
  bool trained = false;  // the run also writes the weight
};

FrozenGraph GraphOf(const Convolution& c) {
  Builder b;
  Tensor x = b.Param(DType::kFloat32, {c.batch, c.channels, c.rows, c.columns}, "x");
  const Shape weight{c.outputs, c.channels / c.groups, c.window, c.window};
  const Tensor w = c.trained ? b.State(DType::kFloat32, weight, "w", Init::Constant(1))
                             : b.Param(DType::kFloat32, weight, "w");
  const Tensor bias = b.Param(DType::kFloat32, {c.outputs, 1, 1}, "bias");
  if (c.input == Input::kJoined) {
    const int64_t half = c.channels / 2;
    const Tensor parts[] = {x.Slice(1, 0, half), x.Slice(1, half, c.channels) * 2};
    x = Concat(parts, 1);
  }
  if (c.input == Input::kUpsampled) {
    x = x.Reshape({c.batch, c.channels, c.rows, 1, c.columns, 1})
            .Expand({c.batch, c.channels, c.rows, 2, c.columns, 2})
            .Reshape({c.batch, c.channels, 2 * c.rows, 2 * c.columns});
  }
  Tensor y = x.Conv(w, {.stride = {c.stride}, .dilation = {c.dilation}, .pads = {c.pad}}, c.groups);
  if (c.after == After::kBiasAndRelu) y = (y + bias).Relu();
  if (c.after == After::kResidual) y = (y + bias + x).Relu();
  b.Output(y, "y");
  if (c.trained) b.Store(w, w * 2);
  const auto plan = b.Finish();
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan->graph;
}

// Elements of a slot: those of its PARAM.
Slots RandomSlots(UOp sink, uint32_t seed) {
  std::mt19937 random(seed);
  Slots slots = testing::EmptySlots(sink);
  for (std::vector<uint8_t>& slot : slots) {
    for (size_t i = 0; i < slot.size(); i += sizeof(float)) {
      const float v = static_cast<float>(static_cast<int>(random() % 129) - 64) / 64;
      std::memcpy(&slot[i], &v, sizeof(v));
    }
  }
  return slots;
}

// Of a machine whose products are so slow beside all else that even small convolutions are worth
// it.
const MachineCosts& SlowProducts() {
  static const MachineCosts machine = [] {
    MachineCosts costs = CostsOf(CostRow::kGeneral);
    costs.schedule.transformed_input = 5;
    costs.schedule.transformed_product = 3;
    return costs;
  }();
  return machine;
}

absl::StatusOr<Schedule> ScheduleOf(const FrozenGraph& graph) {
  Budget budget;
  return ScheduleGraph(graph.root(), &budget,
                       {.machine = &SlowProducts(), .private_bytes = 1 << 20, .multiply_adds = 1});
}

bool IsTransformed(const Schedule& schedule) {
  return std::ranges::any_of(schedule.kernels, [](const ScheduledKernel& kernel) {
    return std::ranges::any_of(kernel.reasons, [](const std::string& reason) {
      return reason.find("winograd") != std::string::npos;
    });
  });
}

// The largest difference of two slots, for each of the largest magnitude that `want` has.
double Error(const std::vector<uint8_t>& want, const std::vector<uint8_t>& got) {
  double most = 0, largest = 0;
  for (size_t i = 0; i < want.size(); i += sizeof(float)) {
    float x, y;
    std::memcpy(&x, want.data() + i, sizeof(float));
    std::memcpy(&y, got.data() + i, sizeof(float));
    if (!(std::abs(x - y) <= 1e30F)) return HUGE_VAL;
    most = std::max(most, static_cast<double>(std::abs(x - y)));
    largest = std::max(largest, static_cast<double>(std::abs(x)));
  }
  return largest == 0 ? most : most / largest;
}

constexpr double kTolerance = 2e-5;

const Convolution kTransformed[] = {
    {},
    {.pad = 0},
    {.rows = 7, .columns = 10, .after = After::kBiasAndRelu},
    {.rows = 9, .columns = 5, .pad = 0},
    {.batch = 3, .rows = 6, .columns = 6, .after = After::kResidual},
    {.batch = 2, .channels = 24, .outputs = 20, .rows = 13, .columns = 11, .pad = 2},
    {.rows = 12, .columns = 9, .input = Input::kJoined, .after = After::kBiasAndRelu},
    {.rows = 5, .columns = 7, .input = Input::kUpsampled},
};

TEST(Winograd, AgreesWithTheTensorEvaluator) {
  constexpr uint32_t kSeed = 7;
  int number = 0;
  for (const Convolution& c : kTransformed) {
    SCOPED_TRACE(StrCat("seed ", kSeed, ", convolution ", number++));
    const FrozenGraph graph = GraphOf(c);
    const Slots before = RandomSlots(graph.root(), kSeed);
    Slots want = before;
    Budget budget;
    ASSERT_TRUE(reference::Evaluate(graph.root(), want, &budget).ok());
    const auto schedule = ScheduleOf(graph);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_TRUE(IsTransformed(*schedule));
    EXPECT_TRUE(WritesTemporariesFirst(*schedule)) << "temporaries would be cleared in every run";
    for (const int vector_bytes : {16, 64}) {
      Target target;
      target.vector_bytes = vector_bytes;
      target.vector_registers = vector_bytes == 64 ? 32 : 16;
      target.threads = 2;
      Slots got = before;
      const absl::Status status = testing::RunSchedule(*schedule, target, &got);
      ASSERT_TRUE(status.ok()) << status;
      for (size_t s = 0; s < want.size(); ++s) EXPECT_LE(Error(want[s], got[s]), kTolerance);
    }
  }
}

// Of a size for which a processor of AVX2 is expected to choose it, run twice on whatever is here:
// the second run keeps the transformed weight.
TEST(Winograd, RunsOnTheCpu) {
  const FrozenGraph graph = GraphOf(
      {.channels = 96, .outputs = 96, .rows = 30, .columns = 29, .after = After::kResidual});
  const Slots before = RandomSlots(graph.root(), 3);
  Slots want = before;
  Budget budget;
  ASSERT_TRUE(reference::Evaluate(graph.root(), want, &budget).ok());
  // What is measured of this machine depends on what else it does.
  Target usual = HostShape(2);
  usual.vector_bytes = 32;
  usual.vector_registers = 16;
  usual.vector_rate = 2;
  const auto schedule = ScheduleGraph(graph.root(), &budget, ScheduleOptions::For(usual));
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_TRUE(IsTransformed(*schedule));
  auto cpu = testing::CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  for (int run = 0; run < 2; ++run) {
    Slots got = before;
    const absl::Status status = (*cpu)->Run(graph.root(), {}, &got);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t s = 0; s < want.size(); ++s) EXPECT_LE(Error(want[s], got[s]), kTolerance);
  }
}

TEST(Winograd, TheTransformedWeightIsMadeOnceForManyRuns) {
  const auto schedule = ScheduleOf(GraphOf({}));
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  ASSERT_EQ(schedule->kernels.size(), 3u);
  const ScheduledKernel& multiply = schedule->kernels[1];
  ASSERT_EQ(multiply.weights.size(), 1u);
  Budget budget;
  const auto program =
      Lower(multiply.graph, Target(), "k", &budget, nullptr, {.weights = multiply.weights});
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_EQ(program->packings.size(), 1u);
  EXPECT_EQ(program->packings[0].source, multiply.weights[0]);
  EXPECT_FALSE(program->arguments[static_cast<size_t>(multiply.weights[0])].read);
  EXPECT_EQ(program->arguments[static_cast<size_t>(program->packings[0].copy)].elements,
            36 * 16 * 16);
  EXPECT_LE(program->flops, 1.1 * 2 * 36 * 4 * 16 * 16) << "the weight is transformed in each run";
}

// A tile's 36 points would fall onto one set of a cache where the bytes of all tiles of a point are
// whole pages.
TEST(Winograd, PointsOfATileAreSpreadOverTheCache) {
  const auto elements = [](const Convolution& c) {
    const auto schedule = ScheduleOf(GraphOf(c));
    EXPECT_TRUE(schedule.ok() && IsTransformed(*schedule)) << schedule.status();
    Budget budget;
    const auto program = Lower(schedule->kernels[0].graph, Target(), "k", &budget);
    EXPECT_TRUE(program.ok()) << program.status();
    return program.ok() ? program->arguments[0].elements : 0;
  };
  EXPECT_EQ(elements({.channels = 32, .rows = 32, .columns = 32}), 36 * (64 * 32 + 16));
  EXPECT_EQ(elements({.channels = 24, .rows = 12, .columns = 12}), 36 * 9 * 24);
}

// Neighbours in memory are channels of the tiles, and pixels of the image: of both the transforms
// touch whole lines before they go on, so lanes are channels.
TEST(Winograd, LanesOfLargeImagesAreChannels) {
  Target cpu;
  cpu.arch = "x86-64";
  cpu.vector_bytes = 64;
  cpu.vector_registers = 32;
  cpu.vector_rate = 2;
  cpu.cache_bytes = 2 << 20;
  const auto schedule =
      ScheduleOf(GraphOf({.channels = 32, .outputs = 32, .rows = 256, .columns = 256}));
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  ASSERT_EQ(schedule->kernels.size(), 3u);
  for (const size_t k : {0, 2}) {
    Budget budget;
    const auto program = Lower(schedule->kernels[k].graph, cpu, "k", &budget);
    ASSERT_TRUE(program.ok()) << program.status();
    const char* const lanes = k == 0 ? "VECTORIZE r2 16" : "VECTORIZE r0 16";
    EXPECT_NE(program->moves.find(lanes), std::string::npos) << program->moves;
  }
}

TEST(Winograd, OtherConvolutionsStayAsTheyAre) {
  const Convolution kOthers[] = {
      {.window = 5, .pad = 2},
      {.window = 1, .pad = 0},
      {.rows = 16, .columns = 16, .stride = 2},
      {.rows = 16, .columns = 16, .dilation = 2},
      {.channels = 32, .outputs = 32, .groups = 2},
      {.channels = 2, .outputs = 2},                // transforms cost more than they save
      {.rows = 2, .columns = 2},                    // most of a tile would be outside
      {.rows = 16, .columns = 16, .trained = true}  // its weight is another one in each run
  };
  int number = 0;
  for (const Convolution& c : kOthers) {
    const auto schedule = ScheduleOf(GraphOf(c));
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_FALSE(IsTransformed(*schedule)) << "convolution " << number;
    ++number;
  }
  Budget budget;
  const auto plain = ScheduleGraph(GraphOf({}).root(), &budget);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_FALSE(IsTransformed(*plain)) << "though the target does not ask for it";
}

// A device that could not keep the transformed weight would transform it in each run.
// On a processor that begins 32 multiply-adds in a cycle, too, where the transforms are a third of
// the predicted time: 64 channels of 56 x 56 pixels take half of the time
// (docs/measured/networks.md).
TEST(Winograd, LargeConvolutionsAreTransformedWhereProductsAreFast) {
  for (const int64_t channels : {8, 64}) {
    Budget budget;
    const auto schedule = ScheduleGraph(
        GraphOf({.channels = channels, .outputs = channels, .rows = 56, .columns = 56}).root(),
        &budget,
        {.machine = &CostsOf(CostRow::kGeneral), .private_bytes = 1 << 20, .multiply_adds = 32});
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_EQ(IsTransformed(*schedule), channels == 64);
  }
}

TEST(Winograd, WhatIsTransformedIsBounded) {
  const FrozenGraph graph = GraphOf({});
  const int64_t weight = 36 * 16 * 16 * 4;  // bytes, and more than those of 4 tiles
  for (const auto& [bytes, transformed] :
       {std::pair(weight, true), std::pair(weight - 1, false), std::pair(int64_t{0}, false)}) {
    Budget budget;
    const auto schedule = ScheduleGraph(graph.root(), &budget,
                                        {.machine = &SlowProducts(),
                                         .private_bytes = 1 << 20,
                                         .multiply_adds = 1,
                                         .transformed_bytes = bytes});
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_EQ(IsTransformed(*schedule), transformed) << bytes;
  }
}

}  // namespace
}  // namespace telegrad
