// The order of lowering: simplify, decompose what no target has, join ranges, apply moves, expand,
// linearize, prove. What the proof rejects gets a run-time gate and is linearized and proved again.
#include "engine/lowering/lower.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "engine/lowering/expand.h"
#include "engine/lowering/linearize.h"
#include "engine/lowering/moves.h"
#include "engine/rewrite/pass.h"
#include "engine/rewrite/rewriter.h"
#include "engine/rules/algebra.h"
#include "engine/rules/decompositions.h"
#include "engine/rules/divmod.h"

namespace telegrad {
namespace {

constexpr const RuleTable* kSimplify[] = {&kAlgebra, &kDivMod};
constexpr const RuleTable* kDecompose[] = {&kDecompositions, &kAlgebra, &kDivMod};

// The gate that makes an access safe whatever its index is.
UOp GateOf(Rewriter& b, UOp address) {
  Graph& g = *b.graph();
  UOp buffer = address.src(0);
  while (buffer.is(Op::kAfter)) buffer = buffer.src(0);
  const UOp index = address.src(1);
  const UOp low = g.Make(Op::kCmpLt, {g.Index(-1), index});
  const UOp high = g.Make(Op::kCmpLt, {index, g.Index(NumElements(buffer.shape()))});
  UOp gate = g.Make(Op::kAnd, {low, high});
  if (address.num_src() == 3) gate = g.Make(Op::kAnd, {address.src(2), gate});
  return g.Make(Op::kIndex, {address.src(0), index, gate});
}

// Rebuilds the kernel with the unproved accesses gated. An index may come from a load that is gated
// itself.
UOp AddGates(Rewriter& b, UOp root, const std::vector<UOp>& unproved) {
  const absl::flat_hash_set<UOp> gated(unproved.begin(), unproved.end());
  Graph& g = *b.graph();
  NodeMap<uint32_t> made(g);
  std::vector<UOp> src;
  for (uint32_t id : PostOrder(root)) {
    const UOp u = g.at(id);
    src.clear();
    for (uint32_t s : u.src_ids()) src.push_back(g.at(made[s]));
    const std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
    UOp copy = g.Make(u.op(), u.dtype(), src, arg);
    if (gated.contains(u)) copy = GateOf(b, copy);
    if (!copy.valid()) return copy;
    made[id] = copy.id();
  }
  return g.at(made[root]);
}

// Only what the order needs, in a graph of its own. An AFTER of a whole nest becomes one of the END
// that closes the nest's outermost range.
Program Compact(Graph* from, const std::vector<uint32_t>& order, std::string name) {
  auto graph = std::make_shared<Graph>();
  Program program;
  program.name = std::move(name);
  NodeMap<uint32_t> copied(*from);
  std::vector<UOp> src;
  for (uint32_t id : order) {
    const UOp u = from->at(id);
    src.clear();
    for (int i = 0; i < u.num_src(); ++i) {
      UOp s = u.src(i);
      if (s.is(Op::kEnd) && s.num_src() > 1) s = from->Make(Op::kEnd, {s.src(1)});
      src.push_back(graph->at(copied[s]));
    }
    const std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
    const UOp copy = graph->Make(u.op(), u.dtype(), src, arg);
    copied[id] = copy.id();
    program.order.push_back(copy.id());
  }
  program.graph = std::move(graph);
  return program;
}

void CountWork(Program* program) {
  double iterations = 1;
  std::vector<double> outer;
  for (uint32_t id : program->order) {
    const UOp u = program->graph->at(id);
    if (u.is(Op::kRange)) {
      outer.push_back(iterations);
      iterations *= static_cast<double>(u.src(0).const_word());
      if (u.arg(1) == static_cast<int64_t>(AxisType::kThread)) {
        program->iterations = u.src(0).const_word();
      }
    } else if (u.is(Op::kEnd)) {
      iterations = outer.back();
      outer.pop_back();
    } else if (Is(u.op(), kAlu) && u.dtype() != DType::kInt64 && !IsBool(u.dtype())) {
      const double operations = u.is(Op::kMulAcc) ? 2 : 1;
      program->flops += iterations * operations * static_cast<double>(NumElements(u.shape()));
    }
  }
  for (const Program::Argument& a : program->arguments) {
    program->bytes += static_cast<double>(a.elements * ByteSize(a.dtype));
  }
}

// Every argument of the kernel, even one that simplification left without a use.
void CollectArguments(UOp kernel, Program* program) {
  for (uint32_t id : PostOrder(kernel)) {
    const UOp u = kernel.graph()->at(id);
    if (!u.is(Op::kParam)) continue;
    const auto slot = static_cast<size_t>(u.arg(0));
    if (program->arguments.size() <= slot) program->arguments.resize(slot + 1);
    program->arguments[slot].dtype = u.dtype();
    program->arguments[slot].elements = NumElements(u.shape());
  }
  for (uint32_t id : program->order) {
    const UOp u = program->graph->at(id);
    if (!u.is(Op::kLoad) && !u.is(Op::kStore)) continue;
    const UOp buffer = u.src(0).src(0);
    if (!buffer.is(Op::kParam)) continue;
    Program::Argument& a = program->arguments[buffer.arg(0)];
    (u.is(Op::kLoad) ? a.read : a.written) = true;
  }
}

}  // namespace

absl::StatusOr<Program> Lower(const FrozenGraph& kernel, const Target& target, std::string name,
                              Budget* budget, BoundsStats* stats) {
  const auto graph = std::make_shared<Graph>();
  Rewriter simplify(graph.get(), kSimplify, budget);
  Rewriter decompose(graph.get(), kDecompose, budget);
  // A pass that fails records its error in the graph, where the runner finds it.
  const auto or_fail = [&](absl::StatusOr<UOp> result) {
    return result.ok() ? *result : graph->Fail(result.status());
  };
  const Pass passes[] = {
      {"decompose", [&](UOp u) { return decompose.Rewrite(u); }},
      {"merge-ranges", [&](UOp u) { return MergeRanges(simplify, u); }},
      {"moves", [&](UOp u) { return or_fail(ApplyMoves(simplify, u, PickMoves(u, target))); }},
      {"expand", [&](UOp u) { return or_fail(ExpandRanges(simplify, u)); }},
  };
  PassOptions options;
  options.budget = budget;
  TG_ASSIGN_OR_RETURN(
      UOp root, RunPasses(graph.get(), CopyLive(kernel.root(), graph.get()), passes, options));
  TG_RETURN_IF_ERROR(budget->SpendNodes(graph->size()));

  TG_ASSIGN_OR_RETURN(std::vector<uint32_t> order, Linearize(graph.get(), root));
  const BoundsReport bounds = ProveBounds(*graph, order);
  if (!bounds.unproved.empty()) {
    root = AddGates(simplify, root, bounds.unproved);
    if (!root.valid()) return graph->status();
    TG_ASSIGN_OR_RETURN(order, Linearize(graph.get(), root));
  }
  Program program = Compact(graph.get(), order, std::move(name));
  TG_RETURN_IF_ERROR(graph->status());
  TG_RETURN_IF_ERROR(program.graph->status());
  if (!ProveBounds(*program.graph, program.order).unproved.empty()) {
    return Internal("lowering: a gated access of ", program.name, " is still unproved");
  }
  if (stats != nullptr) *stats += bounds.stats;
  CollectArguments(kernel.root(), &program);
  CountWork(&program);
  return program;
}

}  // namespace telegrad
