// Convolutions and other sums over several ranges, lowered for GPUs as products of two matrices:
// their programs compute what the evaluator of tensor graphs does, without races, and copy tiles of
// both operands into local memory.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "engine/base/strings.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/lowering/lower.h"
#include "engine/lowering/moves/move.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/integers.h"

namespace telegrad {
namespace {

using testing::DifferenceOn;
using testing::RandomGraph;
using testing::WithIntegers;

struct Convolution {
  const char* name;
  Shape x, w;
  Window window = {};
  int64_t groups = 1;
  bool last = false;  // x and the result have their channels last
};

Tensor Apply(Builder& b, const Convolution& c, DType dtype) {
  Tensor x = b.Param(dtype, c.x, "x");
  if (c.last) x = x.Permute({0, 3, 1, 2});
  const Tensor y = x.Conv(b.Param(dtype, c.w, "w"), c.window, c.groups).Relu();
  return c.last ? y.Permute({0, 2, 3, 1}) : y;
}

// The moves of all kernels that the graph becomes.
std::string MovesOf(UOp sink, const Target& target) {
  Budget budget;
  const auto schedule = ScheduleGraph(sink, {}, &budget, ScheduleOptions::For(target));
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  std::string moves;
  for (size_t k = 0; schedule.ok() && k < schedule->kernels.size(); ++k) {
    const auto program = Lower(schedule->kernels[k].graph, target, "k", &budget);
    EXPECT_TRUE(program.ok()) << program.status();
    if (program.ok()) StrAppend(&moves, program->moves, "\n");
  }
  return moves;
}

Target Amd(const char* name, int processors) {
  return AmdTarget(*FindAmdProcessor(name), processors);
}

// Sizes that no tile divides, so that every side is rounded up somewhere.
const Convolution kSmall[] = {
    {"padded", {1, 6, 7, 9}, {40, 6, 3, 3}, {.pads = {1, 1, 1, 1}}},
    {"plain", {1, 5, 9, 7}, {34, 5, 3, 2}},
    {"pointwise", {1, 24, 6, 8}, {48, 24, 1, 1}},
    {"strided", {1, 20, 13, 12}, {33, 20, 1, 1}, {.stride = {2, 2}}},
    {"large window", {1, 2, 15, 13}, {32, 2, 7, 7}, {.stride = {2, 2}, .pads = {3, 3, 3, 3}}},
    {"dilated", {1, 4, 8, 8}, {32, 4, 3, 3}, {.dilation = {2, 2}, .pads = {2, 2, 2, 2}}},
    {"batch", {6, 4, 3, 4}, {40, 4, 3, 3}, {.pads = {1, 1, 1, 1}}},
    {"groups", {2, 8, 5, 6}, {64, 4, 3, 3}, {.pads = {1, 1, 1, 1}}, 2},
    {"channels last", {2, 5, 6, 8}, {40, 8, 3, 3}, {.pads = {1, 1, 1, 1}}, 1, true},
    {"one axis", {2, 6, 35}, {40, 6, 5}, {.pads = {2, 2}}},
};

void ExpectTiles(const Convolution& c, DType dtype, const Target& target) {
  SCOPED_TRACE(StrCat(c.name, ", ", Name(dtype), ", ", target.arch, ", ", target.threads));
  Builder b;
  b.Output(Apply(b, c, dtype), "y");
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const RandomGraph graph = WithIntegers(*plan);
  EXPECT_EQ(DifferenceOn(graph, target), "");
  const std::string moves = MovesOf(graph.sink, target);
  EXPECT_TRUE(absl::StrContains(moves, "STAGE")) << moves;
  EXPECT_EQ(absl::StrContains(moves, "TENSORCORE"), dtype != DType::kFloat32) << moves;
}

TEST(ImplicitProducts, ConvolutionsAreTilesInLocalMemory) {
  for (const Convolution& c : kSmall) {
    ExpectTiles(c, DType::kFloat32, *NvidiaTarget(8, 0, 2, 163840));
    ExpectTiles(c, DType::kFloat32, Amd("gfx942", 304));
    ExpectTiles(c, DType::kFloat16, *NvidiaTarget(8, 0, 1, 163840));
    ExpectTiles(c, DType::kBFloat16, *NvidiaTarget(9, 0, 132, 232448));
    ExpectTiles(c, DType::kFloat16, Amd("gfx942", 2));
    ExpectTiles(c, DType::kBFloat16, Amd("gfx1100", 48));
  }
}

// On processors the pixels of a transposed convolution without overlaps are those of the input and
// a place in the window, so a tile of them reads each weight once.
TEST(ImplicitProducts, PixelsOfATransposedConvolutionShareWeights) {
  Target cpu;
  cpu.arch = "x86-64";
  cpu.vector_bytes = 64;
  cpu.vector_registers = 32;
  for (const auto& [x, stride] :
       {std::pair(Shape{1, 64, 16, 16}, 2), std::pair(Shape{2, 7, 5, 6}, 3),
        std::pair(Shape{1, 3, 33, 2}, 2)}) {
    Builder b;
    const Tensor w = b.Param(DType::kFloat32, {x[1], 32, stride, stride}, "w");
    const Tensor y = b.Param(DType::kFloat32, x, "x").ConvTranspose(w, {.stride = {stride}}, 1, {});
    b.Output(y.Relu(), "y");
    const auto plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << plan.status();
    const RandomGraph graph = WithIntegers(*plan);
    EXPECT_EQ(DifferenceOn(graph, cpu), "") << x[2];
    if (x[1] < 64) continue;
    const std::string moves = MovesOf(graph.sink, cpu);
    size_t tiled = 0;  // ranges of which a tile has several
    for (size_t at = 0; (at = moves.find("UPCAST", at)) != std::string::npos; ++at) ++tiled;
    EXPECT_GE(tiled, 2u) << moves;
  }
}

// A sum that is added to what its memory has, as where blocks of a network end.
TEST(ImplicitProducts, ResultsMayReplaceWhatTheyAreAddedTo) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    for (const Target& target : {*NvidiaTarget(8, 0, 2, 163840), Amd("gfx942", 304)}) {
      SCOPED_TRACE(StrCat(Name(dtype), ", ", target.arch));
      Builder b;
      const Tensor x = b.Param(dtype, {1, 8, 7, 9}, "x"), w = b.Param(dtype, {40, 8, 3, 3}, "w");
      const Tensor sum = b.Trainable(dtype, {1, 40, 7, 9}, "sum", Init::Uniform(-1, 1, 1));
      b.Store(sum, x.Conv(w, {.pads = {1, 1, 1, 1}}).Add(sum).Relu());
      const auto plan = b.Finish();
      ASSERT_TRUE(plan.ok()) << plan.status();
      const RandomGraph graph = WithIntegers(*plan);
      EXPECT_EQ(DifferenceOn(graph, target), "");
      const std::string moves = MovesOf(graph.sink, target);
      EXPECT_TRUE(absl::StrContains(moves, "STAGE")) << moves;
    }
  }
}

