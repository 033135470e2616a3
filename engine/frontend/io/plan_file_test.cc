// Plans in safetensors files: one comes back as it was written, and whatever does not fit is
// refused.
#include "engine/frontend/io/plan_file.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/escaping.h"
#include "engine/base/strings.h"
#include "engine/frontend/io/safetensors.h"
#include "engine/frontend/io/test_files.h"
#include "engine/wire/graph_bytes.h"

namespace telegrad {
namespace {

using testing::Filled;
using testing::Parse;
using testing::Tensors;
using testing::Written;

constexpr std::string_view kSlots =
    R"([{"name": "x", "role": "input"}, {"name": "w", "role": "state"}, {"role":"output","name":"y"}])";

// y (slot 2) = x (slot 0) + w (slot 1).
std::string AddGraph() {
  Graph g;
  const Shape shape{2, 3};
  const UOp x = g.Param(0, DType::kFloat32, shape), w = g.Param(1, DType::kFloat32, shape);
  const UOp y = g.Param(2, DType::kFloat32, shape);
  const UOp sum = g.Make(Op::kAdd, {x, w});
  return GraphBytes(g.Make(Op::kSink, {g.Make(Op::kStore, {y, sum})}));
}

class PlanFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<Plan> Read() const {
    const auto file =
        Parse(Written([&](ByteSink* s) { return WriteSafetensors(tensors_, metadata_, s); }));
    if (!file.ok()) return file.status();
    Budget budget;
    return ReadPlan(**file, &budget);
  }
  void Expect(absl::StatusCode code, std::string_view text) const {
    const absl::Status status = Read().status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(ToAbsl(text)), absl::string_view::npos) << status;
  }

  Tensors tensors_{{"w", Filled(DType::kFloat32, {2, 3}, 1)}};
  std::map<std::string, std::string> metadata_{
      {"telegrad.plan", "1"},
      {"telegrad.graph", absl::Base64Escape(ToAbsl(AddGraph()))},
      {"telegrad.slots", std::string(kSlots)}};
};

TEST_F(PlanFileTest, ComesBack) {
  const auto plan = Read();
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->slots.size(), 3u);
  EXPECT_EQ(plan->slots[0].name, "x");
  EXPECT_EQ(plan->slots[1].role, SlotRole::kState);
  EXPECT_EQ(plan->slots[2].role, SlotRole::kOutput);
  for (const Slot& slot : plan->slots) {
    EXPECT_EQ(slot.dtype, DType::kFloat32);
    EXPECT_EQ(slot.shape, (Shape{2, 3}));
  }
  EXPECT_EQ(GraphBytes(plan->graph.root()), AddGraph());
}

TEST_F(PlanFileTest, SaysWhatIsMissing) {
  metadata_.erase("telegrad.slots");
  Expect(absl::StatusCode::kInvalidArgument, "has no telegrad.plan, telegrad.graph or");
}

TEST_F(PlanFileTest, AnotherVersion) {
  metadata_["telegrad.plan"] = "2";
  Expect(absl::StatusCode::kUnimplemented, "version 2; this program reads 1");
}

TEST_F(PlanFileTest, GraphsThatAreNone) {
  metadata_["telegrad.graph"] = "?";
  Expect(absl::StatusCode::kInvalidArgument, "not base64");
  metadata_["telegrad.graph"] = absl::Base64Escape("no graph");
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kInvalidArgument);
}

// y = x + w, of as many rows as a run says.
std::string SizedGraph(int64_t number) {
  Graph g;
  const UOp n = g.Make(Op::kVar, DType::kInt64, {}, {number, 1, 8, 1});
  const UOp rows = g.Make(Op::kMul, {n, g.Index(3)});
  const Shape flat{24}, one{2, 3};
  const auto view = [&](int64_t slot) {
    const UOp part = g.Make(Op::kShrink, {g.Param(slot, DType::kFloat32, flat), rows},
                            std::vector<int64_t>{0, -2});
    return g.Make(Op::kReshape, {part, n}, std::vector<int64_t>{-2, 3});
  };
  const UOp w =
      g.Make(Op::kShrink, {g.Param(1, DType::kFloat32, one)}, std::vector<int64_t>{0, 1, 0, 3});
  const UOp wide = g.Make(Op::kExpand, {w, n}, std::vector<int64_t>{-2, 3});
  const UOp store = g.Make(Op::kStore, {view(2), g.Make(Op::kAdd, {view(0), wide})});
  return GraphBytes(g.Make(Op::kSink, {store}));
}

TEST_F(PlanFileTest, NamesOfSizes) {
  metadata_["telegrad.graph"] = absl::Base64Escape(ToAbsl(SizedGraph(1)));
  metadata_["telegrad.sizes"] = R"(["batch", "rows"])";
  const auto plan = Read();
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->variables.size(), 1u) << "the graph uses one of them";
  EXPECT_EQ(plan->variables[0].name, "rows");
  EXPECT_EQ(plan->variables[0].id, 1);
  EXPECT_EQ(plan->variables[0].max, 8);

  metadata_["telegrad.sizes"] = R"(["batch"])";
  Expect(absl::StatusCode::kInvalidArgument, "no name for the variable 1");
  for (const std::string_view sizes : {"", "[", R"(["a",])", "[1]", R"(["a"]])"}) {
    metadata_["telegrad.sizes"] = sizes;
    Expect(absl::StatusCode::kInvalidArgument, "telegrad.sizes is not an array of names");
  }
  metadata_.erase("telegrad.sizes");
  Expect(absl::StatusCode::kInvalidArgument, "no name for the variable 1");
}

TEST_F(PlanFileTest, SlotsThatAreNone) {
  for (const std::string_view slots :
       {"", "[", "{}", R"([{"name":"x"}])", R"([{"name":"x","role":"weight"}])",
        R"([{"name":"x","name":"y","role":"input"}])", R"([{"name":"x","role":"input"}]])",
        R"([{"name":"x","role":"input","more":"z"}])"}) {
    metadata_["telegrad.slots"] = slots;
    Expect(absl::StatusCode::kInvalidArgument, "telegrad.slots is not an array");
  }
}

TEST_F(PlanFileTest, SlotsThatDoNotFitTheGraph) {
  metadata_["telegrad.slots"] = R"([{"name":"x","role":"input"},{"name":"w","role":"state"}])";
  Expect(absl::StatusCode::kInvalidArgument, "has a slot 2, telegrad.slots describes 2");
  metadata_["telegrad.slots"] =
      StrCat(kSlots.substr(0, kSlots.size() - 1), R"(,{"name":"z","role":"input"}])");
  Expect(absl::StatusCode::kInvalidArgument, "the graph has no slot z");
  metadata_["telegrad.slots"] =
      R"([{"name":"x","role":"input"},{"name":"w","role":"state"},{"name":"x","role":"output"}])";
  Expect(absl::StatusCode::kInvalidArgument, "two slots are named x");
}

TEST_F(PlanFileTest, StateIsInTheFile) {
  tensors_["w"] = Filled(DType::kFloat32, {3, 2}, 1);
  Expect(absl::StatusCode::kInvalidArgument, "the tensor w is f32 [3, 2], its slot f32 [2, 3]");
  tensors_.clear();
  Expect(absl::StatusCode::kInvalidArgument, "no tensor w");
}

}  // namespace
}  // namespace telegrad
