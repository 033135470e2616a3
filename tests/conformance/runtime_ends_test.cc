// The work of a graph's general form follows the values of its variables: the instructions that its
// programs execute in the interpreter are counted at a small value and at the bound. Its results
// are those of the interpreter of the graph itself, at values around the edges of tiles.
#include <gtest/gtest.h>

#include <algorithm>
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

// Each text has one variable of 0 to 1,024 and slots of f32 or i32.
struct Case {
  std::string_view name, text;
};
constexpr Case kCases[] = {
    {"sum of a part", R"(
      %0 = param f32 [1024] slot=0
      %1 = var i64 id=0 min=0 max=1024 multiple=1
      %2 = shrink f32 [1024] %0 %1 pairs=[0, -2]
      %3 = reduce f32 [1] %2 kind=add axes=[0]
      %4 = param f32 [1] slot=1
      %5 = store %4 %3
      %6 = sink %5)"},
    {"greatest of each column of a part", R"(
      %0 = param f32 [1024, 48] slot=0
      %1 = var i64 id=0 min=0 max=1024 multiple=1
      %2 = shrink f32 [1024, 48] %0 %1 pairs=[0, -2, 0, 48]
      %3 = reduce f32 [1, 48] %2 kind=max axes=[0]
      %4 = param f32 [1, 48] slot=1
      %5 = store %4 %3
      %6 = sink %5)"},
    {"a part of a vector is doubled", R"(
      %0 = param f32 [1024] slot=0
      %1 = var i64 id=0 min=0 max=1024 multiple=1
      %2 = shrink f32 [1024] %0 %1 pairs=[0, -2]
      %3 = add f32 [1024] %2 %2
      %4 = param f32 [1024] slot=1
      %5 = shrink f32 [1024] %4 %1 pairs=[0, -2]
      %6 = store %5 %3
      %7 = sink %6)"},
    {"rows of a product", R"(
      %0 = param f32 [1024, 24] slot=0
      %1 = var i64 id=0 min=0 max=1024 multiple=1
      %2 = shrink f32 [1024, 24] %0 %1 pairs=[0, -2, 0, 24]
      %3 = param f32 [24, 40] slot=1
      %4 = reshape f32 [1024, 24, 1] %2 %1 dims=[-2, 24, 1]
      %5 = expand f32 [1024, 24, 40] %4 %1 dims=[-2, 24, 40]
      %6 = reshape f32 [1, 24, 40] %3 dims=[1, 24, 40]
      %7 = expand f32 [1024, 24, 40] %6 %1 dims=[-2, 24, 40]
      %8 = mul f32 [1024, 24, 40] %5 %7
      %9 = reduce f32 [1024, 1, 40] %8 kind=add axes=[1]
      %10 = reshape f32 [1024, 40] %9 %1 dims=[-2, 40]
      %11 = param f32 [1024, 40] slot=2
      %12 = shrink f32 [1024, 40] %11 %1 pairs=[0, -2, 0, 40]
      %13 = store %12 %10
      %14 = sink %13)"},
};
// Values that are stored between the kernels of a run have room for the bound.
constexpr Case kThroughTemporaries[] = {
    {"a softmax that is stored", R"(
      %0 = param f32 [1024] slot=0
      %1 = var i64 id=0 min=1 max=1024 multiple=1
      %2 = shrink f32 [1024] %0 %1 pairs=[0, -2]
      %3 = exp2 f32 [1024] %2
      %4 = contiguous f32 [1024] %3
      %5 = reduce f32 [1] %4 kind=add axes=[0]
      %6 = expand f32 [1024] %5 %1 dims=[-2]
      %7 = fdiv f32 [1024] %4 %6
      %8 = contiguous f32 [1024] %7
      %9 = reduce f32 [1] %8 kind=max axes=[0]
      %10 = expand f32 [1024] %9 %1 dims=[-2]
      %11 = sub f32 [1024] %8 %10
      %12 = param f32 [1024] slot=1
      %13 = shrink f32 [1024] %12 %1 pairs=[0, -2]
      %14 = store %13 %11
      %15 = sink %14)"},
    {"attention of one query", R"(
      %0 = param f32 [1024, 16] slot=0
      %1 = var i64 id=0 min=1 max=1024 multiple=1
      %2 = shrink f32 [1024, 16] %0 %1 pairs=[0, -2, 0, 16]
      %3 = param f32 [1, 16] slot=1
      %4 = expand f32 [1024, 16] %3 %1 dims=[-2, 16]
      %5 = mul f32 [1024, 16] %2 %4
      %6 = reduce f32 [1024, 1] %5 kind=add axes=[1]
      %7 = contiguous f32 [1024, 1] %6
      %8 = reduce f32 [1, 1] %7 kind=max axes=[0]
      %9 = expand f32 [1024, 1] %8 %1 dims=[-2, 1]
      %10 = sub f32 [1024, 1] %7 %9
      %11 = exp2 f32 [1024, 1] %10
      %12 = contiguous f32 [1024, 1] %11
      %13 = reduce f32 [1, 1] %12 kind=add axes=[0]
      %14 = param f32 [1024, 16] slot=2
      %15 = shrink f32 [1024, 16] %14 %1 pairs=[0, -2, 0, 16]
      %16 = expand f32 [1024, 16] %12 %1 dims=[-2, 16]
      %17 = mul f32 [1024, 16] %16 %15
      %18 = reduce f32 [1, 16] %17 kind=add axes=[0]
      %19 = expand f32 [1, 16] %13 dims=[1, 16]
      %20 = fdiv f32 [1, 16] %18 %19
      %21 = param f32 [1, 16] slot=3
      %22 = store %21 %20
      %23 = sink %22)"},
    {"two products, one after the other", R"(
      %0 = param f32 [1024, 24] slot=0
      %1 = var i64 id=0 min=1 max=1024 multiple=1
      %2 = shrink f32 [1024, 24] %0 %1 pairs=[0, -2, 0, 24]
      %3 = param f32 [24, 40] slot=1
      %4 = reshape f32 [1024, 24, 1] %2 %1 dims=[-2, 24, 1]
      %5 = expand f32 [1024, 24, 40] %4 %1 dims=[-2, 24, 40]
      %6 = reshape f32 [1, 24, 40] %3 dims=[1, 24, 40]
      %7 = expand f32 [1024, 24, 40] %6 %1 dims=[-2, 24, 40]
      %8 = mul f32 [1024, 24, 40] %5 %7
      %9 = reduce f32 [1024, 1, 40] %8 kind=add axes=[1]
      %10 = reshape f32 [1024, 40, 1] %9 %1 dims=[-2, 40, 1]
      %11 = contiguous f32 [1024, 40, 1] %10
      %12 = expand f32 [1024, 40, 16] %11 %1 dims=[-2, 40, 16]
      %13 = param f32 [40, 16] slot=2
      %14 = reshape f32 [1, 40, 16] %13 dims=[1, 40, 16]
      %15 = expand f32 [1024, 40, 16] %14 %1 dims=[-2, 40, 16]
      %16 = mul f32 [1024, 40, 16] %12 %15
      %17 = reduce f32 [1024, 1, 16] %16 kind=add axes=[1]
      %18 = reshape f32 [1024, 16] %17 %1 dims=[-2, 16]
      %19 = param f32 [1024, 16] slot=3
      %20 = shrink f32 [1024, 16] %19 %1 pairs=[0, -2, 0, 16]
      %21 = store %20 %18
      %22 = sink %21)"},
};
// Their lanes run along the variable: vectors that begin below it may reach beyond it.
constexpr Case kAlongLanes[] = {
    {"sums of rows of a variable length", R"(
      %0 = param f32 [48, 1024] slot=0
      %1 = var i64 id=0 min=0 max=1024 multiple=1
      %2 = shrink f32 [48, 1024] %0 %1 pairs=[0, 48, 0, -2]
      %3 = reduce f32 [48, 1] %2 kind=add axes=[1]
      %4 = param f32 [48, 1] slot=1
      %5 = store %4 %3
      %6 = sink %5)"},
    {"greatest of rows of a variable length", R"(
      %0 = param f32 [48, 1024] slot=0
      %1 = var i64 id=0 min=0 max=1024 multiple=1
      %2 = shrink f32 [48, 1024] %0 %1 pairs=[0, 48, 0, -2]
      %3 = reduce f32 [48, 1] %2 kind=max axes=[1]
      %4 = param f32 [48, 1] slot=1
      %5 = store %4 %3
      %6 = sink %5)"},
    {"a part of each row is doubled", R"(
      %0 = param f32 [24, 1024] slot=0
      %1 = var i64 id=0 min=0 max=1024 multiple=1
      %2 = shrink f32 [24, 1024] %0 %1 pairs=[0, 24, 0, -2]
      %3 = add f32 [24, 1024] %2 %2
      %4 = param f32 [24, 1024] slot=1
      %5 = shrink f32 [24, 1024] %4 %1 pairs=[0, 24, 0, -2]
      %6 = store %5 %3
      %7 = sink %6)"},
    {"columns of a product", R"(
      %0 = param f32 [16, 24] slot=0
      %1 = var i64 id=0 min=0 max=1024 multiple=1
      %2 = param f32 [24, 1024] slot=1
      %3 = shrink f32 [24, 1024] %2 %1 pairs=[0, 24, 0, -2]
      %4 = reshape f32 [16, 24, 1] %0 dims=[16, 24, 1]
      %5 = expand f32 [16, 24, 1024] %4 %1 dims=[16, 24, -2]
      %6 = reshape f32 [1, 24, 1024] %3 %1 dims=[1, 24, -2]
      %7 = expand f32 [16, 24, 1024] %6 %1 dims=[16, 24, -2]
      %8 = mul f32 [16, 24, 1024] %5 %7
      %9 = reduce f32 [16, 1, 1024] %8 kind=add axes=[1]
      %10 = reshape f32 [16, 1024] %9 %1 dims=[16, -2]
      %11 = param f32 [16, 1024] slot=2
      %12 = shrink f32 [16, 1024] %11 %1 pairs=[0, 16, 0, -2]
      %13 = store %12 %10
      %14 = sink %13)"},
    {"columns of a product of an odd size", R"(
      %0 = param f32 [16, 24] slot=0
      %1 = var i64 id=0 min=0 max=1001 multiple=1
      %2 = param f32 [24, 1001] slot=1
      %3 = shrink f32 [24, 1001] %2 %1 pairs=[0, 24, 0, -2]
      %4 = reshape f32 [16, 24, 1] %0 dims=[16, 24, 1]
      %5 = expand f32 [16, 24, 1001] %4 %1 dims=[16, 24, -2]
      %6 = reshape f32 [1, 24, 1001] %3 %1 dims=[1, 24, -2]
      %7 = expand f32 [16, 24, 1001] %6 %1 dims=[16, 24, -2]
      %8 = mul f32 [16, 24, 1001] %5 %7
      %9 = reduce f32 [16, 1, 1001] %8 kind=add axes=[1]
      %10 = reshape f32 [16, 1001] %9 %1 dims=[16, -2]
      %11 = param f32 [16, 1001] slot=2
      %12 = shrink f32 [16, 1001] %11 %1 pairs=[0, 16, 0, -2]
      %13 = store %12 %10
      %14 = sink %13)"},
    {"softmax of rows of a variable length", R"(
      %0 = param f32 [24, 1024] slot=0
      %1 = var i64 id=0 min=1 max=1024 multiple=1
      %2 = shrink f32 [24, 1024] %0 %1 pairs=[0, 24, 0, -2]
      %3 = reduce f32 [24, 1] %2 kind=max axes=[1]
      %4 = expand f32 [24, 1024] %3 %1 dims=[24, -2]
      %5 = sub f32 [24, 1024] %2 %4
      %6 = exp2 f32 [24, 1024] %5
      %7 = reduce f32 [24, 1] %6 kind=add axes=[1]
      %8 = expand f32 [24, 1024] %7 %1 dims=[24, -2]
      %9 = fdiv f32 [24, 1024] %6 %8
      %10 = param f32 [24, 1024] slot=1
      %11 = shrink f32 [24, 1024] %10 %1 pairs=[0, 24, 0, -2]
      %12 = store %11 %9
      %13 = sink %12)"},
};
// Tiles do not divide it, and threads share them.
constexpr Case kOddVector = {"a part of a vector of an odd size is doubled", R"(
      %0 = param f32 [1001] slot=0
      %1 = var i64 id=0 min=0 max=1001 multiple=1
      %2 = shrink f32 [1001] %0 %1 pairs=[0, -2]
      %3 = add f32 [1001] %2 %2
      %4 = param f32 [1001] slot=1
      %5 = shrink f32 [1001] %4 %1 pairs=[0, -2]
      %6 = store %5 %3
      %7 = sink %6)"};
