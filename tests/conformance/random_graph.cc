#include "tests/conformance/random_graph.h"

#include <algorithm>
#include <cstring>

#include "engine/ir/scalar.h"

namespace telegrad::testing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat32, DType::kFloat64, DType::kInt32,
                             DType::kInt64,   DType::kUInt8,   DType::kBool,    DType::kInt8};
constexpr int64_t kMaxElements = 600;

class Maker {
 public:
  Maker(std::mt19937_64& rng, Graph* graph) : rng_(rng), g_(*graph) {}

  RandomGraph Make(int size) {
    for (int i = 0; i < 3; ++i) pool_.push_back(Input());
    while (static_cast<int>(pool_.size()) < size) {
      const UOp u = Node();
      if (u.valid()) pool_.push_back(u);
      (void)g_.TakeStatus();  // a choice that the op table forbids is skipped
    }
    std::vector<UOp> stores;
    const int outputs = 1 + Below(3);
    for (int i = 0; i < outputs; ++i) {
      const UOp value = pool_[pool_.size() - 1 - Below(std::min<int64_t>(pool_.size(), 6))];
      stores.push_back(g_.Make(Op::kStore, {NewSlot(value.dtype(), value.shape()), value}));
    }
    MaybeUpdateInput(&stores);
    out_.sink = g_.Make(Op::kSink, DType::kVoid, stores);
    return std::move(out_);
  }

 private:
  int64_t Below(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }
  UOp Pick() { return pool_[Below(pool_.size())]; }

  Shape RandomShape() {
    Shape shape(Below(4));
    for (int64_t& d : shape) d = Below(12) == 0 ? 1 : 1 + Below(9);
    if (NumElements(shape) > kMaxElements) shape = {17};
    return shape;
  }

