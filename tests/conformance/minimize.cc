// Every attempt rebuilds the graph with one change; a change that the op table or the verifier
// refuses is simply no step forward.
#include "tests/conformance/minimize.h"

#include <algorithm>
#include <optional>
#include <set>

#include "engine/ir/verify.h"

namespace telegrad::testing {
namespace {

constexpr int kMaxAttempts = 4000;

// What a rebuild does to a node: nullopt for a plain copy.
using Change = std::function<std::optional<UOp>(UOp old, std::span<const UOp> src, Graph* to)>;
// What a rebuild does to a size.
using Resize = std::function<int64_t(int64_t)>;

std::optional<Failure> Rebuild(const RandomGraph& from, const Change& change, const Resize& resize,
                               std::vector<std::vector<uint8_t>> slots, std::vector<DType> dtypes) {
  auto graph = std::make_shared<Graph>();
  const Graph& old = *from.sink.graph();
  NodeMap<UOp> made(old);
  std::vector<UOp> src;
  for (const uint32_t id : PostOrder(from.sink)) {
    const UOp u = old.at(id);
    src.clear();
    for (const uint32_t s : u.src_ids()) src.push_back(made[s]);
    if (std::optional<UOp> other = change(u, src, graph.get())) {
      made[u] = *other;
    } else {
      std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
      if (u.is(Op::kParam) || u.is(Op::kArg)) {
        for (size_t i = 2; i < arg.size(); ++i) arg[i] = resize(arg[i]);
      } else if (Is(u.op(), kSymbolic)) {
        for (int64_t& word : arg) word = resize(word);
      }
      made[u] = graph->Make(u.op(), u.dtype(), src, arg);
    }
    if (!made[u].valid()) return std::nullopt;
  }
  Failure out{.graph = {}, .random = from};
  const UOp sink = made[from.sink];
  if (!Verify(sink, kTensorLevel).ok()) return std::nullopt;
  std::set<int64_t> variables;
  for (const uint32_t id : PostOrder(sink)) {
    const UOp u = graph->at(id);
    if (u.is(Op::kVar) && u.num_src() == 0) variables.insert(u.var_id());
    if (!u.is(Op::kParam)) continue;  // a smaller param reads the first bytes of its slot
    const auto slot = static_cast<size_t>(u.slot());
    slots[slot].resize(static_cast<size_t>(BytesOf(u.dtype(), NumElements(u.shape()))));
  }
  out.graph = {std::move(graph), sink.id()};
  out.random.sink = out.graph.root();
  out.random.slots = std::move(slots);
  out.random.dtypes = std::move(dtypes);
  out.random.exact.resize(out.random.slots.size(), true);
  std::erase_if(out.random.variables, [&](VarValue v) { return !variables.contains(v.id); });
  return out;
}

class Minimizer {
 public:
  Minimizer(const RandomGraph& random, const std::function<bool(const RandomGraph&)>& fails)
      : fails_(fails) {
    best_.graph = Freeze(random.sink);
    best_.random = random;
    best_.random.sink = best_.graph.root();
  }

  Failure Run() {
    bool smaller = true;
    while (smaller && attempts_ < kMaxAttempts) {
      smaller = DropStores();
      smaller |= ReplaceNodes();
      smaller |= ShrinkSizes();
    }
    return std::move(best_);
  }

 private:
  static int64_t Keep(int64_t size) { return size; }

  bool Try(const Change& change, const Resize& resize, std::vector<std::vector<uint8_t>> slots,
           std::vector<DType> dtypes) {
    if (++attempts_ > kMaxAttempts) return false;
    auto next = Rebuild(best_.random, change, resize, std::move(slots), std::move(dtypes));
    if (!next || !fails_(next->random)) return false;
    best_ = *std::move(next);
    return true;
  }
  bool Try(const Change& change, const Resize& resize = Keep) {
    return Try(change, resize, best_.random.slots, best_.random.dtypes);
  }