// The last tile of keys would leave their buffer, so it begins earlier, and a copy packed by tiles
// has other keys than the numbers of its tiles say.
constexpr Case kPackedTiles = {"attention to a part of an odd number of keys", R"(
      %0 = param f32 [2, 1, 17, 4] slot=0
      %1 = var i64 id=0 min=1 max=25 multiple=1
      %2 = param f32 [2, 1, 25, 4] slot=1
      %3 = shrink f32 [2, 1, 25, 4] %2 %1 pairs=[0, 2, 0, 1, 0, -2, 0, 4]
      %4 = reshape f32 [2, 1, 17, 1, 4] %0 dims=[2, 1, 17, 1, 4]
      %5 = expand f32 [2, 1, 17, 25, 4] %4 %1 dims=[2, 1, 17, -2, 4]
      %6 = reshape f32 [2, 1, 1, 25, 4] %3 %1 dims=[2, 1, 1, -2, 4]
      %7 = expand f32 [2, 1, 17, 25, 4] %6 %1 dims=[2, 1, 17, -2, 4]
      %8 = mul f32 [2, 1, 17, 25, 4] %5 %7
      %9 = reduce f32 [2, 1, 17, 25, 1] %8 kind=add axes=[4]
      %10 = reshape f32 [2, 1, 17, 25] %9 %1 dims=[2, 1, 17, -2]
      %11 = reduce f32 [2, 1, 17, 1] %10 kind=max axes=[3]
      %12 = expand f32 [2, 1, 17, 25] %11 %1 dims=[2, 1, 17, -2]
      %13 = sub f32 [2, 1, 17, 25] %10 %12
      %14 = exp2 f32 [2, 1, 17, 25] %13
      %15 = reduce f32 [2, 1, 17, 1] %14 kind=add axes=[3]
      %16 = expand f32 [2, 1, 17, 25] %15 %1 dims=[2, 1, 17, -2]
      %17 = fdiv f32 [2, 1, 17, 25] %14 %16
      %18 = param f32 [2, 1, 25, 4] slot=2
      %19 = shrink f32 [2, 1, 25, 4] %18 %1 pairs=[0, 2, 0, 1, 0, -2, 0, 4]
      %20 = reshape f32 [2, 1, 1, 25, 4] %19 %1 dims=[2, 1, 1, -2, 4]
      %21 = expand f32 [2, 1, 17, 25, 4] %20 %1 dims=[2, 1, 17, -2, 4]
      %22 = reshape f32 [2, 1, 17, 25, 1] %17 %1 dims=[2, 1, 17, -2, 1]
      %23 = expand f32 [2, 1, 17, 25, 4] %22 %1 dims=[2, 1, 17, -2, 4]
      %24 = mul f32 [2, 1, 17, 25, 4] %23 %21
      %25 = reduce f32 [2, 1, 17, 1, 4] %24 kind=add axes=[3]
      %26 = reshape f32 [2, 1, 17, 4] %25 dims=[2, 1, 17, 4]
      %27 = param f32 [2, 1, 17, 4] slot=3
      %28 = store %27 %26
      %29 = sink %28)"};
