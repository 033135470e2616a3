// Each rule name in ops.def is one function here. All size arithmetic is checked: the arguments
// come from clients.
#include "engine/ir/infer.h"

#include <algorithm>

#include "engine/base/checked.h"
#include "engine/ir/scalar.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace {

struct Context {
  const OpInfo& op;
  std::span<const UOp> src;
  std::span<const int64_t> arg;

  template <typename... Args>
  absl::Status Bad(const Args&... args) const {
    return InvalidArgument(op.name, ": ", args...);
  }
};

bool Allowed(Elements elements, DType dtype) {
  switch (elements) {
    case Elements::kAny:
      return dtype != DType::kVoid;
    case Elements::kArith:
      return IsInt(dtype) || IsFloat(dtype);
    case Elements::kFloatOnly:
      return IsFloat(dtype);
    case Elements::kIntOnly:
      return IsInt(dtype);
    case Elements::kBoolOnly:
      return IsBool(dtype);
    case Elements::kLogic:
      return IsInt(dtype) || IsBool(dtype);
  }
  return false;
}

std::string_view Describe(Elements elements) {
  switch (elements) {
    case Elements::kAny:
      return "a value";
    case Elements::kArith:
      return "an integer or float type";
    case Elements::kFloatOnly:
      return "a float type";
    case Elements::kIntOnly:
      return "an integer type";
    case Elements::kBoolOnly:
      return "bool";
    case Elements::kLogic:
      return "an integer type or bool";
  }
  return "";
}

absl::Status CheckDims(const Context& c, ShapeView dims) {
  if (dims.size() > kMaxRank) {
    return c.Bad("rank ", dims.size(), " is over the limit of ", kMaxRank);
  }
  // Zero-size shapes are bounded too: the product is taken over max(dim, 1).
  int64_t product = 1;
  for (int64_t dim : dims) {
    if (dim < 0) return c.Bad("dimension ", dim, " in ", ToString(dims), " is negative");
    if (!CheckedMul(product, std::max<int64_t>(dim, 1), &product) || product > kMaxElements) {
      return c.Bad("shape ", ToString(dims), " has more than the limit of ", kMaxElements,
                   " elements");
    }
  }
  return absl::OkStatus();
}

// --- arguments ---

absl::Status CheckAxes(const Context& c, std::span<const int64_t> axes, int rank) {
  uint32_t seen = 0;
  for (int64_t axis : axes) {
    if (axis < 0 || axis >= rank) {
      return c.Bad("axis ", axis, " is outside of the source's rank ", rank);
    }
    if (seen & (1u << axis)) return c.Bad("axis ", axis, " appears twice");
    seen |= 1u << axis;
  }
  return absl::OkStatus();
}

absl::Status CheckArg(const Context& c, DType dtype) {
  const auto words = [&](size_t n) -> absl::Status {
    if (c.arg.size() == n) return absl::OkStatus();
    return c.Bad("has ", c.arg.size(), " argument words, expected ", n);
  };
  switch (c.op.arg) {
    case ArgKind::kNone:
      return words(0);
    case ArgKind::kScalar: {
      TG_RETURN_IF_ERROR(words(1));
      const int64_t word = c.arg[0];
      const int64_t canonical = IsFloat(dtype)
                                    ? ScalarFromDouble(dtype, std::bit_cast<double>(word))
                                    : ScalarFromInt(dtype, word);
      // NaNs are made canonical by Graph::Make, not compared here.
      const bool nan = IsFloat(dtype) && std::bit_cast<double>(word) != std::bit_cast<double>(word);
      if (canonical != word && !nan) {
        return c.Bad("the value is not representable as ", Name(dtype));
      }
      return absl::OkStatus();
    }
    case ArgKind::kParam:
      if (c.arg.empty()) return c.Bad("has no slot");
      if (c.arg[0] < 0 || c.arg[0] >= kMaxParams) {
        return c.Bad("slot ", c.arg[0], " is outside of [0, ", kMaxParams, ")");
      }
      return CheckDims(c, c.arg.subspan(1));
    case ArgKind::kDims:
      return CheckDims(c, c.arg);
    case ArgKind::kAxes:
      return CheckAxes(c, c.arg, static_cast<int>(c.src[0].shape().size()));
    case ArgKind::kPairs:
      return words(2 * c.src[0].shape().size());
    case ArgKind::kReduce:
      if (c.arg.empty() || c.arg[0] < 0 || c.arg[0] > static_cast<int64_t>(ReduceKind::kMax)) {
        return c.Bad("has no known kind");
      }
      return CheckAxes(c, c.arg.subspan(1), static_cast<int>(c.src[0].shape().size()));
    case ArgKind::kRange:
      TG_RETURN_IF_ERROR(words(2));
      if (c.arg[1] < 0 || c.arg[1] > static_cast<int64_t>(AxisType::kVector)) {
        return c.Bad("unknown axis type ", c.arg[1]);
      }
      return absl::OkStatus();
    case ArgKind::kBuffer:
      TG_RETURN_IF_ERROR(words(3));
      if (c.arg[0] < 0 || c.arg[0] > static_cast<int64_t>(AddressSpace::kRegister)) {
        return c.Bad("unknown address space ", c.arg[0]);
      }
      return CheckDims(c, c.arg.subspan(2));
  }
  return absl::OkStatus();
}