int64_t Kernels(UOp sink, const Target& target) {
  Budget budget;
  const auto schedule = ScheduleGraph(sink, {}, &budget, ScheduleOptions::For(target));
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return schedule.ok() ? std::ssize(schedule->kernels) : 0;
}

// Where a block of a network ends in the sum of two convolutions, each has tiles. Products with a
// vector, which have none, stay together, and so do all on a processor.
TEST(ImplicitProducts, SumsOfTwoAreTwoKernels) {
  Target processor;
  processor.arch = "x86-64";
  for (const int64_t rows : {1, 35}) {
    Builder b;
    const Tensor x = b.Param(DType::kFloat32, {1, 40, 1, rows}, "x");
    const Tensor y = b.Param(DType::kFloat32, {1, 36, 1, rows}, "y");
    const Tensor v = b.Param(DType::kFloat32, {40, 40, 1, 1}, "v");
    const Tensor w = b.Param(DType::kFloat32, {40, 36, 1, 1}, "w");
    b.Output(x.Conv(v).Add(y.Conv(w)).Relu(), "z");
    const auto plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << plan.status();
    const RandomGraph graph = WithIntegers(*plan);
    const Target gpu = *NvidiaTarget(8, 0, 2, 163840);
    EXPECT_EQ(DifferenceOn(graph, gpu), "");
    EXPECT_EQ(Kernels(graph.sink, gpu), rows == 1 ? 1 : 2) << rows;
    EXPECT_EQ(Kernels(graph.sink, OpenClProcessor(2, 64)), 1) << rows;
    EXPECT_EQ(Kernels(graph.sink, processor), 1) << rows;
    if (rows == 1) continue;
    const std::string moves = MovesOf(graph.sink, gpu);
    EXPECT_GE(moves.rfind("STAGE"), moves.find('\n')) << "both: " << moves;
    EXPECT_LT(moves.find("STAGE"), moves.find('\n')) << "both: " << moves;
  }
}