// What is read was there before the kernel: its loads come before its stores.
constexpr Case kInPlace = {"a part of a vector is doubled in place", R"(
      %0 = param f32 [1024] slot=0
      %1 = var i64 id=0 min=0 max=1024 multiple=1
      %2 = shrink f32 [1024] %0 %1 pairs=[0, -2]
      %3 = add f32 [1024] %2 %2
      %4 = store %2 %3
      %5 = sink %4)"};
// Each row ends where the rows before it leave off: at 0 where these are all there is.
constexpr Case kSumOfRows = {"sums of rows of a part", R"(
      %0 = param f32 [16384] slot=0
      %1 = var i64 id=0 min=0 max=16384 multiple=1
      %2 = shrink f32 [16384] %0 %1 pairs=[0, -2]
      %3 = pad f32 [16384] %2 pairs=[0, 16384]
      %4 = reshape f32 [8, 2048] %3 dims=[8, 2048]
      %5 = reduce f32 [8, 1] %4 kind=add axes=[1]
      %6 = param f32 [8, 1] slot=1
      %7 = store %6 %5
      %8 = sink %7)"};
// Two rows of a cache are written from a variable on: as much work wherever they are.
constexpr Case kRowsOfACache = {"rows of a cache", R"(
      %0 = param f32 [1026, 32] slot=0
      %1 = var i64 id=0 min=0 max=1024 multiple=1
      %2 = shrink f32 [2, 32] %0 %1 pairs=[-2, 2, 0, 32]
      %3 = param f32 [2, 32] slot=1
      %4 = add f32 [2, 32] %3 %3
      %5 = store %2 %4
      %6 = sink %5)"};

