// Graphs with variables: which values share a form, and that each form is right.
#include "engine/execution/forms.h"

#include <gtest/gtest.h>

#include <thread>

#include "engine/execution/execution_test.h"
#include "engine/execution/value_uses.h"

namespace telegrad {
namespace {

constexpr VarRange kSize{.id = 2, .min = 0, .max = 1000, .multiple = 1};
constexpr VarRange kPlace{.id = 5, .min = -8, .max = 1000, .multiple = 4};

std::vector<VarRange> RangedTo(int64_t size, int64_t place) {
  const VarRange declared[] = {kSize, kPlace};
  const int64_t sizes[] = {2};
  const VarValue values[] = {{2, size}, {5, place}};
  return Ranged(declared, sizes, values).ranges;
}

TEST(Forms, GuardsHoldForWhatTheyAllow) {
  const VarRange ranges[] = {kSize, kPlace};
  const auto holds = [&](std::vector<VarValue> values) { return Holds(ranges, values); };
  EXPECT_TRUE(holds({{2, 0}, {5, -8}}));
  EXPECT_TRUE(holds({{2, 1000}, {5, 1000}}));
  EXPECT_FALSE(holds({{2, 1001}, {5, 0}}));
  EXPECT_FALSE(holds({{2, -1}, {5, 0}}));
  EXPECT_FALSE(holds({{2, 1}, {5, 2}})) << "no multiple of 4";
  EXPECT_FALSE(holds({{2, 1}}));
  EXPECT_FALSE(holds({{2, 1}, {6, 0}}));
  EXPECT_TRUE(
      Holds(Specialized(std::vector<VarValue>{{2, 7}}).ranges, std::vector<VarValue>{{2, 7}}));
  EXPECT_FALSE(
      Holds(Specialized(std::vector<VarValue>{{2, 7}}).ranges, std::vector<VarValue>{{2, 6}}));
}

TEST(Forms, ASizeRangesToAPowerOfTwo) {
  const auto upper = [](int64_t size) { return RangedTo(size, 0)[0].max; };
  EXPECT_EQ(upper(0), 1);
  EXPECT_EQ(upper(1), 1);
  EXPECT_EQ(upper(2), 2);
  EXPECT_EQ(upper(3), 4);
  EXPECT_EQ(upper(64), 64);
  EXPECT_EQ(upper(65), 128);
  EXPECT_EQ(upper(500), 1000);
  EXPECT_EQ(upper(1000), 1000);
  EXPECT_EQ(RangedTo(3, 12)[1], kPlace) << "no size depends on it";
  const VarRange declared[] = {kPlace};
  const int64_t sizes[] = {5};
  EXPECT_EQ(Ranged(declared, sizes, std::vector<VarValue>{{5, -4}}).ranges[0].max, 4);
}

class FormsTest : public ExecutionTest {
 protected:
  // out (slot 1) = the sum of the first n of in (slot 0), where n is variable 0, at most 64.
  static FrozenGraph SumOfFirst() {
    Graph g;
    const UOp n = g.Make(Op::kVar, DType::kVoid, {}, {0, 0, 64, 1});
    const UOp part = g.Make(Op::kShrink, {Floats(g, 0, 64), n}, std::vector<int64_t>{0, -2});
    const UOp sum = g.Make(Op::kReduce, {part}, std::vector<int64_t>{0, 0});
    return Stores(g, {{Floats(g, 1, 1), sum}});
  }

