#include "engine/lowering/choose/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/lowering/choose/candidates.h"
#include "engine/lowering/lower.h"

namespace telegrad {
namespace {

constexpr int kDuels = 5;          // measurements in turns at the end
constexpr double kHopeless = 1.5;  // times the best: measured no longer than to see that
// Of an iteration of the loop by which a launch is cut into slices: what others may wait for.
constexpr double kUnitSeconds = 1e-3;

struct Measured {
  MoveList moves;
  double seconds = 0;
};

class Searcher {
 public:
  Searcher(const FrozenGraph& kernel, const Target& target, std::span<const int32_t> weights,
           Measure& measure, const SearchOptions& options, Budget* budget)
      : kernel_(kernel),
        target_(target),
        weights_(weights),
        measure_(measure),
        options_(options),
        budget_(budget),
        end_(std::chrono::steady_clock::now() +
             std::chrono::duration_cast<std::chrono::nanoseconds>(
                 std::chrono::duration<double>(options.seconds))) {}

  absl::StatusOr<SearchResult> Run() {
    TG_RETURN_IF_ERROR(Heuristic());
    TG_RETURN_IF_ERROR(First());
    for (; !Over(); ++result_.rounds) {
      const double before = beam_.front().seconds;
      TG_RETURN_IF_ERROR(Round());
      if (beam_.front().seconds > before * (1 - options_.least_gain / 3)) {
        ++result_.rounds;
        break;
      }
    }
    TG_RETURN_IF_ERROR(Confirm());
    return std::move(result_);
  }

 private:
  bool Over() const {
    return std::chrono::steady_clock::now() >= end_ || result_.measured >= options_.most_measured;
  }

  // Of one list, nodes and bytes are counted anew: a search may lower hundreds.
  absl::StatusOr<Program> Lowered(const std::optional<MoveList>& moves, Budget* own) const {
    PassOptions options;
    options.weights = weights_;
    if (moves) options.moves = Print(*moves);
    return Lower(kernel_, target_, "k_search", own, nullptr, options);
  }

  absl::Status Heuristic() {
    Budget own(budget_->limits());
    own.SetShare(budget_->share());
    TG_ASSIGN_OR_RETURN(const Program program, Lowered(std::nullopt, &own));
    TG_ASSIGN_OR_RETURN(result_.heuristic, ParseMoves(program.moves));
    TG_ASSIGN_OR_RETURN(result_.heuristic_seconds, measure_.Seconds(program, HUGE_VAL, &own));
    heuristic_iterations_ = program.iterations;
    budget_->Worked(own.worked_ns());
    ++result_.measured;
    tried_.insert(program.moves);
    beam_ = {{result_.heuristic, result_.heuristic_seconds}};
    Report();
    return absl::OkStatus();
  }

  // Measures a list that was not measured before, and keeps it if it is among the fastest.
  absl::Status Try(const MoveList& moves) {
    if (!tried_.insert(Print(moves)).second) return absl::OkStatus();
    TG_RETURN_IF_ERROR(budget_->CheckTime());
    TG_ASSIGN_OR_RETURN(const std::optional<double> seconds,
                        SecondsOf(moves, beam_.front().seconds * kHopeless));
    if (!seconds) return absl::OkStatus();
    const auto at = std::ranges::upper_bound(beam_, *seconds, {}, &Measured::seconds);
    const bool best = at == beam_.begin();
    beam_.insert(at, {moves, *seconds});
    if (std::ssize(beam_) > options_.width) beam_.pop_back();
    if (best) Report();
    return absl::OkStatus();
  }

  // nullopt: the program cannot be made or run.
  absl::StatusOr<std::optional<double>> SecondsOf(const MoveList& moves, double at_most) {
    Budget own(budget_->limits());
    own.SetShare(budget_->share());
    const auto program = Lowered(moves, &own);
    const absl::StatusOr<double> seconds = program.ok() ? measure_.Seconds(*program, at_most, &own)
                                                        : absl::StatusOr<double>(program.status());
    budget_->Worked(own.worked_ns());
    ++result_.measured;
    if (seconds.ok() && MayBeShared(*program, *seconds)) return *seconds;
    TG_RETURN_IF_ERROR(budget_->CheckTime());
    if (absl::IsCancelled(seconds.status())) return seconds.status();
    ++result_.refused;
    return std::nullopt;
  }