class RuntimeEnds : public ::testing::Test {
 protected:
  static Slots SlotsOf(UOp sink) {
    Slots slots = EmptySlots(sink);
    for (uint32_t id : PostOrder(sink)) {
      const UOp u = sink.graph()->at(id);
      if (!u.is(Op::kParam) || u.dtype() == DType::kInt64) continue;
      std::vector<uint8_t>& bytes = slots[static_cast<size_t>(u.slot())];
      for (int64_t i = 0; i < NumElements(u.shape()); ++i) {
        const auto whole = static_cast<int32_t>(i * 7 % 13 - 6);
        const float value = static_cast<float>(whole) / 4;
        std::memcpy(&bytes[static_cast<size_t>(4 * i)],
                    u.dtype() == DType::kFloat32 ? static_cast<const void*>(&value) : &whole, 4);
      }
    }
    return slots;
  }

  // The instructions of a run of the general form, whose slots are compared with those of the
  // graph itself.
  static int64_t Steps(const Case& c, const Target& target, int64_t value) {
    int64_t steps = 0;
    const absl::Status status = Run(c, target, value, &steps);
    EXPECT_TRUE(status.ok()) << c.name << " at " << value << ": " << status;
    return steps;
  }

  // Of a program made for the value alone.
  static int64_t StepsOfItsOwn(const Case& c, const Target& target, int64_t value) {
    Graph graph;
    const auto sink = Parse(c.text, &graph);
    if (!sink.ok()) return -1;
    Budget budget;
    Slots slots = SlotsOf(*sink);
    int64_t steps = 0;
    const std::vector<VarValue> values{{0, value}};
    const auto schedule = ScheduleGraph(*sink, values, &budget, ScheduleOptions::For(target));
    EXPECT_TRUE(schedule.ok()) << schedule.status();
    if (!schedule.ok()) return -1;
    const absl::Status status = RunSchedule(*schedule, target, &slots, nullptr, &steps);
    EXPECT_TRUE(status.ok()) << status;
    return steps;
  }

