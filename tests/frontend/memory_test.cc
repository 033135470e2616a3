// What movement and indexing cost: kernels and temporaries of their schedules, for tensors of a
// million elements. Nothing may need more than the elements it reads and writes.
#include <gtest/gtest.h>

#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/index.h"
#include "engine/schedule/schedule.h"

namespace telegrad {
namespace {

constexpr int64_t kSize = 1 << 20;

struct Leaves {
  Tensor x, index, value;  // f32 [2^20], i32 [2^20], f32 [2^20]
  Tensor state;            // f32 [2^20]
  Tensor position;         // 0 .. 2^20 - 1
};

struct CostCase {
  std::string_view name;
  Tensor (*make)(Builder& b, const Leaves& in);
  size_t kernels;       // at most
  int64_t temporaries;  // bytes, at most
};

constexpr CostCase kCases[] = {
    {"slices with steps",
     [](Builder&, const Leaves& in) { return in.x.At({Slice(std::nullopt, std::nullopt, -3)}); }, 1,
     0},
    {"concat",
     [](Builder&, const Leaves& in) {
       const Tensor parts[] = {in.x, in.value};
       return Concat(parts, 0);
     },
     1, 0},
    {"roll", [](Builder&, const Leaves& in) { return in.x.Roll({5}, {0}); }, 1, 0},
    {"pad by reflection",
     [](Builder&, const Leaves& in) { return in.x.Pad({3, 4}, PadMode::kReflect); }, 1, 0},
    {"at a tensor", [](Builder&, const Leaves& in) { return in.x.At({in.index}); }, 1, 0},
    {"at two tensors",
     [](Builder&, const Leaves& in) { return in.x.Reshape({1024, 1024}).At({in.index, in.index}); },
     1, 0},
    {"take_along", [](Builder&, const Leaves& in) { return in.x.TakeAlong(0, in.index); }, 1, 0},
    {"set a slice",
     [](Builder&, const Leaves& in) {
       return in.x.Set({Slice(1, std::nullopt, 2)}, in.value.At({Slice(0, kSize / 2)}));
     },
     1, 0},
    // A copy, and what is scattered into it.
    {"set a tensor", [](Builder&, const Leaves& in) { return in.x.Set({in.index}, in.value); }, 2,
     0},
    {"put_along",
     [](Builder&, const Leaves& in) {
       return in.x.PutAlong(0, in.index, in.value, ScatterKind::kAdd);
     },
     2, 0},
    {"assign one element",
     [](Builder& b, const Leaves& in) {
       const Tensor now = b.Assign(in.state.At({in.position}), in.value.At({0}));
       return now.At({Slice(0, 4)});
     },
     2, 0},
    {"assign two parts",
     [](Builder& b, const Leaves& in) {
       b.Assign(in.state.At({Slice(0, 8)}), in.value.At({Slice(0, 8)}));
       return b.Assign(in.state.At({Slice(8, 12)}), in.value.At({Slice(8, 12)})).At({Slice(0, 16)});
     },
     3, 0},
};

TEST(MemoryTest, IsOfTheOrderOfTheElements) {
  for (const CostCase& c : kCases) {
    Builder b;
    Leaves in;
    in.x = b.Param(DType::kFloat32, {kSize}, "x");
    in.index = b.Param(DType::kInt32, {kSize}, "index");
    in.value = b.Param(DType::kFloat32, {kSize}, "value");
    in.state = b.State(DType::kFloat32, {kSize}, "state", Init::Constant(0));
    in.position = b.Variable("position", 0, kSize - 1);
    b.Output(c.make(b, in), "out");
    const absl::StatusOr<Plan> plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << c.name << ": " << plan.status();
    Budget budget;
    std::vector<VarValue> variables;
    for (const PlanVariable& v : plan->variables) variables.push_back({v.id, 17});
    const absl::StatusOr<Schedule> schedule = ScheduleGraph(plan->graph.root(), variables, &budget);
    ASSERT_TRUE(schedule.ok()) << c.name << ": " << schedule.status();
    EXPECT_LE(schedule->kernels.size(), c.kernels) << c.name;
    EXPECT_LE(schedule->arena_bytes, c.temporaries) << c.name;
  }
}

}  // namespace
}  // namespace telegrad
