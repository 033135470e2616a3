// Loads of one program block whose indices differ in their constant alone are sorted by it; each
// run of as many neighbours as there are lanes is a square.
#include "engine/render/transposes.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "engine/render/lane_offsets.h"

namespace telegrad {
namespace {

// What the loads of a square have in common.
struct Common {
  int block;  // of the program: between two ends of loops
  int64_t slot, stride, lanes;
  std::vector<std::pair<uint32_t, int64_t>> terms;  // node and factor

  auto operator<=>(const Common&) const = default;
};

bool IsOpen(UOp address) {
  return address.num_src() == 2 || address.src(2).bounds() == Interval{1, 1};
}

}  // namespace

std::vector<Transpose> FindTransposes(const Program& program, int64_t vector_bytes,
                                      int64_t distance) {
  std::map<Common, std::map<int64_t, UOp>> found;
  int block = 0;
  for (uint32_t id : program.order) {
    const UOp u = program.graph->at(id);
    block += u.is(Op::kRange) || u.is(Op::kEnd) ? 1 : 0;
    if (!u.is(Op::kLoad) || !IsOpen(u.src(0)) || IsBool(u.dtype())) continue;
    UOp memory = u.src(0).src(0);
    while (memory.is(Op::kAfter)) memory = memory.src(0);
    const UOp index = u.src(0).src(1);
    if (!memory.is(Op::kParam) || u.shape().size() != 1 || index.dtype() != DType::kInt64) continue;
    const auto slot = static_cast<size_t>(memory.arg(0));
    if (slot >= program.arguments.size() || program.arguments[slot].written) continue;
    const int64_t lanes = u.shape()[0];
    if (lanes < 4 || !std::has_single_bit(static_cast<uint64_t>(lanes)) ||
        lanes * ByteSize(u.dtype()) > vector_bytes) {
      continue;
    }
    const std::optional<LaneOffsets> split = SplitLanes(index);
    if (!split || split->Stride() < distance) continue;
    Common common{block, memory.arg(0), split->Stride(), lanes, {}};
    for (const auto& [term, factor] : split->terms) common.terms.emplace_back(term.id(), factor);
    std::ranges::sort(common.terms);
    found[common].emplace(split->constant, u);
  }
  std::vector<Transpose> out;
  for (const auto& [common, loads] : found) {
    Transpose run;
    int64_t next = 0;
    for (const auto& [constant, load] : loads) {
      if (constant != next) run.clear();
      next = constant + 1;
      run.push_back(load);
      if (static_cast<int64_t>(run.size()) < common.lanes) continue;
      out.push_back(std::exchange(run, {}));
    }
  }
  return out;
}

}  // namespace telegrad
