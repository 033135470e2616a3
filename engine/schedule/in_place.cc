#include "engine/schedule/in_place.h"

#include <algorithm>
#include <map>
#include <optional>

namespace telegrad {
namespace {

struct Use {
  UOp param;
  std::optional<UOp> index;  // of its only access; none: there are several, or a gate
  bool seen = false;
  bool written = false;
};

}  // namespace

std::vector<std::pair<int64_t, int64_t>> InPlaceArguments(UOp kernel) {
  const Graph& graph = *kernel.graph();
  std::map<int64_t, Use> uses;
  for (uint32_t id : PostOrder(kernel)) {
    const UOp u = graph.at(id);
    if (!u.is(Op::kIndex)) continue;
    UOp param = u.src(0);
    const bool ordered = param.is(Op::kAfter);
    while (param.is(Op::kAfter)) param = param.src(0);
    Use& use = uses[param.arg(0)];
    use.param = param;
    use.index = use.seen || ordered || u.num_src() == 3 ? std::nullopt : std::optional(u.src(1));
    use.seen = true;
  }
  for (uint32_t id : PostOrder(kernel)) {
    const UOp u = graph.at(id);
    if (!u.is(Op::kStore)) continue;
    UOp param = u.src(0).src(0);
    while (param.is(Op::kAfter)) param = param.src(0);
    uses[param.arg(0)].written = true;
  }
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (const auto& [written, w] : uses) {
    if (!w.written || !w.index) continue;
    for (const auto& [read, r] : uses) {
      if (r.written || !r.index || *r.index != *w.index) continue;
      if (r.param.dtype() == w.param.dtype() &&
          std::ranges::equal(r.param.shape(), w.param.shape())) {
        pairs.emplace_back(written, read);
      }
    }
  }
  return pairs;
}

FrozenGraph WriteInPlace(UOp kernel, int64_t written, int64_t read) {
  const Graph& from = *kernel.graph();
  auto out = std::make_shared<Graph>();
  NodeMap<uint32_t> made(from);
  std::vector<UOp> src;
  for (uint32_t id : PostOrder(kernel)) {
    const UOp u = from.at(id);
    src.clear();
    for (uint32_t s : u.src_ids()) src.push_back(out->at(made[s]));
    std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
    if (u.is(Op::kParam)) {
      if (arg[0] == written) arg[0] = read;
      if (arg[0] > written) --arg[0];
    }
    made[id] = out->Make(u.op(), u.dtype(), src, arg).id();
  }
  return {std::move(out), made[kernel]};
}

}  // namespace telegrad
