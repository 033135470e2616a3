// From the last kernel to the first. A LOAD matters where all of the comparisons hold that stand
// between it and every effect: the conditions of WHEREs whose first value it is part of, and gates.
// A comparison of one RANGE with given numbers limits a digit of the element's index, which is seen
// as (... * count + digit) * stride + rest: so the kernel that writes the temporary, over ranges of
// its own, finds the RANGE that is the same digit of what it stores.
#include "engine/execution/unread_parts.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/lowering/activity.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/position_form.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

constexpr size_t kMaxNumbers = 1024;  // arguments that numbers are loaded from

struct Digit {
  int64_t stride = 0;  // in elements
  int64_t count = 0;
  bool first = false;  // there is none above it
  friend bool operator==(const Digit&, const Digit&) = default;
};

// Elements with this digit from `end` on, a number in Trimmer::given_, are not read.
struct Limit {
  Digit digit;
  UOp end;
};

// What is read of a temporary: elements within all of the limits. Without limits, everything.
struct Need {
  bool read = false;
  std::vector<Limit> limits;
};

UOp MemoryOf(UOp address) {
  UOp buffer = address.src(0);
  while (buffer.is(Op::kAfter)) buffer = buffer.src(0);
  return buffer;
}

int64_t MostOf(UOp range) { return std::max<int64_t>(range.src(0).vmax(), 0); }

// The digit that `range` is of `index`, which goes to `elements` elements.
std::optional<Digit> DigitOf(UOp index, UOp range, int64_t elements) {
  PositionForm form;
  if (!form.Add(index, 1)) return std::nullopt;
  const auto own = form.terms.find(range.id());
  if (own == form.terms.end() || own->second < 1) return std::nullopt;
  const int64_t stride = own->second;
  int64_t below = 0, above = 0;
  for (const auto& [id, c] : form.terms) {
    const UOp u = index.graph()->at(id);
    if (u == range) continue;
    if (!u.is(Op::kRange) || c < 1 || c == stride) return std::nullopt;
    if (c < stride) {
      below += c * (MostOf(u) - 1);
    } else if (above == 0 || c < above) {
      above = c;
    }
  }
  if (below >= stride || above % stride != 0) return std::nullopt;
  if (above == 0 ? form.constant != 0 : form.constant % above != 0) return std::nullopt;
  const bool first = above == 0 || above >= elements;
  const int64_t count = first ? (elements + stride - 1) / stride : above / stride;
  for (const auto& [id, c] : form.terms) {
    if (c > stride && c % above != 0) return std::nullopt;
  }
  if (MostOf(range) > count) return std::nullopt;
  return Digit{stride, count, first};
}

// What must hold for the value of each node to matter, as the ids of comparisons.
class ReadConditions {
 public:
  explicit ReadConditions(UOp root)
      : g_(*root.graph()), of_(root.id() + 1), known_(root.id() + 1, false) {
    const std::vector<uint32_t> order = PostOrder(root);
    Meet(root.id(), {});
    for (size_t i = order.size(); i-- > 0;) Pass(g_.at(order[i]));
  }

  // Of a LOAD: with its gate.
  std::vector<UOp> Of(UOp load) const {
    Set set = of_[load.id()];
    if (load.src(0).num_src() == 3) set = With(set, load.src(0).src(2));
    std::vector<UOp> out;
    for (uint32_t id : set) out.push_back(g_.at(id));
    return out;
  }

 private:
  using Set = std::vector<uint32_t>;  // sorted

  static Set With(Set set, UOp condition) {
    for (const UOp c : ConditionsIn(condition)) set.push_back(c.id());
    std::ranges::sort(set);
    set.erase(std::ranges::unique(set).begin(), set.end());
    return set;
  }

  // One more use, where `set` holds.
  void Meet(uint32_t id, const Set& set) {
    if (!known_[id]) {
      known_[id] = true;
      of_[id] = set;
      return;
    }
    Set both;
    std::ranges::set_intersection(of_[id], set, std::back_inserter(both));
    of_[id] = std::move(both);
  }

  void Pass(UOp u) {
    const bool effect = u.is(Op::kSink) || u.is(Op::kEnd) || u.is(Op::kStore) || u.is(Op::kRange);
    const Set own = effect ? Set() : of_[u.id()];
    for (int i = 0; i < u.num_src(); ++i) {
      if (u.is(Op::kWhere) && i == 1) {
        Meet(u.src(i).id(), With(own, u.src(0)));
      } else if (u.is(Op::kStore) && i == 1 && u.src(0).num_src() == 3) {
        Meet(u.src(i).id(), With(own, u.src(0).src(2)));
      } else {
        Meet(u.src(i).id(), own);
      }
    }
  }

