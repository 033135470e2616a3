// Each node becomes tensors, one for each instance of its value, shared where the bytes are the
// same and freed after the last user. The value of a STORE is the whole slot after it, so that
// AFTER is just the value of the last of its stores; the verifier has made sure that the stores to
// a slot are in a total order, which post-order therefore follows.
//
// A function body is evaluated in a frame of its own, which holds the values of the body's nodes
// for these arguments. The frames are a stack: a CALL or LOOP pushes one and goes on when it has
// become the body's values. A body only has nodes older than itself, so the stack is finite.
#include "engine/reference/tensor_eval.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "engine/base/status.h"
#include "engine/ir/verify.h"
#include "engine/reference/lane.h"
#include "engine/reference/tensor_eval_ops.h"
#include "engine/types/limits.h"

namespace telegrad::reference {
namespace {

using internal::EvalContext;
using internal::Movement;
using internal::Sources;
using internal::Tensor;

using Value = std::vector<Tensor>;  // by instance; one that can be anywhere has one
using Result = std::vector<Value>;  // of a node: one value, those of a tuple, or none (an effect)

// The order in which one body, or the graph around all bodies, is evaluated.
struct Plan {
  std::vector<uint32_t> order;                     // the root last
  absl::flat_hash_map<uint32_t, uint32_t> places;  // by id: the position in the order
  std::vector<uint32_t> uses;                      // by place
};

struct Frame {
  const Plan* plan;
  std::vector<Value> args = {};
  int64_t trips = 1;  // still to run, this one included
  int64_t trip = 0;
  size_t next = 0;                   // place
  std::vector<Result> results = {};  // by place
  std::vector<uint32_t> uses = {};   // by place: users not evaluated yet
};

bool HasBody(Op op) { return op == Op::kCall || op == Op::kLoop; }

class Evaluator {
 public:
  Evaluator(const Graph& graph, std::span<std::vector<uint8_t>> slots, const Variables& variables,
            Budget* budget)
      : g_(graph), slots_(slots), variables_(variables), budget_(budget), context_(budget) {}

  absl::Status Run(UOp sink) {
    TG_RETURN_IF_ERROR(Push(sink.id(), {}, 1));
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      if (frame.next == frame.plan->order.size()) {
        TG_RETURN_IF_ERROR(Finish());
        continue;
      }
      const UOp u = g_.at(frame.plan->order[frame.next]);
      TG_RETURN_IF_ERROR(budget_->SpendNodes());
      TG_RETURN_IF_ERROR(budget_->CheckTime());
      if (HasBody(u.op())) {
        TG_RETURN_IF_ERROR(Enter(u));
        continue;
      }
      TG_ASSIGN_OR_RETURN(Result result, ResultOf(u));
      Deliver(std::move(result));
    }
    for (const auto& [slot, tensor] : stored_) {
      Pack(tensor.dtype, tensor.at(0), NumElements(tensor.dims), slots_[slot].data());
    }
    return absl::OkStatus();
  }

 private:
  // --- frames ---

  absl::StatusOr<const Plan*> PlanOf(uint32_t root) {
    std::unique_ptr<Plan>& plan = plans_[root];
    if (plan != nullptr) return plan.get();
    plan = std::make_unique<Plan>();
    std::vector<std::pair<uint32_t, size_t>> stack{{root, 0}};  // id, next source
    absl::flat_hash_map<uint32_t, uint32_t>& places = plan->places;
    constexpr uint32_t kOpen = 0xffffffff;
    places[root] = kOpen;
    while (!stack.empty()) {
      auto& [id, next] = stack.back();
      const std::span<const uint32_t> src = g_.src(id);
      if (next == 0 && HasBody(g_.op(id))) next = 1;
      if (next < src.size()) {
        const uint32_t child = src[next++];
        if (places.try_emplace(child, kOpen).second) stack.emplace_back(child, 0);
        continue;
      }
      TG_RETURN_IF_ERROR(budget_->SpendNodes());
      places[id] = static_cast<uint32_t>(plan->order.size());
      plan->order.push_back(id);
      plan->uses.push_back(0);
      for (uint32_t s : src.subspan(HasBody(g_.op(id)) ? 1 : 0)) ++plan->uses[places[s]];
      stack.pop_back();
    }
    return plan.get();
  }

