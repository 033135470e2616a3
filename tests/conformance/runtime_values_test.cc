// Programs of general forms whose loops end at two variables, or at numbers that a graph computes
// of one: the results are those of the interpreter of the graph itself.
#include <gtest/gtest.h>

#include <cstring>
#include <string_view>

#include "engine/base/status.h"
#include "engine/execution/unread_parts.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/lowering/lower.h"
#include "engine/lowering/run_groups.h"
#include "engine/reference/program_eval.h"
#include "engine/reference/tensor_eval.h"
#include "engine/rewrite/generalize.h"
#include "tests/conformance/run_lowered.h"

namespace telegrad::testing {
namespace {

// Each text has the variables 0 and 1, of 0 to 1,024, and slots of f32.
struct Case {
  std::string_view name, text;
  std::string_view moves = {};  // empty: those that are chosen
};
constexpr Case kCases[] = {
    {"two parts of a vector", R"(
      %0 = param f32 [1024] slot=0
      %1 = var i64 id=0 min=0 max=1024 multiple=1
      %2 = var i64 id=1 min=0 max=1024 multiple=1
      %3 = shrink f32 [1024] %0 %1 pairs=[0, -2]
      %4 = add f32 [1024] %3 %3
      %5 = param f32 [1024] slot=1
      %6 = shrink f32 [1024] %5 %1 pairs=[0, -2]
      %7 = store %6 %4
      %8 = shrink f32 [1024] %0 %2 pairs=[0, -2]
      %9 = mul f32 [1024] %8 %8
      %10 = param f32 [1024] slot=2
      %11 = shrink f32 [1024] %10 %2 pairs=[0, -2]
      %12 = store %11 %9
      %13 = sink %7 %12)"},
    {"two parts of each row", R"(
      %0 = param f32 [24, 1024] slot=0
      %1 = var i64 id=0 min=0 max=1024 multiple=1
      %2 = var i64 id=1 min=0 max=1024 multiple=1
      %3 = shrink f32 [24, 1024] %0 %1 pairs=[0, 24, 0, -2]
      %4 = add f32 [24, 1024] %3 %3
      %5 = param f32 [24, 1024] slot=1
      %6 = shrink f32 [24, 1024] %5 %1 pairs=[0, 24, 0, -2]
      %7 = store %6 %4
      %8 = shrink f32 [24, 1024] %0 %2 pairs=[0, 24, 0, -2]
      %9 = mul f32 [24, 1024] %8 %8
      %10 = param f32 [24, 1024] slot=2
      %11 = shrink f32 [24, 1024] %10 %2 pairs=[0, 24, 0, -2]
      %12 = store %11 %9
      %13 = sink %7 %12)"},
    {"sums of two parts of each row", R"(
      %0 = param f32 [48, 1024] slot=0
      %1 = var i64 id=0 min=0 max=1024 multiple=1
      %2 = var i64 id=1 min=0 max=1024 multiple=1
      %3 = shrink f32 [48, 1024] %0 %1 pairs=[0, 48, 0, -2]
      %4 = reduce f32 [48, 1] %3 kind=add axes=[1]
      %5 = shrink f32 [48, 1024] %0 %2 pairs=[0, 48, 0, -2]
      %6 = mul f32 [48, 1024] %5 %5
      %7 = reduce f32 [48, 1] %6 kind=add axes=[1]
      %8 = sub f32 [48, 1] %4 %7
      %9 = param f32 [48, 1] slot=1
      %10 = store %9 %8
      %11 = sink %10)"},
    {"sum and greatest of two parts of a vector", R"(
      %0 = param f32 [1024] slot=0
      %1 = var i64 id=0 min=0 max=1024 multiple=1
      %2 = var i64 id=1 min=0 max=1024 multiple=1
      %3 = shrink f32 [1024] %0 %1 pairs=[0, -2]
      %4 = reduce f32 [1] %3 kind=add axes=[0]
      %5 = shrink f32 [1024] %0 %2 pairs=[0, -2]
      %6 = reduce f32 [1] %5 kind=max axes=[0]
      %7 = param f32 [1] slot=1
      %8 = store %7 %4
      %9 = param f32 [1] slot=2
      %10 = store %9 %6
      %11 = sink %8 %10)"},
    {"sums of what two variables leave of columns", R"(
      %0 = param f32 [64, 16] slot=0
      %1 = var i64 id=0 min=0 max=1024 multiple=1
      %2 = var i64 id=1 min=0 max=1024 multiple=1
      %3 = iota i64 [64]
      %4 = iota i64 [16]
      %5 = reshape i64 [64, 1] %3 dims=[64, 1]
      %6 = expand i64 [64, 16] %5 dims=[64, 16]
      %7 = reshape i64 [1, 16] %4 dims=[1, 16]
      %8 = expand i64 [64, 16] %7 dims=[64, 16]
      %9 = const i64 16
      %10 = reshape i64 [1, 1] %9 dims=[1, 1]
      %11 = expand i64 [64, 16] %10 dims=[64, 16]
      %12 = mul i64 [64, 16] %6 %11
      %13 = add i64 [64, 16] %12 %8
      %14 = reshape i64 [1, 1] %1 dims=[1, 1]
      %15 = expand i64 [64, 16] %14 dims=[64, 16]
      %16 = reshape i64 [1, 1] %2 dims=[1, 1]
      %17 = expand i64 [64, 16] %16 dims=[64, 16]
      %18 = cmplt bool [64, 16] %6 %15
      %19 = cmplt bool [64, 16] %13 %17
      %20 = and bool [64, 16] %18 %19
      %21 = const f32 0
      %22 = reshape f32 [1, 1] %21 dims=[1, 1]
      %23 = expand f32 [64, 16] %22 dims=[64, 16]
      %24 = where f32 [64, 16] %20 %0 %23
      %25 = reduce f32 [1, 16] %24 kind=add axes=[0]
      %26 = param f32 [1, 16] slot=1
      %27 = store %26 %25
      %28 = sink %27)",
     "VECTORIZE r0 16"},
    {"columns of a product, as long as two variables", R"(
      %0 = param f32 [1024, 24] slot=0
      %1 = var i64 id=0 min=0 max=1024 multiple=1
      %2 = var i64 id=1 min=0 max=1024 multiple=1
      %3 = param f32 [24, 1024] slot=1
      %4 = shrink f32 [1024, 24] %0 %1 pairs=[0, -2, 0, 24]
      %5 = shrink f32 [24, 1024] %3 %2 pairs=[0, 24, 0, -2]
      %6 = reshape f32 [1024, 24, 1] %4 %1 dims=[-2, 24, 1]
      %7 = expand f32 [1024, 24, 1024] %6 %1 %2 dims=[-2, 24, -3]
      %8 = reshape f32 [1, 24, 1024] %5 %2 dims=[1, 24, -2]
      %9 = expand f32 [1024, 24, 1024] %8 %1 %2 dims=[-2, 24, -3]
      %10 = mul f32 [1024, 24, 1024] %7 %9
      %11 = reduce f32 [1024, 1, 1024] %10 kind=add axes=[1]
      %12 = reshape f32 [1024, 1024] %11 %1 %2 dims=[-2, -3]
      %13 = param f32 [1024, 1024] slot=2
      %14 = shrink f32 [1024, 1024] %13 %1 %2 pairs=[0, -2, 0, -3]
      %15 = store %14 %12
      %16 = sink %15)"},
};

// Rows up to a number that wraps where it is computed in 8 bits: 20 * ((variable 0 as i8) mod 50).
constexpr Case kNarrow = {"rows up to a narrow number", R"(
      %0 = param f32 [1024, 48] slot=0
      %1 = var i64 id=0 min=0 max=1024 multiple=1
      %2 = cast i8 %1
      %3 = cast i64 %2
      %4 = const i64 50
      %5 = floormod i64 %3 %4
      %6 = const i64 20
      %7 = mul i64 %5 %6
      %8 = shrink f32 [980, 48] %0 %7 pairs=[0, -2, 0, 48]
      %9 = add f32 [980, 48] %8 %8
      %10 = param f32 [1024, 48] slot=1
      %11 = shrink f32 [980, 48] %10 %7 pairs=[0, -2, 0, 48]
      %12 = store %11 %9
      %13 = sink %12)"};

class RuntimeValues : public ::testing::Test {
 protected:
  static Slots SlotsOf(UOp sink) {
    Slots slots = EmptySlots(sink);
    for (std::vector<uint8_t>& bytes : slots) {
      for (size_t i = 0; i < bytes.size() / 4; ++i) {
        const float value = static_cast<float>(static_cast<int>(i * 7 % 13) - 6) / 4;
        std::memcpy(&bytes[4 * i], &value, 4);
      }
    }
    return slots;
  }