  const Graph& g_;
  std::vector<Set> of_;
  std::vector<bool> known_;
};

class Trimmer {
 public:
  explicit Trimmer(Schedule* schedule)
      : s_(*schedule), needs_(schedule->temporaries.size()), stores_(needs_.size(), 0) {}

  void Run() {
    if (!AnyGiven()) return;
    for (const ScheduledKernel& kernel : s_.kernels) {
      ForEach(kernel, Op::kStore, [&](UOp, BufferRef ref) {
        if (ref.kind == BufferRef::Kind::kSlot) stored_.push_back(ref.index);
        if (IsTemporary(ref)) ++stores_[static_cast<size_t>(ref.index)];
      });
    }
    for (size_t k = s_.kernels.size(); k-- > 0;) {
      Trim(k);
      AddNeeds(s_.kernels[k], /*own=*/false, &needs_);
    }
  }

 private:
  // The accesses of a kernel to its arguments.
  template <typename Visit>
  static void ForEach(const ScheduledKernel& kernel, Op op, const Visit& visit) {
    const UOp root = kernel.graph.root();
    for (uint32_t id : PostOrder(root)) {
      const UOp u = root.graph()->at(id);
      if (!u.is(op)) continue;
      const UOp memory = MemoryOf(u.src(0));
      if (memory.is(Op::kParam)) visit(u, kernel.arguments[static_cast<size_t>(memory.slot())]);
    }
  }

  static bool IsTemporary(BufferRef ref) { return ref.kind == BufferRef::Kind::kTemporary; }

  // Whether some kernel reads a single number: without one, nothing is given.
  bool AnyGiven() const {
    return std::ranges::any_of(s_.kernels, [](const ScheduledKernel& kernel) {
      bool any = false;
      ForEach(kernel, Op::kLoad, [&](UOp load, BufferRef) {
        any |= load.dtype() == DType::kInt64 && load.src(0).src(1).is_const();
      });
      return any;
    });
  }

  // Of the LOADs of a kernel; `own`: only those of what it has written itself.
  void AddNeeds(const ScheduledKernel& kernel, bool own, std::vector<Need>* needs) {
    const UOp root = kernel.graph.root();
    const std::optional<Dependence> d = FindDependence(root);
    const ReadConditions guards(root);
    std::optional<Activity> activity;
    if (d) activity.emplace(root, *d);
    ForEach(kernel, Op::kLoad, [&](UOp load, BufferRef ref) {
      if (!IsTemporary(ref) || (own && !load.src(0).src(0).is(Op::kAfter))) return;
      std::vector<Limit> limits;
      for (const UOp condition : d ? guards.Of(load) : std::vector<UOp>()) {
        if (auto limit = LimitOf(condition, load.src(0), *d, *activity, kernel)) {
          AddLimit(*limit, &limits);
        }
      }
      Meet(limits, &(*needs)[static_cast<size_t>(ref.index)]);
    });
  }

  // Both limits hold.
  void AddLimit(const Limit& limit, std::vector<Limit>* limits) {
    const auto same = std::ranges::find(*limits, limit.digit, &Limit::digit);
    if (same == limits->end()) limits->push_back(limit);
  }

  // One more LOAD, within `limits`.
  void Meet(const std::vector<Limit>& limits, Need* need) {
    if (!need->read) {
      *need = {true, limits};
      return;
    }
    std::erase_if(need->limits, [&](Limit& limit) {
      const auto same = std::ranges::find(limits, limit.digit, &Limit::digit);
      if (same == limits.end()) return true;
      if (same->end != limit.end) limit.end = given_.Make(Op::kMax, {limit.end, same->end});
      return false;
    });
  }

