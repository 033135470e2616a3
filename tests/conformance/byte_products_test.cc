// Sums of products of bytes by DOT4: products of matrices and convolutions of all combinations of
// signed and unsigned bytes, with and without zero points, of sizes that nothing divides and of the
// extreme bytes, against loops on i64, in the interpreter for vectors of several widths and
// compiled for this processor. All are equal to the bit. And which sums become products of bytes,
// and which instruction a processor is given for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "engine/base/strings.h"
#include "engine/compile/compiler.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/lowering/lower.h"
#include "engine/reference/tensor_eval.h"
#include "engine/render/render.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/run_graph.h"
#include "tests/conformance/run_lowered.h"

namespace telegrad {
namespace {

using testing::Slots;

constexpr uint32_t kSeed = 11;

enum class Zero { kNone, kConstant, kGiven, kEach };  // kEach: for each row or column

// How a factor is given: its type, its zero point, and whether it is computed first.
struct Side {
  DType dtype = DType::kUInt8;
  Zero zero = Zero::kNone;
  int64_t constant = 0;
  bool computed = false;
};

struct Case {
  int64_t m = 23, k = 65, n = 37, batch = 1;
  Side a = {}, b = {.dtype = DType::kInt8};
  bool turned = false;  // b is given with its columns as rows
};

// What a factor is in i32, and the slots that it takes.
Tensor FactorOf(Builder& b, const Side& side, const Shape& shape, size_t each, std::string name) {
  Tensor x = b.Param(side.dtype, shape, name);
  if (side.computed) x = x.Xor(1).Contiguous();
  x = x.Cast(DType::kInt32);
  if (side.zero == Zero::kConstant) return x - side.constant;
  if (side.zero == Zero::kNone) return x;
  Shape zeros(shape.size(), 1);
  if (side.zero == Zero::kEach) zeros[each] = shape[each];
  return x - b.Param(side.dtype, zeros, name + "_zero").Cast(DType::kInt32);
}

FrozenGraph GraphOf(const Case& c) {
  Builder b;
  const Tensor x = FactorOf(b, c.a, {c.batch, c.m, c.k}, 1, "x");
  Tensor y = FactorOf(b, c.b, c.turned ? Shape{c.batch, c.n, c.k} : Shape{c.batch, c.k, c.n},
                      c.turned ? 1 : 2, "y");
  if (c.turned) y = y.Transpose();
  b.Output(x.MatMul(y), "out");
  const auto plan = b.Finish();
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan->graph;
}

// Half of the bytes are the least or the greatest ones.
Slots RandomSlots(UOp sink, std::mt19937& random) {
  Slots slots = testing::EmptySlots(sink);
  for (std::vector<uint8_t>& slot : slots) {
    for (uint8_t& byte : slot) {
      constexpr uint8_t kExtremes[] = {0, 127, 128, 255};
      byte = random() % 2 == 0 ? kExtremes[random() % 4] : static_cast<uint8_t>(random());
    }
  }
  return slots;
}

int64_t ByteOf(DType dtype, uint8_t byte) {
  return dtype == DType::kInt8 ? static_cast<int8_t>(byte) : byte;
}

// A factor in i64, from its slots.
class Values {
 public:
  Values(const Side& side, const Slots& slots, size_t* next) : side_(side) {
    bytes_ = slots[(*next)++];
    if (side.zero >= Zero::kGiven) zeros_ = slots[(*next)++];
  }
  int64_t At(int64_t i, int64_t each) const {
    const auto byte =
        static_cast<uint8_t>(bytes_[static_cast<size_t>(i)] ^ (side_.computed ? 1 : 0));
    return ByteOf(side_.dtype, byte) - ZeroOf(each);
  }

 private:
  int64_t ZeroOf(int64_t each) const {
    if (side_.zero == Zero::kNone) return 0;
    if (side_.zero == Zero::kConstant) return side_.constant;
    const auto place = static_cast<size_t>(side_.zero == Zero::kEach ? each : 0);
    return ByteOf(side_.dtype, zeros_[place]);
  }

