// One walk over the post-order from the sink. What a node becomes is a list of nodes of the new
// graph, one for each instance of the value; the value of a TUPLE, CALL or LOOP is a list of such
// lists.
//
// A body is walked once for every call and every iteration, in a scope of its own that knows what
// the ARGs stand for. Scopes live as long as their call does, so they are a stack next to that of
// the walk. Interning makes equal results one node; what hostile nesting multiplies is stopped by a
// limit on the growth.
//
// Devices: on one device a COPY is a value in memory that all its instances share. On several, a
// COPY is one for each device that it goes to, and collectives are what collectives.h makes of
// them; which part of the graph runs when is not decided here.
#include "engine/schedule/legalize.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/rules/fold.h"
#include "engine/schedule/legalize_bits.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace {

constexpr uint32_t kTop = 0;  // the scope of what is in no body

// What a node became: `count` entries of a pool from `first`.
struct Ref {
  uint32_t first = 0;
  uint32_t count = 0;
};

class Legalizer {
 public:
  Legalizer(UOp sink, std::span<const VarValue> variables, Budget* budget,
            const Placement* placement)
      : from_(*sink.graph()),
        sink_(sink),
        order_(PostOrder(sink)),
        variables_(variables.begin(), variables.end()),
        budget_(budget),
        placement_(placement),
        top_(sink.id() + 1),
        held_(budget) {}

  absl::StatusOr<FrozenGraph> Run();

 private:
  struct Scope {
    std::vector<Ref> args;
    absl::flat_hash_map<uint32_t, Ref> made;
  };
  struct Frame {
    uint32_t scope;
    uint32_t node;
    int next = 0;                   // the next source to look at
    bool inside = false;            // of a CALL or LOOP: its body is being walked
    int64_t iteration = 0;          // of a LOOP
    int64_t trips = 0;              // of a LOOP: at most so many
    std::vector<Ref> carried = {};  // of a LOOP
  };

  absl::Status CheckVariables();
  absl::Status Walk();
  // Sets `*out` when `frame`, whose sources are made, is done; else has pushed its body.
  absl::Status Finish(size_t frame, std::optional<Ref>* out);
  absl::Status FinishCall(size_t frame, std::optional<Ref>* out);
  absl::Status FinishLoop(size_t frame, std::optional<Ref>* out);
  void Enter(size_t frame, std::vector<Ref> args);
  absl::StatusOr<Ref> Leave(size_t frame);
  absl::StatusOr<Ref> Structure(const Frame& frame, UOp u);

  absl::StatusOr<Ref> Instances(const Frame& frame, UOp u);
  absl::StatusOr<UOp> Node(UOp u, std::span<const UOp> src);
  // The value of an integer that the engine computes with.
  UOp Integer(UOp old, UOp x) {
    return IsPacked(old.dtype()) ? CarriedCast(&g_, x, old.dtype(), DType::kInt8) : x;
  }
  absl::StatusOr<UOp> Var(UOp u, std::span<const UOp> src);
  absl::StatusOr<UOp> Store(UOp u, std::span<const UOp> src);
  UOp After(UOp u, std::span<const UOp> src);
  absl::StatusOr<UOp> Param(UOp u);
  UOp Window(UOp u, UOp x, std::span<const int64_t> arg);

  // Devices.
  absl::StatusOr<int64_t> DeviceOf(int64_t number) const;
  absl::StatusOr<Ref> Copy(UOp u, UOp x);
  absl::StatusOr<Ref> Collective(UOp u, Ref all);
  // `x` where `like` is.
  UOp Near(UOp x, UOp like) {
    return like.devices().empty() ? x : CopyTo(&g_, x, like.devices()[0], budget_);
  }

  // The bytes of a packed PARAM, or of one after stores; an invalid UOp for anything else.
  UOp PackedMemory(UOp u) const {
    const auto it = packed_.find(u.id());
    return it == packed_.end() ? UOp() : it->second;
  }

