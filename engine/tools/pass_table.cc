#include "engine/tools/pass_table.h"

#include <map>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "engine/execution/unread_parts.h"
#include "engine/lowering/passes.h"
#include "engine/rewrite/generalize.h"
#include "engine/rewrite/rule.h"
#include "engine/rules/algebra.h"
#include "engine/rules/decompositions.h"
#include "engine/rules/divmod.h"
#include "engine/rules/emulation.h"
#include "engine/schedule/graph_steps.h"
#include "engine/schedule/legalize.h"
#include "engine/schedule/schedule.h"

namespace telegrad {
namespace {

constexpr const RuleTable* kSimplify[] = {&kAlgebra, &kDivMod};
constexpr const RuleTable* kOnlyAlgebra[] = {&kAlgebra};
constexpr const RuleTable* kOnlyDivMod[] = {&kDivMod};
constexpr const RuleTable* kOnlyDecompositions[] = {&kDecompositions};
constexpr const RuleTable* kOnlyMulAcc[] = {&kMulAcc};
constexpr const RuleTable* kOnlyStrength[] = {&kStrength};

// Equal nodes are one node in any graph; a copy also drops what the root does not need.
absl::StatusOr<std::vector<Piece>> Canonicalize(PassContext&, const Piece& piece) {
  Piece out = piece;
  out.graph = std::make_shared<Graph>();
  out.root = CopyLive(piece.root, out.graph.get());
  TG_RETURN_IF_ERROR(out.graph->status());
  return std::vector<Piece>{std::move(out)};
}

Piece With(Piece piece, const FrozenGraph& graph) {
  piece.graph = std::make_shared<Graph>();
  piece.root = CopyLive(graph.root(), piece.graph.get());
  return piece;
}

// The values of the variables are in one more slot, as in executables.
absl::StatusOr<std::vector<Piece>> ForAllValues(PassContext& c, const Piece& piece) {
  TG_ASSIGN_OR_RETURN(const GeneralForm form,
                      Generalize(piece.root, RangesOf(piece.root), c.budget()));
  return std::vector<Piece>{With(piece, form.graph)};
}

absl::StatusOr<std::vector<Piece>> LegalizePiece(PassContext& c, const Piece& piece) {
  TG_ASSIGN_OR_RETURN(const FrozenGraph graph, Legalize(piece.root, {}, c.budget()));
  return std::vector<Piece>{With(piece, graph)};
}

// The kernels of a graph. The pass `schedule` is this after all steps.
absl::StatusOr<std::vector<Piece>> SplitIntoKernels(PassContext& c, const Piece& piece) {
  TG_ASSIGN_OR_RETURN(FrozenGraph legal, Legalize(piece.root, {}, c.budget()));
  TG_ASSIGN_OR_RETURN(Schedule schedule,
                      ScheduleKernels(legal, c.budget(), ScheduleOptions::For(c.target())));
  LeaveOutUnread(&schedule);
  std::vector<Piece> kernels;
  for (const ScheduledKernel& scheduled : schedule.kernels) {
    Piece& kernel = kernels.emplace_back();
    kernel.name = StrCat("kernel", kernels.size() - 1);
    kernel.note = absl::StrJoin(scheduled.reasons, "; ");
    kernel.graph = std::make_shared<Graph>();
    kernel.root = CopyLive(scheduled.graph.root(), kernel.graph.get());
    kernel.arguments = KernelArguments(kernel.root);
    MarkWeights(scheduled.weights, &kernel.arguments);
    MarkResults(scheduled.results, &kernel.arguments);
    for (const BufferRef& ref : scheduled.arguments) {
      const bool slot = ref.kind == BufferRef::Kind::kSlot;
      kernel.bindings.push_back(StrCat(slot ? "slot" : "temporary", ref.index));
    }
  }
  return kernels;
}

// What a step of the scheduler makes of the whole piece, legalized first.
template <size_t kStep>
absl::StatusOr<std::vector<Piece>> OneStep(PassContext& c, const Piece& piece) {
  TG_ASSIGN_OR_RETURN(FrozenGraph graph, Legalize(piece.root, {}, c.budget()));
  TG_ASSIGN_OR_RETURN(graph, RunGraphSteps(std::move(graph), GraphSteps().subspan(kStep, 1),
                                           ScheduleOptions::For(c.target()), c.budget()));
  return std::vector<Piece>{With(piece, graph)};
}

constexpr uint8_t kGraphs = kTensorLevel | kKernelLevel;

constexpr PassRow kOwnPasses[] = {
    {"canonicalize",
     "copies the live nodes into a new graph, which merges equal nodes",
     kTensorLevel | kKernelLevel | kProgramLevel,
     kTensorLevel | kKernelLevel | kProgramLevel,
     {},
     SplitPass{Canonicalize}},
    {"simplify", "applies the rules with which every stage builds nodes", kGraphs, kGraphs,
     kSimplify, Sweep{}},
    {"algebra", "applies identities of elementwise ops", kGraphs, kGraphs, kOnlyAlgebra, Sweep{}},
    {"divmod", "simplifies index arithmetic: sums, division, remainder, comparison", kGraphs,
     kGraphs, kOnlyDivMod, Sweep{}},
    {"decompositions", "expresses ops that targets lack by ops that they have", kKernelLevel,
     kKernelLevel, kOnlyDecompositions, Sweep{}},
    {"mulacc", "fuses x * y + z into one op that rounds once", kKernelLevel, kKernelLevel,
     kOnlyMulAcc, Sweep{}},
    {"strength", "turns division by powers of two into shift and mask", kKernelLevel, kKernelLevel,
     kOnlyStrength, Sweep{}},
    {"generalize",
     "makes one graph of all values of the variables, which it reads from one more slot",
     kTensorLevel,
     kTensorLevel,
     {},
     SplitPass{ForAllValues}},
};

// A function for each step that there may be, because a pass is a function and no object.
template <size_t... kStep>
std::vector<PassRow> MakeStepRows(std::index_sequence<kStep...>) {
  constexpr SplitPass kRun[] = {OneStep<kStep>...};
  std::vector<PassRow> rows;
  for (const GraphStep& step : GraphSteps()) {
    rows.push_back({step.name, step.what, kTensorLevel, kTensorLevel, {}, kRun[rows.size()]});
  }
  return rows;
}

// The steps of the scheduler; the last one makes kernels.
const std::vector<PassRow>& ScheduleRows() {
  static const auto* const table = [] {
    auto* rows = new std::vector<PassRow>{{"legalize",
                                           "expresses what clients send by fewer ops",
                                           kTensorLevel,
                                           kTensorLevel,
                                           {},
                                           SplitPass{LegalizePiece}}};
    const auto steps = MakeStepRows(std::make_index_sequence<kMostGraphSteps>());
    rows->insert(rows->end(), steps.begin(), steps.end());
    rows->push_back({"kernels",
                     "splits a tensor graph into kernels",
                     kTensorLevel,
                     kKernelLevel,
                     {},
                     SplitPass{SplitIntoKernels}});
    return rows;
  }();
  return *table;
}

const std::vector<PassRow>& Table() {
  static const auto* const table = [] {
    auto* rows = new std::vector<PassRow>(std::begin(kOwnPasses), std::end(kOwnPasses));
    rows->insert(rows->end(), ScheduleRows().begin(), ScheduleRows().end());
    rows->insert(rows->end(), LoweringPasses().begin(), LoweringPasses().end());
    return rows;
  }();
  return *table;
}

}  // namespace

std::span<const PassRow> AllPasses() { return Table(); }

std::span<const PassGroup> AllPassGroups() {
  static const PassGroup groups[] = {
      {"schedule", "all of scheduling: from a tensor graph to kernels", ScheduleRows()},
      {"lower", "all of lowering: from a kernel to a proved program", LoweringPasses()}};
  return groups;
}

std::span<const RuleTable* const> AllRuleTables() {
  static const auto* const tables = [] {
    auto* all = new std::vector<const RuleTable*>{&kAlgebra, &kDivMod, &kDecompositions, &kMulAcc,
                                                  &kStrength};
    // Those of a target that computes in no narrow type: all of them.
    const std::vector<const RuleTable*> emulation = EmulationTables(Target());
    all->insert(all->end(), emulation.begin(), emulation.end());
    return all;
  }();
  return *tables;
}

absl::StatusOr<std::vector<PassRow>> FindPasses(std::string_view list) {
  std::vector<PassRow> passes;
  for (const absl::string_view part : absl::StrSplit(ToAbsl(list), ',', absl::SkipWhitespace())) {
    const std::string_view name = ToStd(absl::StripAsciiWhitespace(part));
    const size_t before = passes.size();
    for (const PassRow& row : AllPasses()) {
      if (row.name == name) passes.push_back(row);
    }
    for (const PassGroup& group : AllPassGroups()) {
      if (group.name == name) passes.insert(passes.end(), group.passes.begin(), group.passes.end());
    }
    if (passes.size() == before)
      return InvalidArgument("there is no pass \"", name, "\"; see --list");
  }
  return passes;
}

std::string ListPasses() {
  static constexpr std::string_view kWalks[] = {"sweep", "function", "piece",
                                                "split", "linear",   "check"};
  static_assert(std::size(kWalks) == std::variant_size_v<decltype(PassRow::run)>);
  std::string text = "Passes (levels, walk: what):\n";
  for (const PassRow& row : AllPasses()) {
    StrAppend(&text, "  ", row.name, " (", LevelNames(row.from));
    if (row.to != row.from) StrAppend(&text, " -> ", LevelNames(row.to));
    StrAppend(&text, ", ", kWalks[row.run.index()], "): ", row.what, "\n");
    if (row.tables.empty()) continue;
    text += "      tables:";
    for (const RuleTable* table : row.tables) StrAppend(&text, " ", table->name());
    text += "\n";
  }
  text += "Groups:\n";
  for (const PassGroup& group : AllPassGroups()) {
    StrAppend(&text, "  ", group.name, ": ", group.what, "\n      passes:");
    for (const PassRow& row : group.passes) StrAppend(&text, " ", row.name);
    text += "\n";
  }
  text += "Rule tables:\n";
  // Tables that are made for several types share their name.
  std::map<std::string_view, std::pair<std::string_view, size_t>> tables;
  for (const RuleTable* table : AllRuleTables()) {
    auto& [file, rules] = tables[table->name()];
    file = table->file();
    rules += table->rules().size();
  }
  for (const auto& [name, value] : tables) {
    StrAppend(&text, "  ", name, ": ", value.first, ", rules: ", value.second, "\n");
  }
  return text;
}

}  // namespace telegrad
