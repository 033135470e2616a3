// For tests only: a literal evaluator of tensor-level graphs in double precision, independent of
// the engine. Every node becomes a full vector of doubles; f32 is not rounded, integers are exact
// up to 2^53.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "engine/frontend/tensor/plan.h"
#include "engine/ir/scalar.h"

namespace telegrad::test {

using Values = std::vector<double>;
using Bindings = std::map<std::string, Values>;  // by slot name

// For each element of `shape` in row-major order: f(index, flat).
template <typename F>
void ForEach(ShapeView shape, F f) {
  std::vector<int64_t> index(shape.size(), 0);
  const int64_t n = NumElements(shape);
  for (int64_t flat = 0; flat < n; ++flat) {
    f(index, flat);
    for (size_t i = shape.size(); i-- > 0;) {
      if (++index[i] < shape[i]) break;
      index[i] = 0;
    }
  }
}

inline std::vector<int64_t> Strides(ShapeView shape) {
  std::vector<int64_t> out(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) out[i - 1] = out[i] * shape[i];
  return out;
}

inline double Alu(Op op, DType type, double x, double y, double z) {
  switch (op) {
    case Op::kNeg:
      return -x;
    case Op::kExp2:
      return std::exp2(x);
    case Op::kLog2:
      return std::log2(x);
    case Op::kSqrt:
      return std::sqrt(x);
    case Op::kRecip:
      return 1 / x;
    case Op::kTrunc:
      return std::trunc(x);
    case Op::kFloor:
      return std::floor(x);
    case Op::kCast:
      if (IsBool(type)) return x != 0;
      return IsFloat(type) ? x : std::trunc(x);
    case Op::kAdd:
      return x + y;
    case Op::kSub:
      return x - y;
    case Op::kMul:
      return x * y;
    case Op::kFDiv:
      return x / y;
    case Op::kFloorDiv:
      return y == 0 ? 0 : std::floor(x / y);
    case Op::kFloorMod:
      return y == 0 ? 0 : x - std::floor(x / y) * y;
    case Op::kCDiv:
      return y == 0 ? 0 : std::trunc(x / y);
    case Op::kMax:
      return std::isnan(x) || std::isnan(y) ? NAN : std::max(x, y);
    case Op::kCmpLt:
      return x < y;
    case Op::kCmpEq:
      return x == y;
    case Op::kCmpNe:
      return x != y;
    case Op::kAnd:
      return static_cast<double>(static_cast<int64_t>(x) & static_cast<int64_t>(y));
    case Op::kOr:
      return static_cast<double>(static_cast<int64_t>(x) | static_cast<int64_t>(y));
    case Op::kXor:
      return static_cast<double>(static_cast<int64_t>(x) ^ static_cast<int64_t>(y));
    case Op::kWhere:
      return x != 0 ? y : z;
    case Op::kMulAcc:
      return std::fma(x, y, z);
    default:
      ADD_FAILURE() << "the test evaluator does not know " << Name(op);
      return NAN;
  }
}

// Element `flat` of the output of a movement comes from the returned position of its source, or
// from nowhere (-1). `base` and `stride` describe an affine map for everything but PAD.
inline Values Move(UOp u, const Values& x) {
  const ShapeView out = u.shape(), in = u.src(0).shape();
  const std::vector<int64_t> strides = Strides(in);
  Values result(NumElements(out));
  if (u.is(Op::kReshape)) return x;
  ForEach(out, [&](const std::vector<int64_t>& index, int64_t flat) {
    int64_t at = 0;
    bool inside = true;
    for (size_t i = 0; i < index.size(); ++i) {
      size_t axis = i;
      int64_t position = index[i];
      if (u.is(Op::kPermute)) axis = u.axes()[i];
      if (u.is(Op::kExpand) && in[i] == 1) position = 0;
      if (u.is(Op::kFlip) && std::ranges::find(u.arg(), static_cast<int64_t>(i)) != u.arg().end()) {
        position = in[i] - 1 - position;
      }
      if (u.is(Op::kPad)) position -= u.pair_offset(i);
      if (u.is(Op::kShrink)) position += u.pair_offset(i);
      inside &= position >= 0 && position < in[axis];
      at += position * strides[axis];
    }
    result[flat] = inside ? x[at] : 0.0;
  });
  return result;
}

inline Values Fold(UOp u, const Values& x) {
  const auto kind = u.reduce_kind();
  const double first = kind == ReduceKind::kAdd ? 0 : kind == ReduceKind::kMul ? 1 : -INFINITY;
  Values result(NumElements(u.shape()), first);
  const std::vector<int64_t> strides = Strides(u.shape());
  std::vector<bool> folded(u.shape().size(), false);
  for (const int64_t reduced : u.reduced_axes()) folded[static_cast<size_t>(reduced)] = true;
  ForEach(u.src(0).shape(), [&](const std::vector<int64_t>& index, int64_t flat) {
    int64_t at = 0;
    for (size_t i = 0; i < index.size(); ++i) at += folded[i] ? 0 : index[i] * strides[i];
    const double v = x[flat];
    double& to = result[at];
    to = kind == ReduceKind::kAdd   ? to + v
         : kind == ReduceKind::kMul ? to * v
                                    : Alu(Op::kMax, DType::kFloat64, to, v, 0);
  });
  return result;
}

inline Values Rows(UOp u, const Values& x, const Values& index) {
  const int64_t rows = u.src(0).shape()[0];
  const int64_t width = rows == 0 ? 0 : static_cast<int64_t>(x.size()) / rows;
  Values result;
  for (double i : index) {
    for (int64_t j = 0; j < width; ++j) {
      result.push_back(i >= 0 && i < rows ? x[static_cast<int64_t>(i) * width + j] : 0.0);
    }
  }
  return result;
}

inline Values Join(UOp u, const std::vector<const Values*>& parts) {
  const auto axis = static_cast<size_t>(u.axis());
  const int64_t outer = NumElements(u.shape().first(axis));
  Values result;
  for (int64_t i = 0; i < outer; ++i) {
    for (const Values* part : parts) {
      const auto row = static_cast<int64_t>(part->size()) / outer;
      result.insert(result.end(), part->begin() + i * row, part->begin() + (i + 1) * row);
    }
  }
  return result;
}

inline Values ParamValues(const Plan& plan, UOp u, const Bindings& bindings) {
  const Slot& slot = plan.slots[u.slot()];
  const auto it = bindings.find(slot.name);
  if (it == bindings.end()) {
    if (slot.role != SlotRole::kOutput) ADD_FAILURE() << "no binding for " << slot.name;
    return Values(NumElements(u.shape()), 0);
  }
  EXPECT_EQ(static_cast<int64_t>(it->second.size()), NumElements(u.shape())) << slot.name;
  return it->second;
}

// Runs the plan once: stores update `bindings`. The values of all stores are computed before any is
// done.
inline void Run(const Plan& plan, Bindings* bindings) {
  const Graph& graph = *plan.graph.graph;
  const std::vector<uint32_t> order = PostOrder(plan.graph.root());
  std::map<uint32_t, int> uses;
  for (uint32_t id : order) {
    for (uint32_t s : graph.src(id)) ++uses[s];
  }
  std::map<uint32_t, Values> values;
  const auto get = [&](UOp u) -> const Values& { return values[u.id()]; };
  for (uint32_t id : order) {
    const UOp u = graph.at(id);
    Values out;
    if (u.is_const()) {
      out = {ScalarAsDouble(u.dtype(), u.const_word())};
    } else if (u.is(Op::kParam)) {
      out = ParamValues(plan, u, *bindings);
    } else if (u.is(Op::kIota)) {
      for (int64_t i = 0; i < u.shape()[0]; ++i) out.push_back(static_cast<double>(i));
    } else if (Is(u.op(), kMovement)) {
      out = Move(u, get(u.src(0)));
    } else if (u.is(Op::kReduce)) {
      out = Fold(u, get(u.src(0)));
    } else if (u.is(Op::kGather)) {
      out = Rows(u, get(u.src(0)), get(u.src(1)));
    } else if (u.is(Op::kCat)) {
      std::vector<const Values*> parts;
      for (int i = 0; i < u.num_src(); ++i) parts.push_back(&get(u.src(i)));
      out = Join(u, parts);
    } else if (u.is(Op::kDetach) || u.is(Op::kContiguous)) {
      out = get(u.src(0));
    } else if (u.is(Op::kStore) || u.is(Op::kSink)) {
      continue;  // below
    } else {
      out.resize(NumElements(u.shape()));
      const Values* src[3] = {};
      for (int i = 0; i < u.num_src(); ++i) src[i] = &get(u.src(i));
      const auto at = [&](int i, size_t k) {
        return src[i] == nullptr ? 0.0 : (*src[i])[u.src(i).shape().empty() ? 0 : k];
      };
      for (size_t k = 0; k < out.size(); ++k) {
        out[k] = Alu(u.op(), u.dtype(), at(0, k), at(1, k), at(2, k));
      }
    }
    values[id] = std::move(out);
    for (uint32_t s : graph.src(id)) {
      if (--uses[s] == 0) values.erase(s);
    }
  }
  for (uint32_t id : graph.src(plan.graph.root_id)) {
    const UOp store = graph.at(id), target = store.src(0);
    ASSERT_TRUE(target.is(Op::kParam)) << "the test evaluator stores to whole slots only";
    Values v = get(store.src(1));
    if (store.src(1).shape().empty()) v.resize(NumElements(target.shape()), v[0]);
    (*bindings)[plan.slots[target.slot()].name] = std::move(v);
  }
}

// Adds the initial values of the plan's slots that are not bound yet.
inline void BindInitialState(const Plan& plan, Bindings* bindings) {
  for (const Slot& slot : plan.slots) {
    const bool has_value = slot.content != nullptr || slot.init.kind != Init::kNone;
    if (!has_value || bindings->contains(slot.name)) continue;
    const absl::StatusOr<HostTensor> value = InitialValue(slot);
    ASSERT_TRUE(value.ok()) << value.status();
    (*bindings)[slot.name] = value->AsDoubles();
  }
}

}  // namespace telegrad::test