  // What `range * factor + given numbers < 0` says of the address.
  std::optional<Limit> LimitOf(UOp condition, UOp address, const Dependence& d,
                               const Activity& activity, const ScheduledKernel& kernel) {
    PositionForm form;
    if (!form.Add(condition.src(0), 1) || !form.Add(condition.src(1), -1)) return std::nullopt;
    UOp range;
    int64_t factor = 0;
    UOp rest = given_.Index(form.constant);
    bool given = false;
    for (const auto& [id, c] : form.terms) {
      const UOp u = condition.graph()->at(id);
      if (u.is(Op::kRange) && !range.valid() && c > 0) {
        range = u;
        factor = c;
        continue;
      }
      if (!activity.IsGiven(u)) return std::nullopt;
      const UOp number = Import(u, kernel);
      if (!number.valid()) return std::nullopt;
      given = true;
      rest = given_.Make(Op::kAdd,
                         {rest, given_.Make(Op::kMul, {AsIndex(given_, number), given_.Index(c)})});
    }
    if (!range.valid() || !given || d.IndexOf(range) < 0) return std::nullopt;
    const auto digit = DigitOf(address.src(1), range, NumElements(MemoryOf(address).shape()));
    if (!digit) return std::nullopt;
    // range < ceil(-rest / factor)
    UOp end = given_.Make(Op::kMul, {rest, given_.Index(-1)});
    if (factor > 1) {
      end = given_.Make(Op::kFloorDiv, {given_.Make(Op::kAdd, {end, given_.Index(factor - 1)}),
                                        given_.Index(factor)});
    }
    return Limit{*digit, end};
  }

  // The same number in the graph `to`, with the slots of its PARAMs as `slot` gives them; invalid
  // where it gives none.
  template <typename SlotOf>
  static UOp CopyNumber(UOp root, Graph* to, SlotOf slot) {
    absl::flat_hash_map<uint32_t, UOp> made;
    std::vector<UOp> src;
    for (uint32_t id : PostOrder(root)) {
      const UOp u = root.graph()->at(id);
      std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
      if (u.is(Op::kParam)) {
        const std::optional<int64_t> other = slot(arg[0]);
        if (!other) return {};
        arg[0] = *other;
      }
      src.clear();
      for (uint32_t s : u.src_ids()) src.push_back(made.at(s));
      made[id] = to->Make(u.op(), u.dtype(), src, arg);
    }
    return made.at(root.id());
  }

  // A number of a kernel in given_, where a PARAM's slot is the place of the argument in numbers_;
  // invalid where a slot is written, or a temporary more than once.
  UOp Import(UOp root, const ScheduledKernel& kernel) {
    return CopyNumber(root, &given_, [&](int64_t slot) -> std::optional<int64_t> {
      const BufferRef ref = kernel.arguments[static_cast<size_t>(slot)];
      const bool changes = IsTemporary(ref)
                               ? stores_[static_cast<size_t>(ref.index)] != 1 || ref.offset != 0
                               : std::ranges::find(stored_, ref.index) != stored_.end();
      const auto known = std::ranges::find(numbers_, ref);
      if (changes || (known == numbers_.end() && numbers_.size() == kMaxNumbers)) {
        return std::nullopt;
      }
      const int64_t place = known - numbers_.begin();
      if (known == numbers_.end()) numbers_.push_back(ref);
      return place;
    });
  }

  // Whether the numbers are in memory when kernel `k` runs. Temporaries of them are kept until the
  // kernel that the limit comes from, which is behind it.
  bool IsThere(UOp number, size_t k) const {
    return std::ranges::all_of(PostOrder(number), [&](uint32_t id) {
      const UOp u = given_.at(id);
      if (!u.is(Op::kParam)) return true;
      const BufferRef ref = numbers_[static_cast<size_t>(u.slot())];
      return !IsTemporary(ref) ||
             s_.temporaries[static_cast<size_t>(ref.index)].first < static_cast<int64_t>(k);
    });
  }

  // The same number in the graph of a kernel, which gets the arguments that it needs.
  UOp Export(UOp root, Graph* to, std::vector<BufferRef>* arguments) {
    return CopyNumber(root, to, [&](int64_t place) -> std::optional<int64_t> {
      const BufferRef ref = numbers_[static_cast<size_t>(place)];
      const auto known = std::ranges::find(*arguments, ref);
      const int64_t argument = known - arguments->begin();
      if (known == arguments->end()) arguments->push_back(ref);
      return argument;
    });
  }