  bool Known(uint32_t scope, uint32_t node) const {
    return scope == kTop ? top_[node].count > 0 : scopes_[scope - 1].made.contains(node);
  }
  Ref Of(uint32_t scope, UOp u) const {
    return scope == kTop ? top_[u.id()] : scopes_[scope - 1].made.at(u.id());
  }
  UOp Instance(Ref ref, uint32_t i) const { return pool_[ref.first + (ref.count > 1 ? i : 0)]; }
  Ref Single(UOp u) {
    pool_.push_back(u);
    return {static_cast<uint32_t>(pool_.size()) - 1, 1};
  }
  Ref Repeated(UOp u, size_t count) {
    pool_.insert(pool_.end(), count, u);
    return {static_cast<uint32_t>(pool_.size() - count), static_cast<uint32_t>(count)};
  }
  Ref List(std::span<const Ref> values) {
    lists_.insert(lists_.end(), values.begin(), values.end());
    return {static_cast<uint32_t>(lists_.size() - values.size()),
            static_cast<uint32_t>(values.size())};
  }
  absl::Status Spend(int64_t n);

  const Graph& from_;
  const UOp sink_;
  const std::vector<uint32_t> order_;
  std::vector<VarValue> variables_;
  Budget* budget_;
  const Placement* const placement_;  // null: all on one device
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  Graph& g_ = *graph_;
  std::vector<Frame> stack_;
  std::vector<Scope> scopes_;                  // scope n is scopes_[n - 1]
  std::vector<Ref> top_;                       // by node
  std::vector<UOp> pool_;                      // instances
  std::vector<Ref> lists_;                     // values of tuples
  absl::flat_hash_map<uint32_t, UOp> packed_;  // by old node
  absl::flat_hash_set<UOp> clipped_;           // views with elements that are not the param's
  int64_t spent_ = 0, calls_ = 0;
  Budget::Held held_;
};

absl::Status Legalizer::Spend(int64_t n) {
  spent_ += n;
  const auto limit = static_cast<int64_t>(order_.size()) + kMaxNodes;
  if (spent_ > limit || g_.size() > limit) {
    return ResourceExhausted("inlining calls, unrolling loops and making instances: more than ",
                             kMaxNodes, " nodes more than the graph has");
  }
  if (++calls_ % 1024 == 0) {
    const size_t pools = pool_.size() * sizeof(UOp) + lists_.size() * sizeof(Ref);
    TG_RETURN_IF_ERROR(held_.GrowTo(g_.bytes() + static_cast<int64_t>(pools)));
    TG_RETURN_IF_ERROR(budget_->CheckTime());
  }
  return budget_->SpendNodes(n);
}

absl::Status Legalizer::CheckVariables() {
  std::ranges::sort(variables_);
  absl::flat_hash_set<int64_t> known;
  for (uint32_t node : order_) {
    if (from_.op(node) == Op::kVar && from_.src(node).empty()) known.insert(from_.arg(node)[0]);
  }
  for (size_t i = 0; i < variables_.size(); ++i) {
    const int64_t id = variables_[i].id;
    if (i > 0 && variables_[i - 1].id == id) {
      return InvalidArgument("variable ", id, " is given twice");
    }
    if (!known.contains(id)) return InvalidArgument("variable ", id, " is none of the graph's");
  }
  return absl::OkStatus();
}

absl::StatusOr<FrozenGraph> Legalizer::Run() {
  TG_RETURN_IF_ERROR(CheckVariables());
  TG_RETURN_IF_ERROR(Walk());
  const uint32_t root = pool_[top_[sink_.id()].first].id();
  return FrozenGraph{std::move(graph_), root};
}

absl::Status Legalizer::Walk() {
  stack_.push_back({kTop, sink_.id()});
  while (!stack_.empty()) {
    Frame& top = stack_.back();
    const UOp u = from_.at(top.node);
    // The body of a CALL or LOOP is walked in its own scope.
    const bool calls = u.is(Op::kCall) || u.is(Op::kLoop);
    if (calls && top.next == 0) top.next = 1;
    if (!top.inside && top.next < u.num_src()) {
      const uint32_t source = u.src(top.next++).id();
      if (!Known(top.scope, source)) stack_.push_back({top.scope, source});
      continue;
    }
    std::optional<Ref> made;
    TG_RETURN_IF_ERROR(Finish(stack_.size() - 1, &made));
    TG_RETURN_IF_ERROR(g_.status());
    if (!made) continue;
    const auto [scope, node] = std::pair(stack_.back().scope, stack_.back().node);
    if (scope == kTop) {
      top_[node] = *made;
    } else {
      scopes_[scope - 1].made.emplace(node, *made);
    }
    stack_.pop_back();
  }
  return absl::OkStatus();
}