  // The lowered kernels of the general form.
  static absl::StatusOr<std::vector<Program>> Programs(const Case& c, const Target& target) {
    Graph graph;
    TG_ASSIGN_OR_RETURN(const UOp sink, Parse(c.text, &graph));
    Budget budget;
    TG_ASSIGN_OR_RETURN(const GeneralForm form, Generalize(sink, RangesOf(sink), &budget));
    TG_ASSIGN_OR_RETURN(Schedule schedule,
                        ScheduleGraph(form.graph.root(), &budget, ScheduleOptions::For(target)));
    LeaveOutUnread(&schedule);
    std::vector<Program> programs;
    for (const ScheduledKernel& kernel : schedule.kernels) {
      TG_ASSIGN_OR_RETURN(programs.emplace_back(), Lower(kernel.graph, target, "k", &budget));
    }
    return programs;
  }

  // The part of all instructions that gates and selections are, where every loop has as many
  // iterations as its end's bounds allow.
  static double PartOfGates(const Program& program) {
    double all = 0, gates = 0, times = 1;
    std::vector<double> outer;
    for (uint32_t id : program.order) {
      const UOp u = program.graph->at(id);
      if (u.is(Op::kRange)) {
        outer.push_back(times);
        times *= static_cast<double>(u.src(0).vmax());
      } else if (u.is(Op::kEnd)) {
        times = outer.back();
        outer.pop_back();
      }
      all += times;
      if (u.is(Op::kWhere) || (u.is(Op::kIndex) && u.num_src() == 3)) gates += times;
    }
    return gates / all;
  }