  bool DropStores() {
    bool any = false;
    for (int i = 0; i < best_.random.sink.num_src() && best_.random.sink.num_src() > 1;) {
      const bool dropped = Try([&](UOp u, std::span<const UOp> src, Graph* g) {
        if (!u.is(Op::kSink)) return std::optional<UOp>();
        std::vector<UOp> rest(src.begin(), src.end());
        rest.erase(rest.begin() + i);
        return std::optional(g->Make(Op::kSink, DType::kVoid, rest));
      });
      any |= dropped;
      i += dropped ? 0 : 1;
    }
    return any;
  }

  // From the sink down, so that one step cuts off as much as possible.
  bool ReplaceNodes() {
    bool any = false;
    for (size_t back = 1;; ++back) {
      const std::vector<uint32_t> order = PostOrder(best_.random.sink);
      if (back > order.size()) return any;
      const UOp u = best_.random.sink.graph()->at(order[order.size() - back]);
      if (u.dtype() == DType::kVoid || u.is(Op::kParam) || u.is(Op::kConst)) continue;
      if (ReplaceByInput(u) || ReplaceBySource(u)) any = true;
    }
  }

  bool ReplaceByInput(UOp u) {
    if (u.is(Op::kArg) || u.symbolic()) return false;
    std::vector<std::vector<uint8_t>> slots = best_.random.slots;
    std::vector<DType> dtypes = best_.random.dtypes;
    const auto slot = static_cast<int64_t>(slots.size());
    std::vector<uint8_t> bytes(static_cast<size_t>(BytesOf(u.dtype(), NumElements(u.shape()))));
    // Small, all different, and as floats ordinary numbers in most formats.
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = IsBool(u.dtype()) ? i % 3 == 0 : static_cast<uint8_t>(0x30 + i * 5 % 23);
    }
    slots.push_back(std::move(bytes));
    dtypes.push_back(u.dtype());
    return Try(
        [&](UOp old, std::span<const UOp>, Graph* g) {
          if (old != u) return std::optional<UOp>();
          const int64_t device = u.devices().size() == 1 ? u.devices()[0] : 0;
          return std::optional(g->Param(slot, u.dtype(), u.shape(), device));
        },
        Keep, std::move(slots), std::move(dtypes));
  }

  bool ReplaceBySource(UOp u) {
    for (int i = 0; i < u.num_src(); ++i) {
      const UOp s = u.src(i);
      if (s.dtype() != u.dtype() || !SameShape(s, u)) continue;
      const bool done = Try([&](UOp old, std::span<const UOp> src, Graph*) {
        return old == u ? std::optional(src[static_cast<size_t>(i)]) : std::nullopt;
      });
      if (done) return true;
    }
    return false;
  }

  bool ShrinkSizes() {
    std::set<int64_t, std::greater<>> sizes;
    for (const uint32_t id : PostOrder(best_.random.sink)) {
      const UOp u = best_.random.sink.graph()->at(id);
      for (const int64_t d : u.shape()) sizes.insert(d);
    }
    const Change none = [](UOp, std::span<const UOp>, Graph*) { return std::optional<UOp>(); };
    bool any = false;
    for (const int64_t size : sizes) {
      for (const int64_t smaller : {int64_t{1}, int64_t{2}, size / 2, size - 1}) {
        if (smaller < 1 || smaller >= size) continue;
        if (!Try(none, [&](int64_t d) { return d == size ? smaller : d; })) continue;
        any = true;
        break;
      }
    }
    return any;
  }

  const std::function<bool(const RandomGraph&)>& fails_;
  Failure best_;
  int attempts_ = 0;
};

}  // namespace

Failure Minimize(const RandomGraph& random, const std::function<bool(const RandomGraph&)>& fails) {
  return Minimizer(random, fails).Run();
}

}  // namespace telegrad::testing