  Side side_;
  std::vector<uint8_t> bytes_, zeros_;
};

std::vector<uint8_t> Bytes(const std::vector<int32_t>& values) {
  std::vector<uint8_t> out(values.size() * sizeof(int32_t));
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

std::vector<uint8_t> Product(const Case& c, const Slots& slots) {
  size_t next = 0;
  const Values a(c.a, slots, &next), b(c.b, slots, &next);
  std::vector<int32_t> out;
  for (int64_t p = 0; p < c.batch; ++p) {
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        int64_t sum = 0;
        for (int64_t k = 0; k < c.k; ++k) {
          const int64_t at = c.turned ? (p * c.n + j) * c.k + k : (p * c.k + k) * c.n + j;
          sum += a.At((p * c.m + i) * c.k + k, i) * b.At(at, j);
        }
        out.push_back(static_cast<int32_t>(sum));
      }
    }
  }
  return Bytes(out);
}

Target Processor(int vector_bytes, bool dots = true) {
  Target target;
  target.arch = "x86-64";
  target.vector_bytes = vector_bytes;
  target.vector_registers = vector_bytes == 64 ? 32 : 16;
  target.threads = 2;
  target.dots = dots;
  return target;
}

absl::StatusOr<Schedule> ScheduleOf(const FrozenGraph& graph, const Target& target) {
  Budget budget;
  return ScheduleGraph(graph.root(), &budget, ScheduleOptions::For(target));
}

bool HasDots(const Schedule& schedule) {
  for (const ScheduledKernel& kernel : schedule.kernels) {
    for (const uint32_t id : PostOrder(kernel.graph.root())) {
      if (kernel.graph.graph->op(id) == Op::kDot4) return true;
    }
  }
  return false;
}

// The output is the last slot.
void Check(const FrozenGraph& graph, const Slots& before, const std::vector<uint8_t>& want) {
  for (const int vector_bytes : {16, 64}) {
    const auto schedule = ScheduleOf(graph, Processor(vector_bytes));
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_TRUE(HasDots(*schedule));
    Slots got = before;
    const absl::Status status = testing::RunSchedule(*schedule, Processor(vector_bytes), &got);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(got.back(), want) << "vectors of " << vector_bytes;
  }
  static const auto runner = testing::CpuRunner::Open();
  ASSERT_TRUE(runner.ok()) << runner.status();
  Slots got = before;
  const absl::Status status = (*runner)->Run(graph.root(), {}, &got);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(got.back(), want) << "compiled";
}

constexpr DType kSigned = DType::kInt8, kUnsigned = DType::kUInt8;

TEST(ByteProducts, OfMatricesAreExact) {
  std::mt19937 random(kSeed);
  std::vector<Case> cases;
  for (const DType a : {kUnsigned, kSigned}) {
    for (const DType b : {kUnsigned, kSigned}) {
      const auto middle = [](DType dtype) { return dtype == kSigned ? int64_t{5} : int64_t{128}; };
      cases.push_back({.a = {.dtype = a}, .b = {.dtype = b}});
      cases.push_back({.a = {a, Zero::kConstant, middle(a)}, .b = {b, Zero::kConstant, middle(b)}});
      cases.push_back({.a = {a, Zero::kGiven}, .b = {b, Zero::kEach}});
      cases.push_back({.a = {a, Zero::kEach, 0, true}, .b = {b, Zero::kGiven}});
      cases.push_back({.a = {a, Zero::kGiven}, .b = {b, Zero::kEach, 0, true}});
    }
  }
  for (const int64_t k : {3, 4, 5, 7, 8, 9, 10, 11, 64, 515, 1025}) {
    const int64_t n = 70 + 40000 / k;  // fewer products are not worth it
    cases.push_back({.m = 66 + 600 / k, .k = k, .n = 65, .a = {kUnsigned, Zero::kGiven}});
    cases.push_back({.m = 1, .k = k, .n = n, .b = {kUnsigned, Zero::kConstant, 128}});
    cases.push_back({.m = n, .k = k, .n = 1, .a = {kSigned}});
  }
  cases.push_back({.m = 33, .k = 40, .n = 48, .a = {kUnsigned, Zero::kGiven}, .turned = true});
  cases.push_back({.m = 29,
                   .k = 21,
                   .n = 19,
                   .batch = 3,
                   .a = {kSigned, Zero::kGiven, 0, true},
                   .b = {kUnsigned, Zero::kGiven, 0, true}});
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    SCOPED_TRACE(StrCat("seed ", kSeed, ", case ", i, ": ", c.m, " x ", c.k, " x ", c.n));
    const FrozenGraph graph = GraphOf(c);
    const Slots before = RandomSlots(graph.root(), random);
    Check(graph, before, Product(c, before));
  }
}