// --- types ---

absl::StatusOr<DType> InferType(const Context& c, DType given) {
  const auto typed = [&](DType dtype) -> absl::Status {
    if (Allowed(c.op.elements, dtype)) return absl::OkStatus();
    return c.Bad("has element type ", Name(dtype), ", expected ", Describe(c.op.elements));
  };
  const auto same = [&](size_t first) -> absl::Status {
    for (size_t i = first + 1; i < c.src.size(); ++i) {
      if (c.src[i].dtype() != c.src[first].dtype()) {
        return c.Bad("source ", i, " has element type ", Name(c.src[i].dtype()), ", expected ",
                     Name(c.src[first].dtype()), " as source ", first);
      }
    }
    return absl::OkStatus();
  };
  switch (c.op.type_rule) {
    case TypeRule::kGiven:
      if (c.src.empty()) {
        TG_RETURN_IF_ERROR(typed(given));
      } else {
        TG_RETURN_IF_ERROR(typed(c.src[0].dtype()));
        if (given == DType::kVoid) return c.Bad("has no element type");
      }
      if (c.op.op == Op::kBitcast) {
        if (ByteSize(given) != ByteSize(c.src[0].dtype())) {
          return c.Bad("from ", Name(c.src[0].dtype()), " to ", Name(given), " changes the width");
        }
        // Most bytes are no bool; a cast says what is meant.
        if (IsBool(given) && !IsBool(c.src[0].dtype())) {
          return c.Bad("from ", Name(c.src[0].dtype()), " to bool, expected a cast");
        }
      }
      return given;
    case TypeRule::kSame:
      TG_RETURN_IF_ERROR(typed(c.src[0].dtype()));
      TG_RETURN_IF_ERROR(same(0));
      return c.src[0].dtype();
    case TypeRule::kFirst:
      TG_RETURN_IF_ERROR(typed(c.src[0].dtype()));
      return c.src[0].dtype();
    case TypeRule::kCompare:
      TG_RETURN_IF_ERROR(typed(c.src[0].dtype()));
      TG_RETURN_IF_ERROR(same(0));
      return DType::kBool;
    case TypeRule::kSelect:
      TG_RETURN_IF_ERROR(typed(c.src[0].dtype()));
      TG_RETURN_IF_ERROR(same(1));
      if (c.src[1].dtype() == DType::kVoid) return c.Bad("selects between effects");
      return c.src[1].dtype();
    case TypeRule::kVoid:
      return DType::kVoid;
  }
  return DType::kVoid;
}

// --- shapes ---

absl::StatusOr<Shape> Elementwise(const Context& c) {
  ShapeView shape;
  size_t from = 0;
  for (size_t i = 0; i < c.src.size(); ++i) {
    const ShapeView s = c.src[i].shape();
    if (s.empty()) continue;
    if (shape.empty()) {
      shape = s;
      from = i;
    } else if (!std::ranges::equal(s, shape)) {
      return c.Bad("source ", i, " has shape ", ToString(s), ", expected ", ToString(shape),
                   " as source ", from, ", or a scalar");
    }
  }
  return Shape(shape.begin(), shape.end());
}

