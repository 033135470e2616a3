// Which arguments become the parts of memory that a kernel reads.
#include "engine/schedule/argument_views.h"

#include <gtest/gtest.h>

namespace telegrad {
namespace {

constexpr int64_t kElements = 1024, kLoads = 16;

// A kernel that loads kLoads elements of a temporary, where `index` says for each i, which is less;
// the argument is number 1 of 3, the last of which is a slot of i64.
template <typename Index>
Schedule Loads(Index index) {
  Graph g;
  const UOp i = g.Range(0, AxisType::kLoop, g.Index(kLoads));
  const UOp from = g.Param(1, DType::kFloat32, Shape{kElements});
  const UOp value = g.Make(Op::kLoad, {g.Make(Op::kIndex, {from, index(g, i)})});
  const UOp to = g.Make(Op::kIndex, {g.Param(0, DType::kFloat32, Shape{kLoads}), i});
  const UOp store = g.Make(Op::kStore, {to, value});
  const UOp sink = g.Make(Op::kSink, {g.Make(Op::kEnd, DType::kVoid, {store, i}, {})});
  EXPECT_TRUE(g.status().ok()) << g.status();
  Schedule schedule;
  const BufferRef temporary{.kind = BufferRef::Kind::kTemporary};
  schedule.kernels.push_back({Freeze(sink), {BufferRef{}, temporary, BufferRef{.index = 1}}, {}});
  return schedule;
}

// The elements of the temporary that the kernel then has.
int64_t ElementsOf(const Schedule& schedule) {
  const FrozenGraph& kernel = schedule.kernels[0].graph;
  for (const uint32_t id : PostOrder(kernel.root())) {
    const UOp u = kernel.graph->at(id);
    if (u.is(Op::kParam) && u.slot() == 1) return NumElements(u.shape());
  }
  return 0;
}

TEST(ViewArguments, ArePartsThatAreLoaded) {
  Schedule schedule = Loads([](Graph& g, UOp i) { return g.Make(Op::kAdd, {i, g.Index(512)}); });
  Budget budget;
  ASSERT_TRUE(ViewArguments(&schedule, &budget).ok());
  EXPECT_EQ(ElementsOf(schedule), kLoads);
  EXPECT_EQ(schedule.kernels[0].arguments[1].offset, 512 * int64_t{sizeof(float)});
}

// An index that the run gives may be anything up to the greatest i64, or down to the least.
TEST(ViewArguments, AreWholeWhereAnIndexMayBeBeyond) {
  const auto given = [](Graph& g, UOp i) {
    return g.Make(Op::kLoad, {g.Make(Op::kIndex, {g.Param(2, DType::kInt64, Shape{kLoads}), i})});
  };
  const auto positive = [&](Graph& g, UOp i) {
    return g.Make(Op::kMax, {given(g, i), g.Index(0)});
  };
  for (Schedule schedule : {Loads(given), Loads(positive)}) {
    Budget budget;
    ASSERT_TRUE(ViewArguments(&schedule, &budget).ok());
    EXPECT_EQ(ElementsOf(schedule), kElements);
    EXPECT_EQ(schedule.kernels[0].arguments[1].offset, 0);
  }
}

}  // namespace
}  // namespace telegrad
