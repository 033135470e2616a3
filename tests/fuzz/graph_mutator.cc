// A graph is taken apart into a list of nodes and built again with a few edits at random places:
// another op, argument, source or type, a node more or less, another size everywhere.
#include "tests/fuzz/graph_mutator.h"

#include <algorithm>

#include "engine/ir/verify.h"
#include "engine/types/limits.h"
#include "tests/fuzz/random_node.h"

namespace telegrad::fuzz {
namespace {

constexpr size_t kLong = 120;  // nodes; a longer list is rather made shorter

enum class Edit { kOp, kArg, kSource, kType, kRemove, kGrow, kAfter, kOutput, kNumEdits };

class Rebuilder {
 public:
  Rebuilder(uint64_t seed, Graph* graph) : make_(seed, graph), g_(*graph) {}

  UOp Run(NodeList list) {
    if (list.empty()) return Fresh();
    ChangeOneSize(&list);
    std::vector<Edit> edits(list.size(), Edit::kNumEdits);
    for (int64_t n = 1 + make_.Below(4); n > 0; --n) {
      edits[Below(list.size())] = list.size() > kLong && !make_.OneIn(4)
                                      ? Edit::kRemove
                                      : Edit{static_cast<int>(Below(int(Edit::kNumEdits)))};
    }
    const std::vector<bool> in_body = InBody(list);
    for (size_t i = 0; i < list.size(); ++i) {
      if (in_body[i]) {
        made_.push_back(Again(list[i]));
        continue;
      }
      made_.push_back(Rebuild(list[i], edits[i]));
      make_.Offer(made_.back());
    }
    if (make_.OneIn(8)) Output(make_.Pick());
    return Sink();
  }

 private:
  size_t Below(size_t n) { return static_cast<size_t>(make_.Below(static_cast<int64_t>(n))); }

  UOp Fresh() {
    for (int64_t n = 3 + make_.Below(24); n > 0; --n) make_.Offer(make_.Node());
    for (int64_t n = 1 + make_.Below(3); n > 0; --n) Output(make_.Pick());
    if (make_.OneIn(2)) Update(make_.Pick());
    return Sink();
  }

  // One size, wherever it appears, becomes another: the graph of the same model with other
  // dimensions.
  void ChangeOneSize(NodeList* list) {
    if (!make_.OneIn(4)) return;
    const Node& chosen = (*list)[Below(list->size())];
    if (chosen.arg.empty() || chosen.op == Op::kConst) return;
    const int64_t from = chosen.arg[Below(chosen.arg.size())];
    constexpr int64_t kSizes[] = {0, 1, 2, 3, 5, 8, 16, 17, 64, 1000};
    const int64_t to = kSizes[Below(std::size(kSizes))];
    for (Node& node : *list) {
      if (node.op == Op::kConst || node.op == Op::kReduce) continue;
      for (size_t i = node.op == Op::kParam ? 2 : 0; i < node.arg.size(); ++i) {
        if (node.arg[i] == from) node.arg[i] = to;
      }
    }
  }

  // By position: the parts of functions' bodies. They stay as they are: a body must not depend on
  // anything else.
  static std::vector<bool> InBody(const NodeList& list) {
    std::vector<bool> in_body(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      const Op op = list[i].op;
      in_body[i] = op == Op::kArg || op == Op::kTuple;
      const size_t bodies = op == Op::kCall || op == Op::kLoop ? 1 : 0;
      for (size_t s = bodies; s < list[i].src.size(); ++s) {
        if (in_body[list[i].src[s]]) in_body[i] = true;
      }
    }
    return in_body;
  }

  UOp Again(const Node& node) {
    std::vector<UOp> src;
    for (uint32_t s : node.src) src.push_back(made_[s]);
    return make_.Try(node.op, node.dtype, src, node.arg);
  }

  UOp Rebuild(const Node& node, Edit edit) {
    std::vector<UOp> src;
    for (uint32_t s : node.src) src.push_back(made_[s]);
    if (node.op == Op::kSink) {
      for (UOp s : src) {
        if (s.is(Op::kStore)) stores_.push_back(s);
      }
      return {};
    }
    const bool tuples = Is(node.op, kTupleValue) || node.op == Op::kGetTuple;
    for (UOp& s : src) {
      const bool kept = (node.op == Op::kAfter && s.is(Op::kStore)) ||
                        (tuples && s.valid() && Is(s.op(), kTupleValue));
      if (!s.valid() || (s.dtype() == DType::kVoid && !kept)) s = make_.Pick();
    }
    if (tuples) return make_.Try(node.op, node.dtype, src, node.arg);
    if (node.op == Op::kStore) return Store(src[0], src[1]);
    if (node.op == Op::kAfter) return After(src);

    Op op = node.op;
    DType dtype = node.dtype;
    switch (edit) {
      case Edit::kRemove:
        return src.empty() ? make_.Pick() : src[0];
      case Edit::kOp:
        return Or(make_.Node(std::nullopt, src.empty() ? UOp() : src[0]), src);
      case Edit::kType:
        dtype = make_.AnyDType();
        break;
      case Edit::kSource:
        if (!src.empty()) src[Below(src.size())] = make_.Pick();
        break;
      case Edit::kGrow:
        if (!src.empty()) {
          UOp& s = src[Below(src.size())];
          for (int64_t n = 1 + make_.Below(4); n > 0 && s.valid(); --n) {
            const UOp more = make_.Node(std::nullopt, s);
            make_.Offer(more);
            if (more.valid()) s = more;
          }
        }
        break;
      case Edit::kAfter:
        Update(src.empty() ? make_.Pick() : src[0]);
        break;
      case Edit::kOutput:
        Output(src.empty() ? make_.Pick() : src[0]);
        break;
      default:
        break;
    }
    return Or(make_.Fit(op, dtype, src, node.arg, edit == Edit::kArg), src);
  }