  // Whether a launch can be shared by threads and cut into slices as well as the heuristic's. A
  // machine that is busy with something else would make programs of one thread look good.
  bool MayBeShared(const Program& program, double seconds) const {
    if (program.iterations >= heuristic_iterations_) return true;
    const double unit = seconds * target_.threads / static_cast<double>(program.iterations);
    return program.iterations >= target_.threads && unit <= kUnitSeconds;
  }

  absl::Status First() {
    Budget own(budget_->limits());
    own.SetShare(budget_->share());
    TG_ASSIGN_OR_RETURN(MoveSpace space, MoveSpace::Open(kernel_, target_, weights_, &own));
    for (const Candidate& c : FirstCandidates(space, static_cast<size_t>(options_.first))) {
      if (Over()) break;
      TG_RETURN_IF_ERROR(Try(c.moves));
    }
    return absl::OkStatus();
  }

  absl::Status Round() {
    const std::vector<Measured> from = beam_;
    for (const Measured& m : from) {
      Budget own(budget_->limits());
      own.SetShare(budget_->share());
      TG_ASSIGN_OR_RETURN(MoveSpace space, MoveSpace::Open(kernel_, target_, weights_, &own));
      int left = options_.neighbours;
      for (const Candidate& c : Neighbours(space, m.moves)) {
        if (left == 0 || Over()) break;
        if (tried_.contains(Print(c.moves))) continue;
        --left;
        TG_RETURN_IF_ERROR(Try(c.moves));
      }
    }
    return absl::OkStatus();
  }

  // Clocks, caches and neighbours on the machine change: only what is faster in turns counts.
  absl::Status Confirm() {
    result_.best = result_.heuristic;
    result_.best_seconds = result_.heuristic_seconds;
    const Measured winner = beam_.front();
    if (winner.moves == result_.heuristic) return absl::OkStatus();
    std::vector<double> heuristic, best;
    for (int i = 0; i < kDuels; ++i) {
      TG_ASSIGN_OR_RETURN(const auto h, SecondsOf(result_.heuristic, HUGE_VAL));
      TG_ASSIGN_OR_RETURN(const auto b, SecondsOf(winner.moves, HUGE_VAL));
      if (!h || !b) return absl::OkStatus();
      heuristic.push_back(*h);
      best.push_back(*b);
    }
    std::ranges::sort(heuristic);
    std::ranges::sort(best);
    result_.heuristic_seconds = result_.best_seconds = heuristic[kDuels / 2];
    if (best[kDuels / 2] > heuristic[kDuels / 2] * (1 - options_.least_gain)) {
      return absl::OkStatus();
    }
    result_.best = winner.moves;
    result_.best_seconds = best[kDuels / 2];
    return absl::OkStatus();
  }

  void Report() const {
    if (!options_.progress) return;
    options_.progress({result_.rounds, result_.measured, result_.heuristic_seconds,
                       beam_.front().seconds, &beam_.front().moves});
  }

  const FrozenGraph& kernel_;
  const Target& target_;
  const std::span<const int32_t> weights_;
  Measure& measure_;
  const SearchOptions& options_;
  Budget* const budget_;
  const std::chrono::steady_clock::time_point end_;
  SearchResult result_;
  int64_t heuristic_iterations_ = 1;  // of its program's shared loop
  std::vector<Measured> beam_;        // the fastest first; never empty after Heuristic
  std::set<std::string> tried_;       // lists
};

}  // namespace

absl::StatusOr<SearchResult> SearchMoves(const FrozenGraph& kernel, const Target& target,
                                         std::span<const int32_t> weights, Measure& measure,
                                         const SearchOptions& options, Budget* budget) {
  const Budget::Doing doing(budget, "searching for moves");
  return Searcher(kernel, target, weights, measure, options, budget).Run();
}

}  // namespace telegrad
