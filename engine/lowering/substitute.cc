#include "engine/lowering/substitute.h"

#include <algorithm>

namespace telegrad {

UOp Substitute(Rewriter& b, UOp root, const Replacements& with) {
  const Graph& graph = *root.graph();
  absl::flat_hash_map<uint32_t, UOp> made;
  std::vector<UOp> src;
  for (uint32_t id : PostOrder(root)) {
    const UOp u = graph.at(id);
    if (const auto it = with.find(id); it != with.end()) {
      made[id] = it->second.value;
      continue;
    }
    src.clear();
    for (int i = 0; i < u.num_src(); ++i) {
      const auto closed = with.find(u.src(i).id());
      if (i > 0 && closed != with.end() && (u.is(Op::kEnd) || u.is(Op::kReduce))) {
        src.insert(src.end(), closed->second.ranges.begin(), closed->second.ranges.end());
      } else {
        src.push_back(made[u.src(i).id()]);
      }
    }
    // What nothing changes stays as it is, whatever form an earlier pass has put it into.
    if (std::ranges::equal(src, u.src_ids(), {}, &UOp::id)) {
      made[id] = u;
      continue;
    }
    const std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
    made[id] = b.Make(u.op(), u.dtype(), src, arg);
    if (!made[id].valid()) return {};
  }
  return made[root.id()];
}

UOp RowMajor(Rewriter& b, std::span<const UOp> ranges) {
  UOp number = b.graph()->Index(0);
  for (UOp range : ranges) {
    number = b.Make(Op::kAdd, {b.Make(Op::kMul, {number, range.src(0)}), range});
  }
  return number;
}

UOp Rebuild(Graph& g, UOp root, const std::function<UOp(UOp u, std::vector<UOp>* src)>& make) {
  NodeMap<uint32_t> made(g);
  std::vector<UOp> src;
  for (uint32_t id : PostOrder(root)) {
    const UOp u = g.at(id);
    src.clear();
    for (uint32_t s : u.src_ids()) src.push_back(g.at(made[s]));
    const UOp copy = make(u, &src);
    if (!copy.valid()) return copy;
    made[id] = copy.id();
  }
  return g.at(made[root]);
}

UOp WithSources(Graph& g, UOp u, std::span<const UOp> src) {
  if (std::ranges::equal(src, u.src_ids(), {}, &UOp::id)) return u;
  return g.Make(u.op(), u.dtype(), src, std::vector<int64_t>(u.arg().begin(), u.arg().end()));
}

}  // namespace telegrad
