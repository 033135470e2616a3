// Lowering as rows. A pass that fails records its error in the graph, where the runner finds it.
#include "engine/lowering/passes.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "engine/base/status.h"
#include "engine/lowering/bounds_proof.h"
#include "engine/lowering/derive.h"
#include "engine/lowering/expand.h"
#include "engine/lowering/gated_indices.h"
#include "engine/lowering/heuristic.h"
#include "engine/lowering/limit.h"
#include "engine/lowering/linearize.h"
#include "engine/lowering/merge_ranges.h"
#include "engine/lowering/moves/apply.h"
#include "engine/lowering/narrow_indices.h"
#include "engine/lowering/online.h"
#include "engine/lowering/order_sums.h"
#include "engine/lowering/pieces.h"
#include "engine/lowering/prove.h"
#include "engine/lowering/runtime_ends.h"
#include "engine/lowering/runtime_tails.h"
#include "engine/lowering/runtime_window.h"
#include "engine/lowering/separate.h"
#include "engine/lowering/shared_loops.h"
#include "engine/lowering/split_ranges.h"
#include "engine/lowering/stage.h"
#include "engine/lowering/substitute.h"
#include "engine/rules/algebra.h"
#include "engine/rules/decompositions.h"
#include "engine/rules/divmod.h"
#include "engine/rules/emulation.h"