  absl::Status Push(uint32_t root, std::vector<Value> args, int64_t trips) {
    TG_ASSIGN_OR_RETURN(const Plan* plan, PlanOf(root));
    frames_.push_back({.plan = plan, .args = std::move(args), .trips = trips});
    frames_.back().results.resize(plan->order.size());
    frames_.back().uses = plan->uses;
    return absl::OkStatus();
  }

  // Evaluates the body of the CALL or LOOP that the top frame is at.
  absl::Status Enter(UOp u) {
    if (u.is(Op::kCall)) {
      std::vector<Value> args;
      for (int i = 1; i < u.num_src(); ++i) args.push_back(Of(u.src(i)));
      return Push(u.src(0).id(), std::move(args), 1);
    }
    const Tensor& count = Of(u.src(1))[0];
    const int64_t trips = LaneAsIndex(count.dtype, count.lane(0));
    if (trips > kMaxTrips) return Internal("loop: runs ", trips, " times, over the limit");
    std::vector<Value> args(1);  // the iteration
    for (int i = 2; i < u.num_src(); ++i) args.push_back(Of(u.src(i)));
    if (trips <= 0) {
      args.erase(args.begin());
      Deliver(std::move(args));
      return absl::OkStatus();
    }
    TG_ASSIGN_OR_RETURN(args[0], Scalar(0));
    return Push(u.src(0).id(), std::move(args), trips);
  }

  // The top frame has its root's result, the body's values.
  absl::Status Finish() {
    Frame& frame = frames_.back();
    Result result = std::move(frame.results.back());
    if (--frame.trips == 0) {
      frames_.pop_back();
      if (!frames_.empty()) Deliver(std::move(result));
      return absl::OkStatus();
    }
    TG_ASSIGN_OR_RETURN(frame.args[0], Scalar(++frame.trip));
    std::ranges::move(result, frame.args.begin() + 1);
    frame.next = 0;
    frame.uses = frame.plan->uses;
    return absl::OkStatus();
  }

  // The result of the node that the top frame is at.
  void Deliver(Result result) {
    Frame& frame = frames_.back();
    const uint32_t id = frame.plan->order[frame.next];
    frame.results[frame.next++] = std::move(result);
    for (uint32_t s : g_.src(id).subspan(HasBody(g_.op(id)) ? 1 : 0)) {
      const uint32_t place = frame.plan->places.at(s);
      if (--frame.uses[place] == 0) frame.results[place] = {};
    }
  }

  uint32_t PlaceOf(UOp u) const { return frames_.back().plan->places.at(u.id()); }
  const Result& ResultAt(UOp u) const { return frames_.back().results[PlaceOf(u)]; }
  const Value& Of(UOp u) const { return ResultAt(u)[0]; }

  // --- nodes ---

  absl::StatusOr<Result> ResultOf(UOp u) {
    switch (u.op()) {
      case Op::kSink:
        return Result();
      case Op::kTuple: {
        Result out;
        for (int i = 0; i < u.num_src(); ++i) out.push_back(Of(u.src(i)));
        return out;
      }
      default: {
        TG_ASSIGN_OR_RETURN(Value value, ValueOf(u));
        return Result{std::move(value)};
      }
    }
  }

  absl::StatusOr<Value> ValueOf(UOp u) {
    switch (u.op()) {
      case Op::kParam:
        return Single(Param(u));
      case Op::kArg:
        return frames_.back().args[static_cast<size_t>(u.slot())];
      case Op::kVar:
        return u.num_src() == 0 ? Variable(u) : Instances(u);
      case Op::kStore:
        return Single(Store(u));
      case Op::kAfter:
        return After(u);
      case Op::kGetTuple:
        return ResultAt(u.src(0))[static_cast<size_t>(u.number())];
      case Op::kCopy:
        return Value(u.arg().size(), Of(u.src(0))[0]);
      case Op::kMStack: {
        Value out;
        for (int i = 0; i < u.num_src(); ++i) out.push_back(Of(u.src(i))[0]);
        return out;
      }
      case Op::kMSelect:
        return Value{Of(u.src(0))[static_cast<size_t>(u.number())]};
      case Op::kAllReduce:
      case Op::kUnshard:
        return Collective(u);
      default:
        return Instances(u);
    }
  }

