// A panel is the part of a copy that the load reads during one iteration of the innermost loop,
// other than those of reductions, whose range its index has. The prefetches of the next panel are
// divided equally among all iterations of the loops inside of that loop, the reduction's included,
// so that no reduction waits for them and each byte is prefetched once.
#include "engine/render/fetch_ahead.h"

#include <algorithm>
#include <ranges>

#include "engine/render/lane_offsets.h"
#include "engine/rules/linear.h"
#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

constexpr int64_t kPanels = 4;  // that a cache has room for: this, the next, and other operands
// Of a copy: from the second one on, it often lies in some cache.
constexpr double kMaxPasses = 16;
constexpr int64_t kMaxIterations = int64_t{1} << 40;

bool IsFold(UOp range) { return range.axis_type() == AxisType::kReduce; }

// The first lane's index.
std::optional<Linear> FormOf(UOp index) {
  if (index.shape().empty()) return Linear::Of(index);
  const std::optional<LaneOffsets> split = SplitLanes(index);
  if (!split) return std::nullopt;
  Linear form(index.dtype(), split->constant);
  for (const auto& [scalar, factor] : split->terms) {
    const std::optional<Linear> term = Linear::Of(scalar);
    if (!term || !form.AddScaled(*term, factor)) return std::nullopt;
  }
  return form;
}

int64_t CoefficientOf(UOp range, const Linear& form) {
  const auto term = std::ranges::find(form.terms(), range, &Linear::Term::atom);
  return term == form.terms().end() ? 0 : term->coefficient;
}

bool MultiplyBy(UOp range, int64_t* iterations) {
  if (!range.src(0).is_const()) return false;
  const int64_t size = std::max<int64_t>(1, range.src(0).const_word());
  if (size > kMaxIterations / *iterations) return false;
  *iterations *= size;
  return true;
}

// Rows that lie at least so far apart do not look contiguous to a processor.
constexpr int64_t kLeastRowBytes = 512;
// Of a loop over rows; over blocks of rows, the next one is far enough.
constexpr int64_t kRowsAhead = 16;
// Of each row of a tile: more are contiguous to a processor.
constexpr int64_t kMaxTileLines = 8;
// Of an argument: the cache next to a core has a smaller one after the first tiles.
constexpr int64_t kLeastFarBytes = 64 << 10;

bool SameTerms(const Linear& a, const Linear& b) {
  const auto same = [](const Linear::Term& x, const Linear::Term& y) {
    return x.atom == y.atom && x.coefficient == y.coefficient;
  };
  return std::ranges::equal(a.terms(), b.terms(), same);
}

// How many elements a tile reads of its row, from `*before` ones before the one at hand, as far as
// they are near it: the constant of an index behind a gate may be anything.
int64_t RowOfTile(const Linear& form, std::span<const UOp> others, int64_t most, int64_t* before) {
  int64_t last = 0;
  *before = 0;
  for (const UOp other : others) {
    const std::optional<Linear> there = FormOf(other);
    if (!there || !SameTerms(*there, form)) continue;
    int64_t beyond;
    if (__builtin_sub_overflow(there->constant(), form.constant(), &beyond)) continue;
    if (beyond < -most || beyond > most) continue;
    const int64_t lanes = other.shape().empty() ? 1 : other.shape()[0];
    *before = std::max(*before, -beyond);
    last = std::max(last, beyond + lanes - 1);
  }
  return *before + last + 1;
}

// How many elements around the one at hand the loads of an iteration read without a gap.
int64_t ContiguousAround(const Linear& form, int64_t own, std::span<const UOp> others) {
  std::vector<std::pair<int64_t, int64_t>> parts;  // from, and beyond the last
  for (const UOp other : others) {
    const std::optional<Linear> there = FormOf(other);
    int64_t from, to;
    if (!there || !SameTerms(*there, form) ||
        __builtin_sub_overflow(there->constant(), form.constant(), &from) ||
        __builtin_add_overflow(from, other.shape().empty() ? 1 : other.shape()[0], &to)) {
      continue;
    }
    parts.emplace_back(from, to);
  }
  std::ranges::sort(parts);
  int64_t begin = 0, end = own;
  for (const auto& [from, to] : parts) {
    if (from <= end) end = std::max(end, to);
  }
  for (const auto& [from, to] : std::views::reverse(parts)) {
    if (to >= begin) begin = std::min(begin, from);
  }
  return end - begin;
}