  float SumOf(ExecutableCache& cache, const FrozenGraph& graph, int64_t n) {
    const std::vector<VarValue> values{{0, n}};
    const auto made = Get(cache, graph, values);
    EXPECT_TRUE(made.ok()) << made.status();
    std::vector<float> in(64);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i + 1);
    const BufferView out = Buffer(4);
    EXPECT_EQ(made->executable->slots().size(), 2u);
    const auto done = made->executable->Submit(std::vector{Buffer(in), out}, {});
    EXPECT_TRUE(done.ok() && done->Wait().ok()) << done.status();
    return Values(out)[0];
  }
};

TEST(ValueUses, AreFrequentWhereRunsHaveThemAgainAndAgain) {
  const auto value = [](int64_t n) { return std::vector<VarValue>{{0, n}}; };
  ValueUses one, several, growing;
  one.Add(value(7));
  EXPECT_FALSE(one.AreFrequent(value(7)));
  one.Add(value(7));
  EXPECT_TRUE(one.AreFrequent(value(7)));
  EXPECT_FALSE(one.AreFrequent(value(8)));
  for (int64_t i = 0; i < 100; ++i) several.Add(value(i % 4));
  for (int64_t n = 0; n < 4; ++n) EXPECT_TRUE(several.AreFrequent(value(n))) << n;
  for (int text = 0; text < 5; ++text) {
    for (int64_t n = 0; n < 1000; ++n) {
      EXPECT_FALSE(growing.AreFrequent(value(n))) << n;
      growing.Add(value(n));
    }
  }
  // What the values of long ago were does not matter.
  for (int i = 0; i < 1000; ++i) growing.Add(value(5));
  EXPECT_TRUE(growing.AreFrequent(value(5)));
}

TEST_F(FormsTest, OneFormIsForAllValues) {
  ExecutableCache cache({});
  const FrozenGraph graph = SumOfFirst();
  for (int64_t n = 0; n <= 64; ++n) {
    EXPECT_EQ(SumOf(cache, graph, n), static_cast<float>(n * (n + 1) / 2)) << n;
  }
  EXPECT_EQ(cache.stats().misses, 1u);
  EXPECT_EQ(cache.stats().general_forms, 1u);
  const uint64_t compiled = cache.stats().kernels_compiled;
  for (int64_t n = 64; n >= 0; --n) SumOf(cache, graph, n);
  EXPECT_EQ(cache.stats().misses, 1u);
  EXPECT_EQ(cache.stats().kernels_compiled, compiled);
  const std::vector<VarValue> values{{0, 9}};
  EXPECT_NE(cache.Find(ContentHash(graph.root()), *device_, values), nullptr);
}

// A run is predicted to take what its value makes of the form's loops.
TEST_F(FormsTest, TheCostFollowsTheValue) {
  ExecutableCache cache({});
  const FrozenGraph graph = SumOfFirst();
  const auto cost = [&](int64_t n) {
    const auto made = Get(cache, graph, std::vector<VarValue>{{0, n}});
    EXPECT_TRUE(made.ok()) << made.status();
    return made->executable->cost();
  };
  const RunCost all = cost(64), half = cost(32), few = cost(4);
  EXPECT_GT(all.flops, 0);
  EXPECT_NEAR(half.flops / all.flops, 0.5, 0.05);
  EXPECT_NEAR(few.bytes / all.bytes, 4.0 / 64, 0.05);
  EXPECT_EQ(few.temporary_bytes, all.temporary_bytes);
}

// What a slot's contents decide may be as much as can be, whatever the variables are.
TEST_F(FormsTest, TheCostDoesNotFollowWhatIsInSlots) {
  Graph g;
  const std::vector<int64_t> size{4096}, one{1}, add{0, 0};
  const auto spread = [&](UOp scalar) {
    return g.Make(Op::kExpand, {g.Make(Op::kReshape, {scalar}, one)}, size);
  };
  const UOp n = g.Make(Op::kVar, DType::kVoid, {}, {0, 0, 64, 1});
  const UOp part = g.Make(Op::kShrink, {Floats(g, 0, 64), n}, std::vector<int64_t>{0, -2});
  // Of 4,096 floats those before the number in slot 2, of which 12 bits count.
  const UOp number = g.Make(
      Op::kAnd,
      {g.Make(Op::kExpand, {g.Param(2, DType::kInt64, Shape{1})}, size), spread(g.Index(4095))});
  const UOp place = g.Make(Op::kIota, DType::kInt64, std::span<const UOp>{}, size);
  const UOp before = g.Make(Op::kWhere, {g.Make(Op::kCmpLt, {place, number}), Floats(g, 3, 4096),
                                         spread(g.ConstFloat(DType::kFloat32, 0))});
  const UOp sum =
      g.Make(Op::kAdd, {g.Make(Op::kReduce, {part}, add), g.Make(Op::kReduce, {before}, add)});
  const FrozenGraph graph = Stores(g, {{Floats(g, 1, 1), sum}});
  ExecutableCache cache({});
  const auto flops = [&](int64_t value) {
    const auto made = Get(cache, graph, std::vector<VarValue>{{0, value}});
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->executable->cost().flops : 0;
  };
  EXPECT_GT(flops(64), 0);
  EXPECT_GT(flops(0) / flops(64), 0.9);
}

TEST_F(FormsTest, AFrequentValueGetsAFormOfItsOwn) {
  ExecutableCache cache({.specializations = 2});
  const FrozenGraph graph = SumOfFirst();
  for (int run = 0; run < 2; ++run) SumOf(cache, graph, 8);
  EXPECT_EQ(cache.stats().misses, 1u);
  EXPECT_EQ(cache.Find(ContentHash(graph.root()), *device_, std::vector<VarValue>{{0, 8}}), nullptr)
      << "the third run makes it";
  EXPECT_EQ(SumOf(cache, graph, 8), 36);
  EXPECT_EQ(cache.stats().misses, 2u);
  EXPECT_EQ(cache.stats().general_forms, 1u);
  EXPECT_NE(cache.Find(ContentHash(graph.root()), *device_, std::vector<VarValue>{{0, 8}}),
            nullptr);
  // As many values as there may be.
  for (int run = 0; run < 10; ++run) {
    for (int64_t n : {8, 16, 32}) SumOf(cache, graph, n);
  }
  EXPECT_EQ(cache.stats().misses, 3u);
}

// The sum of 0, 1, ... n - 1 by way of memory for as many numbers.
TEST_F(FormsTest, RangesHaveFormsWhereTheWholeOneWouldNeedMuchMemory) {
  constexpr int64_t kMost = int64_t{1} << 26;  // 256 MiB
  Graph g;
  const UOp n = g.Make(Op::kVar, DType::kVoid, {}, {0, 0, kMost, 1});
  const UOp iota = g.Make(Op::kIota, DType::kInt64, {n}, {-1});
  const UOp numbers = g.Make(Op::kContiguous, {g.Make(Op::kCast, DType::kFloat32, {iota})});
  const UOp sum = g.Make(Op::kReduce, {numbers}, std::vector<int64_t>{0, 0});
  ASSERT_TRUE(g.status().ok()) << g.status();
  const FrozenGraph graph = Stores(g, {{Floats(g, 0, 1), sum}});
  ExecutableCache cache({});
  uint64_t forms = 0;
  for (const auto& [value, made] : {std::pair(3, true), {4, false}, {5, true}, {8, false}}) {
    const auto got = Get(cache, graph, std::vector<VarValue>{{0, value}});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_LT(got->executable->cost().temporary_bytes, 1024);
    forms += made ? 1 : 0;
    EXPECT_EQ(cache.stats().general_forms, forms) << value;
    const BufferView out = Buffer(4);
    const auto done = got->executable->Submit(std::vector{out}, {});
    ASSERT_TRUE(done.ok() && done->Wait().ok()) << done.status();
    EXPECT_EQ(Values(out)[0], static_cast<float>(value * (value - 1) / 2));
  }
}

TEST_F(FormsTest, SaysWhatValuesAreNotAllowed) {
  for (int64_t specializations : {0, 4}) {
    ExecutableCache cache({.specializations = specializations});
    const auto message = [&](std::vector<VarValue> values) {
      const absl::Status status = Get(cache, SumOfFirst(), values).status();
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      return std::string(status.message());
    };
    EXPECT_EQ(message({}), "variable 0 has no value, expected one in [0, 64]");
    EXPECT_EQ(message({{0, 65}}), "variable 0 is 65, expected a multiple of 1 in [0, 64]");
    EXPECT_EQ(message({{0, 1}, {1, 1}}), "variable 1 is none of the graph's");
    EXPECT_EQ(message({{0, 1}, {0, 1}}), "variable 0 is given twice");
    EXPECT_EQ(SumOf(cache, SumOfFirst(), 3), 6);
  }
}

TEST_F(FormsTest, ManyWhoAskAtOnceShareOneForm) {
  ExecutableCache cache({.specializations = 0});
  const FrozenGraph graph = SumOfFirst();
  std::vector<std::thread> threads;
  for (int64_t n = 33; n <= 40; ++n) {
    threads.emplace_back(
        [&, n] { EXPECT_EQ(SumOf(cache, graph, n), static_cast<float>(n * (n + 1) / 2)); });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(cache.stats().misses, 1u);
}

TEST_F(FormsTest, ForgetsTheFormsThatWereUsedLongestAgo) {
  ExecutableCache cache({.executables = 2, .specializations = 64});
  const FrozenGraph graph = SumOfFirst();
  for (int64_t n : {1, 1, 1, 2, 2, 2}) SumOf(cache, graph, n);
  const auto has = [&](int64_t n) {
    const std::vector<VarValue> values{{0, n}};
    return cache.Find(ContentHash(graph.root()), *device_, values) != nullptr;
  };
  EXPECT_FALSE(has(1)) << "its own form is the one that was used longest ago";
  EXPECT_TRUE(has(2));
  EXPECT_TRUE(has(3)) << "by the form for all values";
}

}  // namespace
}  // namespace telegrad
