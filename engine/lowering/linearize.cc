// A kernel's loops form a tree: a range's parent is the innermost range that its own loop depends
// on. A node belongs to the block of the innermost range it depends on. Each block is then ordered
// topologically, with a whole child loop as one item: first what has fewer MULACCs in a row below
// it, so that sums of products grow side by side and none waits for itself, then the smallest id,
// so that the order follows the expression's.
//
// The parallel ranges of a program for many threads are no loops: all of it is inside of them.
#include "engine/lowering/linearize.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <functional>
#include <map>
#include <optional>
#include <queue>

#include "absl/container/flat_hash_set.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/workgroup.h"

namespace telegrad {
namespace {

constexpr int kRoot = -1;

class Linearizer {
 public:
  Linearizer(Graph* graph, UOp sink, Dependence d)
      : g_(*graph), sink_(sink), live_(PostOrder(sink)), d_(std::move(d)) {}

  absl::StatusOr<std::vector<uint32_t>> Run() {
    TakeParallel();
    std::ranges::sort(live_);
    TG_RETURN_IF_ERROR(BuildTree());
    TG_RETURN_IF_ERROR(Place());
    return Emit();
  }

 private:
  // Whether `u` closes the parallel ranges.
  static bool ClosesParallel(UOp u) {
    return u.is(Op::kEnd) && u.num_src() > 1 && IsParallel(u.src(1));
  }

  void TakeParallel() {
    const UOp first = sink_.src(0);
    if (!ClosesParallel(first)) return;
    RangeSet set = 0;
    for (int i = 1; i < first.num_src(); ++i) {
      parallel_.push_back(first.src(i));
      set |= RangeSet{1} << d_.IndexOf(first.src(i));
    }
    for (uint64_t& of : d_.of) of &= ~set;
    std::erase_if(live_, [&](uint32_t id) { return ClosesParallel(g_.at(id)); });
  }

  // One END closes a chain of ranges, outermost first; what begins with the same ranges as another
  // shares those loops.
  absl::Status BuildTree() {
    const size_t n = d_.ranges.size();
    parent_.assign(n, kRoot);
    depth_.assign(n, 0);
    known_.assign(n, false);
    std::vector<UOp> ends;
    for (uint32_t id : live_) {
      if (g_.op(id) == Op::kEnd) ends.push_back(g_.at(id));
    }
    // A copy of a nest may depend on fewer loops than the others, where one of its conditions
    // folded. It is inside of all loops that any of them depends on.
    around_.assign(n, 0);
    for (const UOp end : ends) around_[d_.IndexOf(end.src(1))] |= d_.of[end.id()];
    for (const UOp end : ends) {
      for (int i = 1; i < end.num_src(); ++i) {
        around_[d_.IndexOf(end.src(1))] &= ~(RangeSet{1} << d_.IndexOf(end.src(i)));
      }
    }
    // A nest is placed when all ranges around it are; ids grow inwards only for reductions, so
    // repeat.
    while (!ends.empty()) {
      const size_t before = ends.size();
      absl::Status status;
      std::erase_if(ends, [&](UOp end) { return status.ok() && PlaceNest(end, &status); });
      TG_RETURN_IF_ERROR(status);
      if (ends.size() == before) return Internal("linearize: the loops do not nest");
    }
    return absl::OkStatus();
  }

  bool PlaceNest(UOp end, absl::Status* status) {
    const RangeSet around = around_[d_.IndexOf(end.src(1))];
    for (int i = 0; i < static_cast<int>(d_.ranges.size()); ++i) {
      if ((around >> i & 1) != 0 && !known_[i]) return false;
    }
    int outer = Innermost(around);
    for (int i = 1; i < end.num_src(); ++i) {
      const int r = d_.IndexOf(end.src(i));
      if (known_[r] && parent_[r] != outer) {
        *status = Internal("linearize: a loop has two places");
        return false;
      }
      parent_[r] = outer;
      depth_[r] = Depth(outer) + 1;
      known_[r] = true;
      outer = r;
    }
    return true;
  }

  int Innermost(uint64_t set) const {
    int best = kRoot;
    for (; set != 0; set &= set - 1) {
      const int r = std::countr_zero(set);
      if (best == kRoot || depth_[r] > depth_[best]) best = r;
    }
    return best;
  }

  int Depth(int block) const { return block == kRoot ? 0 : depth_[block]; }

  // Items are node ids, and loops as size + index of the range.
  uint32_t LoopItem(int range) const { return sink_.id() + 1 + static_cast<uint32_t>(range); }

