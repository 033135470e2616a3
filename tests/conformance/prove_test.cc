// The last pass refuses programs of which threads may race, on every kind of target, with an error
// that names what they do, and lowering then makes another one.
#include "engine/lowering/prove.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/text.h"
#include "engine/lowering/lower.h"
#include "engine/lowering/passes.h"
#include "engine/reference/program_eval.h"

namespace telegrad {
namespace {

std::vector<Target> Targets() {
  Target processor;
  processor.vector_bytes = 16;
  processor.vector_registers = 16;
  processor.threads = 2;
  return {processor, *NvidiaTarget(8, 0, 4, 163840), OpenClTarget(4),
          AmdTarget(*FindAmdProcessor("gfx942"), 4)};
}

constexpr int64_t kSize = 4096;

// out[max(i, least)] = x[i]: a kernel of which iterations store to the same element if `least` is
// not 0.
FrozenGraph Kernel(int64_t least) {
  Graph g;
  const UOp i = g.Range(0, AxisType::kLoop, g.Index(kSize));
  const UOp value =
      g.Make(Op::kLoad, {g.Make(Op::kIndex, {g.Param(1, DType::kFloat32, Shape{kSize}), i})});
  const UOp at = least == 0 ? i : g.Make(Op::kMax, {i, g.Index(least)});
  const UOp to = g.Make(Op::kIndex, {g.Param(0, DType::kFloat32, Shape{kSize}), at});
  const UOp end = g.Make(Op::kEnd, DType::kVoid, {g.Make(Op::kStore, {to, value}), i});
  EXPECT_TRUE(g.status().ok()) << g.status();
  return Freeze(g.Make(Op::kSink, {end}));
}

bool HasParallelRanges(const Program& program) {
  return std::ranges::any_of(program.order, [&](uint32_t id) {
    const UOp u = program.graph->at(id);
    if (!u.is(Op::kRange) || u.src(0).vmax() == 1) return false;
    const AxisType type = u.axis_type();
    return type == AxisType::kThread || type == AxisType::kGroup || type == AxisType::kLocal ||
           type == AxisType::kWarp;
  });
}

absl::Status Prove(const Program& program, const Target& target, Budget* budget) {
  Graph graph;
  PassContext context(&graph, target, budget);
  return telegrad::Prove(context, program);
}

TEST(Prove, RefusesListsWithWhichThreadsRace) {
  for (const Target& target : Targets()) {
    SCOPED_TRACE(target.arch);
    Budget budget;
    const auto whole = Lower(Kernel(0), target, "copies", &budget);
    ASSERT_TRUE(whole.ok()) << whole.status();
    EXPECT_TRUE(HasParallelRanges(*whole));
    const PassOptions list{.moves = whole->moves};
    EXPECT_TRUE(Lower(Kernel(0), target, "copies", &budget, nullptr, list).ok());
    const auto racy = Lower(Kernel(kSize / 2), target, "copies", &budget, nullptr, list);
    ASSERT_EQ(racy.status().code(), absl::StatusCode::kFailedPrecondition) << racy.status();
    const std::string text(racy.status().message());
    for (const char* part :
         {"moves: ", "of copies is not proved", "(store) of argument 0", "(range, "}) {
      EXPECT_NE(text.find(part), text.npos) << text;
    }
  }
}

// What lowering chooses is not run with threads that race: one thread has the last value of each
// element, as the kernel says it.
TEST(Prove, AKernelWhoseIterationsStoreToTheSameElementHasOneThread) {
  for (const Target& target : Targets()) {
    SCOPED_TRACE(target.arch);
    Budget budget;
    LoweringReport report;
    const auto program = Lower(Kernel(kSize / 2), target, "copies", &budget, &report);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_FALSE(HasParallelRanges(*program)) << Print(*program);
    EXPECT_GT(report.bounds.proved + report.bounds.gated, 0);
    EXPECT_NE(report.refused.find("(store) of argument 0"), report.refused.npos) << report.refused;
    std::vector<float> out(kSize, -1), x(kSize);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) / 4;
    const auto bytes = [](std::vector<float>& v) {
      return std::span(reinterpret_cast<uint8_t*>(v.data()), v.size() * sizeof(float));
    };
    const std::vector<std::span<uint8_t>> arguments{bytes(out), bytes(x)};
    const absl::Status run = reference::Run(*program, arguments, 0, program->iterations, {});
    ASSERT_TRUE(run.ok()) << run;
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(out[i], i < kSize / 2 ? -1 : x[i]) << i;
    }
  }
}