  static absl::Status Run(const Case& c, const Target& target,
                          const std::vector<VarValue>& values) {
    Graph graph;
    TG_ASSIGN_OR_RETURN(const UOp sink, Parse(c.text, &graph));
    TG_RETURN_IF_ERROR(Verify(sink, kTensorLevel));
    Budget budget;
    Slots want = SlotsOf(sink), got = want;
    reference::Variables variables;
    for (const VarValue& value : values) variables[value.id] = value.value;
    TG_RETURN_IF_ERROR(reference::Evaluate(sink, want, &budget, variables));
    TG_ASSIGN_OR_RETURN(const GeneralForm form, Generalize(sink, RangesOf(sink), &budget));
    TG_ASSIGN_OR_RETURN(Schedule schedule,
                        ScheduleGraph(form.graph.root(), &budget, ScheduleOptions::For(target)));
    LeaveOutUnread(&schedule);
    got.resize(static_cast<size_t>(form.slot));
    std::vector<uint8_t>& own = got.emplace_back(8 * values.size());
    for (size_t i = 0; i < values.size(); ++i) std::memcpy(&own[8 * i], &values[i].value, 8);
    ChooseMoves choose;
    if (!c.moves.empty()) {
      choose = [&](const FrozenGraph&, const Target&, std::span<const int32_t>) {
        return absl::StatusOr<std::string>(c.moves);
      };
    }
    TG_RETURN_IF_ERROR(RunSchedule(schedule, target, &got, choose));
    for (size_t i = 0; i < want.size(); ++i) {
      const std::string difference = Difference(DType::kFloat32, false, want[i], got[i]);
      if (!difference.empty()) return Internal("slot ", i, ": ", difference);
    }
    return absl::OkStatus();
  }
};

Target Cpu(int vector_bytes, int threads) {
  Target target;
  target.vector_bytes = vector_bytes;
  target.vector_registers = 16;
  target.threads = threads;
  return target;
}

// What one variable ends does not end what shares its loop and ends at another one.
TEST_F(RuntimeValues, LoopsThatEndAtTwoVariables) {
  constexpr std::pair<int64_t, int64_t> kValues[] = {
      {0, 0},      {0, 1},      {1, 0},   {1024, 0},  {0, 1024}, {1024, 1024},
      {1000, 100}, {100, 1000}, {63, 65}, {513, 500}, {3, 1000}, {40, 500}};
  for (const Case& c : kCases) {
    for (const auto& [n, m] : kValues) {
      const bool product = c.name.starts_with("columns");
      if (product && n * m > 50'000) continue;  // the interpreter takes long
      for (const int vector_bytes : {16, 64}) {
        for (const int threads : {1, 2}) {
          const absl::Status status = Run(c, Cpu(vector_bytes, threads), {{0, n}, {1, m}});
          EXPECT_TRUE(status.ok())
              << c.name << " at " << n << ", " << m << ", vectors of " << vector_bytes << " bytes, "
              << threads << " threads: " << status;
        }
      }
    }
  }
}

// A launch may leave out no workgroup that does something.
TEST_F(RuntimeValues, WorkgroupsOfANumberThatWraps) {
  Graph graph;
  const auto sink = Parse(kNarrow.text, &graph);
  ASSERT_TRUE(sink.ok()) << sink.status();
  Budget budget;
  const auto form = Generalize(*sink, RangesOf(*sink), &budget);
  ASSERT_TRUE(form.ok()) << form.status();
  const Target target = OpenClTarget(2);
  const auto schedule = ScheduleGraph(form->graph.root(), &budget, ScheduleOptions::For(target));
  ASSERT_TRUE(schedule.ok() && schedule->kernels.size() == 1) << schedule.status();
  const auto program = Lower(schedule->kernels[0].graph, target, "k", &budget);
  ASSERT_TRUE(program.ok()) << program.status();
  const auto number = RunGroups(*program);
  for (const int64_t value : {0, 1, 49, 127, 128, 200, 250, 300, 1024}) {
    const auto groups = number ? ValueOf(*number, std::span(&value, 1)) : std::nullopt;
    if (!groups || *groups >= program->iterations) continue;
    Slots slots = SlotsOf(form->graph.root());
    std::memcpy(slots[static_cast<size_t>(form->slot)].data(), &value, sizeof value);
    const Slots before = slots;
    std::vector<std::span<uint8_t>> buffers;
    for (const BufferRef ref : schedule->kernels[0].arguments) {
      buffers.emplace_back(slots[static_cast<size_t>(ref.index)]);
    }
    ASSERT_EQ(reference::Run(*program, buffers, *groups, program->iterations), absl::OkStatus());
    EXPECT_EQ(slots, before) << value << ": of " << *groups << " workgroups";
  }
}

// What has no value as the program computes it, has none.
TEST_F(RuntimeValues, NumbersOfWorkgroupsAreThoseOfTheirTypes) {
  Graph g;
  const UOp n =
      g.Make(Op::kLoad, {g.Make(Op::kIndex, {g.Param(0, DType::kInt64, Shape{1}), g.Index(0)})});
  const auto value = [](UOp u, int64_t of) { return ValueOf(Freeze(u), std::span(&of, 1)); };
  const UOp narrow = g.Make(Op::kCast, DType::kInt8, {n});
  EXPECT_EQ(value(narrow, 100), 100);
  EXPECT_EQ(value(narrow, 200), std::nullopt);
  const UOp sum = g.Make(Op::kAdd, {narrow, narrow});
  EXPECT_EQ(value(sum, 60), 120);
  EXPECT_EQ(value(sum, 100), std::nullopt);
  EXPECT_EQ(value(g.Make(Op::kCast, DType::kUInt64, {n}), -1), std::nullopt);
  EXPECT_EQ(value(g.Make(Op::kCast, DType::kUInt32, {n}), 7), 7);
  const UOp real = g.Make(Op::kCast, DType::kFloat32, {n});
  const UOp half = g.Make(Op::kMul, {real, g.ConstFloat(DType::kFloat32, 0.5)});
  EXPECT_EQ(value(g.Make(Op::kCast, DType::kInt64, {half}), 8), std::nullopt);
  const UOp some = g.Make(Op::kCast, DType::kBool, {n});
  EXPECT_EQ(value(g.Make(Op::kCast, DType::kInt64, {some}), 8), std::nullopt);
}

}  // namespace
}  // namespace telegrad::testing