  // The ancestor of (item in block) that is an item of `target`.
  std::optional<uint32_t> ItemIn(int target, uint32_t item, int block) const {
    while (block != target) {
      if (block == kRoot) return std::nullopt;
      item = LoopItem(block);
      block = parent_[block];
    }
    return item;
  }

  absl::Status Place() {
    const size_t items = sink_.id() + 1 + d_.ranges.size();
    block_.assign(items, kRoot);
    for (uint32_t id : live_) {
      // An END is part of the loop that it closes; its users come after that loop.
      block_[id] = g_.op(id) == Op::kEnd ? d_.IndexOf(g_.at(id).src(1)) : Innermost(d_.of[id]);
    }
    users_.resize(items);
    waits_.assign(items, 0);
    step_.assign(items, 0);
    for (uint32_t id : live_) {
      if (g_.op(id) == Op::kEnd || g_.op(id) == Op::kSink) continue;
      if (g_.op(id) == Op::kRange) {
        TG_RETURN_IF_ERROR(OrderEnd(g_.at(id)));
        continue;
      }
      for (uint32_t s : g_.src(id)) {
        if (g_.op(s) == Op::kRange) continue;
        TG_RETURN_IF_ERROR(Order(s, id));
        // A STORE that does not depend on the range that is closed around it stands outside of that
        // loop; it comes first all the same.
        UOp effect = g_.at(s);
        while (effect.is(Op::kEnd)) effect = effect.src(0);
        if (g_.op(s) == Op::kEnd && effect.is(Op::kStore)) OrderInCommonBlock(effect.id(), id);
      }
    }
    KeepOldValues();
    return absl::OkStatus();
  }

  // A loop's end is computed before it is entered.
  absl::Status OrderEnd(UOp range) {
    const int r = d_.IndexOf(range);
    const uint32_t end = range.src(0).id();
    if (g_.at(end).is_const() || r < 0 || !known_[r]) return absl::OkStatus();
    const std::optional<uint32_t> loop = ItemIn(block_[end], LoopItem(r), parent_[r]);
    if (!loop) return Internal("linearize: a loop's end depends on a loop inside of it");
    AddEdge(end, *loop);
    return absl::OkStatus();
  }

  // A load from a PARAM that is not the base of an AFTER sees what was there before the kernel: it
  // comes before the stores, which touch the same element (see KernelGraph).
  void KeepOldValues() {
    std::map<uint32_t, std::vector<uint32_t>> loads;
    for (uint32_t id : live_) {
      if (g_.op(id) == Op::kLoad) loads[g_.at(id).src(0).src(0).id()].push_back(id);
    }
    for (uint32_t id : live_) {
      if (g_.op(id) != Op::kStore) continue;
      const UOp base = g_.at(id).src(0).src(0);
      if (!base.is(Op::kParam)) continue;
      for (uint32_t load : loads[base.id()]) OrderInCommonBlock(load, id);
    }
  }

  void OrderInCommonBlock(uint32_t before, uint32_t after) {
    int x = block_[before], y = block_[after];
    while (x != y) {
      if (Depth(x) >= Depth(y)) {
        before = LoopItem(x);
        x = parent_[x];
      } else {
        after = LoopItem(y);
        y = parent_[y];
      }
    }
    AddEdge(before, after);
  }

  // `before` is computed before `after`: an edge in the innermost block that holds both.
  absl::Status Order(uint32_t before, uint32_t after) {
    int x = block_[before], y = block_[after];
    // An END's value exists once its whole nest is done, in the block around it.
    const bool closes = g_.op(before) == Op::kEnd;
    uint32_t from = before;
    if (closes) {
      from = LoopItem(x);
      x = parent_[x];
    }
    const std::optional<uint32_t> to = ItemIn(x, after, y);
    if (!to) return Internal("linearize: a value is used outside of its loop");
    AddEdge(from, *to);
    return absl::OkStatus();
  }

  void AddEdge(uint32_t from, uint32_t to) {
    if (from == to || !edges_.insert({from, to}).second) return;
    users_[from].push_back(to);
    ++waits_[to];
  }