struct Window {
  int64_t batch = 1, channels = 16, outputs = 19, rows = 9, columns = 11;
  int64_t window = 3, stride = 1, dilation = 1, pad = 1, groups = 1;
  Side x = {kUnsigned, Zero::kGiven}, w = {.dtype = kSigned};

  int64_t Along(int64_t size) const {
    return (size + 2 * pad - dilation * (window - 1) - 1) / stride + 1;
  }
};

FrozenGraph GraphOf(const Window& c) {
  Builder b;
  const Tensor x = FactorOf(b, c.x, {c.batch, c.channels, c.rows, c.columns}, 1, "x");
  const Tensor w = FactorOf(b, c.w, {c.outputs, c.channels / c.groups, c.window, c.window}, 0, "w");
  b.Output(x.Conv(w, {.stride = {c.stride}, .dilation = {c.dilation}, .pads = {c.pad}}, c.groups),
           "out");
  const auto plan = b.Finish();
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan->graph;
}

std::vector<uint8_t> Convolution(const Window& c, const Slots& slots) {
  size_t next = 0;
  const Values x(c.x, slots, &next), w(c.w, slots, &next);
  const int64_t inside = c.channels / c.groups, each = c.outputs / c.groups;
  std::vector<int32_t> out;
  const auto at = [&](int64_t n, int64_t o, int64_t row, int64_t column) {
    int64_t sum = 0;
    for (int64_t i = 0; i < inside; ++i) {
      for (int64_t tap = 0; tap < c.window * c.window; ++tap) {
        const int64_t r = row * c.stride + tap / c.window * c.dilation - c.pad;
        const int64_t q = column * c.stride + tap % c.window * c.dilation - c.pad;
        if (r < 0 || r >= c.rows || q < 0 || q >= c.columns) continue;
        const int64_t channel = o / each * inside + i;
        sum += x.At(((n * c.channels + channel) * c.rows + r) * c.columns + q, channel) *
               w.At((o * inside + i) * c.window * c.window + tap, o);
      }
    }
    return static_cast<int32_t>(sum);
  };
  for (int64_t n = 0; n < c.batch; ++n) {
    for (int64_t o = 0; o < c.outputs; ++o) {
      for (int64_t row = 0; row < c.Along(c.rows); ++row) {
        for (int64_t q = 0; q < c.Along(c.columns); ++q) out.push_back(at(n, o, row, q));
      }
    }
  }
  return Bytes(out);
}