namespace telegrad {
namespace {

constexpr const RuleTable* kSimplify[] = {&kAlgebra, &kDivMod};
constexpr const RuleTable* kDecompose[] = {&kDecompositions, &kAlgebra, &kDivMod};

UOp OrFail(Graph* graph, absl::StatusOr<UOp> result) {
  return result.ok() ? *result : graph->Fail(std::move(result).status());
}

UOp Decompose(PassContext& c, UOp root) {
  std::vector<const RuleTable*> tables = EmulationTables(c.target());
  tables.push_back(&DecompositionsFor(c.target()));
  tables.insert(tables.end(), std::begin(kSimplify), std::end(kSimplify));
  return c.rewriter(tables).Rewrite(root);
}

absl::StatusOr<UOp> Derive(PassContext& c, Piece* piece) {
  return DeriveWeights(c.rewriter(kSimplify), piece);
}

UOp Windows(PassContext& c, UOp root) { return MoveWindows(c.rewriter(kSimplify), root); }

UOp GatedIndices(PassContext& c, UOp root) {
  return SimplifyGatedIndices(c.rewriter(kSimplify), root);
}

UOp Limit(PassContext& c, UOp root) { return LimitLoops(c.rewriter(kSimplify), root, c.target()); }

UOp Online(PassContext& c, UOp root) { return SumOnline(c.rewriter(kSimplify), root, c.target()); }

UOp Separate(PassContext& c, UOp root) { return SeparateRanges(c.graph(), root); }

// What is left over is a reduction of its own, with its own ranges.
UOp Order(PassContext& c, UOp root) {
  if (!KeepsOrder(c.target())) return root;
  root = OrderSums(c.rewriter(kSimplify), root);
  return root.valid() ? SeparateRanges(c.graph(), root) : root;
}

UOp Split(PassContext& c, UOp root) { return SplitRanges(c.rewriter(kSimplify), root, c.target()); }

UOp Pieces(PassContext& c, UOp root) {
  return SplitPieces(c.rewriter(kSimplify), root, c.target());
}

UOp InnerLoops(PassContext& c, UOp root) {
  return SplitInnerLoops(c.rewriter(kSimplify), root, c.target());
}

UOp Merge(PassContext& c, UOp root) { return MergeRanges(c.rewriter(kSimplify), root, c.target()); }

void Record(const MoveList& moves, Piece* piece) {
  if (!piece->moves.empty() && !moves.empty()) piece->moves += ", ";
  piece->moves += Print(moves);
}

Checked CheckedOf(const Piece& piece) { return piece.given_moves ? Checked::kYes : Checked::kNo; }

// What is peeled off may want to be peeled itself. It reduces by ranges of its own: one that two
// reductions share, inside of ranges that they do not, would have two places.
absl::StatusOr<UOp> PeelAndJoin(PassContext& c, Piece* piece) {
  MovedKernel kernel{.root = piece->root};
  const Checked checked = CheckedOf(*piece);
  const auto apply = [&](const Move& move) -> absl::Status {
    TG_ASSIGN_OR_RETURN(kernel,
                        Apply(c.rewriter(kSimplify), c.target(), std::move(kernel), move, checked));
    return absl::OkStatus();
  };
  if (piece->given_moves) {
    TG_ASSIGN_OR_RETURN(const MoveList moves, ParseMoves(*piece->given_moves));
    for (const Move& move : moves) {
      if (!IsAtOnce(move)) break;
      TG_RETURN_IF_ERROR(apply(move));
    }
  } else {
    for (const Move& move : PickJoins(kernel.root, c.target())) TG_RETURN_IF_ERROR(apply(move));
    for (int i = 0; i < kPeelRounds; ++i) {
      const MoveList peels = PickPeels(kernel.root, piece->arguments, c.target());
      if (peels.empty()) break;
      for (const Move& move : peels) TG_RETURN_IF_ERROR(apply(move));
      TG_RETURN_IF_ERROR(apply(Move{}));
    }
  }
  if (kernel.peeled) return FailedPrecondition("moves: SEPARATE stands after the last PEEL");
  Record(kernel.done, piece);
  return kernel.root;
}

absl::StatusOr<UOp> MoveRanges(PassContext& c, Piece* piece) {
  MoveList moves;
  if (piece->given_moves) {
    TG_ASSIGN_OR_RETURN(moves, ParseMoves(*piece->given_moves));
    moves.erase(moves.begin(), std::ranges::find_if_not(moves, IsAtOnce));
  } else {
    moves = PickMoves(piece->root, piece->arguments, c.target());
  }
  Rewriter& b = c.rewriter(kSimplify);
  MovedKernel kernel{.root = piece->root};
  for (const Move& move : moves) {
    TG_ASSIGN_OR_RETURN(kernel, Apply(b, c.target(), std::move(kernel), move, CheckedOf(*piece)));
  }
  Record(moves, piece);
  return Finish(b, c.target(), std::move(kernel), CheckedOf(*piece));
}

absl::StatusOr<UOp> Stage(PassContext& c, Piece* piece) {
  return StageLoads(c.rewriter(kSimplify), piece, c.target());
}

UOp Share(PassContext& c, UOp root) { return ShareLoops(c.rewriter(kSimplify), root, c.target()); }

UOp EndByRun(PassContext& c, UOp root) { return EndLoops(c.rewriter(kSimplify), root); }

UOp Tails(PassContext& c, UOp root) { return SplitTails(c.rewriter(kSimplify), root, c.target()); }

UOp Expand(PassContext& c, UOp root) {
  return OrFail(c.graph(), ExpandRanges(c.rewriter(kSimplify), root, c.target()));
}

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

// The kernel with the unproved accesses gated. An index may come from a load that is gated itself.
UOp AddGates(Rewriter& b, UOp root, const std::vector<UOp>& unproved) {
  const absl::flat_hash_set<UOp> gated(unproved.begin(), unproved.end());
  return Rebuild(*b.graph(), root, [&](UOp u, std::vector<UOp>* src) {
    const UOp copy = WithSources(*b.graph(), u, *src);
    return gated.contains(u) ? GateOf(b, copy) : copy;
  });
}

UOp GateUnproved(PassContext& c, UOp root) {
  const auto proof = ProveBounds(*c.graph(), PostOrder(root), c.budget());
  if (!proof.ok()) return c.graph()->Fail(proof.status());
  const BoundsReport& bounds = *proof;
  c.Count(kAccessesProved, bounds.stats.proved);
  c.Count(kAccessesGated, bounds.stats.gated);
  c.Count(kAccessesByData, bounds.stats.data_dependent);
  return bounds.unproved.empty() ? root : AddGates(c.rewriter(kSimplify), root, bounds.unproved);
}

UOp Narrow(PassContext& c, UOp root) {
  if (c.target().index_bits == 64) return root;
  return OrFail(c.graph(), NarrowIndices(c.graph(), root, c.budget()));
}

// Only what the order needs, in a graph of its own. An AFTER of a whole nest becomes one of the END
// that closes the nest's outermost range. So those of several nests in the same loops are one.
Program Compact(Graph* from, const std::vector<uint32_t>& order, std::string name) {
  auto graph = std::make_shared<Graph>();
  Program program;
  program.name = std::move(name);
  NodeMap<uint32_t> copied(*from);
  absl::flat_hash_set<uint32_t> placed;
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
    if (placed.insert(copy.id()).second) program.order.push_back(copy.id());
  }
  program.graph = std::move(graph);
  return program;
}

// Null for private memory.
Program::Argument* ArgumentOf(UOp address, Program* program) {
  UOp buffer = address.src(0);
  while (buffer.is(Op::kAfter)) buffer = buffer.src(0);
  return buffer.is(Op::kParam) ? &program->arguments[buffer.slot()] : nullptr;
}

// Counts the program's work and marks what it does with its arguments. Of an argument no more bytes
// count than its accesses can touch: a gather of a few rows does not move the whole table. `most`:
// elements of the first arguments that its kernel touches. Indices are no work: integers as wide as
// those that are computed from loops alone.
void CountWork(const Target& target, std::span<const double> most, Program* program) {
  const DType index = target.index_bits == 32 ? DType::kInt32 : DType::kInt64;
  NodeMap<bool> loaded(*program->graph, false);  // whether the value is computed from a loaded one
  double iterations = 1;
  std::vector<double> outer;
  std::vector<double> touched(program->arguments.size(), 0);  // elements
  for (uint32_t id : program->order) {
    const UOp u = program->graph->at(id);
    loaded[id] = u.is(Op::kLoad) ||
                 std::ranges::any_of(u.src_ids(), [&](uint32_t s) { return loaded.at(s); });
    if (u.is(Op::kRange)) {
      outer.push_back(iterations);
      iterations *= static_cast<double>(std::max<int64_t>(u.src(0).vmax(), 0));
      const AxisType type = u.axis_type();
      if (type == AxisType::kThread || type == AxisType::kGroup) {
        program->iterations *= std::max<int64_t>(u.src(0).vmax(), 0);
      }
    } else if (u.is(Op::kEnd)) {
      iterations = outer.back();
      outer.pop_back();
    } else if (Is(u.op(), kAlu) && u.dtype() != DType::kInt64 && !IsBool(u.dtype()) &&
               (u.dtype() != index || loaded[id])) {
      const double operations = u.is(Op::kDot4) ? 8 : u.is(Op::kMulAcc) ? 2 : 1;
      program->flops += iterations * operations * static_cast<double>(NumElements(u.shape()));
    } else if (u.is(Op::kMma)) {
      const MmaInfo& mma = u.mma();
      program->flops += iterations * 2 * mma.m * mma.n * mma.k / mma.threads;
    } else if (u.is(Op::kLoad) || u.is(Op::kStore) || u.is(Op::kCopyAsync)) {
      const bool copies = u.is(Op::kCopyAsync);
      Program::Argument* const a = ArgumentOf(u.src(copies ? 1 : 0), program);
      if (a == nullptr) continue;
      (u.is(Op::kStore) ? a->written : a->read) = true;
      const int64_t elements =
          copies ? u.box_rows() * u.box_columns() : NumElements(u.src(0).shape());
      touched[static_cast<size_t>(a - program->arguments.data())] +=
          iterations * static_cast<double>(elements);
    }
  }
  for (size_t i = 0; i < touched.size(); ++i) {
    const Program::Argument& a = program->arguments[i];
    const auto bytes = static_cast<double>(BytesOf(a.dtype, a.elements));
    const double elements = i < most.size() ? std::min(most[i], touched[i]) : touched[i];
    program->bytes += std::min(bytes, elements * static_cast<double>(BytesOf(a.dtype, 1)));
  }
}

absl::StatusOr<Program> LinearizeKernel(PassContext& c, const Piece& piece) {
  TG_ASSIGN_OR_RETURN(const std::vector<uint32_t> order, Linearize(c.graph(), piece.root));
  Program program = Compact(c.graph(), order, piece.name);
  TG_RETURN_IF_ERROR(c.graph()->status());
  TG_RETURN_IF_ERROR(program.graph->status());
  program.arguments = piece.arguments;
  program.packings = piece.packings;
  program.warp = c.target().warp;
  program.moves = piece.moves;
  CountWork(c.target(), piece.touched, &program);
  return program;
}

constexpr uint8_t kBetween = kKernelLevel | kProgramLevel;

constexpr PassRow kPasses[] = {
    {"derive", "computes what depends on several elements of a weight once for many runs",
     kKernelLevel, kKernelLevel, kSimplify, PiecePass{Derive}},
    {"windows",
     "loops over the few iterations, from a place that the run gives on, that a gate leaves",
     kKernelLevel, kKernelLevel, kSimplify, GraphPass{Windows}},
    {"gated-indices", "divides no index by what its gate says is above it", kKernelLevel,
     kKernelLevel, kSimplify, GraphPass{GatedIndices}},
    {"limit", "ends loops over a row where a mask hides the rest of the row", kKernelLevel,
     kKernelLevel, kSimplify, GraphPass{Limit}},
    {"online", "reduces rows of scores in one loop over blocks of them", kKernelLevel, kKernelLevel,
     kSimplify, GraphPass{Online}},
    {"decompose", "simplifies, and replaces ops that the target lacks by ops that it has",
     kKernelLevel, kKernelLevel, kDecompose, GraphPass{Decompose}},
    {"separate-ranges",
     "gives each reduction separate ranges, except where several share one loop",
     kKernelLevel,
     kKernelLevel,
     {},
     GraphPass{Separate}},
    {"order-sums", "makes a fixed number of partial sums where the order of sums is fixed",
     kKernelLevel, kKernelLevel, kSimplify, GraphPass{Order}},
    {"split-ranges", "splits a range that an index divides, so that vectors can use it",
     kKernelLevel, kKernelLevel, kSimplify, GraphPass{Split}},
    {"pieces", "makes a loop of each piece of a range by which a value selects", kKernelLevel,
     kKernelLevel, kSimplify, GraphPass{Pieces}},
    {"merge-ranges", "merges neighbouring ranges that every access traverses as one", kKernelLevel,
     kKernelLevel, kSimplify, GraphPass{Merge}},
    {"peel",
     "makes the remainder of a reduction or a loop a separate one; joins ranges of products",
     kKernelLevel, kKernelLevel, kSimplify, PiecePass{PeelAndJoin}},
    {"moves", "splits ranges for the target's vectors, registers and threads", kKernelLevel,
     kKernelLevel, kSimplify, PiecePass{MoveRanges}},
    {"stage", "copies operands that a tile reads repeatedly; packed weights once for many runs",
     kKernelLevel, kKernelLevel, kSimplify, PiecePass{Stage}},
    {"share", "shares more loops among threads where the iterations are long", kKernelLevel,
     kKernelLevel, kSimplify, GraphPass{Share}},
    {"runtime-ends", "ends loops where a number that the run gives says that all is done",
     kKernelLevel, kKernelLevel, kSimplify, GraphPass{EndByRun}},
    {"runtime-tails", "makes whole tiles without gates, and a tail, of loops that the run ends",
     kKernelLevel, kKernelLevel, kSimplify, GraphPass{Tails}},
    {"inner-loops", "makes a loop of each piece of a range outside of it by which a value selects",
     kKernelLevel, kKernelLevel, kSimplify, GraphPass{InnerLoops}},
    {"expand", "replicates ranges that are not loops; reductions become accumulators", kKernelLevel,
     kBetween, kSimplify, GraphPass{Expand}},
    {"gate", "adds a run-time check to each access that is not proved inside its buffer", kBetween,
     kBetween, kSimplify, GraphPass{GateUnproved}},
    {"narrow-indices",
     "computes indices in 32 bits where they fit, on targets that are faster so",
     kBetween,
     kBetween,
     {},
     GraphPass{Narrow}},
    {"linearize",
     "puts the nodes into execution order",
     kBetween,
     kProgramLevel,
     {},
     LinearPass{LinearizeKernel}},
    {"prove",
     "fails unless each access is inside its buffer and parallel iterations are independent",
     kProgramLevel,
     kProgramLevel,
     {},
     CheckPass{Prove}},
};

}  // namespace