absl::Status Legalizer::Finish(size_t frame, std::optional<Ref>* out) {
  const UOp u = from_.at(stack_[frame].node);
  if (!stack_[frame].inside) TG_RETURN_IF_ERROR(Spend(1));
  switch (u.op()) {
    case Op::kCall:
      return FinishCall(frame, out);
    case Op::kLoop:
      return FinishLoop(frame, out);
    default: {
      TG_ASSIGN_OR_RETURN(*out, Structure(stack_[frame], u));
      return absl::OkStatus();
    }
  }
}

// --- functions ---

void Legalizer::Enter(size_t frame, std::vector<Ref> args) {
  scopes_.push_back({std::move(args), {}});
  const UOp body = from_.at(stack_[frame].node).src(0);
  stack_[frame].inside = true;
  stack_.push_back({static_cast<uint32_t>(scopes_.size()), body.id()});
}

absl::StatusOr<Ref> Legalizer::Leave(size_t frame) {
  const UOp body = from_.at(stack_[frame].node).src(0);
  const Ref values = scopes_.back().made.at(body.id());
  scopes_.pop_back();
  TG_RETURN_IF_ERROR(Spend(values.count));
  return values;
}

absl::Status Legalizer::FinishCall(size_t frame, std::optional<Ref>* out) {
  const Frame& f = stack_[frame];
  const UOp u = from_.at(f.node);
  if (f.inside) {
    TG_ASSIGN_OR_RETURN(*out, Leave(frame));
    return absl::OkStatus();
  }
  std::vector<Ref> args;
  for (int i = 1; i < u.num_src(); ++i) args.push_back(Of(f.scope, u.src(i)));
  Enter(frame, std::move(args));
  return absl::OkStatus();
}

// Unrolled. Where the number of iterations is not known, each one up to its bound decides whether
// it counts.
absl::Status Legalizer::FinishLoop(size_t frame, std::optional<Ref>* out) {
  Frame& f = stack_[frame];
  const UOp u = from_.at(f.node);
  const UOp trips = Integer(u.src(1), Instance(Of(f.scope, u.src(1)), 0));
  if (!f.inside) {
    // A client's bound holds where the rewritten expression lost it.
    f.trips = std::min(trips.vmax(), u.src(1).vmax());
    for (int i = 2; i < u.num_src(); ++i) f.carried.push_back(Of(f.scope, u.src(i)));
  } else {
    TG_ASSIGN_OR_RETURN(const Ref values, Leave(frame));
    const bool counts = trips.vmin() > f.iteration;
    const UOp more =
        counts ? UOp() : g_.Make(Op::kCmpLt, {g_.Const(trips.dtype(), f.iteration), trips});
    for (size_t i = 0; i < f.carried.size(); ++i) {
      const Ref next = lists_[values.first + i], old = f.carried[i];
      if (counts) {
        f.carried[i] = next;
        continue;
      }
      const uint32_t count = std::max(next.count, old.count);
      TG_RETURN_IF_ERROR(Spend(count));
      const auto first = static_cast<uint32_t>(pool_.size());
      for (uint32_t k = 0; k < count; ++k) {
        const UOp there =
            Instance(next, k).devices().empty() ? Instance(old, k) : Instance(next, k);
        pool_.push_back(g_.Make(Op::kWhere, {Near(more, there), Near(Instance(next, k), there),
                                             Near(Instance(old, k), there)}));
      }
      f.carried[i] = {first, count};
    }
    ++f.iteration;
  }
  if (f.iteration >= f.trips) {
    *out = List(f.carried);
    return absl::OkStatus();
  }
  std::vector<Ref> args{Single(g_.Index(f.iteration))};
  args.insert(args.end(), f.carried.begin(), f.carried.end());
  Enter(frame, std::move(args));
  return absl::OkStatus();
}

// --- one node, all instances ---

