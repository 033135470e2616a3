#include "engine/execution/unread_parts.h"

#include "engine/frontend/tensor/builder.h"
#include "engine/schedule/legalize.h"
#include "engine/schedule/schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

using ::testing::UnorderedElementsAre;

// Of each store to a temporary of more than one element whether it has a gate.
std::vector<bool> Gates(const Schedule& schedule) {
  std::vector<bool> out;
  for (const ScheduledKernel& kernel : schedule.kernels) {
    const UOp root = kernel.graph.root();
    for (uint32_t id : PostOrder(root)) {
      const UOp u = root.graph()->at(id);
      if (!u.is(Op::kStore) || !u.src(0).src(0).is(Op::kParam)) continue;
      const UOp memory = u.src(0).src(0);
      const BufferRef ref = kernel.arguments[static_cast<size_t>(memory.slot())];
      if (ref.kind == BufferRef::Kind::kSlot || NumElements(memory.shape()) == 1) continue;
      out.push_back(u.src(0).num_src() == 3);
    }
  }
  return out;
}

// Rows [64, 96] are stored once it is known how many of them are read; `whole`: something else
// reads all of them.
std::vector<bool> GatesOfRows(bool whole) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {64, 96}, "x");
  const Tensor flags = b.Param(DType::kInt64, {64}, "flags");
  const int64_t bounds[] = {0, 0, 64, 1};
  const Tensor size = b.Make(Op::kVar, DType::kVoid, {flags.Sum().Contiguous()}, bounds);
  const Tensor rows = (x * size.Cast(DType::kFloat32)).Contiguous();
  const Tensor read = b.Iota(DType::kInt64, 64).Unsqueeze(1).Lt(size);
  const Tensor part = read.Where(rows + 1.0, 0.0);
  b.Output(part.Sum({0}), "y");
  if (whole) b.Output(rows.Sum({1}), "z");
  const absl::StatusOr<Plan> plan = b.Finish();
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  Budget budget;
  const absl::StatusOr<FrozenGraph> legal = Legalize(plan->graph.root(), {}, &budget);
  EXPECT_TRUE(legal.ok()) << legal.status();
  if (!legal.ok()) return {};
  absl::StatusOr<Schedule> schedule = ScheduleKernels(*legal, &budget, {});
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  if (!schedule.ok()) return {};
  EXPECT_THAT(Gates(*schedule), ::testing::Each(false));
  LeaveOutUnread(&*schedule);
  return Gates(*schedule);
}

// A number that a kernel computes ends what later kernels store, as one of a slot does.
TEST(UnreadPartsTest, ANumberInATemporaryGatesWhatIsStoredBehindIt) {
  EXPECT_THAT(GatesOfRows(false), UnorderedElementsAre(true));
}

TEST(UnreadPartsTest, WhatIsReadAsAWholeIsStored) {
  EXPECT_THAT(GatesOfRows(true), ::testing::Each(false));
}

}  // namespace
}  // namespace telegrad