std::span<const PassRow> LoweringPasses() { return kPasses; }

namespace {

// By argument, as many elements as its addresses have values: one for each iteration of the ranges
// that an address depends on. Empty: the kernel has too many ranges.
std::vector<double> TouchedElements(UOp kernel, size_t arguments) {
  const Graph& g = *kernel.graph();
  const std::vector<uint32_t> order = PostOrder(kernel);
  std::vector<uint64_t> ranges(kernel.id() + 1, 0);  // that a node depends on
  std::vector<double> sizes;
  std::vector<double> elements(arguments, 0);
  for (const uint32_t id : order) {
    const UOp u = g.at(id);
    if (u.is(Op::kRange)) {
      if (sizes.size() == 64) return {};
      ranges[id] = uint64_t{1} << sizes.size();
      sizes.push_back(static_cast<double>(std::max<int64_t>(u.src(0).vmax(), 0)));
      continue;
    }
    const size_t values = u.is(Op::kReduce) ? 1 : u.src_ids().size();
    for (size_t i = 0; i < values; ++i) ranges[id] |= ranges[u.src_ids()[i]];
    for (size_t i = values; i < u.src_ids().size(); ++i) ranges[id] &= ~ranges[u.src_ids()[i]];
    if (!u.is(Op::kIndex)) continue;
    UOp buffer = u.src(0);
    while (buffer.is(Op::kAfter)) buffer = buffer.src(0);
    if (!buffer.is(Op::kParam)) continue;
    double count = 1;
    for (uint64_t set = ranges[u.src(1).id()]; set != 0; set &= set - 1) {
      count *= sizes[static_cast<size_t>(std::countr_zero(set))];
    }
    elements[static_cast<size_t>(buffer.slot())] += count;
  }
  return elements;
}

}  // namespace