absl::StatusOr<Ref> Legalizer::Structure(const Frame& frame, UOp u) {
  const auto source = [&](int i) { return Of(frame.scope, u.src(i)); };
  switch (u.op()) {
    case Op::kArg:
      return scopes_[frame.scope - 1].args[static_cast<size_t>(u.arg(0))];
    case Op::kTuple: {
      std::vector<Ref> values;
      for (int i = 0; i < u.num_src(); ++i) values.push_back(source(i));
      TG_RETURN_IF_ERROR(Spend(u.num_src()));
      return List(values);
    }
    case Op::kGetTuple:
      return lists_[source(0).first + static_cast<uint32_t>(u.arg(0))];
    case Op::kCopy:
      return Copy(u, pool_[source(0).first]);
    case Op::kMStack: {
      std::vector<UOp> parts;
      for (int i = 0; i < u.num_src(); ++i) parts.push_back(pool_[source(i).first]);
      TG_RETURN_IF_ERROR(Spend(u.num_src()));
      pool_.insert(pool_.end(), parts.begin(), parts.end());
      return Ref{static_cast<uint32_t>(pool_.size() - parts.size()),
                 static_cast<uint32_t>(parts.size())};
    }
    case Op::kMSelect:
      return Single(Instance(source(0), static_cast<uint32_t>(u.arg(0))));
    case Op::kAllReduce:
    case Op::kUnshard:
      return Collective(u, source(0));
    default:
      return Instances(frame, u);
  }
}

absl::StatusOr<int64_t> Legalizer::DeviceOf(int64_t number) const {
  if (placement_ == nullptr) return 0;
  const std::vector<int64_t>& known = placement_->device_of;
  if (number < static_cast<int64_t>(known.size()) && known[number] >= 0) return known[number];
  return InvalidArgument("the graph names device ", number, ", which is bound to none");
}

absl::StatusOr<Ref> Legalizer::Copy(UOp u, UOp x) {
  const auto count = static_cast<int64_t>(u.arg().size());
  TG_RETURN_IF_ERROR(Spend(count));
  if (placement_ == nullptr) {
    return Repeated(x.is_const() ? x : g_.Make(Op::kContiguous, {x}), u.arg().size());
  }
  const auto first = static_cast<uint32_t>(pool_.size());
  for (const int64_t number : u.arg()) {
    TG_ASSIGN_OR_RETURN(const int64_t device, DeviceOf(number));
    pool_.push_back(CopyTo(&g_, x, device, budget_));
  }
  return Ref{first, static_cast<uint32_t>(count)};
}

absl::StatusOr<Ref> Legalizer::Collective(UOp u, Ref all) {
  const auto n = static_cast<int64_t>(all.count);
  TG_RETURN_IF_ERROR(Spend(placement_ == nullptr ? n : n * n));
  const auto from = std::span(pool_).subspan(all.first, all.count);
  const std::vector<UOp> values(from.begin(), from.end());
  const auto kind = static_cast<ReduceKind>(u.arg(0));
  if (placement_ == nullptr || all.count == 1) {
    const UOp one =
        u.is(Op::kUnshard) ? Concatenate(&g_, values, u.arg(0)) : FoldValues(&g_, kind, values);
    return Repeated(one, all.count);
  }
  std::vector<int64_t> devices;
  for (const int64_t number : u.src(0).devices()) {
    TG_ASSIGN_OR_RETURN(devices.emplace_back(), DeviceOf(number));
  }
  if (devices.size() != values.size()) {
    return InvalidArgument(Name(u.op()), ": a value of ", values.size(), " instances on ",
                           devices.size(), " devices: the body of a loop moves what it carries");
  }
  std::vector<UOp> made;
  if (u.is(Op::kAllReduce)) {
    made = AllReduceInstances(&g_, kind, values, devices, placement_->all_reduce, budget_);
  } else {
    for (const int64_t device : devices) {
      std::vector<UOp> parts;
      for (const UOp x : values) parts.push_back(CopyTo(&g_, x, device, budget_));
      made.push_back(Concatenate(&g_, std::move(parts), u.arg(0)));
    }
  }
  pool_.insert(pool_.end(), made.begin(), made.end());
  return Ref{static_cast<uint32_t>(pool_.size() - made.size()), all.count};
}