  static absl::StatusOr<Value> Single(absl::StatusOr<Tensor> tensor) {
    if (!tensor.ok()) return std::move(tensor).status();
    return Value{*std::move(tensor)};
  }

  absl::StatusOr<Value> Scalar(int64_t value) {
    TG_ASSIGN_OR_RETURN(Tensor out, context_.New(DType::kInt64, {}));
    out.set(0, static_cast<Lane>(value));
    return Value{std::move(out)};
  }

  absl::StatusOr<Value> Variable(UOp u) {
    const int64_t id = u.var_id(), min = u.var_min(), max = u.var_max(),
                  multiple = u.var_multiple();
    const auto it = variables_.find(id);
    if (it == variables_.end()) return InvalidArgument("var: variable ", id, " has no value");
    const int64_t value = it->second;
    if (value < min || value > max || value % multiple != 0) {
      return InvalidArgument("var: variable ", id, " is ", value, ", expected a multiple of ",
                             multiple, " in [", min, ", ", max, "]");
    }
    return Scalar(value);
  }

  // The argument with symbolic sizes and offsets replaced by their values.
  absl::StatusOr<std::vector<int64_t>> Words(UOp u) {
    std::vector<int64_t> words(u.arg().begin(), u.arg().end());
    if (!Is(u.op(), kSymbolic)) return words;
    for (int64_t& word : words) {
      if (word >= 0) continue;
      const Tensor& size = Of(u.src(static_cast<int>(-word - 1)))[0];
      word = LaneAsIndex(size.dtype, size.lane(0));
      if (word < 0 || word > kMaxElements) {
        return Internal(Name(u.op()), ": a symbolic size is ", word, ", out of its bounds");
      }
    }
    // A STORE reads these after the sizes themselves have been released.
    if (Is(u.op(), kMovement) && u.num_src() > 1) symbolic_words_[u.id()] = words;
    return words;
  }

  // An op that works instance by instance.
  absl::StatusOr<Value> Instances(UOp u) {
    TG_ASSIGN_OR_RETURN(const std::vector<int64_t> words, Words(u));
    std::vector<const Value*> values;
    size_t n = 1;
    const int num_src = Is(u.op(), kSymbolic) ? Info(u.op()).min_src : u.num_src();
    for (int i = 0; i < num_src; ++i) {
      values.push_back(&Of(u.src(i)));
      n = std::max(n, values.back()->size());
    }
    Value out;
    std::vector<const Tensor*> src(values.size());
    for (size_t instance = 0; instance < n; ++instance) {
      for (size_t i = 0; i < src.size(); ++i) {
        src[i] = &(*values[i])[values[i]->size() == 1 ? 0 : instance];
      }
      TG_ASSIGN_OR_RETURN(Tensor tensor, internal::Compute(u, words, src, &context_));
      out.push_back(std::move(tensor));
    }
    return out;
  }

  absl::StatusOr<Value> Collective(UOp u) {
    const Value& in = Of(u.src(0));
    std::vector<const Tensor*> src;
    for (const Tensor& t : in) src.push_back(&t);
    absl::StatusOr<Tensor> out =
        u.is(Op::kUnshard) ? internal::Concatenate(u, static_cast<size_t>(u.axis()), src, &context_)
                           : internal::ReduceAll(u, u.reduce_kind(), src, &context_);
    if (!out.ok()) return std::move(out).status();
    return Value(in.size(), *out);
  }

  // --- memory ---