Piece KernelPiece(const FrozenGraph& kernel, std::string name, std::span<const int32_t> weights,
                  std::span<const int32_t> results, Budget* budget) {
  Piece piece;
  piece.name = std::move(name);
  piece.graph = std::make_shared<Graph>();
  piece.graph->LimitSize(budget);
  piece.root = CopyLive(kernel.root(), piece.graph.get());
  piece.arguments = KernelArguments(kernel.root());
  piece.touched = TouchedElements(piece.root, piece.arguments.size());
  MarkWeights(weights, &piece.arguments);
  MarkResults(results, &piece.arguments);
  piece.levels = kKernelLevel;
  return piece;
}

std::vector<Program::Argument> KernelArguments(UOp kernel) {
  std::vector<Program::Argument> arguments;
  for (uint32_t id : PostOrder(kernel)) {
    const UOp u = kernel.graph()->at(id);
    if (!u.is(Op::kParam)) continue;
    const auto slot = static_cast<size_t>(u.slot());
    if (arguments.size() <= slot) arguments.resize(slot + 1);
    arguments[slot].dtype = u.dtype();
    arguments[slot].elements = NumElements(u.shape());
  }
  return arguments;
}

namespace {

void Mark(std::span<const int32_t> slots, bool Program::Argument::* kind,
          std::vector<Program::Argument>* arguments) {
  for (const int32_t slot : slots) {
    if (static_cast<size_t>(slot) < arguments->size()) (*arguments)[slot].*kind = true;
  }
}

}  // namespace

void MarkWeights(std::span<const int32_t> slots, std::vector<Program::Argument>* arguments) {
  Mark(slots, &Program::Argument::weight, arguments);
}

void MarkResults(std::span<const int32_t> slots, std::vector<Program::Argument>* arguments) {
  Mark(slots, &Program::Argument::result, arguments);
}

}  // namespace telegrad
