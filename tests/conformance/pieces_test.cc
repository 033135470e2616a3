// Values that select by comparisons of a loop with constants, as concatenations and paddings do:
// results are those of the definition, computed here, and the instructions that the interpreter
// executes hardly grow with the number of pieces.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "engine/base/status.h"
#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/run_lowered.h"

namespace telegrad::testing {
namespace {

Target Processor(int vector_bytes, int threads) {
  Target target;
  target.vector_bytes = vector_bytes;
  target.vector_registers = 32;
  target.threads = threads;
  return target;
}

// Slots of f32 whose elements are their numbers, from slot to slot; slot 0 is the result.
Slots Numbered(UOp sink) {
  Slots slots = EmptySlots(sink);
  float next = 1;
  for (size_t i = 1; i < slots.size(); ++i) {
    for (size_t at = 0; at < slots[i].size(); at += sizeof(float)) {
      std::memcpy(slots[i].data() + at, &next, sizeof(float));
      next += 1;
    }
  }
  return slots;
}

std::vector<float> Floats(const std::vector<uint8_t>& bytes) {
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

struct Ran {
  std::vector<float> result;
  int64_t steps = 0;
  int selections = 0;  // in all programs, of floats
  int gates = 0;       // of loads that have gates
};

absl::StatusOr<Ran> Execute(UOp sink, const Target& target) {
  Budget budget;
  TG_ASSIGN_OR_RETURN(const Schedule schedule,
                      ScheduleGraph(sink, {}, &budget, ScheduleOptions::For(target)));
  Slots slots = Numbered(sink);
  Ran ran;
  TG_RETURN_IF_ERROR(RunSchedule(schedule, target, &slots, nullptr, &ran.steps));
  ran.result = Floats(slots[0]);
  for (const ScheduledKernel& kernel : schedule.kernels) {
    TG_ASSIGN_OR_RETURN(const Program program, Lower(kernel.graph, target, "kernel", &budget));
    for (const uint32_t id : program.order) {
      const UOp u = program.graph->at(id);
      ran.selections += u.is(Op::kWhere) && IsFloat(u.dtype());
      ran.gates += u.is(Op::kLoad) && u.src(0).num_src() == 3;
    }
  }
  return ran;
}

// Tensors [before, sizes[i], inner], one behind the other along the second axis.
struct Joined {
  std::vector<int64_t> sizes;
  int64_t before = 1, inner = 1;

  FrozenGraph Graph() const {
    telegrad::Graph g;
    const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    std::vector<UOp> parts;
    for (size_t i = 0; i < sizes.size(); ++i) {
      parts.push_back(
          g.Param(static_cast<int64_t>(i) + 1, DType::kFloat32, Shape{before, sizes[i], inner}));
    }
    const UOp to = g.Param(0, DType::kFloat32, Shape{before, total, inner});
    const UOp all = g.Make(Op::kCat, DType::kVoid, parts, std::vector<int64_t>{1});
    return Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {to, all})}));
  }

  std::vector<float> Want() const {
    const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    std::vector<float> want;
    for (int64_t b = 0; b < before; ++b) {
      int64_t from = 1;  // the first number of the part
      for (const int64_t size : sizes) {
        for (int64_t i = 0; i < size * inner; ++i) {
          want.push_back(static_cast<float>(from + b * size * inner + i));
        }
        from += before * size * inner;
      }
    }
    EXPECT_EQ(std::ssize(want), before * total * inner);
    return want;
  }
};

TEST(Pieces, OfConcatenationsAreLoopsOfTheirOwn) {
  const Joined cases[] = {
      {.sizes = std::vector<int64_t>(16, 3), .inner = 96},
      {.sizes = {5, 1, 7}, .inner = 80},
      {.sizes = {40, 24, 17}, .before = 64},
      {.sizes = {9, 4}, .before = 24, .inner = 33},
      {.sizes = std::vector<int64_t>(3, 2), .before = 2, .inner = 64},
  };
  for (const Joined& joined : cases) {
    for (const int threads : {1, 2}) {
      for (const int vector_bytes : {16, 64}) {
        const FrozenGraph graph = joined.Graph();
        const auto ran = Execute(graph.root(), Processor(vector_bytes, threads));
        ASSERT_TRUE(ran.ok()) << ran.status();
        EXPECT_EQ(ran->result, joined.Want());
        EXPECT_EQ(ran->selections, 0) << joined.sizes[0] << ' ' << threads << ' ' << vector_bytes;
        EXPECT_EQ(ran->gates, 0) << joined.sizes.size();
      }
    }
  }
}

TEST(Pieces, TakeAboutAsLongTogetherAsOneOfAll) {
  const auto steps = [](size_t parts) {
    const Joined joined{.sizes = std::vector<int64_t>(parts, 64 / static_cast<int64_t>(parts)),
                        .inner = 1024};
    const FrozenGraph graph = joined.Graph();
    const auto ran = Execute(graph.root(), Processor(64, 2));
    EXPECT_TRUE(ran.ok()) << ran.status();
    return ran.ok() ? ran->steps : 0;
  };
  // A part of 4 rows: 15 other loops begin and end in each row, of 64 vectors.
  EXPECT_LE(steps(16), 2 * steps(2));
}

// A row of 60 between its own elements, reversed: a vector is either a copy or reversed.
TEST(Pieces, OfAReflectionHaveNoGates) {
  constexpr int64_t kRows = 32, kRow = 60, kEdge = 3;
  Graph g;
  const UOp x = g.Param(1, DType::kFloat32, Shape{kRows, kRow});
  const auto edge = [&](int64_t from) {
    const int64_t pairs[] = {0, kRows, from, kEdge};
    return g.Make(Op::kFlip, {g.Make(Op::kShrink, {x}, pairs)}, std::vector<int64_t>{1});
  };
  const UOp all =
      g.Make(Op::kCat, DType::kVoid, std::vector<UOp>{edge(1), x, edge(kRow - 1 - kEdge)},
             std::vector<int64_t>{1});
  const UOp to = g.Param(0, DType::kFloat32, Shape{kRows, kRow + 2 * kEdge});
  const FrozenGraph graph = Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {to, all})}));
  std::vector<float> want;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = -kEdge; i < kRow + kEdge; ++i) {
      const int64_t at = i < 0 ? -i : i < kRow ? i : 2 * (kRow - 1) - i;
      want.push_back(static_cast<float>(row * kRow + at + 1));
    }
  }
  const auto ran = Execute(graph.root(), Processor(64, 2));
  ASSERT_TRUE(ran.ok()) << ran.status();
  EXPECT_EQ(ran->result, want);
  EXPECT_EQ(ran->selections, 0);
}

}  // namespace
}  // namespace telegrad::testing