TEST(ByteProducts, OfConvolutionsAreExact) {
  std::mt19937 random(kSeed);
  const Window cases[] = {
      {},
      {.channels = 18, .window = 1, .pad = 0},
      {.batch = 2, .channels = 9, .outputs = 8, .stride = 2},
      {.channels = 24, .outputs = 8, .dilation = 2, .pad = 2, .groups = 2},
      {.stride = 2, .dilation = 3, .pad = 3},
      {.channels = 64, .outputs = 48, .rows = 12, .columns = 4, .groups = 4},
      {.window = 5, .stride = 3, .pad = 2, .w = {kSigned, Zero::kEach}},
      {.x = {kSigned, Zero::kGiven, 0, true}, .w = {kUnsigned, Zero::kConstant, 128}},
      {.x = {kUnsigned, Zero::kConstant, 117}, .w = {kUnsigned, Zero::kGiven}},
      {.x = {kSigned, Zero::kConstant, -128}, .w = {kSigned, Zero::kEach}},
      {.pad = 0, .x = {kUnsigned, Zero::kNone}, .w = {kUnsigned, Zero::kNone}},
      // The channels of a picture, of which a word has three.
      {.channels = 3, .outputs = 16, .rows = 24, .columns = 26, .window = 7, .stride = 2, .pad = 3},
      {.channels = 3, .outputs = 33, .x = {kSigned, Zero::kNone}, .w = {kSigned, Zero::kEach}},
      {.channels = 5, .outputs = 33, .x = {kUnsigned, Zero::kConstant, 255}},
  };
  for (size_t i = 0; i < std::size(cases); ++i) {
    SCOPED_TRACE(StrCat("seed ", kSeed, ", case ", i));
    const FrozenGraph graph = GraphOf(cases[i]);
    const Slots before = RandomSlots(graph.root(), random);
    Check(graph, before, Convolution(cases[i], before));
  }
}

// Steps of 2 do not fall in with taps that are 3 apart, so the words of each window are stored
// apart from those of the next: 6 times the bytes of the image. One result for each window reads
// them once, from the image. Of several results, each reads them again, from memory.
TEST(ByteProducts, StoreWordsOfWindowsForSeveralResultsOnly) {
  std::mt19937 random(kSeed);
  for (const auto& [outputs, zero] :
       {std::pair(1, Zero::kNone), std::pair(1, Zero::kGiven), std::pair(32, Zero::kGiven)}) {
    SCOPED_TRACE(StrCat("seed ", kSeed, ", ", outputs));
    const Window c{.outputs = outputs,
                   .rows = 24,
                   .columns = 24,
                   .window = 5,
                   .stride = 2,
                   .dilation = 3,
                   .pad = 6,
                   .w = {kSigned, zero}};
    const FrozenGraph graph = GraphOf(c);
    const auto schedule = ScheduleOf(graph, Processor(64));
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    const int64_t image = c.channels * c.rows * c.columns;
    EXPECT_EQ(schedule->arena_bytes < image, outputs == 1) << schedule->arena_bytes;
    const Slots before = RandomSlots(graph.root(), random);
    Check(graph, before, Convolution(c, before));
  }
}

// A zero point outside of its type's range moves what padding is: no byte stands for it.
TEST(ByteProducts, LeavesWhatIsNoByteAsItIs) {
  std::mt19937 random(kSeed);
  const Window c{.x = {kUnsigned, Zero::kConstant, 300}};
  const FrozenGraph graph = GraphOf(c);
  const auto schedule = ScheduleOf(graph, Processor(64));
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_FALSE(HasDots(*schedule));
  Slots slots = RandomSlots(graph.root(), random);
  const std::vector<uint8_t> want = Convolution(c, slots);
  ASSERT_TRUE(testing::RunSchedule(*schedule, Processor(64), &slots).ok());
  EXPECT_EQ(slots.back(), want);
}

// Dequantized factors: with scales that are powers of two and few terms f32 is exact, too, so that
// the results are equal to the bit whether or not the scales are behind the sum.
struct Dequantized {
  bool each = false;     // a scale for each column, or channel that comes out
  bool by_term = false;  // for each term, which cannot be behind the sum
  bool window = false;
};

FrozenGraph GraphOf(const Dequantized& c) {
  Builder b;
  const Side bytes{kUnsigned, Zero::kConstant, 128}, weights{kSigned, Zero::kNone};
  const auto f32 = [](const Tensor& x) { return x.Cast(DType::kFloat32); };
  if (c.window) {
    const Tensor x = f32(FactorOf(b, bytes, {1, 16, 9, 11}, 1, "x")) * 0.25;
    const Tensor w = f32(FactorOf(b, weights, {19, 16, 3, 3}, 0, "w"));
    const Tensor scale = b.Param(DType::kFloat32, {c.each ? 19 : 1, 1, 1, 1}, "scale");
    b.Output(x.Conv(w * scale, {.pads = {1}}), "out");
  } else {
    const Tensor x = f32(FactorOf(b, bytes, {30, 40}, 1, "x")) * 0.25;
    const Tensor w = f32(FactorOf(b, weights, {40, 37}, 1, "w"));
    const Tensor scale = b.Param(DType::kFloat32, {c.by_term ? 40 : 1, c.each ? 37 : 1}, "scale");
    b.Output(x.MatMul(w * scale), "out");
  }
  const auto plan = b.Finish();
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan->graph;
}

