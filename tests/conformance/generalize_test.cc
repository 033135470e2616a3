// One form of a graph for all values of its variables, against the interpreter of the graph itself
// with each value.
#include "engine/rewrite/generalize.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/base/status.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/reference/tensor_eval.h"
#include "tests/conformance/random_graph.h"
#include "tests/conformance/run_graph.h"

namespace telegrad {
namespace {

using testing::Slots;

class GeneralizeTest : public ::testing::Test {
 protected:
  GeneralizeTest() { cpu_ = *testing::CpuRunner::Open(); }

  // The slots after a run of the general form.
  absl::StatusOr<Slots> Run(const GeneralForm& form, std::span<const int64_t> values, Slots slots) {
    slots.resize(static_cast<size_t>(form.slot));
    slots.emplace_back(values.size_bytes());
    std::memcpy(slots.back().data(), values.data(), values.size_bytes());
    Slots lowered = slots;
    TG_RETURN_IF_ERROR(testing::RunLowered(form.graph.root(), 32, {}, &lowered));
    TG_RETURN_IF_ERROR(cpu_->Run(form.graph.root(), {}, &slots));
    return slots;
  }

  static absl::StatusOr<Slots> Judge(UOp sink, std::span<const VarRange> ranges,
                                     std::span<const int64_t> values, Slots slots) {
    reference::Variables variables;
    for (size_t i = 0; i < ranges.size(); ++i) variables[ranges[i].id] = values[i];
    Budget budget;
    TG_RETURN_IF_ERROR(reference::Evaluate(sink, slots, &budget, variables));
    return slots;
  }