  static absl::Status Run(const Case& c, const Target& target, int64_t value, int64_t* steps) {
    Graph graph;
    TG_ASSIGN_OR_RETURN(const UOp sink, Parse(c.text, &graph));
    TG_RETURN_IF_ERROR(Verify(sink, kTensorLevel));
    Budget budget;
    Slots want = SlotsOf(sink), got = want;
    TG_RETURN_IF_ERROR(reference::Evaluate(sink, want, &budget, {{0, value}}));
    TG_ASSIGN_OR_RETURN(const GeneralForm form, Generalize(sink, RangesOf(sink), &budget));
    TG_ASSIGN_OR_RETURN(Schedule schedule,
                        ScheduleGraph(form.graph.root(), &budget, ScheduleOptions::For(target)));
    LeaveOutUnread(&schedule);
    got.resize(static_cast<size_t>(form.slot));
    got.emplace_back(sizeof value);
    std::memcpy(got.back().data(), &value, sizeof value);
    TG_RETURN_IF_ERROR(RunSchedule(schedule, target, &got, nullptr, steps));
    for (size_t i = 0; i < want.size(); ++i) {
      const std::string difference = Difference(DType::kFloat32, false, want[i], got[i]);
      if (!difference.empty()) return Internal("slot ", i, ": ", difference);
    }
    return absl::OkStatus();
  }
};

Target Cpu(int vector_bytes) {
  Target target;
  target.vector_bytes = vector_bytes;
  target.vector_registers = 16;
  target.threads = 2;
  return target;
}

TEST_F(RuntimeEnds, WorkFollowsTheValue) {
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  cases.insert(cases.end(), std::begin(kThroughTemporaries), std::end(kThroughTemporaries));
  for (const Case& c : cases) {
    for (const int vector_bytes : {4, 32}) {
      const Target cpu = Cpu(vector_bytes);
      const int64_t all = Steps(c, cpu, 1024), few = Steps(c, cpu, 8);
      // 1 of 128, the rest of a tile, and what does not depend on the value.
      EXPECT_LT(few, all / 16) << c.name << ", vectors of " << vector_bytes << " bytes";
      EXPECT_LT(Steps(c, cpu, 512), all * 3 / 5) << c.name;
    }
  }
}