  UOp NewSlot(DType dtype, ShapeView shape) {
    const auto slot = static_cast<int64_t>(out_.slots.size());
    const int64_t n = NumElements(shape), width = ByteSize(dtype);
    std::vector<uint8_t> bytes(n * width);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t word = IsFloat(dtype)
                               ? ScalarFromDouble(dtype, static_cast<double>(Below(33) - 16) / 8)
                               : ScalarFromInt(dtype, Below(23) - 7);
      const int64_t raw = ScalarToMemory(dtype, word);
      std::memcpy(bytes.data() + i * width, &raw, width);
    }
    out_.slots.push_back(std::move(bytes));
    out_.dtypes.push_back(dtype);
    return g_.Param(slot, dtype, shape);
  }

  UOp Input() {
    inputs_.push_back(NewSlot(kDTypes[Below(std::size(kDTypes))], RandomShape()));
    return inputs_.back();
  }

  // A value of a shape and type that fits `like`, from the pool by views and casts.
  UOp Like(UOp like) {
    UOp u = Pick();
    if (!std::ranges::equal(u.shape(), like.shape())) {
      if (NumElements(u.shape()) == NumElements(like.shape())) {
        u = g_.Make(Op::kReshape, {u}, like.shape());
      } else {
        u = NewSlot(like.dtype(), like.shape());
      }
    }
    return u.dtype() == like.dtype() ? u : g_.Make(Op::kCast, like.dtype(), {u});
  }

  UOp Node() {
    switch (Below(12)) {
      case 0:
        return Input();
      case 1:
        return Below(2) == 0 ? Constant() : Iota();
      case 2:
      case 3:
      case 4:
        return Movement(Pick());
      case 5:
        return Reduce(Pick());
      case 6:
        return Gather();
      case 7:
        return g_.Make(Op::kCast, kDTypes[Below(std::size(kDTypes))], {Pick()});
      case 8:
        return Below(4) == 0 ? g_.Make(Op::kContiguous, {Pick()}) : Select();
      default:
        return Alu();
    }
  }

  UOp Constant() {
    const DType dtype = kDTypes[Below(std::size(kDTypes))];
    return IsFloat(dtype) ? g_.ConstFloat(dtype, static_cast<double>(Below(9) - 4) / 2)
                          : g_.Const(dtype, Below(9) - 4);
  }
  UOp Iota() {
    return g_.Make(Op::kIota, Below(2) == 0 ? DType::kInt32 : DType::kInt64, {}, {1 + Below(20)});
  }

  UOp Movement(UOp x) {
    const ShapeView from = x.shape();
    const auto rank = static_cast<int64_t>(from.size());
    std::vector<int64_t> arg;
    switch (Below(6)) {
      case 0: {  // split or join
        Shape to(from.begin(), from.end());
        if (rank > 0 && Below(2) == 0) {
          const int64_t axis = Below(rank);
          for (int64_t d : {2, 3, 5}) {
            if (to[axis] % d != 0 || to[axis] == 0) continue;
            to[axis] /= d;
            to.insert(to.begin() + axis, d);
            break;
          }
        } else {
          to = {NumElements(from)};
        }
        return g_.Make(Op::kReshape, {x}, to);
      }
      case 1: {
        Shape with_one(from.begin(), from.end());
        const int64_t at = Below(rank + 1);
        with_one.insert(with_one.begin() + at, 1);
        const UOp r = g_.Make(Op::kReshape, {x}, with_one);
        with_one[at] = 1 + Below(5);
        if (NumElements(with_one) > kMaxElements) return {};
        return g_.Make(Op::kExpand, {r}, with_one);
      }
      case 2:
        for (int64_t i = 0; i < rank; ++i) arg.push_back(i);
        std::shuffle(arg.begin(), arg.end(), rng_);
        return g_.Make(Op::kPermute, {x}, arg);
      case 3:
        for (int64_t i = 0; i < rank; ++i) {
          if (Below(2) == 0) arg.push_back(i);
        }
        return g_.Make(Op::kFlip, {x}, arg);
      case 4:
        for (int64_t d : from) {
          const int64_t offset = Below(3);
          arg.push_back(offset);
          arg.push_back(offset + d + Below(3));
        }
        return g_.Make(Op::kPad, {x}, arg);
      default:
        for (int64_t d : from) {
          const int64_t begin = Below(d + 1), length = d > begin ? 1 + Below(d - begin) : 0;
          arg.push_back(begin);
          arg.push_back(length);
        }
        return g_.Make(Op::kShrink, {x}, arg);
    }
  }

  UOp Reduce(UOp x) {
    std::vector<int64_t> arg{Below(3)};
    // Products of many elements overflow floats into inf and NaN at different points: keep them
    // short.
    if (arg[0] == 1 && IsFloat(x.dtype()) && NumElements(x.shape()) > 16) arg[0] = 0;
    for (int64_t i = 0; i < static_cast<int64_t>(x.shape().size()); ++i) {
      if (Below(2) == 0) arg.push_back(i);
    }
    return g_.Make(Op::kReduce, {x}, arg);
  }

  UOp Gather() {
    const UOp x = Pick(), index = Pick();
    if (x.shape().empty() || !IsInt(index.dtype())) return {};
    if (NumElements(x.shape()) * NumElements(index.shape()) > kMaxElements) return {};
    return g_.Make(Op::kGather, {x, index});
  }

  UOp Select() {
    const UOp x = Pick();
    UOp c = Like(x);
    c = g_.Make(Op::kCmpLt, {c, x});
    return g_.Make(Op::kWhere, {c, x, Like(x)});
  }

  UOp Alu() {
    constexpr Op kUnary[] = {Op::kNeg, Op::kSqrt, Op::kRecip, Op::kTrunc, Op::kFloor};
    constexpr Op kBinary[] = {Op::kAdd,      Op::kSub,   Op::kMul,   Op::kMax,   Op::kFloorDiv,
                              Op::kFloorMod, Op::kCmpLt, Op::kCmpEq, Op::kCmpNe, Op::kAnd,
                              Op::kOr,       Op::kXor,   Op::kShl,   Op::kShr,   Op::kAdd,
                              Op::kMul,      Op::kSub,   Op::kFDiv};
    const UOp x = Pick();
    if (Below(5) == 0) return g_.Make(kUnary[Below(std::size(kUnary))], {x});
    return g_.Make(kBinary[Below(std::size(kBinary))], {x, Like(x)});
  }

  // Sometimes an input is overwritten in place, wholly or in part, by a value of its shape.
  void MaybeUpdateInput(std::vector<UOp>* stores) {
    if (Below(2) != 0) return;
    UOp target = inputs_[Below(inputs_.size())];
    for (int i = 0; i < 2; ++i) {
      const UOp view = Movement(target);
      if (view.valid() && !view.is(Op::kPad) && !view.is(Op::kExpand)) target = view;
      (void)g_.TakeStatus();
    }
    const UOp value = Like(target);
    if (value.valid()) stores->push_back(g_.Make(Op::kStore, {target, value}));
    (void)g_.TakeStatus();
  }

  std::mt19937_64& rng_;
  Graph& g_;
  std::vector<UOp> pool_, inputs_;
  RandomGraph out_;
};

}  // namespace

RandomGraph MakeRandomGraph(std::mt19937_64& rng, int size, Graph* graph) {
  return Maker(rng, graph).Make(size);
}

}  // namespace telegrad::testing
