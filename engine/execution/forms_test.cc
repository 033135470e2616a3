// Graphs with variables: which values share a form, and that each form is right.
#include "engine/execution/forms.h"

#include <gtest/gtest.h>

#include <thread>

#include "engine/execution/execution_test.h"

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
    EXPECT_NE(cache.Find(ContentHash(graph.root()), *device_, values), nullptr);
    std::vector<float> in(64);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i + 1);
    const BufferView out = Buffer(4);
    EXPECT_EQ(made->executable->slots().size(), 2u);
    const auto done = made->executable->Submit(std::vector{Buffer(in), out}, {});
    EXPECT_TRUE(done.ok() && done->Wait().ok()) << done.status();
    return Values(out)[0];
  }
};

TEST_F(FormsTest, TheFirstValuesAreSpecializedToAndTheOthersShareForms) {
  ExecutableCache cache({.specializations = 2});
  const FrozenGraph graph = SumOfFirst();
  for (int64_t n = 0; n <= 64; ++n) {
    EXPECT_EQ(SumOf(cache, graph, n), static_cast<float>(n * (n + 1) / 2)) << n;
  }
  // 0 and 1 by themselves; up to 2, 4, 8, 16, 32 and 64 for the others.
  EXPECT_EQ(cache.stats().misses, 2u + 6u);
  EXPECT_EQ(cache.stats().general_forms, 6u);
  const uint64_t compiled = cache.stats().kernels_compiled;
  for (int64_t n = 64; n >= 0; --n) SumOf(cache, graph, n);
  EXPECT_EQ(cache.stats().misses, 8u);
  EXPECT_EQ(cache.stats().kernels_compiled, compiled);
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

TEST_F(FormsTest, ForgetsTheFormsOfAGraphThatWereUsedLongestAgo) {
  ExecutableCache cache({.executables = 2, .specializations = 64});
  const FrozenGraph graph = SumOfFirst();
  for (int64_t n : {1, 2, 1, 3}) SumOf(cache, graph, n);
  const auto has = [&](int64_t n) {
    const std::vector<VarValue> values{{0, n}};
    return cache.Find(ContentHash(graph.root()), *device_, values) != nullptr;
  };
  EXPECT_TRUE(has(1));
  EXPECT_FALSE(has(2));
  EXPECT_TRUE(has(3));
}

}  // namespace
}  // namespace telegrad
