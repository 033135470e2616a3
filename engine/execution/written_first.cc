// The first kernel that has a temporary as its argument fills it: a STORE without a gate, whose
// index takes as many consecutive values over the ranges of its nest as there are elements, and
// whose bounds keep it inside. The index is a sum of ranges times strides: sorted, each stride is
// the number of values that the ranges before it take.
//
// That kernel may load from it only behind the nest that fills it, and in an iteration of their
// shared loops only what that same iteration has filled: the others may be yet to come. So the
// load's index moves with the shared ranges as the STORE's does, and apart from that stays among
// the first values that the inner ranges take.
//
// Several STOREs of one nest may fill it together, each with an offset of its own and with gates
// that end its ranges earlier, as those of a tile do: what they write, range by range from the one
// with the smallest stride, must unite to all of it. They may leave gaps, as behind the rows of a
// layout that spreads them over a cache, where no load of a later kernel reads: the values that its
// index takes are united in the same way.
#include "engine/execution/written_first.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/lowering/affine.h"

namespace telegrad {
namespace {

UOp BehindOrder(UOp u) {
  while (u.is(Op::kAfter)) u = u.src(0);
  return u;
}

bool Covers(UOp index, const std::vector<UOp>& ranges, int64_t elements) {
  if (index.vmin() < 0 || index.vmax() >= elements) return false;
  std::vector<std::pair<int64_t, int64_t>> axes;  // stride, size
  for (const UOp range : ranges) {
    const std::optional<int64_t> stride = StrideOf(index, range);
    if (!stride || !range.src(0).is_const()) return false;
    if (*stride != 0) axes.emplace_back(*stride, range.src(0).const_word());
  }
  std::ranges::sort(axes);
  int64_t covered = 1;
  for (const auto& [stride, size] : axes) {
    if (stride != covered) return false;
    covered *= size;  // within the bounds of the index, which hold
  }
  return covered == elements;
}

// A nest that fills an argument: `inner` is its END within the loops that it shares with others.
struct Filling {
  UOp inner;
  UOp index;
  std::vector<UOp> shared;
  int64_t at_a_time = 1;  // elements, in one iteration of the shared loops
};

bool IsArgument(UOp address, int64_t slot) {
  const UOp buffer = BehindOrder(address.src(0));
  return buffer.is(Op::kParam) && buffer.slot() == slot;
}

std::optional<Filling> FillingOf(UOp root, int64_t slot) {
  std::vector<UOp> ranges;
  Filling out{.inner = root, .index = {}, .shared = {}};
  UOp body = root;
  for (; body.is(Op::kEnd); body = body.src(0)) {
    out.shared = ranges;  // all but those of the innermost END
    out.inner = body;
    out.at_a_time = 1;
    for (int r = 1; r < body.num_src(); ++r) {
      ranges.push_back(body.src(r));
      const UOp size = body.src(r).src(0);
      if (!size.is_const()) return std::nullopt;
      out.at_a_time *= size.const_word();
    }
  }
  if (!body.is(Op::kStore) || !IsArgument(body.src(0), slot)) return std::nullopt;
  const UOp address = body.src(0);
  const int64_t elements = NumElements(BehindOrder(address.src(0)).shape());
  if (address.num_src() != 2 || !Covers(address.src(1), ranges, elements)) return std::nullopt;
  out.index = address.src(1);
  // The inner ranges take the first values, the shared ones step over them.
  for (const UOp range : out.shared) {
    if (*StrideOf(out.index, range) < out.at_a_time) return std::nullopt;
  }
  return out;
}

// What one of several STOREs writes: `offset` plus any multiples below `counts` of the strides.
struct Strided {
  int64_t offset = 0;
  std::vector<int64_t> counts;  // by range, in ascending order of the strides
};

// Whether it is a sum of multiples of ranges: its bounds are then those at the ranges' ends.
bool IsSumOfRanges(UOp index) {
  return std::ranges::all_of(PostOrder(index), [&](uint32_t id) {
    const Op op = index.graph()->op(id);
    return op == Op::kRange || op == Op::kConst || op == Op::kAdd || op == Op::kMul;
  });
}

// Ends ranges where a gate of comparisons with constants does; false where it is anything else.
bool EndRanges(UOp gate, const std::vector<UOp>& ranges, std::vector<int64_t>* counts) {
  std::vector<UOp> stack{gate};
  while (!stack.empty()) {
    const UOp u = stack.back();
    stack.pop_back();
    if (u.is(Op::kAnd)) {
      stack.push_back(u.src(0));
      stack.push_back(u.src(1));
      continue;
    }
    if (!u.is(Op::kCmpLt) || !u.src(1).is_const() || !IsSumOfRanges(u.src(0))) return false;
    int64_t rest = u.src(1).const_word() - 1 - u.src(0).vmin();  // that may still be added
    size_t on = ranges.size();
    for (size_t r = 0; r < ranges.size(); ++r) {
      const std::optional<int64_t> stride = StrideOf(u.src(0), ranges[r]);
      if (!stride || *stride < 0 || (*stride > 0 && on < ranges.size())) return false;
      if (*stride > 0) on = r;
    }
    if (on == ranges.size() || rest < 0) return false;
    const int64_t count = rest / *StrideOf(u.src(0), ranges[on]) + 1;
    (*counts)[on] = std::min((*counts)[on], count);
  }
  return true;
}

using Intervals = std::vector<std::pair<int64_t, int64_t>>;  // begin, end

Intervals Unite(Intervals in) {
  std::ranges::sort(in);
  Intervals out;
  for (const auto& [begin, end] : in) {
    if (!out.empty() && begin <= out.back().second) {
      out.back().second = std::max(out.back().second, end);
    } else {
      out.emplace_back(begin, end);
    }
  }
  return out;
}

// What all of them take, with one range after another; nullopt: too much to find out.
std::optional<Intervals> UnionOf(const std::vector<Strided>& all,
                                 const std::vector<int64_t>& strides) {
  constexpr int64_t kMostIntervals = 1 << 14;
  std::map<std::vector<int64_t>, Intervals> by_rest;  // by the counts of the ranges to come
  for (const Strided& s : all) by_rest[s.counts].emplace_back(s.offset, s.offset + 1);
  for (const int64_t stride : strides) {
    std::map<std::vector<int64_t>, Intervals> next;
    for (auto& [counts, intervals] : by_rest) {
      const int64_t count = counts.front();
      Intervals& to = next[std::vector<int64_t>(counts.begin() + 1, counts.end())];
      for (const auto& [begin, end] : Unite(std::move(intervals))) {
        if (end - begin >= stride) {
          to.emplace_back(begin, end + (count - 1) * stride);
          continue;
        }
        if (count + std::ssize(to) > kMostIntervals) return std::nullopt;
        for (int64_t i = 0; i < count; ++i) to.emplace_back(begin + i * stride, end + i * stride);
      }
    }
    by_rest = std::move(next);
  }
  return Unite(std::move(by_rest.begin()->second));
}

// The values of a sum of ranges with positive strides.
std::optional<Intervals> ValuesOf(UOp index) {
  if (index.vmin() < 0 || !IsSumOfRanges(index)) return std::nullopt;
  std::vector<std::pair<int64_t, int64_t>> axes;  // stride, count
  for (uint32_t id : PostOrder(index)) {
    const UOp range = index.graph()->at(id);
    if (!range.is(Op::kRange)) continue;
    const std::optional<int64_t> stride = StrideOf(index, range);
    if (!stride || *stride <= 0 || !range.src(0).is_const()) return std::nullopt;
    axes.emplace_back(*stride, range.src(0).const_word());
  }
  std::ranges::sort(axes);
  Strided values{.offset = index.vmin(), .counts = {}};
  std::vector<int64_t> strides;
  for (const auto& [stride, count] : axes) {
    strides.push_back(stride);
    values.counts.push_back(count);
  }
  return UnionOf({values}, strides);
}

// Of intervals as Unite leaves them: in order, and apart from each other.
bool IsWithin(const Intervals& part, const Intervals& all) {
  auto around = all.begin();
  return std::ranges::all_of(part, [&](const auto& p) {
    while (around != all.end() && around->second < p.second) ++around;
    return around != all.end() && around->first <= p.first;
  });
}

// What the STOREs to the slot, which nothing loads from, write of it between them; nullopt where
// that is not known.
std::optional<Intervals> FillTogether(UOp kernel, int64_t slot) {
  std::vector<UOp> ranges;
  std::vector<int64_t> strides, order;
  std::vector<Strided> stores;
  for (int i = 0; i < kernel.num_src(); ++i) {
    UOp body = kernel.src(i);
    std::vector<UOp> own;
    for (; body.is(Op::kEnd); body = body.src(0)) {
      for (int r = 1; r < body.num_src(); ++r) own.push_back(body.src(r));
    }
    if (!body.is(Op::kStore) || !IsArgument(body.src(0), slot)) continue;
    const UOp address = body.src(0), index = address.src(1);
    std::vector<int64_t> steps, counts;
    for (const UOp range : own) {
      const std::optional<int64_t> stride = StrideOf(index, range);
      if (!stride || *stride <= 0 || !range.src(0).is_const()) return std::nullopt;
      steps.push_back(*stride);
      counts.push_back(range.src(0).const_word());
    }
    if (stores.empty()) {
      ranges = own;
      strides = steps;
    }
    // Its smallest value is at the beginning of all ranges, because no stride is negative.
    if (own != ranges || steps != strides || index.vmin() < 0 || !IsSumOfRanges(index)) {
      return std::nullopt;
    }
    if (address.num_src() == 3 && !EndRanges(address.src(2), ranges, &counts)) return std::nullopt;
    stores.push_back({index.vmin(), std::move(counts)});
  }
  if (stores.empty()) return std::nullopt;
  for (size_t r = 0; r < ranges.size(); ++r) order.push_back(static_cast<int64_t>(r));
  std::ranges::sort(order, {}, [&](int64_t r) { return strides[static_cast<size_t>(r)]; });
  std::vector<int64_t> ascending;
  for (const int64_t r : order) ascending.push_back(strides[static_cast<size_t>(r)]);
  for (Strided& s : stores) {
    std::vector<int64_t> counts;
    for (const int64_t r : order) counts.push_back(s.counts[static_cast<size_t>(r)]);
    s.counts = std::move(counts);
  }
  return UnionOf(stores, ascending);
}

// Whether `load` reads only what the same iteration of the shared loops has filled before.
bool ReadsWhatIsFilled(UOp load, const Filling& filling) {
  const UOp address = load.src(0);
  bool behind = false;
  for (UOp buffer = address.src(0); buffer.is(Op::kAfter); buffer = buffer.src(0)) {
    for (int i = 1; i < buffer.num_src(); ++i) behind |= buffer.src(i) == filling.inner;
  }
  const UOp index = address.src(1);
  if (!behind || index.vmin() < 0) return false;
  int64_t last = index.vmax();
  for (const UOp range : filling.shared) {
    const std::optional<int64_t> stride = StrideOf(index, range);
    if (!stride || *stride != *StrideOf(filling.index, range)) return false;
    // The bounds of a sum are exact in the ranges that it is a sum of.
    last -= *stride * (range.src(0).const_word() - 1);
  }
  return last < filling.at_a_time;
}

// What the kernel fills of its argument `slot` before it loads from it; nullopt where that is not
// known.
std::optional<Intervals> Fills(UOp kernel, int64_t slot, int64_t elements) {
  std::optional<Filling> filling;
  for (int i = 0; i < kernel.num_src() && !filling; ++i) filling = FillingOf(kernel.src(i), slot);
  const Graph& g = *kernel.graph();
  const bool first = std::ranges::all_of(PostOrder(kernel), [&](uint32_t id) {
    const UOp u = g.at(id);
    return !u.is(Op::kLoad) || !IsArgument(u.src(0), slot) ||
           (filling && ReadsWhatIsFilled(u, *filling));
  });
  if (!first) return std::nullopt;
  return filling ? Intervals{{0, elements}} : FillTogether(kernel, slot);
}

// Whether the kernel loads nothing else from its argument, which begins `begin` elements into what
// is filled.
bool ReadsOnly(UOp kernel, int64_t slot, int64_t begin, const Intervals& filled) {
  return std::ranges::all_of(PostOrder(kernel), [&](uint32_t id) {
    const UOp u = kernel.graph()->at(id);
    if (!u.is(Op::kLoad) || !IsArgument(u.src(0), slot)) return true;
    std::optional<Intervals> read = ValuesOf(u.src(0).src(1));
    if (!read) return false;
    for (auto& [first, end] : *read) {
      first += begin;
      end += begin;
    }
    return IsWithin(*read, filled);
  });
}

}  // namespace

bool WritesTemporariesFirst(const Schedule& schedule) {
  struct Filled {
    int64_t whole = 0;  // bytes from the beginning of the temporary that are all written
    DType dtype = {};   // of what follows
    Intervals part;
  };
  std::map<int32_t, Filled> filled;
  for (const ScheduledKernel& kernel : schedule.kernels) {
    const UOp root = kernel.graph.root();
    std::map<int64_t, UOp> params;  // by slot
    for (uint32_t id : PostOrder(root)) {
      const UOp u = root.graph()->at(id);
      if (u.is(Op::kParam)) params[u.slot()] = u;
    }
    std::map<int32_t, Filled> now;
    for (const auto& [slot, param] : params) {
      const BufferRef ref = kernel.arguments[static_cast<size_t>(slot)];
      if (ref.kind == BufferRef::Kind::kSlot) continue;
      const int64_t elements = NumElements(param.shape());
      const int64_t bytes = BytesOf(param.dtype(), elements);
      const auto before = filled.find(ref.index);
      if (before == filled.end()) {
        std::optional<Intervals> fills = Fills(root, slot, elements);
        if (!fills || ref.offset != 0) return false;
        const bool whole = *fills == Intervals{{0, elements}};
        now[ref.index] = {whole ? bytes : 0, param.dtype(), *std::move(fills)};
        continue;
      }
      const Filled& of = before->second;
      if (ref.offset + bytes <= of.whole) continue;
      const int64_t begin = ref.offset * 8 / Info(of.dtype).bits;
      if (param.dtype() != of.dtype || !ReadsOnly(root, slot, begin, of.part)) return false;
    }
    filled.merge(now);
  }
  return true;
}

}  // namespace telegrad