// The convolutions of ResNet-50, each once.
struct Layer {
  int64_t in, out, window, stride, size;
};
constexpr Layer kResnet50[] = {
    {3, 64, 7, 2, 224},     {64, 64, 1, 1, 56},    {64, 64, 3, 1, 56},    {64, 256, 1, 1, 56},
    {256, 64, 1, 1, 56},    {256, 128, 1, 1, 56},  {128, 128, 3, 2, 56},  {128, 512, 1, 1, 28},
    {256, 512, 1, 2, 56},   {512, 128, 1, 1, 28},  {128, 128, 3, 1, 28},  {512, 256, 1, 1, 28},
    {256, 256, 3, 2, 28},   {256, 1024, 1, 1, 14}, {512, 1024, 1, 2, 28}, {1024, 256, 1, 1, 14},
    {256, 256, 3, 1, 14},   {1024, 512, 1, 1, 14}, {512, 512, 3, 2, 14},  {512, 2048, 1, 1, 7},
    {1024, 2048, 1, 2, 14}, {2048, 512, 1, 1, 7},  {512, 512, 3, 1, 7},
};

// What a pixel's tile has in memory of each of its taps are channels: neighbours, which one copy
// moves. Where the client has them apart, they are stored so first.
TEST(ImplicitProducts, WindowsOf16BitFloatsAreCopiedInPieces) {
  const struct {
    Convolution c;
    int64_t kernels;
  } cases[] = {
      {{"padded", {2, 16, 20, 20}, {40, 16, 3, 3}, {.pads = {1, 1, 1, 1}}}, 3},
      {{"strided", {1, 8, 40, 40}, {32, 8, 7, 7}, {.stride = {2, 2}, .pads = {3, 3, 3, 3}}}, 3},
      {{"dilated", {1, 32, 24, 26}, {32, 32, 3, 3}, {.dilation = {2, 2}, .pads = {2, 2, 2, 2}}}, 3},
      {{"one axis", {4, 32, 100}, {32, 32, 15}, {.pads = {7, 7}}}, 3},
      {{"channels last", {2, 20, 20, 16}, {40, 16, 3, 3}, {.pads = {1, 1, 1, 1}}, 1, true}, 2},
      {{"few channels", {2, 12, 20, 20}, {40, 12, 3, 3}, {.pads = {1, 1, 1, 1}}}, 1},
      {{"small", {1, 16, 5, 5}, {40, 16, 3, 3}, {.pads = {1, 1, 1, 1}}}, 1},
      {{"no window", {2, 16, 20, 20}, {40, 16, 1, 1}}, 1},
  };
  for (const auto& [c, kernels] : cases) {
    for (const Target& target : {*NvidiaTarget(8, 0, 1, 163840), Amd("gfx942", 1)}) {
      SCOPED_TRACE(StrCat(c.name, ", ", target.arch));
      Builder b;
      b.Output(Apply(b, c, DType::kFloat16), "y");
      const auto plan = b.Finish();
      ASSERT_TRUE(plan.ok()) << plan.status();
      const RandomGraph graph = WithIntegers(*plan);
      EXPECT_EQ(Kernels(graph.sink, target), kernels);
      EXPECT_EQ(DifferenceOn(graph, target), "");
      const std::string moves = MovesOf(graph.sink, target);
      const char* const ring = target.async_bytes > 0 ? "ring 4" : "ring 2";
      if (kernels > 1) EXPECT_TRUE(absl::StrContains(moves, ring)) << moves;
    }
  }
}

// A value that is computed is stored with its channels last by the kernel that computes it.
TEST(ImplicitProducts, ResultsForWindowsAreStoredChannelsLast) {
  const Target target = *NvidiaTarget(8, 0, 1, 163840);
  Builder b;
  const Window window{.pads = {1, 1, 1, 1}};
  const Tensor x = b.Param(DType::kFloat16, {2, 16, 20, 20}, "x");
  const Tensor y = x.Conv(b.Param(DType::kFloat16, {32, 16, 3, 3}, "v"), window).Relu();
  b.Output(y.Conv(b.Param(DType::kFloat16, {32, 32, 3, 3}, "w"), window).Relu(), "z");
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const RandomGraph graph = WithIntegers(*plan);
  EXPECT_EQ(Kernels(graph.sink, target), 5) << "copies of x, v and w, and two products";
  EXPECT_EQ(DifferenceOn(graph, target), "");
}