TEST_F(RuntimeEnds, InnerLoopsEndByOuterOnes) {
  for (const int vector_bytes : {4, 32}) {
    const int64_t all = Steps(kSumOfRows, Cpu(vector_bytes), 16384);
    EXPECT_LT(Steps(kSumOfRows, Cpu(vector_bytes), 100), all / 8) << vector_bytes;
    EXPECT_LT(Steps(kSumOfRows, Cpu(vector_bytes), 4000), all / 3) << vector_bytes;
  }
}

TEST_F(RuntimeEnds, WhatIsWrittenToACacheCostsItsRows) {
  const int64_t most = 2 * 32 * 16;  // instructions, of 16 for each element
  for (const int64_t value : {0, 1, 7, 500, 1023, 1024}) {
    EXPECT_LT(Steps(kRowsOfACache, Cpu(4), value), most) << value;
    Steps(kRowsOfACache, Cpu(32), value);
  }
}

// Far from the bound and near to it, a run takes about what a program for its value alone does.
// That one unrolls sums that are short, which counts fewer instructions, and keeps the row of a
// softmax's exponentials, which are computed twice where the run gives the row's length.
TEST_F(RuntimeEnds, WholeTilesCostWhatThoseOfAProgramForTheValueDo) {
  for (const Case& c : kAlongLanes) {
    const bool twice = c.name.starts_with("softmax");
    const bool folds = c.name.ends_with("a variable length") && !twice;
    for (const int64_t value : {64, 100, 500, 1000}) {
      if (folds && value < 1000) continue;
      const int64_t own = StepsOfItsOwn(c, Cpu(32), value);
      EXPECT_LT(Steps(c, Cpu(32), value), own * (twice ? 7 : 5) / 4) << c.name << " at " << value;
    }
  }
}

TEST_F(RuntimeEnds, WholeTilesHaveNoGates) {
  for (const Case& c : kAlongLanes) {
    const auto programs = Programs(c, Cpu(32));
    ASSERT_TRUE(programs.ok()) << programs.status();
    for (const Program& program : *programs) EXPECT_LT(PartOfGates(program), 0.06) << c.name;
  }
}

// The sums of a fixed order stay one loop.
TEST_F(RuntimeEnds, AFixedOrderOfSumsHasNoTails) {
  Target target = Cpu(32);
  target.deterministic = true;
  const auto programs = Programs(kAlongLanes[0], target);
  ASSERT_TRUE(programs.ok() && programs->size() == 1) << programs.status();
  const auto loops = std::ranges::count_if((*programs)[0].order, [&](uint32_t id) {
    const UOp u = (*programs)[0].graph->at(id);
    return u.is(Op::kRange) && u.axis_type() == AxisType::kReduce && !u.src(0).is_const();
  });
  EXPECT_EQ(loops, 1);
}

// On GPUs a launch may leave out what RunGroups says: these workgroups write nothing.
TEST_F(RuntimeEnds, WorkgroupsThatDoNothingAreTheLastOnes) {
  int found = 0;
  const Target targets[] = {OpenClTarget(2), *NvidiaTarget(8, 0, 108, int64_t{160} << 10)};
  for (const Target& target : targets) {
    for (const Case& c : {kCases[2], kCases[3], kAlongLanes[3]}) {
      SCOPED_TRACE(c.name);
      Graph graph;
      const auto sink = Parse(c.text, &graph);
      ASSERT_TRUE(sink.ok()) << sink.status();
      Budget budget;
      const auto form = Generalize(*sink, RangesOf(*sink), &budget);
      ASSERT_TRUE(form.ok()) << form.status();
      const auto schedule =
          ScheduleGraph(form->graph.root(), &budget, ScheduleOptions::For(target));
      ASSERT_TRUE(schedule.ok() && schedule->kernels.size() == 1) << schedule.status();
      const auto program = Lower(schedule->kernels[0].graph, target, "k", &budget);
      ASSERT_TRUE(program.ok()) << program.status();
      const auto number = RunGroups(*program);
      if (!number) continue;  // threads and vectors have all of the variable
      ++found;
      for (const int64_t value : {0, 1, 8, 100, 1024}) {
        const auto groups = ValueOf(*number, std::span(&value, 1));
        ASSERT_TRUE(groups.has_value());
        ASSERT_LE(*groups, program->iterations);
        if (value == 8) EXPECT_LE(*groups, program->iterations / 2);
        Slots slots = SlotsOf(form->graph.root());
        std::memcpy(slots[static_cast<size_t>(form->slot)].data(), &value, sizeof value);
        const Slots before = slots;
        std::vector<std::span<uint8_t>> buffers;
        for (const BufferRef ref : schedule->kernels[0].arguments) {
          buffers.emplace_back(slots[ref.index]);
        }
        if (*groups < program->iterations) {
          ASSERT_EQ(reference::Run(*program, buffers, *groups, program->iterations),
                    absl::OkStatus());
        }
        EXPECT_EQ(slots, before) << value;
      }
    }
  }
  EXPECT_GE(found, 5);
}