  // `u`, or where it could not be made, its first source.
  UOp Or(UOp u, const std::vector<UOp>& src) {
    if (u.valid()) return u;
    return src.empty() ? make_.Pick() : src[0];
  }

  void Keep(UOp store) {
    if (store.valid()) stores_.push_back(store);
  }

  UOp MakeStore(UOp target, UOp value) {
    if (!target.valid() || !value.valid()) return {};
    const UOp store = g_.Make(Op::kStore, {target, value});
    (void)g_.TakeStatus();
    return store;
  }

  // The target may have become something else: then a new output takes the value.
  UOp Store(UOp target, UOp value) {
    if (Storable(target)) {
      const UOp fit = target.is(Op::kParam) && make_.OneIn(4) ? value : make_.Like(value, target);
      if (const UOp store = MakeStore(target, fit); store.valid()) return store;
    }
    return MakeStore(make_.Input(value.dtype(), value.shape()), value);
  }

  static bool Storable(UOp u) {
    while (u.is(Op::kReshape) || u.is(Op::kPermute) || u.is(Op::kFlip) || u.is(Op::kShrink)) {
      u = u.src(0);
    }
    return u.is(Op::kParam) || u.is(Op::kAfter);
  }

  UOp After(std::vector<UOp> src) {
    if (!src[0].is(Op::kParam)) return src[0];
    std::erase_if(src, [&](UOp s) {
      if (s == src[0]) return false;
      if (!s.is(Op::kStore)) return true;
      UOp base = s.src(0);
      while (base.num_src() > 0) base = base.src(0);
      return base != src[0];
    });
    if (src.size() < 2) return src[0];
    const UOp after = g_.Make(Op::kAfter, DType::kVoid, src);
    (void)g_.TakeStatus();
    return after.valid() ? after : src[0];
  }

  void Output(UOp value) {
    if (value.valid()) Keep(MakeStore(make_.Input(value.dtype(), value.shape()), value));
  }

  // An in-place store to a param, read afterwards.
  void Update(UOp like) {
    if (!like.valid()) return;
    UOp param = like;
    while (!param.is(Op::kParam) && param.num_src() > 0) param = param.src(0);
    if (!param.is(Op::kParam)) param = make_.Input(like.dtype(), like.shape());
    if (!param.valid()) return;
    const UOp target = make_.StorableView(param);
    const UOp store = MakeStore(target, make_.Like(make_.Pick(), target));
    if (!store.valid()) return;
    const UOp after = After({param, store});
    make_.Offer(after);
    if (make_.OneIn(2)) Keep(store);
    if (make_.OneIn(2)) {
      const UOp next = make_.StorableView(after);
      Keep(MakeStore(next, make_.Like(make_.Node(std::nullopt, after), next)));
    } else {
      Output(make_.Node(std::nullopt, after));
    }
  }

  // Of stores in no order, the first ones.
  UOp Sink() {
    while (true) {
      if (stores_.empty()) Output(make_.Pick());
      if (stores_.empty()) return {};
      const UOp sink = g_.Make(Op::kSink, DType::kVoid, stores_);
      (void)g_.TakeStatus();
      if (!sink.valid() || stores_.size() == 1 || Verify(sink, kTensorLevel).ok()) return sink;
      if (make_.OneIn(32)) return sink;
      stores_.pop_back();
    }
  }

  NodeMaker make_;
  Graph& g_;
  std::vector<UOp> made_;  // by position in the list
  std::vector<UOp> stores_;
};

}  // namespace

NodeList ToList(UOp root) {
  const Graph& graph = *root.graph();
  NodeMap<uint32_t> position(graph);
  NodeList list;
  for (uint32_t id : PostOrder(root)) {
    position[id] = static_cast<uint32_t>(list.size());
    Node node{graph.op(id), graph.dtype(id), {}, {graph.arg(id).begin(), graph.arg(id).end()}};
    for (uint32_t s : graph.src(id)) node.src.push_back(position[s]);
    list.push_back(std::move(node));
  }
  return list;
}

UOp Mutate(const NodeList& list, uint64_t seed, Graph* graph) {
  return Rebuilder(seed, graph).Run(list);
}

UOp Splice(const NodeList& a, const NodeList& b, uint64_t seed, Graph* graph) {
  std::mt19937_64 rng(seed);
  NodeList list = a;
  const auto shift = static_cast<uint32_t>(a.size());
  for (const Node& node : b) {
    list.push_back(node);
    for (uint32_t& s : list.back().src) {
      s = shift > 0 && rng() % 8 == 0 ? static_cast<uint32_t>(rng() % shift) : s + shift;
    }
  }
  return Rebuilder(rng(), graph).Run(std::move(list));
}

}  // namespace telegrad::fuzz