// Whether the loop reads on without a gap, and no more than the first-level cache keeps.
bool ReadsNearRow(const Linear& form, UOp index, std::span<const UOp> others, UOp loop,
                  int64_t element_bytes, const Target& target) {
  const int64_t lanes = index.shape().empty() ? 1 : index.shape()[0];
  int64_t row = CoefficientOf(loop, form);
  if (row < 1 || row > ContiguousAround(form, lanes, others)) return false;
  return MultiplyBy(loop, &row) && row * element_bytes <= target.first_level_bytes;
}

}  // namespace

std::optional<FetchAhead> PlanFetchAhead(UOp index, std::span<const UOp> loops, int64_t elements,
                                         int64_t element_bytes, const Target& target) {
  const bool ranges = std::ranges::all_of(loops, [](UOp loop) { return loop.is(Op::kRange); });
  if (!ranges || loops.empty() || !IsFold(loops.back())) return std::nullopt;
  const std::optional<Linear> form = FormOf(index);
  if (!form) return std::nullopt;
  FetchAhead out;
  size_t next = loops.size() - 1;  // the loop that goes on to the next panel
  int64_t inside = 1, all = 1;     // iterations
  while (IsFold(loops[next]) || CoefficientOf(loops[next], *form) == 0) {
    out.bytes.emplace_back(loops[next], inside);
    if (!MultiplyBy(loops[next], &inside) || next-- == 0) return std::nullopt;
  }
  all = inside;
  for (size_t i = 0; i <= next; ++i) {
    if (!MultiplyBy(loops[i], &all)) return std::nullopt;
  }
  const int64_t panel = CoefficientOf(loops[next], *form) * element_bytes;
  const int64_t step = panel / inside;
  if (step < 1 || panel > target.cache_bytes / kPanels) return std::nullopt;
  const double asked = static_cast<double>(all) * static_cast<double>(step);
  if (asked > kMaxPasses * static_cast<double>(elements * element_bytes)) return std::nullopt;
  for (auto& [range, factor] : out.bytes) factor *= step;
  out.lines = (step + kFetchedLineBytes - 1) / kFetchedLineBytes;
  out.constant = CoefficientOf(loops[next], *form);
  for (const Linear::Term& term : form->terms()) {
    const auto at = std::ranges::find(loops, term.atom) - loops.begin();
    if (at == std::ssize(loops)) return std::nullopt;
    if (at <= static_cast<ptrdiff_t>(next)) out.panel.emplace_back(term.atom, term.coefficient);
  }
  return out;
}

std::optional<int64_t> PlanRowAhead(UOp index, std::span<const UOp> others,
                                    std::span<const UOp> loops, int64_t elements,
                                    int64_t element_bytes, const Target& target) {
  if (loops.empty() || elements * element_bytes < target.cache_bytes / 2) return std::nullopt;
  const std::optional<Linear> form = FormOf(index);
  if (!form) return std::nullopt;
  int64_t read = index.shape().empty() ? 1 : index.shape()[0];
  for (const UOp loop : loops) {
    if (!loop.is(Op::kRange) || CoefficientOf(loop, *form) == 0 || !MultiplyBy(loop, &read)) {
      return std::nullopt;
    }
  }
  if (read > elements) return std::nullopt;  // as windows do
  if (ReadsNearRow(*form, index, others, loops.back(), element_bytes, target)) return std::nullopt;
  int64_t contiguous = 0;  // bytes that the loops inside read one after another
  for (size_t i = loops.size(); i-- > 0;) {
    if (loops[i].axis_type() == AxisType::kThread) return std::nullopt;
    const int64_t step = CoefficientOf(loops[i], *form) * element_bytes;
    int64_t trips = 1;
    if (step < 0 || !MultiplyBy(loops[i], &trips)) return std::nullopt;
    if (step >= kLeastRowBytes) {
      if (step <= contiguous) return std::nullopt;
      return CoefficientOf(loops[i], *form) * (contiguous == 0 ? kRowsAhead : 1);
    }
    contiguous = std::max(contiguous, step * trips);
  }
  return std::nullopt;
}

