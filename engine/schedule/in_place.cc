#include "engine/schedule/in_place.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

namespace telegrad {
namespace {

struct Use {
  UOp param;
  std::optional<UOp> index;  // of its only access; none: there are several, or a gate
  bool seen = false;
  bool written = false;
};

// Whether several iterations may have it: a tile that is moved back computes elements again.
bool Repeats(UOp index) {
  const std::vector<uint32_t> order = PostOrder(index);
  return std::ranges::any_of(order, [&](uint32_t id) { return index.graph()->op(id) == Op::kMax; });
}

// Whether register tiles of a sum of products would not cover the kernel's loops evenly: the last
// one is then moved back, and computes again what it may not have written over. Without that, a
// matrix of 197 rows (a prime) ran at a third of the speed of one of 196.
bool NeedsTilesThatRepeat(UOp kernel, int64_t tile) {
  const Graph& graph = *kernel.graph();
  bool products = false, uneven = false;
  for (uint32_t id : PostOrder(kernel)) {
    const UOp u = graph.at(id);
    if (u.is(Op::kReduce) && u.reduce_kind() == ReduceKind::kAdd) {
      UOp product = u.src(0);
      while (product.is(Op::kCast)) product = product.src(0);
      products |= product.is(Op::kMul) && product.src(0) != product.src(1);
    }
    if (u.is(Op::kRange) && u.axis_type() == AxisType::kLoop) {
      const UOp size = u.src(0);
      uneven |= !size.is_const() || (size.const_word() > tile && size.const_word() % tile != 0);
    }
  }
  return products && uneven;
}

// Pairs of arguments of a kernel, one written and one read, that may be the same memory: of one
// type and size, and an element of the one is only read to compute the same element of the other.
std::vector<std::pair<int64_t, int64_t>> InPlaceArguments(UOp kernel) {
  const Graph& graph = *kernel.graph();
  std::map<int64_t, Use> uses;
  for (uint32_t id : PostOrder(kernel)) {
    const UOp u = graph.at(id);
    if (!u.is(Op::kIndex)) continue;
    UOp param = u.src(0);
    const bool ordered = param.is(Op::kAfter);
    while (param.is(Op::kAfter)) param = param.src(0);
    if (!param.is(Op::kParam)) continue;
    Use& use = uses[param.slot()];
    use.param = param;
    use.index = use.seen || ordered || u.num_src() == 3 ? std::nullopt : std::optional(u.src(1));
    use.seen = true;
  }
  for (uint32_t id : PostOrder(kernel)) {
    const UOp u = graph.at(id);
    if (!u.is(Op::kStore)) continue;
    UOp param = u.src(0).src(0);
    while (param.is(Op::kAfter)) param = param.src(0);
    if (param.is(Op::kParam)) uses[param.slot()].written = true;
  }
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (const auto& [written, w] : uses) {
    if (!w.written || !w.index || Repeats(*w.index)) continue;
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

// The kernel that writes `read` instead of `written`; the arguments after `written` move up.
FrozenGraph UniteArguments(UOp kernel, int64_t written, int64_t read) {
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

// Arguments of kernel number k: a result that begins to live, an operand that it may replace.
std::optional<std::pair<int64_t, int64_t>> DyingOperand(const ScheduledKernel& kernel,
                                                        const std::vector<Lifetime>& lifetimes,
                                                        int64_t k, int64_t tile) {
  const auto temporary = [&](int64_t argument) -> const Lifetime* {
    const BufferRef ref = kernel.arguments[argument];
    return ref.kind == BufferRef::Kind::kTemporary ? &lifetimes[ref.index] : nullptr;
  };
  const bool any = std::ranges::any_of(kernel.arguments, [&](BufferRef ref) {
    return ref.kind == BufferRef::Kind::kTemporary && lifetimes[ref.index].first < k &&
           lifetimes[ref.index].last == k;
  });
  if (!any || NeedsTilesThatRepeat(kernel.graph.root(), tile)) return std::nullopt;
  for (const auto& [written, read] : InPlaceArguments(kernel.graph.root())) {
    const Lifetime *w = temporary(written), *r = temporary(read);
    if (w != nullptr && r != nullptr && w->first == k && r->first < k && r->last == k) {
      return std::pair(written, read);
    }
  }
  return std::nullopt;
}

}  // namespace

void WriteInPlace(Schedule* schedule, std::vector<Lifetime>* lifetimes, int64_t tile) {
  std::vector<int32_t> same(lifetimes->size());
  std::iota(same.begin(), same.end(), 0);
  for (size_t k = 0; k < schedule->kernels.size(); ++k) {
    ScheduledKernel& kernel = schedule->kernels[k];
    for (BufferRef& ref : kernel.arguments) {
      if (ref.kind == BufferRef::Kind::kTemporary) ref.index = same[ref.index];
    }
    while (const auto pair = DyingOperand(kernel, *lifetimes, static_cast<int64_t>(k), tile)) {
      const auto [written, read] = *pair;
      const int32_t to = kernel.arguments[read].index, from = kernel.arguments[written].index;
      kernel.graph = UniteArguments(kernel.graph.root(), written, read);
      kernel.arguments.erase(kernel.arguments.begin() + written);
      kernel.reasons.emplace_back("writes over an operand that is read no more");
      (*lifetimes)[to].last = (*lifetimes)[from].last;
      same[from] = to;
    }
  }
  std::vector<int32_t> kept(same.size(), -1);
  size_t next = 0;
  for (size_t i = 0; i < same.size(); ++i) {
    if (same[i] != static_cast<int32_t>(i)) continue;
    kept[i] = static_cast<int32_t>(next);
    (*lifetimes)[next] = (*lifetimes)[i];
    schedule->temporaries[next++] = schedule->temporaries[i];
  }
  lifetimes->resize(next);
  schedule->temporaries.resize(next);
  for (ScheduledKernel& kernel : schedule->kernels) {
    for (BufferRef& ref : kernel.arguments) {
      if (ref.kind == BufferRef::Kind::kTemporary) ref.index = kept[ref.index];
    }
  }
}

}  // namespace telegrad
