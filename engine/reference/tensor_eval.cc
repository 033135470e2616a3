// Each node becomes a dense array of bytes, shared where the bytes are the same (RESHAPE, DETACH)
// and freed after its last user. The value of a STORE is the whole slot after it, so that AFTER is
// just the value of the last of its stores; the verifier has made sure that the stores to a slot
// are in a total order, which post-order therefore follows.
//
// All movement, of values and of store targets, is one function: it asks for each element of the
// result which element of the source it is. A store's target is that function applied to the
// element numbers.
#include "engine/reference/tensor_eval.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "engine/base/status.h"
#include "engine/ir/verify.h"
#include "engine/reference/lane.h"

namespace telegrad::reference {
namespace {

constexpr int64_t kMaxElementsOfValue = int64_t{1} << 28;
constexpr int64_t kElementsPerTimeCheck = int64_t{1} << 20;

using Bytes = std::vector<uint8_t>;
using Value = std::shared_ptr<const Bytes>;

// The row-major number of the element at `at`.
int64_t Flat(ShapeView shape, std::span<const int64_t> at) {
  int64_t flat = 0;
  for (size_t i = 0; i < shape.size(); ++i) flat = flat * shape[i] + at[i];
  return flat;
}

// Steps `at` to the next element in row-major order.
void Advance(ShapeView shape, std::span<int64_t> at) {
  for (size_t i = shape.size(); i-- > 0;) {
    if (++at[i] < shape[i]) return;
    at[i] = 0;
  }
}

// Where the element `at` of the movement `u` comes from in its source; false for padding.
bool SourceOf(UOp u, std::span<const int64_t> at, std::span<int64_t> from) {
  const ShapeView shape = u.src(0).shape();
  std::ranges::copy(at, from.begin());
  switch (u.op()) {
    case Op::kExpand:
      for (size_t i = 0; i < shape.size(); ++i) {
        if (shape[i] == 1) from[i] = 0;
      }
      return true;
    case Op::kPermute:
      for (size_t i = 0; i < shape.size(); ++i) from[u.arg(static_cast<int>(i))] = at[i];
      return true;
    case Op::kFlip:
      for (int64_t axis : u.arg()) from[axis] = shape[axis] - 1 - at[axis];
      return true;
    case Op::kShrink:
      for (size_t i = 0; i < shape.size(); ++i) from[i] += u.arg()[2 * i];
      return true;
    case Op::kPad:
      for (size_t i = 0; i < shape.size(); ++i) {
        from[i] -= u.arg()[2 * i];
        if (from[i] < 0 || from[i] >= shape[i]) return false;
      }
      return true;
    default:
      return false;
  }
}

class Evaluator {
 public:
  Evaluator(const Graph& graph, std::span<std::vector<uint8_t>> slots, Budget* budget)
      : g_(graph),
        slots_(slots),
        budget_(budget),
        values_(g_.size()),
        uses_(g_.size(), 0),
        position_(g_.size(), 0) {}