TEST(ByteProducts, OfDequantizedValuesHaveTheirScalesBehindTheSum) {
  std::mt19937 random(kSeed);
  const Dequantized cases[] = {
      {}, {.each = true}, {.window = true}, {.each = true, .window = true}, {.by_term = true}};
  for (size_t i = 0; i < std::size(cases); ++i) {
    SCOPED_TRACE(StrCat("seed ", kSeed, ", case ", i));
    const FrozenGraph graph = GraphOf(cases[i]);
    Slots before = RandomSlots(graph.root(), random);
    std::vector<uint8_t>& scales = before[before.size() - 2];
    for (size_t at = 0; at < scales.size(); at += sizeof(float)) {
      const float scale = random() % 2 == 0 ? 0.5F : 2.0F;
      std::memcpy(&scales[at], &scale, sizeof(scale));
    }
    Slots want = before;
    Budget budget;
    ASSERT_TRUE(reference::Evaluate(graph.root(), want, &budget).ok());
    for (const bool fixed : {false, true}) {
      Target target = Processor(64);
      target.deterministic = fixed;
      const auto schedule = ScheduleOf(graph, target);
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      EXPECT_EQ(HasDots(*schedule), !fixed && !cases[i].by_term);
      Slots got = before;
      const absl::Status status = testing::RunSchedule(*schedule, target, &got);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(got.back(), want.back());
    }
  }
}

// Scales whose product is too large or too small for f32, of results that are neither: one of 0,
// and sums of which one scale is far from the other.
TEST(ByteProducts, OfDequantizedValuesHaveScalesOfAnySize) {
  struct Extreme {
    float x, w;
    uint8_t byte;
  };
  for (const Extreme& c : {Extreme{1e20F, -1e20F, 0}, Extreme{1e-22F, 1e-21F, 111},
                           Extreme{1e34F, 1e-34F, 111}, Extreme{1e-34F, -1e34F, 111}}) {
    Builder b;
    const auto factor = [&](const Side& side, const char* name, const char* scale) {
      const Tensor x = FactorOf(b, side, {64, 64}, 0, name).Cast(DType::kFloat32);
      return x * b.Param(DType::kFloat32, {1, 1}, scale);
    };
    const Tensor x = factor({.dtype = kUnsigned}, "x", "x_scale");
    const Tensor w = factor({.dtype = kSigned}, "w", "w_scale");
    b.Output(x.MatMul(w), "out");
    const auto plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << plan.status();
    const UOp root = plan->graph.root();
    Slots want = testing::EmptySlots(root);
    for (const size_t slot : {0, 2}) std::ranges::fill(want[slot], c.byte);
    std::memcpy(want[1].data(), &c.x, sizeof(float));
    std::memcpy(want[3].data(), &c.w, sizeof(float));
    Slots got = want;
    Budget budget;
    ASSERT_TRUE(reference::Evaluate(root, want, &budget).ok());
    const auto schedule = ScheduleOf(plan->graph, Processor(64));
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_TRUE(HasDots(*schedule));
    ASSERT_TRUE(testing::RunSchedule(*schedule, Processor(64), &got).ok());
    EXPECT_EQ(testing::Difference(DType::kFloat32, false, want.back(), got.back()), "")
        << c.x << ", " << c.w;
  }
}