  // Gates what kernel `k` stores in temporaries.
  void Trim(size_t k) {
    ScheduledKernel* const kernel = &s_.kernels[k];
    std::vector<Need> needs = needs_;
    AddNeeds(*kernel, /*own=*/true, &needs);
    bool any = false;
    ForEach(*kernel, Op::kStore, [&](UOp, BufferRef ref) {
      if (!IsTemporary(ref)) return;
      std::vector<Limit>& limits = needs[static_cast<size_t>(ref.index)].limits;
      std::erase_if(limits, [&](const Limit& limit) { return !IsThere(limit.end, k); });
      any |= !limits.empty();
    });
    if (!any) return;
    auto graph = std::make_shared<Graph>();
    const UOp root = CopyLive(kernel->graph.root(), graph.get());
    const std::optional<Dependence> d = FindDependence(root);
    if (!d) return;
    std::vector<BufferRef> arguments = kernel->arguments;
    const UOp made = Rebuild(*graph, root, [&](UOp u, std::vector<UOp>* src) {
      if (u.is(Op::kStore) && MemoryOf(u.src(0)).is(Op::kParam)) {
        const BufferRef ref = kernel->arguments[static_cast<size_t>(MemoryOf(u.src(0)).slot())];
        if (IsTemporary(ref)) {
          for (const Limit& limit : needs[static_cast<size_t>(ref.index)].limits) {
            src->front() = Gated(graph.get(), src->front(), limit, *d, &arguments);
          }
        }
      }
      return WithSources(*graph, u, *src);
    });
    if (!made.valid()) return;
    kernel->arguments = std::move(arguments);
    kernel->graph = Freeze(GateKept(graph.get(), made));
  }

  // What a kernel keeps for an iteration of a loop is computed only if the iteration stores
  // anything: where all that leaves the kernel has a gate of the loop, what stays has it, too.
  static UOp GateKept(Graph* g, UOp root) {
    std::optional<std::vector<UOp>> common;
    for (uint32_t id : PostOrder(root)) {
      const UOp u = g->at(id);
      if (!u.is(Op::kStore) || !MemoryOf(u.src(0)).is(Op::kParam)) continue;
      const bool gated = u.src(0).num_src() == 3;
      const std::vector<UOp> own = gated ? ConditionsIn(u.src(0).src(2)) : std::vector<UOp>();
      if (!common) common = own;
      std::erase_if(*common, [&](UOp c) { return std::ranges::find(own, c) == own.end(); });
    }
    if (!common || common->empty()) return root;
    return Rebuild(*g, root, [&](UOp u, std::vector<UOp>* src) {
      if (u.is(Op::kStore) && MemoryOf(u.src(0)).is(Op::kBuffer)) {
        for (const UOp condition : *common) {
          if (!IsKeptFor(condition.src(0), u.src(0).src(0))) continue;
          src->front() = WithGate(g, src->front(), condition);
        }
      }
      return WithSources(*g, u, *src);
    });
  }

  // Whether each iteration of the range has the memory for itself.
  static bool IsKeptFor(UOp range, UOp memory) {
    for (; memory.is(Op::kAfter); memory = memory.src(0)) {
      for (int i = 1; i < memory.num_src(); ++i) {
        if (memory.src(i) == range) return true;
      }
    }
    return false;
  }

  static UOp WithGate(Graph* g, UOp address, UOp gate) {
    if (address.num_src() == 3) gate = g->Make(Op::kAnd, {address.src(2), gate});
    return g->Make(Op::kIndex, {address.src(0), address.src(1), gate});
  }

  UOp Gated(Graph* g, UOp address, const Limit& limit, const Dependence& d,
            std::vector<BufferRef>* arguments) {
    const UOp index = address.src(1);
    const int64_t elements = NumElements(MemoryOf(address).shape());
    UOp along;
    for (const UOp range : d.ranges) {
      if (DigitOf(index, range, elements) == limit.digit) along = range;
    }
    if (!along.valid() && !limit.digit.first) return address;
    UOp end = Export(limit.end, g, arguments);
    if (!along.valid()) {
      along = index;
      end = g->Make(Op::kMul, {end, g->Index(limit.digit.stride)});
    }
    return WithGate(g, address, g->Make(Op::kCmpLt, {along, end}));
  }

  Schedule& s_;
  std::vector<Need> needs_;         // by temporary, of the kernels behind
  std::vector<int> stores_;         // into each temporary
  std::vector<int32_t> stored_;     // slots
  Graph given_;                     // numbers that the run gives
  std::vector<BufferRef> numbers_;  // what they are loaded from
};

}  // namespace

void LeaveOutUnread(Schedule* schedule) { Trimmer(schedule).Run(); }

}  // namespace telegrad
