// One node, one instance: sizes become numbers, variables their values, types their carriers, and
// what may leave its source once sizes are known is clipped. Where variables stay, a node with a
// size of the run stays too: it is legalized again, with the part that it is in.
#include <algorithm>

#include "engine/base/status.h"
#include "engine/rules/fold.h"
#include "engine/schedule/legalizer.h"

namespace telegrad {

absl::StatusOr<UOp> Legalizer::Node(UOp u, std::span<const UOp> src) {
  std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
  std::vector<UOp> sizes;
  if (Is(u.op(), kSymbolic)) {
    const auto least = static_cast<size_t>(Info(u.op()).min_src);
    for (int64_t& word : arg) {
      if (word >= 0) continue;
      const UOp size = src[static_cast<size_t>(-(word + 1))];
      if (size.is_const()) {
        word = size.const_word();
        continue;
      }
      if (!keeps_variables_) return Internal(Name(u.op()), ": a size is not known at the run");
      auto at = std::ranges::find(sizes, size);
      if (at == sizes.end()) at = sizes.insert(at, size);
      word = -(static_cast<int64_t>(least) + (at - sizes.begin())) - 1;
    }
    src = src.first(least);
  }
  if (!sizes.empty() || std::ranges::any_of(src, [](UOp s) { return s.symbolic(); })) {
    return Symbolic(u, src, sizes, arg);
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
      // Reduced in f32, rounded once; a reduction of nothing is the type's own identity.
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

absl::StatusOr<UOp> Legalizer::Symbolic(UOp u, std::span<const UOp> src, std::span<const UOp> sizes,
                                        std::span<const int64_t> arg) {
  bool packed = IsPacked(u.dtype());
  for (int i = 0; i < u.num_src(); ++i) packed |= IsPacked(u.src(i).dtype());
  if (packed) {
    return Unimplemented(Name(u.op()),
                         ": a value of a packed type with a size that a variable decides");
  }
  if (u.is(Op::kCat)) return Concatenate(&g_, {src.begin(), src.end()}, arg[0]);
  std::vector<UOp> sources(src.begin(), src.end());
  sources.insert(sources.end(), sizes.begin(), sizes.end());
  return g_.Make(u.op(), u.dtype(), sources, arg);
}

absl::StatusOr<UOp> Legalizer::Param(UOp u) {
  TG_ASSIGN_OR_RETURN(const int64_t device, DeviceOf(u.device()));
  if (!IsPacked(u.dtype())) return g_.Param(u.slot(), u.dtype(), u.shape(), device);
  const int64_t bytes = BytesOf(u.dtype(), NumElements(u.shape()));
  const UOp memory = g_.Param(u.slot(), DType::kUInt8, Shape{bytes}, device);
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

// With the variables of this run a part of the target lies beyond the param: what would be stored
// there is skipped, as by every other form of the graph. The value is moved to where it belongs in
// the whole param, which keeps what it has elsewhere. That costs as much as the param is large, and
// is for positions that a client did not mean.
UOp Legalizer::StoreInside(UOp target, UOp value) {
  const Shape ones(target.shape().size(), 1), dims(target.shape().begin(), target.shape().end());
  const auto spread = [&](UOp x) {
    if (!x.shape().empty() || dims.empty()) return x;
    return g_.Make(Op::kExpand, {g_.Make(Op::kReshape, {x}, ones)}, dims);
  };
  UOp inside = spread(g_.True());
  value = spread(value);
  UOp view = target;
  for (; Is(view.op(), kMovement); view = view.src(0)) {
    const ShapeView inner = view.src(0).shape();
    const Shape from(inner.begin(), inner.end());  // nodes that are made may move it
    for (UOp* x : {&inside, &value}) *x = Undone(view, from, *x);
  }
  return g_.Make(Op::kStore, {view, g_.Make(Op::kWhere, {inside, value, view})});
}

// `x`, of the shape of `movement`, moved back to where it came from; zeros where nothing did.
UOp Legalizer::Undone(UOp movement, ShapeView from, UOp x) {
  std::vector<int64_t> arg(movement.arg().begin(), movement.arg().end());
  switch (movement.op()) {
    case Op::kReshape:
      return g_.Make(Op::kReshape, {x}, from);
    case Op::kPermute:
      for (size_t i = 0; i < arg.size(); ++i) arg[movement.axes()[i]] = static_cast<int64_t>(i);
      return g_.Make(Op::kPermute, {x}, arg);
    case Op::kShrink:
    case Op::kPad:
      for (size_t i = 0; i < from.size(); ++i) arg[2 * i + 1] = from[i];
      return g_.Make(movement.is(Op::kPad) ? Op::kShrink : Op::kPad, {x}, arg);
    default:  // FLIP: no target is expanded
      return g_.Make(movement.op(), {x}, arg);
  }
}

absl::StatusOr<UOp> Legalizer::Store(UOp u, std::span<const UOp> src) {
  const DType dtype = u.src(1).dtype();
  if (!IsPacked(dtype)) {
    if (clipped_.contains(src[0])) return StoreInside(src[0], src[1]);
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
  const int64_t id = u.var_id(), min = u.var_min(), max = u.var_max(), multiple = u.var_multiple();
  if (src.empty() && keeps_variables_) {
    if (min == max) return g_.Index(min);
    return g_.Make(Op::kVar, DType::kVoid, {}, {id, min, max, multiple});
  }
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
  if (min > INT64_MIN) {  // the lesser of x and max in a form of which its bounds follow
    const auto negated = [&](UOp y) { return g_.Make(Op::kMul, {y, g_.Index(-1)}); };
    x = negated(g_.Make(Op::kMax, {negated(x), g_.Index(-max)}));
  } else {
    x = g_.Make(Op::kWhere, {g_.Make(Op::kCmpLt, {x, g_.Index(max)}), x, g_.Index(max)});
  }
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

}  // namespace telegrad