  absl::StatusOr<Tensor> Param(UOp u) {
    const int64_t slot = u.slot(), n = NumElements(u.shape());
    const int64_t bytes = BytesOf(u.dtype(), n);
    if (slot >= static_cast<int64_t>(slots_.size())) {
      return InvalidArgument("param: slot ", slot, " is not bound, got ", slots_.size(), " slots");
    }
    if (static_cast<int64_t>(slots_[slot].size()) < bytes) {
      return InvalidArgument("param: slot ", slot, " has ", slots_[slot].size(),
                             " bytes, expected ", bytes);
    }
    TG_ASSIGN_OR_RETURN(Tensor out, context_.New(u, Shape(u.shape().begin(), u.shape().end())));
    Unpack(u.dtype(), slots_[slot].data(), n, out.at(0));
    return out;
  }

  // The slot as it is after the store.
  absl::StatusOr<Tensor> Store(UOp u) {
    std::vector<UOp> views;  // from the target down to the param
    UOp param = u.src(0);
    for (; !param.is(Op::kParam); param = param.src(0)) {
      TG_RETURN_IF_ERROR(context_.Tick());
      if (!param.is(Op::kAfter)) views.push_back(param);
    }
    const int64_t slot = param.slot();
    const auto stored = stored_.find(slot);
    absl::StatusOr<Tensor> before = stored == stored_.end() ? Param(param) : stored->second;
    if (!before.ok()) return before;
    TG_ASSIGN_OR_RETURN(Tensor out, context_.New(param, before->dims));
    std::copy_n(before->at(0), NumElements(out.dims) * LaneBytes(out.dtype), out.at(0));

    std::vector<Movement> moves;  // from the param up to the target
    Shape dims = out.dims;
    for (size_t i = views.size(); i-- > 0;) {
      TG_RETURN_IF_ERROR(context_.Tick());
      const auto it = symbolic_words_.find(views[i].id());
      moves.push_back(internal::MovementOf(
          views[i].op(), std::move(dims),
          it == symbolic_words_.end() ? views[i].arg() : std::span<const int64_t>(it->second)));
      dims = moves.back().dims;
    }
    const Tensor& value = Of(u.src(1))[0];
    const int64_t stride = value.dims.empty() ? 0 : 1;
    Shape at(dims.size(), 0);
    std::vector<Shape> sources;  // by move: the coordinates of the element in its source
    for (const Movement& m : moves) sources.emplace_back(m.from.size());
    for (int64_t i = 0; i < NumElements(dims); ++i) {
      TG_RETURN_IF_ERROR(context_.Tick());
      const Shape* to = &at;
      bool inside = true;
      for (size_t m = moves.size(); inside && m-- > 0;) {
        TG_RETURN_IF_ERROR(context_.Tick());
        inside = internal::SourceOf(moves[m], *to, sources[m]);
        to = &sources[m];
      }
      if (inside) {
        std::memcpy(out.at(internal::Flat(out.dims, *to)), value.at(i * stride),
                    static_cast<size_t>(LaneBytes(value.dtype)));
      }
      internal::Advance(dims, at);
    }
    return stored_[slot] = std::move(out);
  }

  absl::StatusOr<Value> After(UOp u) {
    UOp last = u.src(1);
    for (int i = 2; i < u.num_src(); ++i) {
      if (PlaceOf(u.src(i)) > PlaceOf(last)) last = u.src(i);
    }
    return Of(last);
  }

  const Graph& g_;
  std::span<std::vector<uint8_t>> slots_;
  const Variables& variables_;
  Budget* budget_;
  EvalContext context_;
  absl::flat_hash_map<uint32_t, std::unique_ptr<Plan>> plans_;  // by root
  std::vector<Frame> frames_;
  std::map<int64_t, Tensor> stored_;  // by slot: as the stores so far left it
  absl::flat_hash_map<uint32_t, std::vector<int64_t>> symbolic_words_;  // by movement
};

}  // namespace

absl::Status Evaluate(UOp sink, std::span<std::vector<uint8_t>> slots, Budget* budget,
                      const Variables& variables) {
  TG_RETURN_IF_ERROR(Verify(sink, kTensorLevel));
  return Evaluator(*sink.graph(), slots, variables, budget).Run(sink);
}

}  // namespace telegrad::reference
