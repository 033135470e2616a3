// Passes are rows: a name, what the pass does, the levels it takes and gives, its rule tables, and
// how it runs. Lowering is a list of rows, and telegrad-opt runs any row alone. One runner gives
// every pass deadline and cancellation, a disable switch, timing, verification and a dump.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/ir/graph.h"
#include "engine/ir/program.h"
#include "engine/rewrite/rewriter.h"
#include "engine/types/target.h"

namespace telegrad {

using RuleTables = std::span<const RuleTable* const>;

// What the passes over one graph share. The rewriters keep what they have simplified from one pass
// to the next.
class PassContext {
 public:
  PassContext(Graph* graph, const Target& target, Budget* budget,
              Shapes shapes = Shapes::kBroadcast)
      : graph_(graph), target_(target), budget_(budget), held_(budget), shapes_(shapes) {}

  Graph* graph() { return graph_; }
  const Target& target() const { return target_; }
  Budget* budget() { return budget_; }
  // The one that applies `tables`.
  Rewriter& rewriter(RuleTables tables);
  // Receives the events of all rewriters from now on.
  void Observe(RewriteObserver* observer);

  // Counts that a pass reports besides its result: "accesses gated" 2.
  void Count(std::string_view what, int64_t n) { counters_[what] += n; }
  int64_t counter(std::string_view what) const {
    const auto it = counters_.find(what);
    return it == counters_.end() ? 0 : it->second;
  }
  const std::map<std::string_view, int64_t>& counters() const { return counters_; }

  // Charges the budget for the nodes that were made since the last call, and their memory.
  absl::Status SpendNodes();

 private:
  Graph* graph_;
  const Target& target_;
  Budget* budget_;
  Budget::Held held_;
  Shapes shapes_;
  RewriteObserver* observer_ = nullptr;
  struct Entry {
    std::vector<const RuleTable*> tables;
    std::unique_ptr<Rewriter> rewriter;
  };
  std::vector<Entry> rewriters_;
  std::map<std::string_view, int64_t> counters_;
  uint32_t spent_ = 0;  // nodes
};

// What passes work on: the root of a graph or, once it is linear, a program.
struct Piece {
  std::string name;  // a C identifier
  std::string note;  // where it comes from, for people
  std::shared_ptr<Graph> graph;
  UOp root;  // of `graph`; invalid where there is a program
  // Of a kernel: what its PARAM slots are bound to. A pass may leave one without a node.
  std::vector<Program::Argument> arguments;
  std::vector<std::string> bindings;  // the same, by name: "slot0", "temporary1"; may be empty
  std::shared_ptr<const Program> program;
  uint8_t levels = kTensorLevel;  // every node is of one of them; a program's are of kProgramLevel
  std::vector<Program::Packing> packings = {};  // of its arguments, see Program
  // Of a kernel: the list of moves that lowering is to carry out (engine/lowering/moves/move.h);
  // nullopt: it chooses one. And the moves that it has carried out.
  std::optional<std::string> given_moves = {};
  std::string moves = {};
  // Of a kernel's first arguments: the elements that it touches at most, however tiles overlap.
  std::vector<double> touched = {};
};

// The kinds of passes. Errors of those that give a UOp are in the graph's status.
struct Sweep {};  // the tables are applied once to every node, sources first
using GraphPass = UOp (*)(PassContext&, UOp root);
// Replaces the root, which is the only node that others look at, and may add arguments.
using PiecePass = absl::StatusOr<UOp> (*)(PassContext&, Piece*);
using SplitPass = absl::StatusOr<std::vector<Piece>> (*)(PassContext&, const Piece&);
using LinearPass = absl::StatusOr<Program> (*)(PassContext&, const Piece&);
using CheckPass = absl::Status (*)(PassContext&, const Program&);

struct PassRow {
  std::string_view name;
  std::string_view what;
  uint8_t from;       // Levels that the nodes it takes may be of
  uint8_t to;         // of those it gives; equal to `from`: the same as before
  RuleTables tables;  // those of the rewriter that it sweeps or builds with
  std::variant<Sweep, GraphPass, PiecePass, SplitPass, LinearPass, CheckPass> run;
};

struct PassTime {
  std::string_view name;
  std::chrono::nanoseconds time;
};

struct PassOptions {
  std::span<const std::string> disabled = {};             // names of passes that are skipped
  std::function<absl::Status(const Piece&)> verify = {};  // after every pass, if given
  std::function<void(const PassRow&, const Piece&)> dump = {};
  std::vector<PassTime>* times = nullptr;  // appended to
  // Of a kernel, the slots of its PARAMs that are weights: see Program::Argument.
  std::span<const int32_t> weights = {};
  std::span<const int32_t> results = {};  // and those that are results
  // Of a kernel, its given_moves.
  std::optional<std::string> moves = {};
};

std::string LevelNames(uint8_t levels);  // "tensor|kernel"

// The verifier of the piece's level. Between two levels, each node must belong to one of them.
absl::Status Verify(const Piece& piece);

// Runs one pass on `piece`, whose graph is the context's unless it is a program; only a SplitPass
// gives other than one piece. An error names the pass.
absl::StatusOr<std::vector<Piece>> RunPass(const PassRow& row, PassContext& context, Piece piece,
                                           const PassOptions& options);

// Runs `rows`, none of which is a SplitPass, in order.
absl::StatusOr<Piece> RunPasses(std::span<const PassRow> rows, PassContext& context, Piece piece,
                                const PassOptions& options);

}  // namespace telegrad