absl::StatusOr<Shape> ExpandTo(const Context& c) {
  const ShapeView from = c.src[0].shape();
  if (from.size() != c.arg.size()) {
    return c.Bad("from ", ToString(from), " to ", ToString(c.arg), " changes the rank");
  }
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] != c.arg[i] && from[i] != 1) {
      return c.Bad("axis ", i, " has size ", from[i], " and cannot become ", c.arg[i]);
    }
  }
  return Shape(c.arg.begin(), c.arg.end());
}

absl::StatusOr<Shape> PadOrShrink(const Context& c, bool pad) {
  const ShapeView from = c.src[0].shape();
  Shape out(from.begin(), from.end());
  for (size_t i = 0; i < from.size(); ++i) {
    const int64_t a = c.arg[2 * i], b = c.arg[2 * i + 1];
    if (pad) {
      if (a < 0 || b < 0 || !CheckedAdd(out[i], a, &out[i]) || !CheckedAdd(out[i], b, &out[i])) {
        return c.Bad("axis ", i, " has padding (", a, ", ", b, "), expected two sizes >= 0");
      }
    } else {
      if (a < 0 || a > b || b > from[i]) {
        return c.Bad("axis ", i, " of size ", from[i], " has no part [", a, ", ", b, ")");
      }
      out[i] = b - a;
    }
  }
  TG_RETURN_IF_ERROR(CheckDims(c, out));
  return out;
}

absl::StatusOr<Shape> InferShape(const Context& c) {
  const auto first = [&] { return Shape(c.src[0].shape().begin(), c.src[0].shape().end()); };
  switch (c.op.shape_rule) {
    case ShapeRule::kScalarShape:
    case ShapeRule::kNoShape:
      return Shape{};
    case ShapeRule::kArgShape: {
      const auto dims = c.arg.subspan(c.op.arg == ArgKind::kParam ? 1 : 0);
      if (c.op.op == Op::kIota && dims.size() != 1) return c.Bad("expects one dimension");
      return Shape(dims.begin(), dims.end());
    }
    case ShapeRule::kBufferShape:
      return Shape{c.arg[2]};
    case ShapeRule::kElementwise:
      return Elementwise(c);
    case ShapeRule::kFirstShape:
      return first();
    case ShapeRule::kReshapeTo:
      if (NumElements(c.arg) != NumElements(c.src[0].shape())) {
        return c.Bad("from ", ToString(c.src[0].shape()), " to ", ToString(c.arg),
                     " changes the number of elements");
      }
      return Shape(c.arg.begin(), c.arg.end());
    case ShapeRule::kExpandTo:
      return ExpandTo(c);
    case ShapeRule::kPermuteBy: {
      const ShapeView from = c.src[0].shape();
      if (c.arg.size() != from.size()) {
        return c.Bad("names ", c.arg.size(), " axes of ", from.size());
      }
      Shape out(from.size());
      for (size_t i = 0; i < from.size(); ++i) out[i] = from[c.arg[i]];
      return out;
    }
    case ShapeRule::kSameAxes:
      return first();
    case ShapeRule::kPadBy:
      return PadOrShrink(c, /*pad=*/true);
    case ShapeRule::kShrinkTo:
      return PadOrShrink(c, /*pad=*/false);
    case ShapeRule::kReduceAxes: {
      Shape out = first();
      for (int64_t axis : c.arg.subspan(1)) out[axis] = 1;
      for (size_t i = 1; i < c.src.size(); ++i) {
        if (!c.src[i].is(Op::kRange)) return c.Bad("source ", i, " is not a range");
      }
      return out;
    }
    case ShapeRule::kGatherRows: {
      const ShapeView from = c.src[0].shape(), index = c.src[1].shape();
      if (from.empty()) return c.Bad("source 0 is a scalar, expected rows");
      if (!IsInt(c.src[1].dtype())) {
        return c.Bad("the index has element type ", Name(c.src[1].dtype()),
                     ", expected an integer type");
      }
      Shape out(index.begin(), index.end());
      out.insert(out.end(), from.begin() + 1, from.end());
      TG_RETURN_IF_ERROR(CheckDims(c, out));
      return out;
    }
    case ShapeRule::kIndexShape: {
      if (!IsInt(c.src[1].dtype())) return c.Bad("source 1 is not an integer index");
      const ShapeView index = c.src[1].shape();
      if (c.src.size() == 3) {
        if (!IsBool(c.src[2].dtype())) return c.Bad("the gate is not bool");
        const ShapeView gate = c.src[2].shape();
        if (!gate.empty() && !std::ranges::equal(gate, index)) {
          return c.Bad("the gate has shape ", ToString(gate), ", expected ", ToString(index),
                       " as the index, or a scalar");
        }
      }
      return Shape(index.begin(), index.end());
    }
  }
  return Shape{};
}

