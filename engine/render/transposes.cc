// Accesses of one program block whose indices differ in their constant alone are sorted by it; each
// run of neighbours, cut after as many as there are lanes, is a rectangle. Nothing tells two
// elements of different terms apart, so where a block writes an argument, all of its accesses must
// have the same, and each element its own load and, behind it, its own store: then the order of
// different elements is free.
#include "engine/render/transposes.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "engine/render/lane_offsets.h"

namespace telegrad {
namespace {

// What the accesses of a rectangle have in common.
struct Common {
  int64_t stride, lanes, bytes;
  std::vector<std::pair<uint32_t, int64_t>> terms;  // node and factor

  auto operator<=>(const Common&) const = default;
};

// What a block does with an argument.
struct Accesses {
  std::map<Common, std::map<int64_t, UOp>> loads, stores;  // by constant
  std::set<Common> kinds;
  bool written = false;
  bool ordered = false;  // an access that no rectangle has, or an element for the second time
};

bool IsOpen(UOp address) {
  return address.num_src() == 2 || address.src(2).bounds() == Interval{1, 1};
}

class Finder {
 public:
  Finder(const Program& program, const Target& target, int64_t distance)
      : program_(program), target_(target), distance_(distance) {}

  std::vector<Transpose> Run() {
    for (uint32_t id : program_.order) {
      const UOp u = program_.graph->at(id);
      if (u.is(Op::kRange) || u.is(Op::kEnd)) {
        EndBlock();
      } else if (u.is(Op::kLoad) || u.is(Op::kStore)) {
        Add(u);
      }
    }
    EndBlock();
    return std::move(out_);
  }

 private:
  void Add(UOp u) {
    const bool store = u.is(Op::kStore);
    UOp memory = u.src(0).src(0);
    while (memory.is(Op::kAfter)) memory = memory.src(0);
    if (!memory.is(Op::kParam)) return;
    Accesses& of = block_[memory.slot()];
    of.written |= store;
    int64_t at = 0;
    const std::optional<Common> common = Describe(u, store ? u.src(1) : u, &at);
    if (!common) {
      of.ordered = true;
      return;
    }
    of.kinds.insert(*common);
    // A load behind its element's store reads what that has written.
    if (!store && of.stores[*common].contains(at)) of.ordered = true;
    if (!(store ? of.stores : of.loads)[*common].emplace(at, u).second && store) of.ordered = true;
  }

  // nullopt for what is no vector whose lanes are rows apart; else `at` is the index's constant.
  std::optional<Common> Describe(UOp access, UOp value, int64_t* at) const {
    const UOp address = access.src(0), index = address.src(1);
    if (!IsOpen(address) || IsBool(value.dtype()) || value.shape().size() != 1) return std::nullopt;
    if (index.dtype() != DType::kInt64 || index.shape().empty()) return std::nullopt;
    const int64_t lanes = value.shape()[0], bytes = ByteSize(value.dtype());
    if (lanes < kLeastRow || !std::has_single_bit(static_cast<uint64_t>(lanes)) ||
        lanes * bytes > target_.vector_bytes) {
      return std::nullopt;
    }
    const std::optional<LaneOffsets> split = SplitLanes(index);
    if (!split || split->Stride() < distance_) return std::nullopt;
    Common common{split->Stride(), lanes, bytes, {}};
    for (const auto& [term, factor] : split->terms) common.terms.emplace_back(term.id(), factor);
    std::ranges::sort(common.terms);
    *at = split->constant;
    return common;
  }

  // Whether no lane of one access is a lane of another.
  static bool AreApart(const Common& common, const std::map<int64_t, UOp>& accesses) {
    std::map<int64_t, int64_t> last;  // row, by the place in it
    for (const auto& [constant, access] : accesses) {
      // Rounded down, for constants of any size.
      const int64_t rest = constant % common.stride;
      const int64_t place = rest < 0 ? rest + common.stride : rest;
      const int64_t row = constant / common.stride - (rest < 0 ? 1 : 0);
      const auto [it, first] = last.emplace(place, row);
      if (!first && row - std::exchange(it->second, row) < common.lanes) return false;
    }
    return true;
  }

  void EndBlock() {
    for (const auto& [slot, of] : block_) {
      bool free = true;
      if (of.written) {
        free = !of.ordered && of.kinds.size() == 1;
        for (const auto& [common, stores] : of.stores) {
          std::map<int64_t, UOp> all = stores;
          if (const auto loads = of.loads.find(common); loads != of.loads.end()) {
            all.insert(loads->second.begin(), loads->second.end());
          }
          free = free && AreApart(common, all);
        }
      }
      if (!free) continue;
      for (const auto* kind : {&of.loads, &of.stores}) {
        for (const auto& [common, accesses] : *kind) Cut(common, accesses);
      }
    }
    block_.clear();
  }

  void Cut(const Common& common, const std::map<int64_t, UOp>& accesses) {
    Transpose run;
    int64_t last = 0;
    const auto finish = [&] {
      const auto size = static_cast<int64_t>(run.size());
      const bool whole = size == common.lanes;
      const bool store = size > 0 && run[0].is(Op::kStore);
      if (whole || (size >= kLeastRow && target_.masks_rows(store, common.bytes))) {
        out_.push_back(run);
      }
      run.clear();
    };
    for (const auto& [constant, access] : accesses) {
      const bool follows = !run.empty() && constant - 1 == last;
      if (!follows || static_cast<int64_t>(run.size()) == common.lanes) finish();
      last = constant;
      run.push_back(access);
    }
    finish();
  }

  const Program& program_;
  const Target& target_;
  const int64_t distance_;
  std::map<int64_t, Accesses> block_;  // by slot
  std::vector<Transpose> out_;
};

}  // namespace

std::vector<Transpose> FindTransposes(const Program& program, const Target& target,
                                      int64_t distance) {
  return Finder(program, target, distance).Run();
}

}  // namespace telegrad
