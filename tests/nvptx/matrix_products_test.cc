// Products of 16-bit floats in the largest tiles of matrix instructions: they compute what the
// reference interpreter computes, fit into a processor, and their inner loop is mostly matrix
// instructions. Counts are those of the fake driver, of one workgroup.
#include <dlfcn.h>

#include <cstring>

#include "engine/base/strings.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/lowering/lower.h"
#include "engine/reference/program_eval.h"
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
using Bytes = std::vector<uint8_t>;

constexpr int64_t kLocalBytes = 163840, kTile = 128, kTileK = 32;

// Of so few multiprocessors that each tile is the largest.
Target OneProcessor(int64_t local_bytes = kLocalBytes) {
  return *NvidiaTarget(8, 0, 1, local_bytes);
}

struct Case {
  const char* name;
  DType dtype;
  int64_t m, n, k;
  bool a_transposed = false, b_transposed = false;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// The programs of all kernels.
std::vector<Program> AllLowered(const Case& c, const Target& target) {
  Builder b;
  const auto operand = [&](const char* name, int64_t rows, int64_t columns, bool transposed) {
    if (!transposed) return b.Param(c.dtype, {rows, columns}, name);
    return b.Param(c.dtype, {columns, rows}, name).Permute({1, 0});
  };
  const Tensor x = operand("x", c.m, c.k, c.a_transposed);
  const Tensor w = operand("w", c.k, c.n, c.b_transposed);
  b.Output(x.MatMul(w), "y");
  const auto plan = b.Finish();
  EXPECT_TRUE(plan.ok()) << plan.status();
  Budget budget;
  const auto schedule =
      ScheduleGraph(plan->graph.root(), {}, &budget, ScheduleOptions::For(target));
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  std::vector<Program> out;
  for (const ScheduledKernel& kernel : schedule->kernels) {
    const auto program = Lower(kernel.graph, target, "product", &budget);
    EXPECT_TRUE(program.ok()) << program.status();
    if (program.ok()) out.push_back(*program);
  }
  return out;
}

Program Lowered(const Case& c, const Target& target) {
  const std::vector<Program> programs = AllLowered(c, target);
  EXPECT_EQ(programs.size(), 1u);
  return programs.empty() ? Program() : programs[0];
}

// Small integers as bf16, f16 or f32, whose products and sums are exact in any order.
void Fill(Bytes* bytes, DType dtype, uint32_t seed) {
  constexpr uint16_t kF16[] = {0x0000, 0x3c00, 0x4000, 0x4200, 0xbc00, 0xc000};
  constexpr uint16_t kBF16[] = {0x0000, 0x3f80, 0x4000, 0x4040, 0xbf80, 0xc000};
  if (dtype == DType::kFloat32) {
    for (size_t i = 0; i + 3 < bytes->size(); i += 4) {
      const auto value = static_cast<float>(i * 7919 % 251);
      std::memcpy(bytes->data() + i, &value, 4);
    }
    return;
  }
  for (size_t i = 0; i + 1 < bytes->size(); i += 2) {
    seed = seed * 1664525 + 1013904223;
    const uint16_t value = (dtype == DType::kFloat16 ? kF16 : kBF16)[(seed >> 16) % 6];
    std::memcpy(bytes->data() + i, &value, 2);
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

std::string Library() {
  const char* named = std::getenv("TELEGRAD_CUDA");
  return named != nullptr ? named : TELEGRAD_FAKE_CUDA;
}

const absl::StatusOr<std::unique_ptr<RawCuda>>& Driver() {
  static const auto* const cuda =
      new absl::StatusOr<std::unique_ptr<RawCuda>>(RawCuda::Open(Library()));
  return *cuda;
}

class MatrixProducts : public ::testing::TestWithParam<Case> {};

TEST_P(MatrixProducts, ComputeWhatTheReferenceComputes) {
  const Case& c = GetParam();
  for (const int64_t local_bytes : {kLocalBytes, int64_t{48} << 10}) {
    const Target target = OneProcessor(local_bytes);
    const Program program = Lowered(c, target);
    SCOPED_TRACE(program.moves);
    EXPECT_THAT(program.moves, HasSubstr("TENSORCORE"));
    const auto image = CompileKernel(program, target);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_LE(image->signature.local_bytes, local_bytes);
    EXPECT_THAT(image->binary, HasSubstr("ldmatrix.sync.aligned.m8n8.x4"));
    const PtxKernel kernel{program, ArgumentsOf(program), {"y", "x", "w"}};
    ASSERT_EQ(kernel.arguments.size(), kernel.names.size());
    std::vector<Bytes> want = kernel.arguments, got = kernel.arguments;
    const std::vector<std::span<uint8_t>> buffers(want.begin(), want.end());
    ASSERT_EQ(reference::Run(program, buffers, 0, program.iterations), absl::OkStatus());
    ASSERT_TRUE(Driver().ok()) << Driver().status();
    ASSERT_EQ((*Driver())->Run(*image, {{0, program.iterations}}, &got), absl::OkStatus());
    EXPECT_EQ(Difference(kernel, got, want), "");
  }
}

constexpr Case kCases[] = {
    {"bf16", DType::kBFloat16, 256, 128, 96},
    {"f16", DType::kFloat16, 128, 256, 96},
    {"a_transposed", DType::kBFloat16, 128, 128, 160, true, false},
    {"b_transposed", DType::kBFloat16, 128, 128, 160, false, true},
    {"both_transposed", DType::kFloat16, 128, 128, 96, true, true},
    {"not_multiples", DType::kFloat16, 136, 200, 104},
    {"not_aligned", DType::kBFloat16, 131, 133, 67},
    {"eight_columns", DType::kFloat16, 64, 8, 64},
    {"eight_rows", DType::kBFloat16, 8, 128, 192},
    {"three_rows", DType::kFloat16, 3, 100, 256},
};
INSTANTIATE_TEST_SUITE_P(All, MatrixProducts, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

using CountFunction = int64_t (*)(const char*);

// Of the fake driver; null on a GPU.
CountFunction CounterFunction() {
  void* loaded = dlopen(Library().c_str(), RTLD_NOW);
  return reinterpret_cast<CountFunction>(dlsym(loaded, "fakeCudaCount"));
}

class LargestTiles : public ::testing::TestWithParam<Case> {
 protected:
  // What one workgroup does where so much is reduced.
  IssueCounts Counts(int64_t k) {
    Case c = GetParam();
    c.k = k;
    const Target target = OneProcessor();
    const Program program = Lowered(c, target);
    const auto image = CompileKernel(program, target);
    EXPECT_TRUE(image.ok()) << image.status();
    std::vector<Bytes> arguments = ArgumentsOf(program);
    const IssueCounts before(CounterFunction());
    EXPECT_EQ((*Driver())->Run(*image, {{0, 1}}, &arguments), absl::OkStatus());
    return IssueCounts(CounterFunction()) - before;
  }
};

TEST_P(LargestTiles, AreMostlyMatrixInstructionsWithoutConflicts) {
  if (CounterFunction() == nullptr) GTEST_SKIP() << "only the fake driver counts";
  const IssueCounts less = Counts(8 * kTileK), more = Counts(24 * kTileK);
  const IssueCounts loop = more - less;  // 16 iterations of 4 warps
  EXPECT_EQ(loop.matrix(), 16 * 4 * 64);
  EXPECT_EQ(more["load_conflicts"], 0);
  EXPECT_EQ(more["store_conflicts"], 0);
  EXPECT_EQ(loop["shared_loads"], 16 * 4 * 16);
  EXPECT_EQ(loop["async_copies"], 16 * 4 * 8);
  EXPECT_GE(ShareOfCycles(loop), 0.9);
  const double tile = static_cast<double>(16 * kTileK * 2 * kTile * 2);
  EXPECT_LE(static_cast<double>(loop["global_bytes"]), 1.1 * tile);
  EXPECT_LE(32.0 * static_cast<double>(loop["global_sectors"]), 1.1 * tile);
}

// Where gaps between rows leave room for fewer workgroups, chunks of rows are exchanged instead:
// local memory has nothing but the operands' tiles, and no access of it meets another in a bank.
TEST_P(LargestTiles, HaveExchangedRowsWhereGapsHaveNoRoom) {
  if (CounterFunction() == nullptr) GTEST_SKIP() << "only the fake driver counts";
  struct Room {
    int64_t local_bytes, tiles;  // of each operand
  };
  std::vector<Room> rooms{{int64_t{48} << 10, 1}};
  if (GetParam().b_transposed) rooms.push_back({232448, 4});
  for (const Room& room : rooms) {
    SCOPED_TRACE(room.local_bytes);
    Case c = GetParam();
    c.k = 8 * kTileK;
    const Target target = OneProcessor(room.local_bytes);
    const Program program = Lowered(c, target);
    const auto image = CompileKernel(program, target);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->signature.local_bytes, room.tiles * 2 * kTile * kTileK * 2);
    std::vector<Bytes> arguments = ArgumentsOf(program);
    const IssueCounts before(CounterFunction());
    ASSERT_EQ((*Driver())->Run(*image, {{0, 1}}, &arguments), absl::OkStatus());
    const IssueCounts counts = IssueCounts(CounterFunction()) - before;
    EXPECT_GT(counts["shared_loads"], 0);
    EXPECT_EQ(counts["load_conflicts"], 0);
    EXPECT_EQ(counts["store_conflicts"], 0);
  }
}

TEST_P(LargestTiles, FitTwiceIntoAProcessor) {
  const std::string ptxas = FindPtxas();
  const Target target = OneProcessor();
  const Program program = Lowered(GetParam(), target);
  const auto image = CompileKernel(program, target);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->signature.group.x, 128u);
  EXPECT_LE(2 * image->signature.local_bytes, kLocalBytes);
  if (ptxas.empty()) GTEST_SKIP() << "no ptxas: TELEGRAD_PTXAS names none, and PATH has none";
  const auto assembled = Assemble(ptxas, image->binary, target.arch);
  ASSERT_TRUE(assembled.ok()) << assembled.status();
  EXPECT_EQ(assembled->spill_stores + assembled->spill_loads + assembled->stack, 0);
  EXPECT_LE(assembled->registers, 255);
}

// A product with few rows, as of a model that decodes: what is read of the large operand is read
// once, and the small one once for each tile.
TEST(SkinnyTiles, ReadTheLargeOperandOnce) {
  if (CounterFunction() == nullptr) GTEST_SKIP() << "only the fake driver counts";
  constexpr int64_t kRows = 8, kColumns = 512, kReduced = 512, kTileColumns = 32;
  const Target target = *NvidiaTarget(8, 0, 108, kLocalBytes);
  const Program program = Lowered({"decode", DType::kBFloat16, kRows, kColumns, kReduced}, target);
  EXPECT_THAT(program.moves, HasSubstr("TENSORCORE"));
  const auto image = CompileKernel(program, target);
  ASSERT_TRUE(image.ok()) << image.status();
  std::vector<Bytes> arguments = ArgumentsOf(program);
  const IssueCounts before(CounterFunction());
  ASSERT_EQ((*Driver())->Run(*image, {{0, program.iterations}}, &arguments), absl::OkStatus());
  const IssueCounts counts = IssueCounts(CounterFunction()) - before;
  const int64_t elements =
      kReduced * kColumns + kColumns / kTileColumns * kRows * kReduced + kRows * kColumns;
  EXPECT_LE(counts["global_bytes"], 2 * elements);
  EXPECT_EQ(counts["load_conflicts"], 0);
  EXPECT_EQ(counts["store_conflicts"], 0);
}

// What the reference computes, without conflicts in the banks or spilled registers.
void ExpectToRun(const Program& program, const Target& target) {
  SCOPED_TRACE(program.moves);
  const auto image = CompileKernel(program, target);
  ASSERT_TRUE(image.ok()) << image.status();
  PtxKernel kernel{program, {}, {}};
  for (const Program::Argument& a : program.arguments) {
    kernel.names.push_back(StrCat("argument ", kernel.arguments.size()));
    kernel.arguments.emplace_back(static_cast<size_t>(a.elements * ByteSize(a.dtype)));
    if (a.read) Fill(&kernel.arguments.back(), a.dtype, static_cast<uint32_t>(a.elements));
  }
  std::vector<Bytes> want = kernel.arguments, got = kernel.arguments;
  const std::vector<std::span<uint8_t>> buffers(want.begin(), want.end());
  ASSERT_EQ(reference::Run(program, buffers, 0, program.iterations), absl::OkStatus());
  const auto count = [] {
    return CounterFunction() == nullptr ? nullptr
                                        : std::make_unique<IssueCounts>(CounterFunction());
  };
  const auto before = count();
  ASSERT_EQ((*Driver())->Run(*image, {{0, program.iterations}}, &got), absl::OkStatus());
  EXPECT_EQ(Difference(kernel, got, want), "");
  if (const auto after = count()) {
    EXPECT_EQ((*after - *before)["load_conflicts"], 0);
    EXPECT_EQ((*after - *before)["store_conflicts"], 0);
  }
  if (const std::string ptxas = FindPtxas(); !ptxas.empty()) {
    const auto assembled = Assemble(ptxas, image->binary, target.arch);
    ASSERT_TRUE(assembled.ok()) << assembled.status();
    EXPECT_EQ(assembled->spill_stores + assembled->spill_loads + assembled->stack, 0);
  }
}

// Products of few tiles are divided among more workgroups (schedule/split_product.h).
TEST(SplitSums, FillTheDevice) {
  const Target target = *NvidiaTarget(8, 0, 108, kLocalBytes);
  for (const Case& c : {Case{"decode", DType::kBFloat16, 8, 256, 4096},
                        Case{"gradient", DType::kFloat16, 128, 128, 4096, true, false}}) {
    SCOPED_TRACE(c.name);
    const std::vector<Program> programs = AllLowered(c, target);
    ASSERT_EQ(programs.size(), 2u);
    EXPECT_THAT(programs[0].moves, HasSubstr("TENSORCORE"));
    EXPECT_THAT(programs[0].moves, HasSubstr("ring"));
    EXPECT_GE(programs[0].iterations, target.threads / 2);
    for (const Program& program : programs) ExpectToRun(program, target);
  }
}

// A convolution whose window moves its pixels by one: channels are copied in pieces, by a ring.
TEST(Windows, AreCopiedInPieces) {
  const Target target = OneProcessor();
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    SCOPED_TRACE(Name(dtype));
    Builder b;
    const Tensor x = b.Param(dtype, {2, 32, 24, 24}, "x"), w = b.Param(dtype, {64, 32, 3, 3}, "w");
    b.Output(x.Conv(w, {.pads = {1, 1, 1, 1}}).Relu(), "y");
    const auto plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << plan.status();
    Budget budget;
    const auto schedule =
        ScheduleGraph(plan->graph.root(), {}, &budget, ScheduleOptions::For(target));
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    ASSERT_EQ(schedule->kernels.size(), 3u);
    for (const ScheduledKernel& kernel : schedule->kernels) {
      const auto program = Lower(kernel.graph, target, "kernel", &budget);
      ASSERT_TRUE(program.ok()) << program.status();
      ExpectToRun(*program, target);
      if (&kernel != &schedule->kernels.back()) continue;
      EXPECT_THAT(program->moves, HasSubstr("ring 4"));
      const auto image = CompileKernel(*program, target);
      ASSERT_TRUE(image.ok()) << image.status();
      EXPECT_THAT(image->binary, HasSubstr("cp.async.cg.shared.global"));
    }
  }
}

constexpr Case kLargest[] = {
    {"bf16", DType::kBFloat16, 4096, 4096, 4096},
    {"a_transposed", DType::kBFloat16, 4096, 4096, 4096, true, false},
    {"b_transposed", DType::kFloat16, 4096, 4096, 4096, false, true},
};
INSTANTIATE_TEST_SUITE_P(All, LargestTiles, ::testing::ValuesIn(kLargest),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace telegrad::testing