// What the rules above leave open about effects, orders and ranges.
absl::Status CheckEffects(const Context& c) {
  const auto effect = [&](size_t i) -> absl::Status {
    if (Is(c.src[i].op(), kEffect)) return absl::OkStatus();
    return c.Bad("source ", i, " (", Name(c.src[i].op()), ") is not an effect");
  };
  switch (c.op.op) {
    case Op::kSink:
      for (size_t i = 0; i < c.src.size(); ++i) TG_RETURN_IF_ERROR(effect(i));
      return absl::OkStatus();
    case Op::kAfter:
      for (size_t i = 1; i < c.src.size(); ++i) {
        if (!c.src[i].is(Op::kRange)) TG_RETURN_IF_ERROR(effect(i));
      }
      return absl::OkStatus();
    case Op::kRange:
      if (!c.src[0].shape().empty()) {
        return c.Bad("the end has shape ", ToString(c.src[0].shape()), ", expected a scalar");
      }
      return absl::OkStatus();
    case Op::kEnd:
      if (c.src[0].is(Op::kRange)) {
        if (c.src.size() == 1) return absl::OkStatus();
        return c.Bad("closes a range and has ", c.src.size(), " sources, expected 1");
      }
      TG_RETURN_IF_ERROR(effect(0));
      for (size_t i = 1; i < c.src.size(); ++i) {
        if (!c.src[i].is(Op::kRange)) return c.Bad("source ", i, " is not a range");
      }
      return absl::OkStatus();
    case Op::kStore: {
      for (size_t i = 0; i < 2; ++i) {
        if (c.src[i].dtype() == DType::kVoid) return c.Bad("source ", i, " has no value");
      }
      if (c.src[0].dtype() != c.src[1].dtype()) {
        return c.Bad("the value has element type ", Name(c.src[1].dtype()), ", expected ",
                     Name(c.src[0].dtype()));
      }
      const ShapeView to = c.src[0].shape(), value = c.src[1].shape();
      if (!value.empty() && !std::ranges::equal(to, value)) {
        return c.Bad("the value has shape ", ToString(value), ", expected ", ToString(to));
      }
      return absl::OkStatus();
    }
    default:
      return absl::OkStatus();
  }
}

}  // namespace

absl::StatusOr<Inferred> Infer(Op op, DType dtype, std::span<const UOp> src,
                               std::span<const int64_t> arg) {
  const Context c{Info(op), src, arg};
  const auto n = static_cast<int64_t>(src.size());
  if (n < c.op.min_src || (c.op.max_src >= 0 && n > c.op.max_src) || n > kMaxSources) {
    return c.Bad("has ", n, " sources, expected ", c.op.min_src,
                 c.op.max_src == c.op.min_src ? ""
                 : c.op.max_src < 0           ? " or more"
                                              : absl::StrCat(" to ", c.op.max_src));
  }
  // Only effects and orders take a node without a value as a source.
  if (!Is(op, kEffect) && op != Op::kAfter) {
    for (size_t i = 0; i < src.size(); ++i) {
      if (src[i].dtype() == DType::kVoid) return c.Bad("source ", i, " has no value");
    }
  }
  TG_ASSIGN_OR_RETURN(const DType type, InferType(c, dtype));
  TG_RETURN_IF_ERROR(CheckArg(c, type));
  TG_RETURN_IF_ERROR(CheckEffects(c));
  TG_ASSIGN_OR_RETURN(Shape shape, InferShape(c));
  return Inferred{type, std::move(shape)};
}

}  // namespace telegrad