absl::StatusOr<Ref> Legalizer::Instances(const Frame& frame, UOp u) {
  uint32_t count = 1;
  for (int i = 0; i < u.num_src(); ++i) count = std::max(count, Of(frame.scope, u.src(i)).count);
  if (count > 1) TG_RETURN_IF_ERROR(Spend(static_cast<int64_t>(count) * u.num_src()));
  std::vector<UOp> src, made;
  for (uint32_t k = 0; k < count; ++k) {
    src.clear();
    for (int i = 0; i < u.num_src(); ++i) src.push_back(Instance(Of(frame.scope, u.src(i)), k));
    TG_ASSIGN_OR_RETURN(const UOp node, Node(u, src));
    if (!node.valid()) return g_.status();
    made.push_back(node);
  }
  pool_.insert(pool_.end(), made.begin(), made.end());
  return Ref{static_cast<uint32_t>(pool_.size() - count), count};
}

// --- one node, one instance ---

absl::StatusOr<UOp> Legalizer::Node(UOp u, std::span<const UOp> src) {
  std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
  if (Is(u.op(), kSymbolic)) {
    for (int64_t& word : arg) {
      if (word >= 0) continue;
      const UOp size = src[static_cast<size_t>(-(word + 1))];
      if (!size.is_const()) return Internal(Name(u.op()), ": a size is not known at the run");
      word = size.const_word();
    }
    src = src.first(static_cast<size_t>(Info(u.op()).min_src));
  }
  const DType dtype = u.dtype();
  switch (u.op()) {
    case Op::kConst:
      return CarriedConst(&g_, dtype, u.const_word());
    case Op::kParam:
      return Param(u);
    case Op::kAfter:
      return After(u, src);
    case Op::kStore:
      return Store(u, src);
    case Op::kVar:
      return Var(u, src);
    case Op::kPad:
    case Op::kShrink:
      return Window(u, src[0], arg);
    case Op::kCast:
      return CarriedCast(&g_, src[0], u.src(0).dtype(), dtype);
    case Op::kBitcast:
      return CarriedBitcast(&g_, src[0], u.src(0).dtype(), dtype);
    case Op::kCat:
      return Concatenate(&g_, {src.begin(), src.end()}, arg[0]);
    case Op::kReduce: {
      // Folded in f32, rounded once; a fold of nothing is the type's own identity.
      const bool wide = IsNarrowFloat(dtype) && NumElements(src[0].shape()) > 0;
      const UOp x = wide ? g_.Make(Op::kCast, DType::kFloat32, {src[0]}) : src[0];
      const UOp folded = g_.Make(Op::kReduce, {x}, arg);
      return wide ? g_.Make(Op::kCast, dtype, {folded}) : folded;
    }
    case Op::kGather:
      return g_.Make(Op::kGather, {src[0], Integer(u.src(1), src[1])});
    case Op::kScatter:
      return g_.Make(Op::kScatter, {src[0], Integer(u.src(1), src[1]), src[2]}, arg);
    default:
      break;
  }
  const UOp out = g_.Make(u.op(), Carrier(dtype), src, arg);
  if (!out.valid()) return out;
  // Sizes and trip counts are scalars computed from variables: known now.
  if (Is(u.op(), kAlu) && out.shape().empty() && (IsInt(dtype) || IsBool(dtype))) {
    const std::optional<int64_t> word = telegrad::Fold(out);
    if (word) return g_.ConstWord(out.dtype(), *word);
    if (out.bounds().constant()) return g_.ConstWord(out.dtype(), out.vmin());
  }
  if (!clipped_.empty() && Is(u.op(), kMovement) && clipped_.contains(src[0])) {
    clipped_.insert(out);
  }
  return out;
}

absl::StatusOr<UOp> Legalizer::Param(UOp u) {
  TG_ASSIGN_OR_RETURN(const int64_t device, DeviceOf(u.arg(1)));
  if (!IsPacked(u.dtype())) return g_.Param(u.arg(0), u.dtype(), u.shape(), device);
  const int64_t bytes = BytesOf(u.dtype(), NumElements(u.shape()));
  const UOp memory = g_.Param(u.arg(0), DType::kUInt8, Shape{bytes}, device);
  packed_[u.id()] = memory;
  return UnpackCodes(&g_, u.dtype(), memory, u.shape());
}

UOp Legalizer::After(UOp u, std::span<const UOp> src) {
  if (!IsPacked(u.dtype())) return g_.Make(Op::kAfter, DType::kVoid, src);
  std::vector<UOp> parts(src.begin(), src.end());
  parts[0] = PackedMemory(u.src(0));
  const UOp memory = g_.Make(Op::kAfter, DType::kVoid, parts);
  packed_[u.id()] = memory;
  return UnpackCodes(&g_, u.dtype(), memory, u.shape());
}

