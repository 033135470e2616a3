// Attention as one kernel: rows of queries for each workgroup, both products around a softmax that
// is taken over blocks of keys. It computes what the formula says, in f64, keeps as much local
// memory for any number of keys, and of 16-bit floats both products are matrix instructions. Counts
// are those of the fake driver, of one workgroup.
#include <dlfcn.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/base/strings.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/nvptx/issue.h"
#include "tests/nvptx/ptx_kernels.h"
#include "tests/nvptx/ptxas.h"
#include "tests/nvptx/raw_cuda.h"

namespace telegrad::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Bytes = std::vector<uint8_t>;

struct Case {
  const char* name;
  DType dtype;
  int64_t heads, groups, queries, keys, channels;
  bool causal = false;
  int64_t window = 0;  // causal, of so many keys; 0: of all
  bool added = false;  // what hides a key is -inf that is added to its score

  bool Sees(int64_t query, int64_t key) const {
    return !causal || (key <= query && (window == 0 || query - key < window));
  }
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

constexpr Case kCases[] = {
    {"f16", DType::kFloat16, 8, 8, 64, 128, 64},
    {"bf16_of_groups", DType::kBFloat16, 8, 2, 64, 192, 64},
    {"f16_causal", DType::kFloat16, 8, 8, 160, 160, 32, true},
    {"f16_of_128_channels", DType::kFloat16, 8, 8, 64, 128, 128},
    {"no_multiples", DType::kFloat16, 8, 4, 75, 101, 40},
    {"bf16_causal_of_groups", DType::kBFloat16, 8, 2, 128, 128, 128, true},
    {"f16_window", DType::kFloat16, 8, 8, 128, 128, 64, true, 40},
    {"bf16_window_no_multiples", DType::kBFloat16, 8, 4, 101, 101, 128, true, 33},
    {"f16_causal_added", DType::kFloat16, 8, 8, 128, 128, 64, true, 0, true},
    {"not_aligned", DType::kBFloat16, 8, 8, 33, 65, 23},
    {"f32", DType::kFloat32, 8, 8, 64, 128, 64},
    {"f32_causal_of_groups", DType::kFloat32, 8, 4, 75, 75, 32, true},
    {"f32_not_aligned", DType::kFloat32, 8, 8, 33, 65, 23},
};

// Of so few multiprocessors that each workgroup has the most rows.
Target OneProcessor() {
  constexpr int64_t kLocalBytes = 163840;
  return *NvidiaTarget(8, 0, 1, kLocalBytes);
}

struct Attention {
  size_t launches = 0;
  int64_t arena = 0;  // bytes of temporaries
  Program program;
};

Attention Lowered(const Case& c, const Target& target) {
  Attention out;
  Builder b;
  const Tensor q = b.Param(c.dtype, {1, c.heads, c.queries, c.channels}, "q");
  const Tensor k = b.Param(c.dtype, {1, c.groups, c.keys, c.channels}, "k");
  const Tensor v = b.Param(c.dtype, {1, c.groups, c.keys, c.channels}, "v");
  const bool grouped = c.groups != c.heads;
  Tensor mask;
  if (c.window > 0) {
    const Tensor row = b.Iota(DType::kInt32, c.queries).Unsqueeze(-1);
    const Tensor back = row - b.Iota(DType::kInt32, c.keys);
    mask = back.Ge(0) & back.Lt(c.window);
  } else if (c.added) {
    const Tensor row = b.Iota(DType::kInt32, c.queries).Unsqueeze(-1);
    const Tensor seen = (row - b.Iota(DType::kInt32, c.keys)).Ge(0);
    const Tensor zero = b.Iota(DType::kInt32, 1).Cast(DType::kFloat32);
    mask = seen.Where(zero, -std::numeric_limits<double>::infinity());
  }
  b.Output(
      q.ScaledDotProductAttention(k, v, mask, c.causal && c.window == 0 && !c.added, {}, grouped),
      "y");
  const auto plan = b.Finish();
  EXPECT_TRUE(plan.ok()) << plan.status();
  Budget budget;
  const auto schedule =
      ScheduleGraph(plan->graph.root(), {}, &budget, ScheduleOptions::For(target));
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  if (!schedule.ok()) return out;
  out.launches = schedule->kernels.size();
  out.arena = schedule->arena_bytes;
  LoweringReport report;
  auto program = Lower(schedule->kernels.front().graph, target, "attention", &budget, &report);
  EXPECT_EQ(report.refused, "") << "lowered again";
  EXPECT_TRUE(program.ok()) << program.status();
  if (!program.ok()) return out;
  // The arguments by their slots: q, k, v, y.
  out.program = *std::move(program);
  std::vector<int32_t> slots;
  for (const BufferRef& ref : schedule->kernels.front().arguments) slots.push_back(ref.index);
  EXPECT_EQ(slots, (std::vector<int32_t>{0, 1, 3, 2})) << "of the kernel's arguments";
  return out;
}

int64_t LocalBytes(const Attention& attention) {
  int64_t bytes = 0;
  for (uint32_t id : attention.program.order) {
    const UOp u = attention.program.graph->at(id);
    const bool local = u.is(Op::kBuffer) && u.space() == AddressSpace::kLocal;
    if (local) bytes += BytesOf(u.dtype(), u.elements());
  }
  return bytes;
}

double At(const Bytes& bytes, DType dtype, int64_t i) {
  const int64_t size = ByteSize(dtype);
  int64_t raw = 0;
  std::memcpy(&raw, bytes.data() + i * size, static_cast<size_t>(size));
  return ScalarAsDouble(dtype, ScalarFromMemory(dtype, raw));
}

// Multiples of 1/32 around 0, as many types have them.
void Fill(Bytes* bytes, DType dtype, uint32_t seed) {
  const int64_t size = ByteSize(dtype);
  for (int64_t i = 0; i < static_cast<int64_t>(bytes->size()) / size; ++i) {
    seed = seed * 1664525 + 1013904223;
    const int64_t word = ScalarFromDouble(dtype, (static_cast<double>(seed >> 26) - 32) / 32);
    const int64_t raw = ScalarToMemory(dtype, word);
    std::memcpy(bytes->data() + i * size, &raw, static_cast<size_t>(size));
  }
}

std::vector<Bytes> ArgumentsOf(const Program& program) {
  std::vector<Bytes> arguments;
  for (const Program::Argument& a : program.arguments) {
    arguments.emplace_back(static_cast<size_t>(a.elements * ByteSize(a.dtype)));
    if (a.read) Fill(&arguments.back(), a.dtype, static_cast<uint32_t>(arguments.size()));
  }
  return arguments;
}

// The largest difference from the formula, in f64. Arguments are q, k, y, v.
double Error(const Case& c, const std::vector<Bytes>& arguments) {
  double most = 0;
  for (int64_t row = 0; row < c.heads * c.queries; ++row) {
    const int64_t head = row / c.queries, query = row % c.queries;
    const int64_t first = head / (c.heads / c.groups) * c.keys;  // of the group's keys
    std::vector<double> weights;
    double highest = -INFINITY, sum = 0;
    for (int64_t key = 0; key < c.keys; ++key) {
      if (!c.Sees(query, key)) {
        weights.push_back(-INFINITY);
        continue;
      }
      double score = 0;
      for (int64_t i = 0; i < c.channels; ++i) {
        score += At(arguments[0], c.dtype, row * c.channels + i) *
                 At(arguments[1], c.dtype, (first + key) * c.channels + i);
      }
      weights.push_back(score / std::sqrt(static_cast<double>(c.channels)));
      highest = std::max(highest, weights.back());
    }
    for (double& weight : weights) sum += weight = std::exp(weight - highest);
    for (int64_t i = 0; i < c.channels; ++i) {
      double want = 0;
      for (size_t key = 0; key < weights.size(); ++key) {
        const int64_t at = (first + static_cast<int64_t>(key)) * c.channels + i;
        want += weights[key] / sum * At(arguments[3], c.dtype, at);
      }
      const double error = std::abs(want - At(arguments[2], c.dtype, row * c.channels + i));
      most = error <= most ? most : std::isnan(error) ? INFINITY : error;
    }
  }
  return most;
}

// Of values below 1, and of weights that are rounded before they are added up.
double Tolerance(DType dtype) {
  return dtype == DType::kFloat32 ? 1e-6 : 2 * std::ldexp(1.0, -1 - Info(dtype).mantissa_bits);
}

std::string Library() {
  const char* named = std::getenv("TELEGRAD_CUDA");
  return named != nullptr ? named : TELEGRAD_FAKE_CUDA;
}

const absl::StatusOr<std::unique_ptr<RawCuda>>& Driver() {
  static const auto* const cuda =
      new absl::StatusOr<std::unique_ptr<RawCuda>>(RawCuda::Open(Library()));
  return *cuda;
}

using CountFunction = int64_t (*)(const char*);

// Of the fake driver; null on a GPU.
CountFunction CounterFunction() {
  void* loaded = dlopen(Library().c_str(), RTLD_NOW);
  return reinterpret_cast<CountFunction>(dlsym(loaded, "fakeCudaCount"));
}

class AttentionTiles : public ::testing::TestWithParam<Case> {};

TEST_P(AttentionTiles, ComputeTheFormulaInOneKernel) {
  const Case& c = GetParam();
  for (const Target& target : {OneProcessor(), Ampere(), *NvidiaTarget(8, 0, 108, 48 << 10)}) {
    const Attention attention = Lowered(c, target);
    ASSERT_EQ(attention.launches, 1u);
    EXPECT_EQ(attention.arena, 0);
    const auto image = CompileKernel(attention.program, target);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_LE(image->signature.local_bytes, target.local_bytes);
    if (c.dtype != DType::kFloat32) EXPECT_THAT(image->binary, HasSubstr("mma.sync"));
    std::vector<Bytes> arguments = ArgumentsOf(attention.program);
    ASSERT_TRUE(Driver().ok()) << Driver().status();
    ASSERT_EQ((*Driver())->Run(*image, {{0, attention.program.iterations}}, &arguments),
              absl::OkStatus());
    EXPECT_LE(Error(c, arguments), Tolerance(c.dtype));
  }
}

// The same local memory for 4,096 keys as for 65,536, where rows of scores would be 16 MiB.
TEST_P(AttentionTiles, KeepABlockOfEachRow) {
  for (const Target& target : {OneProcessor(), Ampere(), Hopper()}) {
    Case c = GetParam();
    c.queries = c.keys = 4096;
    const Attention few = Lowered(c, target);
    c.queries = c.keys = 65536;
    const Attention many = Lowered(c, target);
    EXPECT_EQ(many.launches, 1u);
    EXPECT_EQ(many.arena, 0);
    EXPECT_EQ(LocalBytes(many), LocalBytes(few));
    EXPECT_LE(LocalBytes(many), 128 << 10);
    EXPECT_EQ(many.program.iterations, c.heads * 65536 / 64);
  }
}

TEST_P(AttentionTiles, FitIntoRegisters) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "no ptxas: TELEGRAD_PTXAS names none, and PATH has none";
  for (const Target& target : {OneProcessor(), Hopper()}) {
    const Attention attention = Lowered(GetParam(), target);
    const auto image = CompileKernel(attention.program, target);
    ASSERT_TRUE(image.ok()) << image.status();
    const auto assembled = Assemble(ptxas, image->binary, target.arch);
    ASSERT_TRUE(assembled.ok()) << assembled.status();
    EXPECT_EQ(assembled->spill_stores, 0);
    EXPECT_EQ(assembled->spill_loads, 0);
    EXPECT_EQ(assembled->stack, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionTiles, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Of fewer queries than a warp has rows, as where a text is generated: a workgroup has one.
constexpr Case kRows[] = {
    {"f16", DType::kFloat16, 32, 32, 1, 640, 64},
    {"bf16_of_groups", DType::kBFloat16, 32, 8, 1, 301, 128},
    {"f16_few_keys", DType::kFloat16, 16, 16, 1, 70, 80},
    {"f32", DType::kFloat32, 16, 16, 1, 1000, 64},
    {"f32_not_aligned", DType::kFloat32, 16, 16, 1, 65, 23},
    {"f16_of_four_queries", DType::kFloat16, 8, 8, 4, 200, 64},
    {"bf16_causal", DType::kBFloat16, 8, 8, 9, 120, 64, true},
};

class AttentionRows : public ::testing::TestWithParam<Case> {};

TEST_P(AttentionRows, ComputeTheFormulaInOneKernel) {
  const Case& c = GetParam();
  const std::string ptxas = FindPtxas();
  for (const Target& target : {Ampere(), Hopper()}) {
    const Attention attention = Lowered(c, target);
    ASSERT_EQ(attention.launches, 1u);
    EXPECT_EQ(attention.arena, 0);
    EXPECT_EQ(attention.program.iterations, c.heads * c.queries);
    const auto image = CompileKernel(attention.program, target);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_GE(image->signature.group.x, target.warp);
    EXPECT_THAT(image->binary, Not(HasSubstr(".local")));
    if (!ptxas.empty()) {
      const auto assembled = Assemble(ptxas, image->binary, target.arch);
      ASSERT_TRUE(assembled.ok()) << assembled.status();
      // Of 23 channels ptxas stores one register, so that more workgroups fit.
      const int64_t most = c.channels % 4 == 0 ? 0 : 4;
      EXPECT_LE(assembled->spill_stores, most);
      EXPECT_LE(assembled->spill_loads, most);
    }
    if (target.arch == "sm_90a") continue;  // which the driver does not claim to be
    std::vector<Bytes> arguments = ArgumentsOf(attention.program);
    ASSERT_TRUE(Driver().ok()) << Driver().status();
    ASSERT_EQ((*Driver())->Run(*image, {{0, attention.program.iterations}}, &arguments),
              absl::OkStatus());
    EXPECT_LE(Error(c, arguments), Tolerance(c.dtype));
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionRows, ::testing::ValuesIn(kRows),
                         [](const auto& info) { return std::string(info.param.name); });

// What one workgroup does for 64 queries and so many keys.
IssueCounts Counts(Case c, int64_t keys) {
  c.keys = keys;
  const Target target = OneProcessor();
  const Attention attention = Lowered(c, target);
  const auto image = CompileKernel(attention.program, target);
  EXPECT_TRUE(image.ok()) << image.status();
  std::vector<Bytes> arguments = ArgumentsOf(attention.program);
  const IssueCounts before(CounterFunction());
  EXPECT_EQ((*Driver())->Run(*image, {{0, 1}}, &arguments), absl::OkStatus());
  return IssueCounts(CounterFunction()) - before;
}

// 64 x 64 scores of 64 channels, and as many products with values, are 4 x 4 x 4 instructions of
// 16 x 16 x 16 each, of two parts.
TEST(AttentionCounts, BothProductsAreMatrixInstructions) {
  if (CounterFunction() == nullptr) GTEST_SKIP() << "only the fake driver counts";
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const Case c{"counted", dtype, 8, 8, 64, 0, 64};
    const IssueCounts less = Counts(c, 512), more = Counts(c, 1024);
    const IssueCounts loop = more - less;  // 8 blocks of 4 warps
    EXPECT_EQ(loop.matrix(), 8 * 2 * 4 * 4 * 4 * 2);
    EXPECT_EQ(more["load_conflicts"], 0);
    EXPECT_EQ(more["store_conflicts"], 0);
    // Keys and values, each once.
    EXPECT_EQ(loop["global_bytes"], 2 * 512 * 64 * 2);
    EXPECT_EQ(loop["shared_loads"], 8 * 4 * 2 * 16);
    EXPECT_GT(loop["async_copies"], 0);
    RecordProperty("instructions", static_cast<int>(loop.instructions() / (8 * 4)));
    EXPECT_LE(loop.instructions(), 8 * 4 * 480);
  }
}

// Of the blocks that a mask hides from all rows of a workgroup nothing is computed, unless a value
// there is infinite, because 0 times that is no number, or, where the mask is added, an operand of
// a score is, whose sum with -inf may be none.
TEST(AttentionCounts, BlocksThatAMaskHidesAreNotComputed) {
  if (CounterFunction() == nullptr) GTEST_SKIP() << "only the fake driver counts";
  for (const bool added : {false, true}) {
    const Case c{"counted", DType::kFloat16, 8, 8, 512, 512, 64, true, 0, added};
    const Target target = OneProcessor();
    const Attention attention = Lowered(c, target);
    const auto image = CompileKernel(attention.program, target);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(attention.program.iterations, 8 * 8);
    // In no argument, in the values and in the keys of the first head.
    for (const int infinite : {-1, 3, 1}) {
      if (infinite == 1 && !added) continue;
      std::vector<Bytes> arguments = ArgumentsOf(attention.program);
      const int64_t last = (511 * 64 + 5) * 2;
      const uint16_t infinity = 0x7c00;
      if (infinite >= 0) {
        std::memcpy(arguments[static_cast<size_t>(infinite)].data() + last, &infinity, 2);
      }
      const IssueCounts before(CounterFunction());
      ASSERT_EQ((*Driver())->Run(*image, {{0, 8}}, &arguments), absl::OkStatus());
      const IssueCounts counts = IssueCounts(CounterFunction()) - before;
      const int64_t blocks = infinite >= 0 ? 8 * 8 : 8 * 9 / 2;  // of 8 tiles of rows
      EXPECT_EQ(counts.matrix(), blocks * 2 * 4 * 4 * 4 * 2) << infinite << added;
      if (infinite == 1) continue;
      EXPECT_EQ(std::isnan(At(arguments[2], c.dtype, 5)), infinite == 3);
      EXPECT_FALSE(std::isnan(At(arguments[2], c.dtype, 6)));
    }
  }
}

TEST(AttentionCounts, OperandsAreSharedInLocalMemory) {
  if (CounterFunction() == nullptr) GTEST_SKIP() << "only the fake driver counts";
  const Case c{"counted", DType::kFloat32, 8, 8, 64, 0, 64};
  const IssueCounts less = Counts(c, 512), more = Counts(c, 1024);
  const IssueCounts loop = more - less;
  EXPECT_EQ(loop["global_bytes"], 2 * 512 * 64 * 4);
  EXPECT_EQ(more["load_conflicts"], 0);
  // Of a warp's 2 x 16 x 64 x 64 multiplications for each block, 32 at once.
  const int64_t multiplications = 8 * 4 * 2 * 16 * 64 * 64 / 32;
  EXPECT_LE(loop.instructions(), multiplications * 3 / 2);
}

}  // namespace
}  // namespace telegrad::testing