// What floats are quantized to, compiled for this processor: halves go to even, a NaN is 0.
TEST(ByteProducts, AreRoundedToBytes) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> x = {kNan, kInf, -kInf, 1e38F, -1e38F, -0.0F, 1e-40F};
  for (int n = -200; n <= 200; ++n) {
    const auto half = static_cast<float>(n + 0.5);
    x.insert(x.end(), {std::nextafter(half, -kInf), half, std::nextafter(half, kInf)});
  }
  std::vector<uint8_t> want;
  for (const float value : x) {
    const float within = std::isnan(value) ? 0 : std::clamp(value, -100.0F, 155.0F);
    want.push_back(static_cast<uint8_t>(static_cast<int>(std::nearbyint(within)) + 100));
  }
  Builder b;
  const Tensor given = b.Param(DType::kFloat32, {static_cast<int64_t>(x.size())}, "x");
  const Tensor whole = given.Maximum(-100.0).Minimum(155.0) + 0x1.8p23 - 0x1.8p23;
  b.Output((whole.Cast(DType::kInt32) + 100).Cast(kUnsigned), "out");
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  Slots got = testing::EmptySlots(plan->graph.root());
  std::memcpy(got[0].data(), x.data(), got[0].size());
  const auto runner = testing::CpuRunner::Open();
  ASSERT_TRUE(runner.ok()) << runner.status();
  const absl::Status status = (*runner)->Run(plan->graph.root(), {}, &got);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(got.back(), want);
}