absl::StatusOr<UOp> Legalizer::Store(UOp u, std::span<const UOp> src) {
  const DType dtype = u.src(1).dtype();
  if (!IsPacked(dtype)) {
    if (clipped_.contains(src[0])) {
      return InvalidArgument("store: with the variables of this run its target leaves the param");
    }
    return g_.Make(Op::kStore, DType::kVoid, src);
  }
  UOp target = u.src(0);  // the whole param: reshapes of it
  while (target.is(Op::kReshape)) target = target.src(0);
  UOp codes = src[1];
  if (codes.shape().empty() && !u.src(0).shape().empty()) {
    const int64_t n = NumElements(u.src(0).shape());
    codes = g_.Make(Op::kExpand, {g_.Make(Op::kReshape, {codes}, Shape{1})}, Shape{n});
  }
  return g_.Make(Op::kStore, {PackedMemory(target), PackCodes(&g_, dtype, codes)});
}

// A variable of the run is its value; a device scalar is clamped and rounded down.
absl::StatusOr<UOp> Legalizer::Var(UOp u, std::span<const UOp> src) {
  const int64_t id = u.arg(0), min = u.arg(1), max = u.arg(2), multiple = u.arg(3);
  if (src.empty()) {
    const auto it = std::ranges::lower_bound(variables_, id, {}, &VarValue::id);
    if (it == variables_.end() || it->id != id) {
      return InvalidArgument("variable ", id, " has no value, expected one in [", min, ", ", max,
                             "]");
    }
    if (it->value < min || it->value > max || it->value % multiple != 0) {
      return InvalidArgument("variable ", id, " is ", it->value, ", expected a multiple of ",
                             multiple, " in [", min, ", ", max, "]");
    }
    return g_.Index(it->value);
  }
  UOp x = Integer(u.src(0), src[0]);
  if (x.dtype() == DType::kUInt64) {  // what no i64 holds is over every maximum
    const UOp most = g_.Const(DType::kUInt64, INT64_MAX);
    x = g_.Make(Op::kWhere, {g_.Make(Op::kCmpLt, {most, x}), most, x});
  }
  if (x.dtype() != DType::kInt64) x = g_.Make(Op::kCast, DType::kInt64, {x});
  x = g_.Make(Op::kMax, {x, g_.Index(min)});
  x = g_.Make(Op::kWhere, {g_.Make(Op::kCmpLt, {x, g_.Index(max)}), x, g_.Index(max)});
  if (multiple == 1) return x;
  return g_.Make(Op::kSub, {x, g_.Make(Op::kFloorMod, {x, g_.Index(multiple)})});
}

// PAD and SHRINK, each with a part that may leave the source once sizes are known: a shrink to what
// is there, then a pad to the size.
UOp Legalizer::Window(UOp u, UOp x, std::span<const int64_t> arg) {
  Shape part, around;
  bool shrinks = false, pads = false;
  for (size_t i = 0; i < x.shape().size(); ++i) {
    const int64_t from = x.shape()[i], offset = arg[2 * i], size = arg[2 * i + 1];
    const int64_t begin = u.is(Op::kShrink) ? std::min(offset, from) : 0;
    const int64_t before = u.is(Op::kShrink) ? 0 : std::min(offset, size);
    const int64_t length = std::min(from - begin, size - before);
    part.insert(part.end(), {begin, length});
    around.insert(around.end(), {before, size});
    shrinks |= begin != 0 || length != from;
    pads |= before != 0 || size != length;
  }
  const bool clipped = clipped_.contains(x);
  if (shrinks) x = g_.Make(Op::kShrink, {x}, part);
  if (pads) x = g_.Make(Op::kPad, {x}, around);
  // Without variables no shrink leaves its source, and no target has a pad.
  if (!variables_.empty() && (pads || clipped)) clipped_.insert(x);
  return x;
}

}  // namespace

absl::StatusOr<FrozenGraph> Legalize(UOp sink, std::span<const VarValue> variables, Budget* budget,
                                     const Placement* placement) {
  return Legalizer(sink, variables, budget, placement).Run();
}

}  // namespace telegrad