// x[i] = x[i + 1]: each thread stores what the one before it loads.
TEST(Prove, RefusesProgramsMadeByHand) {
  for (const int64_t ahead : {0, 1}) {
    const auto g = std::make_shared<Graph>();
    const UOp i = g->Range(0, AxisType::kGroup, g->Index(8));
    const UOp x = g->Param(0, DType::kFloat32, Shape{9});
    const UOp from = ahead == 0 ? i : g->Make(Op::kAdd, {i, g->Index(ahead)});
    const UOp value = g->Make(Op::kLoad, {g->Make(Op::kIndex, {x, from})});
    const UOp store = g->Make(Op::kStore, {g->Make(Op::kIndex, {x, i}), value});
    const UOp end = g->Make(Op::kEnd, {i});
    Program program;
    program.name = "shift";
    program.graph = g;
    program.order = {i.src(0).id(), i.id(), x.id()};
    if (ahead != 0) program.order.insert(program.order.end(), {from.src(1).id(), from.id()});
    program.order.insert(program.order.end(), {value.src(0).id(), value.id()});
    if (ahead != 0) program.order.push_back(store.src(0).id());
    program.order.insert(program.order.end(), {store.id(), end.id()});
    program.arguments = {{.dtype = DType::kFloat32, .elements = 9, .read = true, .written = true}};
    Budget budget;
    const absl::Status status = Prove(program, OpenClTarget(4), &budget);
    if (ahead == 0) {
      EXPECT_TRUE(status.ok()) << status;
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    for (const char* part : {"of shift is not proved", "(store) of argument 0",
                             "than node 6 (load) of argument 0", "(range, group)"}) {
      EXPECT_NE(status.message().find(part), status.message().npos) << status;
    }
  }
}

// local[t] = x[t]; out[t] = local[(t + 1) % 8]: each thread reads what the next one stores, which
// only a barrier between the two orders. That the barrier stands before both, or orders a warp
// alone, does not suffice.
TEST(Prove, RefusesRacesInLocalMemory) {
  enum class Barrier { kBetween, kNone, kBefore, kOfAWarp };
  for (const Barrier kind :
       {Barrier::kBetween, Barrier::kNone, Barrier::kBefore, Barrier::kOfAWarp}) {
    const auto g = std::make_shared<Graph>();
    Program program;
    program.name = "exchange";
    program.graph = g;
    const auto place = [&](UOp u) {
      for (const uint32_t id : PostOrder(u)) {
        if (std::ranges::find(program.order, id) == program.order.end()) {
          program.order.push_back(id);
        }
      }
      return u;
    };
    const UOp t = place(g->Range(0, AxisType::kLocal, g->Index(8)));
    const UOp local = g->Make(Op::kBuffer, DType::kFloat32, {},
                              {static_cast<int64_t>(AddressSpace::kLocal), 0, 8});
    const auto barrier = [&](Scope scope) {
      place(g->Make(Op::kBarrier, DType::kVoid, {}, {static_cast<int64_t>(scope)}));
    };
    const auto argument = [&](int64_t slot) {
      return g->Make(Op::kIndex, {g->Param(slot, DType::kFloat32, Shape{8}), t});
    };
    if (kind == Barrier::kBefore) barrier(Scope::kWorkgroup);
    place(
        g->Make(Op::kStore, {g->Make(Op::kIndex, {local, t}), g->Make(Op::kLoad, {argument(1)})}));
    if (kind == Barrier::kBetween) barrier(Scope::kWorkgroup);
    if (kind == Barrier::kOfAWarp) barrier(Scope::kWarp);
    const UOp next = g->Make(Op::kFloorMod, {g->Make(Op::kAdd, {t, g->Index(1)}), g->Index(8)});
    const UOp value = g->Make(Op::kLoad, {g->Make(Op::kIndex, {local, next})});
    place(g->Make(Op::kStore, {argument(0), value}));
    place(g->Make(Op::kEnd, {t}));
    program.arguments = {{.dtype = DType::kFloat32, .elements = 8, .written = true},
                         {.dtype = DType::kFloat32, .elements = 8, .read = true}};
    Budget budget;
    const absl::Status status = Prove(program, OpenClTarget(4), &budget);
    if (kind == Barrier::kBetween) {
      EXPECT_TRUE(status.ok()) << status;
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << static_cast<int>(kind);
    for (const char* part : {"(store) of local memory 0: of exchange is not proved",
                             "(load) of local memory 0 touches", "(range, local)"}) {
      EXPECT_NE(status.message().find(part), status.message().npos) << status;
    }
  }
}

TEST(Prove, SaferListsHaveLessThatIsParallel) {
  using Lists = std::vector<std::string>;
  EXPECT_EQ(SaferLists("LOCAL r0 4 axis 0, STAGE r2 4 ring 3, GROUP r0"),
            (Lists{"LOCAL r0 4 axis 0, STAGE r2 4, GROUP r0", "LOCAL r0 4 axis 0, GROUP r0", ""}));
  EXPECT_EQ(SaferLists("VECTORIZE r1 16, THREAD r0"), (Lists{"VECTORIZE r1 16", ""}));
  EXPECT_EQ(SaferLists("THREAD r0"), (Lists{""}));
  EXPECT_EQ(SaferLists(""), (Lists{""}));
}

// That the proof has no time left is no statement about the program.
TEST(Prove, WithoutBudgetTheErrorIsTheBudgets) {
  Budget budget;
  const auto program = Lower(Kernel(0), OpenClTarget(4), "copies", &budget);
  ASSERT_TRUE(program.ok()) << program.status();
  // From too little for the bounds alone to nearly enough for both proofs.
  for (int64_t steps = 1; steps < std::ssize(program->order) * 2; ++steps) {
    Budget::Limits limits;
    limits.steps = steps;
    Budget small(limits);
    const absl::Status status = Prove(*program, OpenClTarget(4), &small);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << steps << ": " << status;
  }
}

}  // namespace
}  // namespace telegrad
