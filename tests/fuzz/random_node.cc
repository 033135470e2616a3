// Draws an op of the op table, then sources from the values so far, then arguments that fit, and
// tries again where the op table refuses the node. Values with few elements are preferred.
#include "tests/fuzz/random_node.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "engine/base/checked.h"
#include "engine/ir/infer.h"
#include "engine/ir/scalar.h"
#include "engine/types/limits.h"

namespace telegrad::fuzz {
namespace {

constexpr int kTries = 6;
constexpr size_t kParamWords = 2;  // slot and device, before the dims
constexpr int64_t kSmall = 512;    // elements of the values that Pick usually gives

// Ops that are made rarely, because a graph with one may be more than the kernels can do.
bool IsRare(const OpInfo& info) {
  return (info.traits & kTupleValue) != 0 || info.op == Op::kArg || info.op == Op::kGetTuple ||
         info.arg == ArgKind::kDevices || info.op == Op::kMStack || info.op == Op::kMSelect ||
         info.op == Op::kAllReduce || info.op == Op::kUnshard;
}

std::vector<Op> TensorOps() {
  std::vector<Op> ops;
  for (const OpInfo& info : AllOps()) {
    const bool order = (info.traits & kEffect) != 0 || info.op == Op::kAfter;
    if (IsAt(info.op, kTensorLevel) && !order) ops.push_back(info.op);
  }
  return ops;
}

// The number of elements of a shape that nobody has checked; -1 where it is too large to say.
int64_t Elements(ShapeView shape) {
  int64_t n = 1;
  for (int64_t dim : shape) {
    if (!CheckedMul(n, dim, &n)) return -1;
  }
  return n;
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
  if (pool_.empty()) return g_.Const(OneIn(2) ? DType::kInt32 : DType::kFloat32, 1);
  // Rather one of the last few, so that graphs get deep.
  const auto n = static_cast<int64_t>(pool_.size());
  return pool_[OneIn(2) ? Below(n) : n - 1 - Below(std::min<int64_t>(n, 4))];
}

DType NodeMaker::AnyDType() {
  constexpr DType kUsual[] = {DType::kFloat32, DType::kInt32, DType::kInt64, DType::kBool,
                              DType::kFloat64, DType::kUInt8, DType::kInt8};
  if (!OneIn(8)) return kUsual[Below(std::size(kUsual))];
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
  if (in_body_) return {};
  if (arg.size() < kParamWords || arg[0] < 0 || arg[0] >= kMaxParams) arg = {0, 0};
  const auto slot = static_cast<size_t>(arg[0]);
  if (params_.size() <= slot) params_.resize(slot + 1);
  const UOp before = params_[slot];
  if (before.valid() && (before.dtype() != dtype || !std::ranges::equal(before.arg(), arg))) {
    return Input(dtype, ShapeView(arg).subspan(kParamWords));
  }
  return params_[slot] = Try(Op::kParam, dtype, {}, arg);
}

UOp NodeMaker::Input(DType dtype, ShapeView shape) {
  if (in_body_) {
    const UOp one = g_.Const(dtype, 1);
    (void)g_.TakeStatus();
    const UOp ones = Try(Op::kReshape, DType::kVoid, {&one, 1}, Shape(shape.size(), 1));
    return Try(Op::kExpand, DType::kVoid, {&ones, 1}, shape);
  }
  const auto free = std::ranges::find_if(params_, [](UOp p) { return !p.valid(); });
  std::vector<int64_t> arg{free - params_.begin(), 0};
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
  } else if (NumElements(u.shape()) == Elements(shape)) {
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
  if (!u.valid() || Allows(info.elements, u.dtype())) return u;
  if (const UOp other = Pick(); OneIn(2) && Allows(info.elements, other.dtype())) return other;
  std::vector<DType> types;
  for (const DTypeInfo& row : AllDTypes()) {
    if (Allows(info.elements, row.dtype)) types.push_back(row.dtype);
  }
  return types.empty() ? u : Cast(u, types[Below(static_cast<int64_t>(types.size()))]);
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
    const bool rows = info.shape_rule == ShapeRule::kScatterRows;
    if (rows && i == 2) {
      Shape shape(src[1].shape().begin(), src[1].shape().end());
      if (!src[0].shape().empty()) {
        shape.insert(shape.end(), src[0].shape().begin() + 1, src[0].shape().end());
      }
      src.push_back(Like(other, src[0].dtype(), shape));
    } else if ((rows || info.shape_rule == ShapeRule::kGatherRows) && i == 1) {
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
std::vector<int64_t> NodeMaker::Pairs(ShapeView from, bool grow) {
  std::vector<int64_t> pairs;
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
        constexpr int64_t kLargest = 1000;  // the search for a divisor goes down from here
        int64_t factor = 2 + Below(std::min(dim - 1, kLargest));
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
    case ArgKind::kDims: {
      std::vector<int64_t> arg = Dims(info, from);
      MakeSymbolic(info, &arg, src);
      return arg;
    }
    case ArgKind::kPairs: {
      std::vector<int64_t> arg = Pairs(from, info.shape_rule == ShapeRule::kPadTo);
      MakeSymbolic(info, &arg, src);
      return arg;
    }
    case ArgKind::kAxes:
      if (info.shape_rule == ShapeRule::kCatAxis || info.shape_rule == ShapeRule::kUnshardAxis) {
        return {Below(static_cast<int64_t>(from.size()) + 1)};
      }
      return Axes(from, info.shape_rule == ShapeRule::kPermuteBy);
    case ArgKind::kVar: {
      const int64_t multiple = 1 + Below(4), low = Below(3), more = Below(6);
      return {Below(4), multiple * low, multiple * (low + more), multiple};
    }
    case ArgKind::kReduce: {
      std::vector<int64_t> arg = Axes(from, false);
      arg.insert(arg.begin(), Below(3));
      return arg;
    }
    default: {
      std::vector<int64_t> arg;
      for (const ArgField& field : ArgFields(info.arg)) {
        switch (field.type) {
          case ArgField::kEnum:
            arg.push_back(Below(static_cast<int64_t>(field.names.size())));
            break;
          case ArgField::kDims:
            for (int64_t dim : AnyShape()) arg.push_back(dim);
            break;
          case ArgField::kList:
            for (int64_t n = 1 + Below(3); n > 0; --n) {
              arg.push_back(std::min(field.max, field.min + Below(4)));
            }
            break;
          case ArgField::kDevice:
            arg.push_back(OneIn(32) ? Below(3) : 0);
            break;
          default:
            arg.push_back(OneIn(8) ? field.max : std::min(field.max, field.min + Below(4)));
        }
      }
      return arg;
    }
  }
}

void NodeMaker::MakeSymbolic(const OpInfo& info, std::vector<int64_t>* arg, std::vector<UOp>* src) {
  if ((info.traits & kSymbolic) == 0 || arg->empty() || !OneIn(12)) return;
  const OpInfo& var = Info(Op::kVar);
  std::vector<UOp> none;
  UOp size = Try(Op::kVar, DType::kVoid, {}, Argument(var, DType::kVoid, &none));
  if (OneIn(4)) size = Node(OneIn(2) ? Op::kMul : Op::kAdd, size);
  if (!size.valid()) return;
  src->push_back(size);
  (*arg)[Below(static_cast<int64_t>(arg->size()))] = -static_cast<int64_t>(src->size());
}

UOp NodeMaker::Function(bool loop) {
  std::vector<UOp> values;  // what the body's arguments stand for
  for (int64_t n = 1 + Below(3); n > 0; --n) values.push_back(Pick());
  std::vector<UOp> outer = std::exchange(pool_, {});
  in_body_ = true;
  std::vector<UOp> formals;
  if (loop) Offer(Try(Op::kArg, DType::kInt64, {}, std::vector<int64_t>{0, 0}));
  for (size_t i = 0; i < values.size(); ++i) {
    std::vector<int64_t> arg{static_cast<int64_t>(i) + (loop ? 1 : 0), 0};
    arg.insert(arg.end(), values[i].shape().begin(), values[i].shape().end());
    formals.push_back(Try(Op::kArg, values[i].dtype(), {}, arg));
    Offer(formals.back());
  }
  for (int64_t n = 1 + Below(5); n > 0; --n) Offer(Node());
  std::vector<UOp> results;
  for (UOp formal : formals) {
    results.push_back(loop && formal.valid() ? Like(Pick(), formal) : Pick());
  }
  const UOp body = Try(Op::kTuple, DType::kVoid, results, {});
  in_body_ = false;
  pool_ = std::move(outer);
  std::vector<UOp> src{body};
  if (loop) src.push_back(g_.Const(DType::kInt64, Below(4)));
  src.insert(src.end(), values.begin(), values.end());
  const UOp call = Try(loop ? Op::kLoop : Op::kCall, DType::kVoid, src, {});
  const std::vector<int64_t> number{Below(static_cast<int64_t>(results.size()))};
  return Try(Op::kGetTuple, DType::kVoid, {&call, 1}, number);
}

UOp NodeMaker::Node(std::optional<Op> op, UOp first) {
  static const std::vector<Op> kOps = TensorOps();
  for (int i = 0; i < kTries; ++i) {
    const OpInfo& info = Info(op ? *op : kOps[Below(static_cast<int64_t>(kOps.size()))]);
    if (!op && IsRare(info) && !OneIn(8)) continue;
    if ((info.traits & kTupleValue) != 0) {
      if (!in_body_) return Function(OneIn(2));
      continue;
    }
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
    const std::vector<int64_t> arg = Argument(info, DType::kVoid, &src);
    const UOp view = Try(info.op, DType::kVoid, src, arg);
    if (view.valid()) u = view;
  }
  return u;
}

}  // namespace telegrad::fuzz