  absl::Status Run(UOp sink) {
    const std::vector<uint32_t> order = PostOrder(sink);
    for (uint32_t i = 0; i < order.size(); ++i) {
      position_[order[i]] = i;
      for (uint32_t s : g_.src(order[i])) ++uses_[s];
    }
    for (uint32_t id : order) {
      TG_RETURN_IF_ERROR(budget_->SpendNodes());
      TG_RETURN_IF_ERROR(budget_->CheckTime());
      const UOp u = g_.at(id);
      if (u.dtype() != DType::kVoid && NumElements(u.shape()) > kMaxElementsOfValue) {
        return ResourceExhausted(Name(u.op()), ": shape ", ToString(u.shape()),
                                 " is too large for the reference, whose limit is ",
                                 kMaxElementsOfValue, " elements");
      }
      TG_ASSIGN_OR_RETURN(values_[id], ValueOf(u));
      for (uint32_t s : g_.src(id)) {
        if (--uses_[s] == 0) values_[s].reset();
      }
    }
    for (const auto& [slot, value] : stored_) {
      std::ranges::copy(*value, slots_[slot].begin());
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<Value> ValueOf(UOp u) {
    switch (u.op()) {
      case Op::kConst: {
        Bytes out(ByteSize(u.dtype()));
        WriteLane(u.dtype(), LaneOfConst(u.dtype(), u.const_word()), out.data());
        return Share(std::move(out));
      }
      case Op::kParam:
        return Param(u);
      case Op::kIota:
        return Iota(u);
      case Op::kReshape:
      case Op::kContiguous:
      case Op::kDetach:
        return Of(u.src(0));
      case Op::kExpand:
      case Op::kPermute:
      case Op::kFlip:
      case Op::kPad:
      case Op::kShrink:
        return Move(u, *Of(u.src(0)), ByteSize(u.dtype()));
      case Op::kReduce:
        return Reduce(u);
      case Op::kGather:
        return Gather(u);
      case Op::kStore:
        return Store(u);
      case Op::kAfter:
        return After(u);
      case Op::kSink:
        return Value();
      default:
        return Elementwise(u);
    }
  }

  static Value Share(Bytes bytes) { return std::make_shared<const Bytes>(std::move(bytes)); }
  const Value& Of(UOp u) const { return values_[u.id()]; }

  // One element's worth of work.
  absl::Status Tick() {
    if (++ticks_ % kElementsPerTimeCheck != 0) return absl::OkStatus();
    return budget_->CheckTime();
  }

  absl::StatusOr<Value> Param(UOp u) {
    const int64_t slot = u.arg(0);
    const int64_t bytes = NumElements(u.shape()) * ByteSize(u.dtype());
    if (slot >= static_cast<int64_t>(slots_.size())) {
      return InvalidArgument("param: slot ", slot, " is not bound, got ", slots_.size(), " slots");
    }
    if (static_cast<int64_t>(slots_[slot].size()) < bytes) {
      return InvalidArgument("param: slot ", slot, " has ", slots_[slot].size(),
                             " bytes, expected ", bytes);
    }
    return Share(Bytes(slots_[slot].begin(), slots_[slot].begin() + bytes));
  }

  absl::StatusOr<Value> Iota(UOp u) {
    const int64_t n = u.shape()[0], size = ByteSize(u.dtype());
    Bytes out(n * size);
    for (int64_t i = 0; i < n; ++i) {
      TG_RETURN_IF_ERROR(Tick());
      WriteLane(u.dtype(), LaneOfIndex(u.dtype(), i), &out[i * size]);
    }
    return Share(std::move(out));
  }

  absl::StatusOr<Value> Elementwise(UOp u) {
    struct Operand {
      const uint8_t* data = nullptr;
      int64_t stride = 0;  // 0: a scalar, which broadcasts
      DType dtype = DType::kVoid;
    };
    const LaneFn fn = FindLaneFn(u.op(), u.src(0).dtype(), u.dtype());
    if (fn == nullptr) {
      return Internal(Name(u.op()), ": has no meaning on ", Name(u.src(0).dtype()));
    }
    Operand src[3];
    const int num_src = u.num_src();
    for (int i = 0; i < num_src; ++i) {
      const UOp s = u.src(i);
      src[i] = {Of(s)->data(), s.shape().empty() ? 0 : ByteSize(s.dtype()), s.dtype()};
    }
    const int64_t n = NumElements(u.shape()), size = ByteSize(u.dtype());
    Bytes out(n * size);
    for (int64_t i = 0; i < n; ++i) {
      TG_RETURN_IF_ERROR(Tick());
      Lane lanes[3] = {0, 0, 0};
      for (int k = 0; k < num_src; ++k) {
        lanes[k] = ReadLane(src[k].dtype, src[k].data + i * src[k].stride);
      }
      WriteLane(u.dtype(), fn(lanes[0], lanes[1], lanes[2]), &out[i * size]);
    }
    return Share(std::move(out));
  }

  // The movement `u` applied to elements of `size` bytes.
  absl::StatusOr<Value> Move(UOp u, const Bytes& in, int64_t size) {
    const ShapeView from_shape = u.src(0).shape();
    const int64_t n = NumElements(u.shape());
    Bytes out(n * size);
    Shape at(u.shape().size(), 0), from(from_shape.size());
    for (int64_t i = 0; i < n; ++i) {
      TG_RETURN_IF_ERROR(Tick());
      if (SourceOf(u, at, from)) {
        std::memcpy(&out[i * size], &in[Flat(from_shape, from) * size], size);
      }
      Advance(u.shape(), at);
    }
    return Share(std::move(out));
  }

  absl::StatusOr<Value> Reduce(UOp u) {
    const UOp s = u.src(0);
    const ReduceKind kind{u.arg(0)};
    const DType dtype = u.dtype();
    const LaneFn fn = FoldFn(kind, dtype);
    const int64_t size = ByteSize(dtype), n = NumElements(s.shape());
    Bytes out(NumElements(u.shape()) * size);
    for (size_t i = 0; i < out.size(); i += size) {
      TG_RETURN_IF_ERROR(Tick());
      WriteLane(dtype, FoldStart(kind, dtype), &out[i]);
    }
    Shape at(s.shape().size(), 0), to;
    for (int64_t i = 0; i < n; ++i) {
      TG_RETURN_IF_ERROR(Tick());
      to = at;
      for (int64_t axis : u.arg().subspan(1)) to[axis] = 0;
      uint8_t* sum = &out[Flat(u.shape(), to) * size];
      WriteLane(dtype, fn(ReadLane(dtype, sum), ReadLane(dtype, &(*Of(s))[i * size]), 0), sum);
      Advance(s.shape(), at);
    }
    return Share(std::move(out));
  }

  absl::StatusOr<Value> Gather(UOp u) {
    const UOp rows = u.src(0), index = u.src(1);
    const int64_t row_bytes = NumElements(rows.shape().subspan(1)) * ByteSize(u.dtype());
    const int64_t index_size = ByteSize(index.dtype()), n = NumElements(index.shape());
    Bytes out(n * row_bytes, 0);
    for (int64_t i = 0; i < n; ++i) {
      TG_RETURN_IF_ERROR(Tick());
      const Lane lane = ReadLane(index.dtype(), Of(index)->data() + i * index_size);
      const int64_t row = LaneAsIndex(index.dtype(), lane);
      if (row < 0 || row >= rows.shape()[0] || row_bytes == 0) continue;
      std::memcpy(&out[i * row_bytes], Of(rows)->data() + row * row_bytes, row_bytes);
    }
    return Share(std::move(out));
  }

  // The slot as it is after the store.
  absl::StatusOr<Value> Store(UOp u) {
    std::vector<UOp> views;  // from the target down to the param
    UOp param = u.src(0);
    for (; !param.is(Op::kParam); param = param.src(0)) {
      if (!param.is(Op::kAfter)) views.push_back(param);
    }
    const int64_t slot = param.arg(0);
    TG_ASSIGN_OR_RETURN(const Value numbers, Target(param, views));
    auto it = stored_.find(slot);
    Bytes out;
    if (it != stored_.end()) {
      out = *it->second;
    } else {
      TG_ASSIGN_OR_RETURN(const Value before, Param(param));
      out = *before;
    }
    const UOp value = u.src(1);
    const int64_t size = ByteSize(value.dtype());
    const int64_t stride = value.shape().empty() ? 0 : size;
    for (size_t i = 0; i < numbers->size() / sizeof(int64_t); ++i) {
      TG_RETURN_IF_ERROR(Tick());
      int64_t element;
      std::memcpy(&element, &(*numbers)[i * sizeof(int64_t)], sizeof(element));
      std::memcpy(&out[element * size], Of(value)->data() + i * stride, size);
    }
    return stored_[slot] = Share(std::move(out));
  }

  // For each element of the view the number of its element in the param, as int64.
  absl::StatusOr<Value> Target(UOp param, std::span<const UOp> views) {
    const int64_t n = NumElements(param.shape());
    Bytes first(n * sizeof(int64_t));
    for (int64_t i = 0; i < n; ++i) {
      TG_RETURN_IF_ERROR(Tick());
      std::memcpy(&first[i * sizeof(int64_t)], &i, sizeof(i));
    }
    Value numbers = Share(std::move(first));
    for (size_t i = views.size(); i-- > 0;) {
      TG_RETURN_IF_ERROR(Tick());
      if (views[i].is(Op::kReshape)) continue;
      TG_ASSIGN_OR_RETURN(numbers, Move(views[i], *numbers, sizeof(int64_t)));
    }
    return numbers;
  }

  absl::StatusOr<Value> After(UOp u) {
    UOp last = u.src(1);
    for (int i = 2; i < u.num_src(); ++i) {
      if (position_[u.src(i).id()] > position_[last.id()]) last = u.src(i);
    }
    return Of(last);
  }

  const Graph& g_;
  std::span<std::vector<uint8_t>> slots_;
  Budget* budget_;
  std::vector<Value> values_;        // by id
  std::vector<uint32_t> uses_;       // by id: users not evaluated yet
  std::vector<uint32_t> position_;   // by id: in post-order
  std::map<int64_t, Value> stored_;  // by slot: as the stores so far left it
  int64_t ticks_ = 0;
};

}  // namespace

absl::Status Evaluate(UOp sink, std::span<std::vector<uint8_t>> slots, Budget* budget) {
  TG_RETURN_IF_ERROR(Verify(sink, kTensorLevel));
  return Evaluator(*sink.graph(), slots, budget).Run(sink);
}

}  // namespace telegrad::reference