// The two halves of a launch do as much as each other, though most of its iterations are not there.
TEST_F(RuntimeEnds, ThreadsShareWhatThereIs) {
  Graph graph;
  const auto sink = Parse(kCases[3].text, &graph);
  ASSERT_TRUE(sink.ok()) << sink.status();
  Budget budget;
  const auto form = Generalize(*sink, RangesOf(*sink), &budget);
  ASSERT_TRUE(form.ok()) << form.status();
  const auto schedule = ScheduleGraph(form->graph.root(), &budget, ScheduleOptions::For(Cpu(32)));
  ASSERT_TRUE(schedule.ok() && schedule->kernels.size() == 1) << schedule.status();
  const auto program = Lower(schedule->kernels[0].graph, Cpu(32), "k", &budget);
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_GT(program->iterations, 8);
  Slots slots = SlotsOf(form->graph.root());
  const int64_t value = 256;
  std::memcpy(slots[static_cast<size_t>(form->slot)].data(), &value, sizeof value);
  std::vector<std::span<uint8_t>> buffers;
  for (const BufferRef ref : schedule->kernels[0].arguments) buffers.emplace_back(slots[ref.index]);
  int64_t steps[2] = {0, 0};
  const int64_t half = program->iterations / 2;
  ASSERT_EQ(reference::Run(*program, buffers, 0, half, {.steps = &steps[0]}), absl::OkStatus());
  ASSERT_EQ(reference::Run(*program, buffers, half, program->iterations, {.steps = &steps[1]}),
            absl::OkStatus());
  EXPECT_GT(steps[1], steps[0] * 9 / 10);
  EXPECT_GT(steps[0], steps[1] * 9 / 10);
}

TEST_F(RuntimeEnds, ResultsAreTheSame) {
  for (const Case& c : kThroughTemporaries) {
    for (const int64_t value : {1, 7, 8, 9, 100, 1023}) Steps(c, Cpu(32), value);
  }
  for (const Case& c : kCases) {
    for (const int64_t value : {0, 1, 7, 8, 9, 15, 16, 17, 100, 1023}) Steps(c, Cpu(32), value);
  }
  for (const Case& c : kAlongLanes) {
    for (const int64_t value : {1, 8, 9, 33, 64, 977, 1000, 1001}) {
      for (const int vector_bytes : {16, 64}) Steps(c, Cpu(vector_bytes), value);
    }
  }
  for (const int64_t value : {0, 1, 8, 9, 100, 993, 1000, 1001}) {
    Steps(kInPlace, Cpu(32), value);
    Steps(kOddVector, Cpu(32), value);
  }
}

TEST_F(RuntimeEnds, TilesOfAPackedCopyAreThoseThatItHas) {
  for (const int vector_bytes : {16, 32, 64}) {
    for (int64_t value = 1; value <= 25; ++value) Steps(kPackedTiles, Cpu(vector_bytes), value);
  }
}

}  // namespace
}  // namespace telegrad::testing
