#include "tests/fuzz/random_node.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "engine/ir/scalar.h"
#include "engine/types/limits.h"

namespace telegrad::fuzz {
namespace {

constexpr int kTries = 6;
constexpr int64_t kSmall = 512;  // elements of the values that Pick usually gives

std::vector<Op> TensorOps() {
  std::vector<Op> ops;
  for (const OpInfo& info : AllOps()) {
    const bool order = (info.traits & kEffect) != 0 || info.op == Op::kAfter;
    if (IsAt(info.op, kTensorLevel) && !order) ops.push_back(info.op);
  }
  return ops;
}

}  // namespace

UOp NodeMaker::Try(Op op, DType dtype, std::span<const UOp> src, std::span<const int64_t> arg) {
  for (UOp s : src) {
    if (!s.valid()) return {};
  }
  const UOp u = g_.Make(op, dtype, src, arg);
  (void)g_.TakeStatus();
  return u;
}

void NodeMaker::Offer(UOp u) {
  if (!u.valid() || u.dtype() == DType::kVoid) return;
  if (NumElements(u.shape()) <= kSmall || OneIn(16)) pool_.push_back(u);
}

UOp NodeMaker::Pick() {
  if (pool_.empty()) Offer(Input(AnyDType(), AnyShape()));
  if (pool_.empty()) return g_.Const(AnyDType(), 1);
  // Rather one of the last few, so that graphs get deep.
  const auto n = static_cast<int64_t>(pool_.size());
  return pool_[OneIn(2) ? Below(n) : n - 1 - Below(std::min<int64_t>(n, 4))];
}

DType NodeMaker::AnyDType() {
  constexpr DType kUsual[] = {DType::kFloat32, DType::kInt32, DType::kInt64, DType::kBool};
  if (OneIn(2)) return kUsual[Below(std::size(kUsual))];
  return AllDTypes()[1 + Below(static_cast<int64_t>(AllDTypes().size()) - 1)].dtype;
}

Shape NodeMaker::AnyShape() {
  constexpr int64_t kOdd[] = {0, 1, 13, 31, 64, 100, 257, 1000, int64_t{1} << 20};
  Shape shape(OneIn(40) ? Below(kMaxRank + 2) : Below(4));
  for (int64_t& dim : shape) {
    dim = OneIn(24) ? kOdd[Below(std::size(kOdd))] : 1 + Below(shape.size() > 4 ? 2 : 8);
  }
  return shape;
}

UOp NodeMaker::Param(DType dtype, std::vector<int64_t> arg) {
  if (arg.empty() || arg[0] < 0 || arg[0] >= kMaxParams) arg.insert(arg.begin(), 0);
  const auto slot = static_cast<size_t>(arg[0]);
  if (params_.size() <= slot) params_.resize(slot + 1);
  const UOp before = params_[slot];
  if (before.valid() && (before.dtype() != dtype || !std::ranges::equal(before.arg(), arg))) {
    return Input(dtype, ShapeView(arg).subspan(1));
  }
  return params_[slot] = Try(Op::kParam, dtype, {}, arg);
}

UOp NodeMaker::Input(DType dtype, ShapeView shape) {
  const auto free = std::ranges::find_if(params_, [](UOp p) { return !p.valid(); });
  std::vector<int64_t> arg{free - params_.begin()};
  if (arg[0] >= kMaxParams) return {};
  if (free == params_.end()) params_.emplace_back();
  arg.insert(arg.end(), shape.begin(), shape.end());
  return params_[arg[0]] = Try(Op::kParam, dtype, {}, arg);
}

UOp NodeMaker::Cast(UOp u, DType dtype) {
  if (!u.valid() || u.dtype() == dtype) return u;
  return Try(Op::kCast, dtype, {&u, 1}, {});
}

UOp NodeMaker::Like(UOp u, DType dtype, ShapeView view) {
  if (!u.valid() || u.dtype() == DType::kVoid) return {};
  const Shape shape(view.begin(), view.end());  // `view` may move as nodes are made
  UOp out = u;
  if (std::ranges::equal(u.shape(), shape) || (u.shape().empty() && OneIn(2))) {
    // A scalar broadcasts.
  } else if (NumElements(u.shape()) == NumElements(shape)) {
    out = Try(Op::kReshape, DType::kVoid, {&u, 1}, shape);
  } else if (u.shape().size() == shape.size() && !OneIn(4)) {
    std::vector<int64_t> part, whole;  // (offset, size) of each axis
    for (size_t i = 0; i < shape.size(); ++i) {
      const int64_t have = u.shape()[i], keep = std::min(have, shape[i]);
      const int64_t skip = have > keep ? Below(have - keep + 1) : 0;
      const int64_t pad = shape[i] > keep ? Below(shape[i] - keep + 1) : 0;
      part.insert(part.end(), {skip, keep});
      whole.insert(whole.end(), {pad, shape[i]});
    }
    out = Try(Op::kShrink, DType::kVoid, {&u, 1}, part);
    out = Try(Op::kPad, DType::kVoid, {&out, 1}, whole);
  } else if (OneIn(2)) {  // one number for all
    const Shape ones(shape.size(), 1);
    if (NumElements(u.shape()) != 1)
      out = Try(Op::kReduce, DType::kVoid, {&u, 1}, [&] {
        std::vector<int64_t> arg{OneIn(2) ? 0 : 2};
        for (size_t i = 0; i < u.shape().size(); ++i) arg.push_back(static_cast<int64_t>(i));
        return arg;
      }());
    out = Try(Op::kReshape, DType::kVoid, {&out, 1}, ones);
    out = Try(Op::kExpand, DType::kVoid, {&out, 1}, shape);
  } else {
    out = {};
  }
  if (out.valid()) out = Cast(out, dtype);
  if (!out.valid() || !(out.shape().empty() || std::ranges::equal(out.shape(), shape))) {
    return Input(dtype, shape);
  }
  return out;
}

UOp NodeMaker::OfElements(UOp u, const OpInfo& info) {
  for (int i = 0; i < kTries && u.valid(); ++i) {
    const DType t = u.dtype();
    const bool allowed = info.elements == Elements::kAny ||
                         (info.elements == Elements::kArith && (IsInt(t) || IsFloat(t))) ||
                         (info.elements == Elements::kFloatOnly && IsFloat(t)) ||
                         (info.elements == Elements::kIntOnly && IsInt(t)) ||
                         (info.elements == Elements::kBoolOnly && IsBool(t)) ||
                         (info.elements == Elements::kLogic && (IsInt(t) || IsBool(t)));
    if (allowed) return u;
    u = i < 2 ? Pick() : Cast(u, AnyDType());
  }
  return u;
}

std::vector<UOp> NodeMaker::Sources(const OpInfo& info, UOp first) {
  int n = info.min_src;
  if (info.max_src != info.min_src && OneIn(2)) n += static_cast<int>(Below(3));
  std::vector<UOp> src;
  if (n == 0) return src;
  src.push_back(OfElements(first.valid() ? first : Pick(), info));
  if (!src[0].valid()) return src;
  for (int i = 1; i < n; ++i) {
    const UOp other = OneIn(8) ? src[0] : Pick();
    const UOp model =
        info.type_rule == TypeRule::kSelect && i == 1 ? Like(other, other) : src.back();
    if (info.shape_rule == ShapeRule::kGatherRows && i == 1) {
      src.push_back(IsInt(other.dtype()) ? other : Cast(other, DType::kInt32));
    } else if (info.type_rule == TypeRule::kSelect && i == 1) {
      src.push_back(Like(model, model.dtype(), src[0].shape()));
    } else {
      src.push_back(Like(other, model));
    }
  }
  return src;
}

std::vector<int64_t> NodeMaker::Axes(ShapeView from, bool all) {
  std::vector<int64_t> axes;
  for (size_t i = 0; i < from.size(); ++i) {
    if (all || OneIn(2)) axes.push_back(static_cast<int64_t>(i));
  }
  std::ranges::shuffle(axes, rng_);
  return axes;
}

// Offset and size of each axis, of a part or of something larger.
std::vector<int64_t> NodeMaker::Pairs(ShapeView from) {
  std::vector<int64_t> pairs;
  const bool grow = OneIn(2);
  for (int64_t dim : from) {
    const int64_t offset = grow ? Below(4) : Below(std::max<int64_t>(dim, 1));
    const int64_t size = grow ? offset + dim + Below(4) : Below(dim - std::min(dim, offset) + 1);
    pairs.insert(pairs.end(), {offset, size});
  }
  return pairs;
}

std::vector<int64_t> NodeMaker::Dims(const OpInfo& info, ShapeView from) {
  if (info.shape_rule == ShapeRule::kExpandTo) {
    Shape to(from.begin(), from.end());
    for (int64_t& dim : to) {
      if (dim == 1 && OneIn(2)) dim = Below(6);
    }
    return to;
  }
  if (info.shape_rule == ShapeRule::kReshapeTo) {  // axes joined, split, or ones put in
    Shape to;
    for (int64_t dim : from) {
      if (!to.empty() && OneIn(3)) {
        to.back() *= dim;
      } else if (dim > 1 && OneIn(2)) {
        int64_t factor = 2 + Below(dim - 1);
        while (dim % factor != 0) --factor;
        to.insert(to.end(), {factor, dim / factor});
      } else {
        to.push_back(dim);
      }
      if (OneIn(4)) to.push_back(1);
    }
    if (from.empty()) to.assign(Below(3), 1);
    return to;
  }
  if (info.op == Op::kIota) return {1 + Below(20)};
  return AnyShape();
}

std::vector<int64_t> NodeMaker::Argument(const OpInfo& info, DType dtype, std::vector<UOp>* src) {
  const ShapeView view = src->empty() ? ShapeView() : (*src)[0].shape();
  const Shape from(view.begin(), view.end());
  switch (info.arg) {
    case ArgKind::kNone:
      return {};
    case ArgKind::kScalar: {
      constexpr double kReals[] = {0,
                                   -0.0,
                                   1,
                                   -1,
                                   0.5,
                                   3,
                                   1e30,
                                   -1e-30,
                                   std::numeric_limits<double>::infinity(),
                                   std::numeric_limits<double>::quiet_NaN()};
      constexpr int64_t kInts[] = {0, 1, -1, 2, 7, 63, 64, INT32_MIN, INT64_MIN, INT64_MAX};
      const double real = OneIn(2) ? kReals[Below(std::size(kReals))] : Below(64) - 32.0;
      const int64_t integer = OneIn(2) ? kInts[Below(std::size(kInts))] : Below(64) - 32;
      return {IsFloat(dtype) ? ScalarFromDouble(dtype, real) : ScalarFromInt(dtype, integer)};
    }
    case ArgKind::kParam: {
      std::vector<int64_t> arg = AnyShape();
      arg.insert(arg.begin(), Below(8));
      return arg;
    }
    case ArgKind::kDims:
      return Dims(info, from);
    case ArgKind::kAxes:
      return Axes(from, info.shape_rule == ShapeRule::kPermuteBy);
    case ArgKind::kPairs:
      return Pairs(from);
    case ArgKind::kReduce: {
      std::vector<int64_t> arg = Axes(from, false);
      arg.insert(arg.begin(), Below(3));
      return arg;
    }
    default: {
      std::vector<int64_t> arg(Below(4));
      for (int64_t& word : arg) word = Below(4);
      return arg;
    }
  }
}

UOp NodeMaker::Node(std::optional<Op> op, UOp first) {
  static const std::vector<Op> kOps = TensorOps();
  for (int i = 0; i < kTries; ++i) {
    const OpInfo& info = Info(op ? *op : kOps[Below(static_cast<int64_t>(kOps.size()))]);
    const DType dtype = AnyDType();
    std::vector<UOp> src = Sources(info, first);
    if (std::ranges::any_of(src, [](UOp s) { return !s.valid(); })) continue;
    const std::vector<int64_t> arg = Argument(info, dtype, &src);
    const UOp u = info.op == Op::kParam ? Param(dtype, arg) : Try(info.op, dtype, src, arg);
    if (u.valid()) return u;
  }
  return {};
}

UOp NodeMaker::Fit(Op op, DType dtype, std::vector<UOp> src, std::vector<int64_t> arg,
                   bool change_arg) {
  const OpInfo& info = Info(op);
  if (op == Op::kParam) return Param(dtype, change_arg ? Argument(info, dtype, &src) : arg);
  if (std::ranges::any_of(src, [](UOp s) { return !s.valid(); })) return {};
  if (!change_arg) {
    if (const UOp u = Try(op, dtype, src, arg); u.valid()) return u;
  }
  for (int i = 0; i < kTries; ++i) {
    if (i > 0 && !src.empty()) {
      std::vector<UOp> fitted = Sources(
          info, src[info.type_rule == TypeRule::kSelect && src.size() > 1 && OneIn(2) ? 1 : 0]);
      // Keep what the node had, converted.
      for (size_t s = 1; s < std::min(src.size(), fitted.size()); ++s) {
        if (fitted[s].valid()) fitted[s] = Like(src[s], fitted[s]);
      }
      if (std::ranges::any_of(fitted, [](UOp s) { return !s.valid(); })) continue;
      if (const UOp u = Try(op, dtype, fitted, arg); u.valid() && !change_arg) return u;
      const std::vector<int64_t> other = Argument(info, dtype, &fitted);
      if (const UOp u = Try(op, dtype, fitted, other); u.valid()) return u;
      continue;
    }
    const std::vector<int64_t> other = Argument(info, dtype, &src);
    if (const UOp u = Try(op, dtype, src, other); u.valid()) return u;
  }
  return {};
}

UOp NodeMaker::StorableView(UOp u) {
  constexpr Op kViews[] = {Op::kReshape, Op::kPermute, Op::kFlip, Op::kShrink};
  for (int64_t i = Below(3); i > 0 && u.valid(); --i) {
    const OpInfo& info = Info(kViews[Below(std::size(kViews))]);
    std::vector<UOp> src{u};
    const UOp view = Try(info.op, DType::kVoid, src, Argument(info, DType::kVoid, &src));
    if (view.valid()) u = view;
  }
  return u;
}

}  // namespace telegrad::fuzz