  std::unique_ptr<testing::CpuRunner> cpu_;
};

// Each text over i32 slots of 64 elements, with every value of variable 0 and some of variable 1.
struct Case {
  std::string_view name, text;
};
constexpr Case kCases[] = {
    {"sum of a part", R"(
      %0 = param i32 [64] slot=0
      %1 = var i64 id=0 min=0 max=12 multiple=1
      %2 = shrink i32 [12] %0 %1 pairs=[3, -2]
      %3 = reduce i32 [1] %2 kind=max axes=[0]
      %4 = param i32 [64] slot=1
      %5 = expand i32 [64] %3 dims=[64]
      %6 = store %4 %5
      %7 = sink %6)"},
    {"a cache is written and read at a variable", R"(
      %0 = param i32 [16, 4] slot=0
      %1 = var i64 id=0 min=0 max=16 multiple=1
      %2 = shrink i32 [1, 4] %0 %1 pairs=[-2, 1, 0, 4]
      %3 = const i32 5
      %4 = store %2 %3
      %5 = after i32 [16, 4] %0 %4
      %6 = const i64 1
      %7 = add i64 %1 %6
      %8 = shrink i32 [17, 4] %5 %7 pairs=[0, -2, 0, 4]
      %9 = reduce i32 [1, 4] %8 kind=add axes=[0]
      %10 = param i32 [1, 4] slot=1
      %11 = store %10 %9
      %12 = sink %11 %4)"},
    {"rows and columns change places", R"(
      %0 = var i64 id=0 min=0 max=8 multiple=1
      %1 = var i64 id=1 min=0 max=8 multiple=2
      %2 = mul i64 %0 %1
      %3 = iota i32 [64] %2 dims=[-1]
      %4 = reshape i32 [8, 8] %3 %0 %1 dims=[-2, -3]
      %5 = permute i32 [8, 8] %4 axes=[1, 0]
      %6 = reshape i32 [64] %5 %2 dims=[-2]
      %7 = flip i32 [64] %6 axes=[0]
      %8 = pad i32 [64] %7 pairs=[0, 64]
      %9 = param i32 [64] slot=0
      %10 = store %9 %8
      %11 = sink %10)"},
    {"a padded value is moved by a variable", R"(
      %0 = param i32 [64] slot=0
      %1 = var i64 id=0 min=0 max=20 multiple=1
      %2 = shrink i32 [20] %0 %1 pairs=[1, -2]
      %3 = pad i32 [60] %2 %1 pairs=[-2, 60]
      %4 = const i32 3
      %5 = add i32 [60] %3 %4
      %6 = pad i32 [64] %5 pairs=[2, 64]
      %7 = param i32 [64] slot=1
      %8 = store %7 %6
      %9 = sink %8)"},
    {"columns of a view are written", R"(
      %0 = param i32 [4, 16] slot=0
      %1 = permute i32 [16, 4] %0 axes=[1, 0]
      %2 = var i64 id=0 min=0 max=6 multiple=1
      %3 = shrink i32 [6, 2] %1 %2 pairs=[-2, -2, 1, 2]
      %4 = param i32 [6, 2] slot=1
      %5 = shrink i32 [6, 2] %4 %2 pairs=[0, -2, 0, 2]
      %6 = store %3 %5
      %7 = sink %6)"},
    {"rows are looked up among those that exist", R"(
      %0 = param i32 [64] slot=0
      %1 = var i64 id=0 min=0 max=9 multiple=1
      %2 = shrink i32 [9] %0 %1 pairs=[0, -2]
      %3 = param i32 [64] slot=1
      %4 = gather i32 [64] %2 %3
      %5 = shrink i32 [9] %3 %1 pairs=[4, -2]
      %6 = scatter i32 [64] %4 %5 %2 kind=add
      %7 = param i32 [64] slot=2
      %8 = store %7 %6
      %9 = sink %8)"},
};

TEST_F(GeneralizeTest, DoesWhatEachValueDoes) {
  for (const Case& c : kCases) {
    Graph graph;
    const auto parsed = Parse(c.text, &graph);
    ASSERT_TRUE(parsed.ok()) << c.name << ": " << parsed.status();
    const UOp sink = *parsed;
    ASSERT_TRUE(Verify(sink, kTensorLevel).ok()) << c.name << Verify(sink, kTensorLevel);
    const std::vector<VarRange> ranges = RangesOf(sink);
    Budget budget;
    const auto form = Generalize(sink, ranges, &budget);
    ASSERT_TRUE(form.ok()) << c.name << ": " << form.status();
    ASSERT_TRUE(Verify(form->graph.root(), kTensorLevel).ok()) << Print(form->graph.root());
    Slots slots(3, std::vector<uint8_t>(256));
    for (int32_t i = 0; i < 64; ++i) {
      const int32_t values[] = {100 + i, i * 7 % 13 - 2, -i};
      for (size_t s = 0; s < 3; ++s) std::memcpy(slots[s].data() + 4 * i, &values[s], 4);
    }
    slots.resize(static_cast<size_t>(form->slot));
    for (int64_t x = ranges[0].min; x <= ranges[0].max; x += ranges[0].multiple) {
      for (int64_t y : {0, 2, 6, 8}) {
        std::vector<int64_t> values{x};
        if (ranges.size() > 1) values.push_back(y);
        const auto want = Judge(sink, ranges, values, slots);
        ASSERT_TRUE(want.ok()) << c.name << ": " << want.status();
        auto got = Run(*form, values, slots);
        ASSERT_TRUE(got.ok()) << c.name << ": " << got.status();
        got->resize(want->size());
        EXPECT_EQ(*got, *want) << c.name << ": " << x << ", " << y;
        if (ranges.size() == 1) break;
      }
    }
  }
}

TEST_F(GeneralizeTest, RandomGraphs) {
  int compared = 0, symbolic = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Graph graph;
    std::mt19937_64 rng(seed);
    const testing::RandomGraph random = testing::MakeRandomGraph(
        rng, 6 + static_cast<int>(seed % 30), &graph, testing::Vocabulary::kAll);
    if (!random.sink.valid() || !Verify(random.sink, kTensorLevel).ok()) continue;
    const std::vector<VarRange> ranges = RangesOf(random.sink);
    if (ranges.empty()) continue;
    Budget budget;
    const auto form = Generalize(random.sink, ranges, &budget);
    ASSERT_TRUE(form.ok()) << "seed " << seed << ": " << form.status();
    const auto& g = *random.sink.graph();
    const std::vector<uint32_t> order = PostOrder(random.sink);
    symbolic += std::ranges::any_of(order, [&](uint32_t id) { return g.at(id).symbolic(); });
    for (int round = 0; round < 2; ++round) {
      std::vector<int64_t> values;
      for (const VarRange& r : ranges) {
        const int64_t n = (r.max - r.min) / r.multiple + 1;
        values.push_back(r.min +
                         static_cast<int64_t>(rng() % static_cast<uint64_t>(n)) * r.multiple);
      }
      const auto want = Judge(random.sink, ranges, values, random.slots);
      ASSERT_TRUE(want.ok()) << "seed " << seed << ": " << want.status();
      const auto got = Run(*form, values, random.slots);
      ASSERT_TRUE(got.ok()) << "seed " << seed << ": " << got.status();
      for (size_t i = 0; i < want->size() && i < random.dtypes.size(); ++i) {
        const std::string difference =
            testing::Difference(random.dtypes[i], random.exact[i], (*want)[i],
                                i < static_cast<size_t>(form->slot) ? (*got)[i] : random.slots[i]);
        EXPECT_EQ(difference, "") << "seed " << seed << ", slot " << i << "\n"
                                  << Print(random.sink);
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 50);
  EXPECT_GT(symbolic, 20);
}

}  // namespace
}  // namespace telegrad