// Of few terms that no two channels share, as those of a depthwise window: the sum is exact in f32,
// and no term is multiplied by a scale.
TEST(ByteProducts, OfDepthwiseWindowsHaveTheirScalesBehindTheSum) {
  Builder b;
  const auto f32 = [](const Tensor& x) { return x.Cast(DType::kFloat32); };
  const Tensor x = f32(FactorOf(b, {kUnsigned, Zero::kConstant, 7}, {1, 24, 9, 11}, 1, "x"));
  const Tensor w = f32(FactorOf(b, {kSigned}, {24, 1, 3, 3}, 0, "w"));
  b.Output((x * 0.25).Conv(w * 0.5, {.pads = {1}}, 24), "out");
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto schedule = ScheduleOf(plan->graph, Processor(64));
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  int sums = 0, products = 0, choices = 0;
  for (const ScheduledKernel& kernel : schedule->kernels) {
    for (const uint32_t id : PostOrder(kernel.graph.root())) {
      const UOp u = kernel.graph.graph->at(id);
      choices += u.is(Op::kWhere) && u.src(0).is(Op::kCmpLt) && IsFloat(u.src(0).src(0).dtype());
      if (!u.is(Op::kReduce)) continue;
      ++sums;
      for (const uint32_t term : PostOrder(u.src(0))) {
        const UOp v = kernel.graph.graph->at(term);
        products += v.is(Op::kMul) && IsFloat(v.dtype()) ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(sums, 1);
  EXPECT_EQ(products, 1);
  EXPECT_EQ(choices, 0) << "which of two known scales is nearer to 0 is known";
  std::mt19937 random(kSeed);
  Slots want = RandomSlots(plan->graph.root(), random);
  Slots got = want;
  Budget budget;
  ASSERT_TRUE(reference::Evaluate(plan->graph.root(), want, &budget).ok());
  ASSERT_TRUE(testing::RunSchedule(*schedule, Processor(64), &got).ok());
  EXPECT_EQ(got.back(), want.back());
}

// A sum of products whose channels a window of each reads next could be a nest of the window's
// kernel, which keeps a channel for itself: then its bytes would not lie in words.
TEST(ByteProducts, AreNoNestsOfOtherKernels) {
  Builder b;
  const Tensor x = FactorOf(b, {kUnsigned, Zero::kConstant, 128}, {1, 32, 28, 28}, 1, "x");
  const Tensor wide = x.Conv(FactorOf(b, {kSigned}, {192, 32, 1, 1}, 0, "w"));
  const Tensor bytes = wide.ShiftRight(8).Maximum(0).Minimum(255).Cast(kUnsigned).Contiguous();
  const Tensor each = FactorOf(b, {kSigned}, {192, 1, 3, 3}, 0, "v");
  b.Output(bytes.Cast(DType::kInt32).Conv(each, {.pads = {1}}, 192), "out");
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto schedule = ScheduleOf(plan->graph, Processor(64));
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_TRUE(HasDots(*schedule));
  std::mt19937 random(kSeed);
  Slots want = RandomSlots(plan->graph.root(), random);
  Slots got = want;
  Budget budget;
  ASSERT_TRUE(reference::Evaluate(plan->graph.root(), want, &budget).ok());
  ASSERT_TRUE(testing::RunSchedule(*schedule, Processor(64), &got).ok());
  EXPECT_EQ(got.back(), want.back());
}

// Without the instruction the sums are f32 in as many parts as are exact, and never products of
// i32.
TEST(ByteProducts, AreFloatsOnOtherTargets) {
  std::mt19937 random(kSeed);
  for (const int64_t k : {64, 515, 1500}) {
    const Case c{.m = 9, .k = k, .n = 21, .a = {kUnsigned, Zero::kGiven}};
    const FrozenGraph graph = GraphOf(c);
    const Target target = Processor(64, /*dots=*/false);
    const auto schedule = ScheduleOf(graph, target);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_FALSE(HasDots(*schedule));
    for (const ScheduledKernel& kernel : schedule->kernels) {
      for (const uint32_t id : PostOrder(kernel.graph.root())) {
        const UOp u = kernel.graph.graph->at(id);
        if (u.is(Op::kReduce)) EXPECT_EQ(u.dtype(), DType::kFloat32) << k;
      }
    }
    Slots slots = RandomSlots(graph.root(), random);
    const std::vector<uint8_t> want = Product(c, slots);
    ASSERT_TRUE(testing::RunSchedule(*schedule, target, &slots).ok());
    EXPECT_EQ(slots.back(), want) << k;
  }
}

// Four bytes of each factor for each of the instruction's lanes: a product of 64 x 64 x 64 is 64 *
// 64
// * 16 words.
TEST(ByteProducts, AreVpdpbusd) {
  const FrozenGraph graph = GraphOf(Case{.m = 64, .k = 64, .n = 64});
  for (const auto& [bytes, features] : {std::pair(64, "+avx512f,+avx512bw,+avx512vl,+avx512vnni"),
                                        std::pair(32, "+avx2,+avxvnni")}) {
    Target target = Processor(bytes);
    target.features = features;
    const auto schedule = ScheduleOf(graph, target);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    int found = 0;
    for (const ScheduledKernel& kernel : schedule->kernels) {
      Budget budget;
      PassOptions options;
      options.weights = kernel.weights;
      const auto program = Lower(kernel.graph, target, "k", &budget, /*stats=*/nullptr, options);
      ASSERT_TRUE(program.ok()) << program.status();
      const auto ir = Render(*program, target);
      ASSERT_TRUE(ir.ok()) << ir.status();
      const auto assembly = CompileToAssembly(*ir, program->name, target);
      ASSERT_TRUE(assembly.ok()) << assembly.status();
      found += assembly->find("vpdpbusd") != std::string::npos ? 1 : 0;
    }
    EXPECT_EQ(found, 1) << features;
  }
}

// The words of a weight, and the sums of its bytes that a zero point is multiplied by: neither is
// computed again in each run.
TEST(ByteProducts, DeriveWordsAndSumsOfWeights) {
  const FrozenGraph graph =
      GraphOf(Case{.m = 64, .k = 64, .n = 64, .a = {kUnsigned, Zero::kConstant, 5}});
  const Target target = Processor(64);
  const auto schedule = ScheduleOf(graph, target);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  const ScheduledKernel& product = schedule->kernels.back();
  Budget budget;
  PassOptions options;
  options.weights = product.weights;
  const auto program = Lower(product.graph, target, "k", &budget, /*stats=*/nullptr, options);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->packings.size(), 2);
  for (const Program::Packing& packing : program->packings) {
    EXPECT_FALSE(program->arguments[static_cast<size_t>(packing.source)].read);
  }
}

}  // namespace
}  // namespace telegrad
