// Schedules are kept under a key of all that they depend on.
#include "engine/schedule/schedule_cache.h"

#include <functional>
#include <vector>

#include "engine/ir/content_hash.h"
#include "engine/ir/graph.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

// Each member of the options, changed.
TEST(ScheduleCache, EveryOptionIsPartOfTheKey) {
  const std::vector<std::function<void(ScheduleOptions&)>> changes = {
      [](ScheduleOptions&) {},
      [](ScheduleOptions& o) { o.machine = &CostsOf(CostRow::kNvidia); },
      [](ScheduleOptions& o) { o.private_bytes = 4096; },
      [](ScheduleOptions& o) { o.row_blocks = true; },
      [](ScheduleOptions& o) { o.row_bytes = 4096; },
      [](ScheduleOptions& o) { o.row_groups = 8; },
      [](ScheduleOptions& o) { o.row_warp = 8; },
      [](ScheduleOptions& o) { o.multiply_adds = 32; },
      [](ScheduleOptions& o) { o.transformed_bytes = 4096; },
      [](ScheduleOptions& o) { o.product_target = Target(); },
      [](ScheduleOptions& o) { o.dots = true; },
      [](ScheduleOptions& o) { o.fixed_sums = true; },
  };
  // Does not compile when there are more or fewer members: then the list above is to be changed.
  [[maybe_unused]] const auto& [machine, private_bytes, row_blocks, row_bytes, row_groups, row_warp,
                                multiply_adds, transformed_bytes, product_target, dots,
                                fixed_sums] = ScheduleOptions();

  Graph g;
  const UOp x = g.Param(0, DType::kFloat32, Shape{4}, 0);
  const UOp sink = g.Make(Op::kSink, {g.Make(Op::kStore, {x, g.Make(Op::kNeg, {x})})});
  const Digest hash = ContentHash(sink);
  ScheduleCache cache(1 << 20);
  std::vector<std::shared_ptr<const Schedule>> made;
  for (const auto& change : changes) {
    ScheduleOptions options;
    change(options);
    Budget budget;
    auto schedule = cache.Get(hash, sink, {}, &budget, options);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    const auto again = cache.Get(hash, sink, {}, &budget, options);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(*schedule, *again);
    for (const auto& other : made) EXPECT_NE(*schedule, other) << "change " << made.size();
    made.push_back(*std::move(schedule));
  }
}

}  // namespace
}  // namespace telegrad