// Elements that the program's threads read of both operands, with what gates forbid.
double OperandLoads(const Program& program) {
  double loads = 0, iterations = 1;
  std::vector<double> outer;
  for (uint32_t id : program.order) {
    const UOp u = program.graph->at(id);
    if (u.is(Op::kRange)) {
      outer.push_back(iterations);
      iterations *= static_cast<double>(u.src(0).vmax());
    } else if (u.is(Op::kEnd)) {
      iterations = outer.back();
      outer.pop_back();
    } else if (u.is(Op::kCopyAsync)) {
      loads += iterations * static_cast<double>(u.box_rows() * u.box_columns());
    } else if (u.is(Op::kLoad) && u.src(0).src(0).is(Op::kParam)) {
      loads += iterations * static_cast<double>(NumElements(u.src(0).shape()));
    }
  }
  return loads;
}

// What tiles read: rows and columns of each workgroup, all of the reduced range. In a ring of
// registers the last tile is loaded twice.
double TileModel(const Program& program, double reduced) {
  const auto moves = ParseMoves(program.moves);
  EXPECT_TRUE(moves.ok()) << moves.status();
  std::map<int64_t, int64_t> tile;
  int64_t staged = -1, twice = 0;
  for (const Move& m : *moves) {
    if (m.kind == Move::Kind::kStage) {
      staged = m.range;
      twice = m.ring == 2 ? 1 : 0;
    }
    if (m.kind == Move::Kind::kStage || m.kind == Move::Kind::kGroup) continue;
    if (m.kind != Move::Kind::kJoin) tile.try_emplace(m.range, 1).first->second *= m.amount;
  }
  const auto step = static_cast<double>(tile[staged]);
  double sides = 0;
  for (const auto& [range, amount] : tile) {
    sides += range == staged ? 0 : static_cast<double>(amount);
  }
  return static_cast<double>(program.iterations) * sides *
         (std::ceil(reduced / step) + static_cast<double>(twice)) * step;
}

TEST(ImplicitProducts, ResNet50ReadsTilesAlone) {
  const Target targets[] = {*NvidiaTarget(8, 0, 108, 163840), *NvidiaTarget(9, 0, 132, 232448),
                            Amd("gfx942", 304)};
  for (const Layer& layer : kResnet50) {
    for (const Target& target : targets) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
        SCOPED_TRACE(StrCat(layer.in, " to ", layer.out, ", window ", layer.window, ", size ",
                            layer.size, ", ", Name(dtype), ", ", target.arch));
        const int64_t pad = layer.window / 2;
        Builder b;
        const Tensor x = b.Param(dtype, {1, layer.in, layer.size, layer.size}, "x");
        const Tensor w = b.Param(dtype, {layer.out, layer.in, layer.window, layer.window}, "w");
        b.Output(x.Conv(w, {.stride = {layer.stride}, .pads = {pad, pad, pad, pad}}), "y");
        const auto plan = b.Finish();
        ASSERT_TRUE(plan.ok()) << plan.status();
        Budget budget;
        const auto schedule =
            ScheduleGraph(plan->graph.root(), {}, &budget, ScheduleOptions::For(target));
        ASSERT_TRUE(schedule.ok()) << schedule.status();
        // Beside it there may be kernels that store its operands in another order, or add parts.
        std::optional<Program> program;
        for (const ScheduledKernel& kernel : schedule->kernels) {
          const auto lowered = Lower(kernel.graph, target, "k", &budget);
          ASSERT_TRUE(lowered.ok()) << lowered.status();
          if (absl::StrContains(lowered->moves, "STAGE")) program = *lowered;
        }
        ASSERT_TRUE(program.has_value());
        EXPECT_EQ(absl::StrContains(program->moves, "TENSORCORE"), dtype != DType::kFloat32);
        const int64_t size = layer.size / layer.stride, results = layer.out * size * size;
        const auto parts = static_cast<double>(program->arguments[0].elements / results);
        const double reduced = static_cast<double>(layer.in * layer.window * layer.window) / parts;
        // Panels that have fewer pieces than threads are counted for all of these.
        EXPECT_LE(OperandLoads(*program), 2 * TileModel(*program, reduced)) << program->moves;
      }
    }
  }
}

}  // namespace
}  // namespace telegrad