  absl::StatusOr<std::vector<uint32_t>> Emit() {
    const size_t blocks = d_.ranges.size() + 1;
    std::vector<std::vector<uint32_t>> members(blocks);  // by block + 1
    for (uint32_t id : live_) {
      const Op op = g_.op(id);
      if (op != Op::kEnd && op != Op::kSink && op != Op::kRange)
        members[block_[id] + 1].push_back(id);
    }
    for (int r = 0; r < static_cast<int>(d_.ranges.size()); ++r) {
      if (known_[r]) members[parent_[r] + 1].push_back(LoopItem(r));
    }
    std::vector<std::vector<uint32_t>> sorted(blocks);
    for (size_t i = 0; i < blocks; ++i) {
      sorted[i] = Sort(members[i]);
      if (sorted[i].size() != members[i].size())
        return Internal("linearize: a loop depends on itself");
    }
    std::vector<uint32_t> order;
    for (UOp range : parallel_) {
      // An end may be computed; what the loops need of that is there by then.
      for (uint32_t id : PostOrder(range.src(0))) order.push_back(id);
      order.push_back(range.id());
    }
    struct Frame {
      int block;
      size_t next;
    };
    std::vector<Frame> stack{{kRoot, 0}};
    while (!stack.empty()) {
      Frame& top = stack.back();
      const std::vector<uint32_t>& items = sorted[top.block + 1];
      if (top.next == items.size()) {
        if (top.block != kRoot) {
          order.push_back(g_.Make(Op::kEnd, {d_.ranges[top.block]}).id());
        }
        stack.pop_back();
        continue;
      }
      const uint32_t item = items[top.next++];
      if (item <= sink_.id()) {
        order.push_back(item);
      } else {
        const int range = static_cast<int>(item - sink_.id() - 1);
        if (const UOp end = d_.ranges[range].src(0); end.is_const()) order.push_back(end.id());
        order.push_back(d_.ranges[range].id());
        stack.push_back({range, 0});
      }
    }
    for (size_t i = parallel_.size(); i-- > 0;) {
      order.push_back(g_.Make(Op::kEnd, {parallel_[i]}).id());
    }
    return Unique(std::move(order));
  }

  // A loop's end constant may be a value of its own as well.
  static std::vector<uint32_t> Unique(std::vector<uint32_t> order) {
    std::vector<bool> seen(order.empty() ? 0 : 1 + *std::ranges::max_element(order), false);
    std::erase_if(order, [&](uint32_t id) {
      const bool again = seen[id];
      seen[id] = true;
      return again;
    });
    return order;
  }

  // How many MULACCs or DOT4s stand in a row below each of `members`; what needs none comes with
  // the first of its users.
  void FindSteps(const std::vector<uint32_t>& members) {
    for (uint32_t item : members) step_[item] = 0;
    for (uint32_t item : members) {
      if (item <= sink_.id() && (g_.op(item) == Op::kMulAcc || g_.op(item) == Op::kDot4)) {
        ++step_[item];
      }
      for (uint32_t user : users_[item]) step_[user] = std::max(step_[user], step_[item]);
    }
    for (size_t i = members.size(); i-- > 0;) {
      if (step_[members[i]] != 0) continue;
      int least = INT_MAX;
      for (uint32_t user : users_[members[i]]) least = std::min(least, step_[user]);
      if (least != INT_MAX) step_[members[i]] = least;
    }
  }

  std::vector<uint32_t> Sort(const std::vector<uint32_t>& members) {
    FindSteps(members);
    using Key = std::pair<int, uint32_t>;
    std::priority_queue<Key, std::vector<Key>, std::greater<>> ready;
    for (uint32_t item : members) {
      if (waits_[item] == 0) ready.push({step_[item], item});
    }
    std::vector<uint32_t> out;
    while (!ready.empty()) {
      const uint32_t item = ready.top().second;
      ready.pop();
      out.push_back(item);
      for (uint32_t user : users_[item]) {
        if (--waits_[user] == 0) ready.push({step_[user], user});
      }
    }
    return out;
  }

  Graph& g_;
  const UOp sink_;
  std::vector<uint32_t> live_;
  Dependence d_;
  std::vector<UOp> parallel_;     // outermost first
  std::vector<RangeSet> around_;  // the loops around a nest, by its first
  std::vector<int> parent_, depth_;
  std::vector<bool> known_;
  std::vector<int> block_;
  std::vector<std::vector<uint32_t>> users_;
  std::vector<int> waits_, step_;
  absl::flat_hash_set<std::pair<uint32_t, uint32_t>> edges_;
};

}  // namespace

absl::StatusOr<std::vector<uint32_t>> Linearize(Graph* graph, UOp sink) {
  std::optional<Dependence> dependence = FindDependence(sink);
  if (!dependence) return ResourceExhausted("linearize: more than ", kMaxRanges, " ranges");
  return Linearizer(graph, sink, *std::move(dependence)).Run();
}

}  // namespace telegrad