std::optional<int64_t> PlanStreamAhead(UOp index, std::span<const UOp> others,
                                       std::span<const UOp> loops, const StreamLoop& loop,
                                       int64_t elements, int64_t element_bytes,
                                       const Target& target) {
  if (loops.empty() || elements * element_bytes < target.cache_bytes) return std::nullopt;
  const ThreadCosts& costs = CostsOf(target).thread;
  const bool far = elements * element_bytes >= costs.result_bytes;
  if (!loop.much && (loop.first || !loop.last || !far)) return std::nullopt;
  const std::optional<Linear> form = FormOf(index);
  if (!form) return std::nullopt;
  const int64_t lanes = index.shape().empty() ? 1 : index.shape()[0];
  const int64_t step = CoefficientOf(loops.back(), *form);
  if (step < 1 || step > ContiguousAround(*form, lanes, others)) return std::nullopt;
  int64_t read = step, row = step;
  for (const UOp loop : loops) {
    if (!loop.is(Op::kRange) || CoefficientOf(loop, *form) == 0 || !MultiplyBy(loop, &read)) {
      return std::nullopt;
    }
  }
  if (read > elements || !MultiplyBy(loops.back(), &row)) return std::nullopt;
  const int64_t ahead = static_cast<int64_t>(costs.strip_bytes) / element_bytes;
  if (loop.first && loop.last) return ahead;
  if (!loop.last || loops.size() < 2 || row * element_bytes > target.cache_bytes / kPanels) {
    return std::nullopt;
  }
  const int64_t next = CoefficientOf(loops[loops.size() - 2], *form);
  return next < row ? std::nullopt : std::optional((ahead + next - 1) / next * next);
}

std::optional<TileAhead> PlanTileAhead(UOp index, std::span<const UOp> others,
                                       std::span<const UOp> loops, int64_t elements,
                                       int64_t element_bytes, const Target& target) {
  const bool ranges = std::ranges::all_of(loops, [](UOp loop) { return loop.is(Op::kRange); });
  if (!ranges || loops.empty() || !IsFold(loops.back())) return std::nullopt;
  if (elements * element_bytes < kLeastFarBytes) return std::nullopt;
  const std::optional<Linear> form = FormOf(index);
  if (!form || CoefficientOf(loops.back(), *form) < kLeastRowBytes / element_bytes) {
    return std::nullopt;
  }
  if (ReadsNearRow(*form, index, others, loops.back(), element_bytes, target)) return std::nullopt;
  int64_t passes = 1;
  size_t next = loops.size() - 1;  // the loop that goes on to the next tile
  while (IsFold(loops[next]) || CoefficientOf(loops[next], *form) == 0) {
    if (!IsFold(loops[next]) && !MultiplyBy(loops[next], &passes)) return std::nullopt;
    if (next-- == 0) return std::nullopt;
  }
  const int64_t step = CoefficientOf(loops[next], *form);
  if (step < 0 || step > elements || static_cast<double>(passes) > kMaxPasses) return std::nullopt;
  int64_t before = 0;
  const int64_t row = RowOfTile(*form, others, elements, &before);
  const int64_t fetched = std::min(step, row) * element_bytes;
  TileAhead out{.last = step - before + row - 1,
                .lines = (fetched + kFetchedLineBytes - 1) / kFetchedLineBytes};
  if (out.lines > kMaxTileLines) return std::nullopt;
  return out;
}

}  // namespace telegrad
