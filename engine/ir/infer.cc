// Arity, argument words and element types. Each rule name in ops.def is one case here or in
// infer_shape.cc. All size arithmetic is checked: the arguments come from clients.
#include "engine/ir/infer.h"

#include <algorithm>

#include "engine/base/checked.h"
#include "engine/ir/infer_context.h"
#include "engine/ir/scalar.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace internal {

absl::Status CheckDims(const InferContext& c, ShapeView dims) {
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

absl::Status CheckAxes(const InferContext& c, std::span<const int64_t> axes, size_t rank) {
  uint32_t seen = 0;
  for (int64_t axis : axes) {
    if (axis < 0 || axis >= static_cast<int64_t>(rank)) {
      return c.Bad("axis ", axis, " is outside of the source's rank ", rank);
    }
    if (seen & (1u << axis)) return c.Bad("axis ", axis, " appears twice");
    seen |= 1u << axis;
  }
  return absl::OkStatus();
}

UOp TupleElement(const InferContext& c) {
  const UOp tuple = c.src[0].is(Op::kTuple) ? c.src[0] : c.src[0].src(0);
  return tuple.src(static_cast<int>(c.arg[0]));
}

namespace {

std::string_view DescribeElements(Elements elements) {
  switch (elements) {
    case Elements::kAny:
      return "a value";
    case Elements::kCompute:
      return "a type that is not for storage only";
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
    case Elements::kU64Only:
      return "u64";
    case Elements::kI32Only:
      return "i32";
  }
  return "";
}

// --- arguments ---

absl::Status CheckScalar(const InferContext& c, DType dtype, int64_t word) {
  const int64_t canonical = IsFloat(dtype) ? ScalarFromDouble(dtype, std::bit_cast<double>(word))
                                           : ScalarFromInt(dtype, word);
  // NaNs are made canonical by Graph::Make, not compared here.
  const bool nan = IsFloat(dtype) && std::bit_cast<double>(word) != std::bit_cast<double>(word);
  if (nan ? !HasNan(dtype) : canonical != word) {
    return c.Bad("the value is not representable as ", Name(dtype));
  }
  return absl::OkStatus();
}

// Words that the table alone bounds. Dims, axes and pairs are the shape rules' business.
absl::Status CheckArg(const InferContext& c, DType dtype) {
  const std::span<const ArgField> fields = ArgFields(c.op.arg);
  size_t at = 0;
  for (const ArgField& field : fields) {
    const bool list = field.type == ArgField::kList || field.type == ArgField::kDims;
    if (!list && at >= c.arg.size()) {
      return c.Bad("has ", c.arg.size(), " argument words, expected ", fields.size(), "; no ",
                   field.name);
    }
    switch (field.type) {
      case ArgField::kScalar:
        TG_RETURN_IF_ERROR(CheckScalar(c, dtype, c.arg[at++]));
        break;
      case ArgField::kEnum:
        if (c.arg[at] < 0 || c.arg[at] >= static_cast<int64_t>(field.names.size())) {
          return c.Bad("unknown ", field.name, " ", c.arg[at]);
        }
        ++at;
        break;
      case ArgField::kInt:
      case ArgField::kDevice:
        if (c.arg[at] < field.min || c.arg[at] > field.max) {
          return c.Bad(field.name, " ", c.arg[at], " is outside of [", field.min, ", ", field.max,
                       "]");
        }
        ++at;
        break;
      case ArgField::kList:
        for (; at < c.arg.size(); ++at) {
          if (c.arg[at] < field.min || c.arg[at] > field.max) {
            return c.Bad(field.name, " has ", c.arg[at], ", expected [", field.min, ", ", field.max,
                         "]");
          }
        }
        break;
      case ArgField::kDims:
        if (!Is(c.op.op, kSymbolic)) TG_RETURN_IF_ERROR(CheckDims(c, c.arg.subspan(at)));
        at = c.arg.size();
        break;
    }
  }
  if (at == c.arg.size()) return absl::OkStatus();
  return c.Bad("has ", c.arg.size(), " argument words, expected ", at);
}

// --- types ---

absl::StatusOr<DType> InferType(const InferContext& c, DType given) {
  const auto typed = [&](DType dtype) -> absl::Status {
    if (Allows(c.op.elements, dtype)) return absl::OkStatus();
    return c.Bad("has element type ", Name(dtype), ", expected ", DescribeElements(c.op.elements));
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
      // Symbolic dims are sources without a part in the value.
      if (c.src.empty() || c.op.max_src == 0) {
        TG_RETURN_IF_ERROR(typed(given));
      } else {
        TG_RETURN_IF_ERROR(typed(c.src[0].dtype()));
        if (given == DType::kVoid) return c.Bad("has no element type");
      }
      // Most bytes are no bool; a cast says what is meant.
      if (c.op.op == Op::kBitcast && IsBool(given) && !IsBool(c.src[0].dtype())) {
        return c.Bad("from ", Name(c.src[0].dtype()), " to bool, expected a cast");
      }
      return given;
    case TypeRule::kSame:
      TG_RETURN_IF_ERROR(typed(c.src[0].dtype()));
      TG_RETURN_IF_ERROR(same(0));
      return c.src[0].dtype();
    case TypeRule::kFirst:
      TG_RETURN_IF_ERROR(typed(c.src[0].dtype()));
      return c.src[0].dtype();
    case TypeRule::kThird:
      return c.src[2].dtype();
    case TypeRule::kCompare:
      TG_RETURN_IF_ERROR(typed(c.src[0].dtype()));
      TG_RETURN_IF_ERROR(same(0));
      return DType::kBool;
    case TypeRule::kSelect:
      TG_RETURN_IF_ERROR(typed(c.src[0].dtype()));
      TG_RETURN_IF_ERROR(same(1));
      if (c.src[1].dtype() == DType::kVoid) return c.Bad("selects between effects");
      return c.src[1].dtype();
    case TypeRule::kIndexType:
      return DType::kInt64;
    case TypeRule::kTupleType:
      return TupleElement(c).dtype();
    case TypeRule::kVoid:
      return DType::kVoid;
  }
  return DType::kVoid;
}

// --- sources ---

absl::Status ExpectScalarInt(const InferContext& c, size_t i) {
  if (IsInt(c.src[i].dtype()) && c.src[i].shape().empty()) return absl::OkStatus();
  return c.Bad("source ", i, " is ", Name(c.src[i].dtype()), " ", ToString(c.src[i].shape()),
               ", expected a scalar integer");
}

absl::Status ExpectTuple(const InferContext& c, size_t i) {
  if (c.src[i].is(Op::kTuple)) return absl::OkStatus();
  return c.Bad("source ", i, " is ", Name(c.src[i].op()), ", expected a tuple");
}

absl::Status CheckLoop(const InferContext& c) {
  TG_RETURN_IF_ERROR(ExpectTuple(c, 0));
  TG_RETURN_IF_ERROR(ExpectScalarInt(c, 1));
  if (c.src[1].vmax() > kMaxTrips) {
    return c.Bad("the trip count may be more than the limit of ", kMaxTrips,
                 "; expected a constant or a variable with a bound");
  }
  const UOp body = c.src[0];
  if (body.num_src() != static_cast<int>(c.src.size()) - 2) {
    return c.Bad("the body gives ", body.num_src(), " values, expected ", c.src.size() - 2,
                 " as are carried");
  }
  for (int i = 0; i < body.num_src(); ++i) {
    const UOp next = body.src(i), first = c.src[i + 2];
    if (next.dtype() != first.dtype() || !SameShape(next, first)) {
      return c.Bad("value ", i, " of the body is ", Name(next.dtype()), " ", ToString(next.shape()),
                   ", expected ", Name(first.dtype()), " ", ToString(first.shape()),
                   " as is carried");
    }
    // What is carried from anywhere is the same for all instances; else each has its own.
    const size_t had = first.devices().size(), has = next.devices().size();
    if (had != has && had != 0 && std::max(had, has) > 1) {
      return c.Bad("value ", i, " of the body is on ", has, " devices, expected ", had,
                   " as is carried");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStore(const InferContext& c) {
  for (size_t i = 0; i < 2; ++i) {
    if (c.src[i].dtype() == DType::kVoid) return c.Bad("source ", i, " has no value");
  }
  if (c.src[0].dtype() != c.src[1].dtype()) {
    return c.Bad("the value has element type ", Name(c.src[1].dtype()), ", expected ",
                 Name(c.src[0].dtype()));
  }
  if (c.src[1].shape().empty() || SameShape(c.src[0], c.src[1])) return absl::OkStatus();
  return c.Bad("the value has shape ", ToString(c.src[1].shape()), ", expected ",
               ToString(c.src[0].shape()));
}

absl::Status CheckMma(const InferContext& c) {
  const MmaInfo& row = AllMmas()[c.arg[0]];
  if (row.async != (c.op.op == Op::kMmaAsync)) {
    return c.Bad(row.name, " is ", row.async ? "" : "not ", "asynchronous");
  }
  const DType types[] = {row.a, row.b, row.c};
  for (size_t i = 0; i < 3; ++i) {
    if (c.src[i].dtype() != types[i]) {
      return c.Bad("source ", i, " has element type ", Name(c.src[i].dtype()), ", expected ",
                   Name(types[i]), " for ", row.name);
    }
  }
  if (row.async) return absl::OkStatus();
  const int sizes[] = {row.a_size(), row.b_size(), row.c_size()};
  for (size_t i = 0; i < 3; ++i) {
    if (c.src[i].shape().size() != 1 || c.src[i].shape()[0] != sizes[i]) {
      return c.Bad("source ", i, " has shape ", ToString(c.src[i].shape()), ", expected [",
                   sizes[i], "] for ", row.name);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLoadMatrix(const InferContext& c) {
  if (!std::has_single_bit(static_cast<uint64_t>(c.arg[0]))) {
    return c.Bad("loads ", c.arg[0], " matrices, expected 1, 2 or 4");
  }
  if (Info(c.src[0].dtype()).bits != 16) {
    return c.Bad("source 0 has element type ", Name(c.src[0].dtype()), ", expected one of 16 bits");
  }
  if (!c.src[0].shape().empty()) {
    return c.Bad("source 0 has shape ", ToString(c.src[0].shape()), ", expected one address");
  }
  if (c.src[0].num_src() == 3) return c.Bad("source 0 has a gate");
  return absl::OkStatus();
}

// What the type and shape rules leave open about single sources.
absl::Status CheckSources(const InferContext& c) {
  const auto effect = [&](size_t i) -> absl::Status {
    if (Is(c.src[i].op(), kEffect)) return absl::OkStatus();
    return c.Bad("source ", i, " (", Name(c.src[i].op()), ") is not an effect");
  };
  switch (c.op.op) {
    case Op::kSink:
      for (size_t i = 0; i < c.src.size(); ++i) TG_RETURN_IF_ERROR(effect(i));
      return absl::OkStatus();
    case Op::kAfter:
    case Op::kBarrier:
    case Op::kRole:
      for (size_t i = c.op.op == Op::kAfter ? 1 : 0; i < c.src.size(); ++i) {
        if (!c.src[i].is(Op::kRange)) TG_RETURN_IF_ERROR(effect(i));
      }
      return absl::OkStatus();
    case Op::kWait:
      for (size_t i = 0; i < c.src.size(); ++i) {
        UOp copy = c.src[i];  // in a kernel a nest of them
        while (copy.is(Op::kEnd)) copy = copy.src(0);
        if (Is(copy.op(), kAsync)) continue;
        return c.Bad("source ", i, " (", Name(c.src[i].op()), ") is not asynchronous");
      }
      return absl::OkStatus();
    case Op::kRange:
      if (!c.src[0].shape().empty()) {
        return c.Bad("the end has shape ", ToString(c.src[0].shape()), ", expected a scalar");
      }
      return absl::OkStatus();
    case Op::kEnd:
      if (c.src[0].is(Op::kRange) || c.src[0].is(Op::kRole)) {
        if (c.src.size() == 1) return absl::OkStatus();
        return c.Bad("closes a ", Name(c.src[0].op()), " and has ", c.src.size(),
                     " sources, expected 1");
      }
      TG_RETURN_IF_ERROR(effect(0));
      for (size_t i = 1; i < c.src.size(); ++i) {
        if (!c.src[i].is(Op::kRange)) return c.Bad("source ", i, " is not a range");
      }
      return absl::OkStatus();
    case Op::kStore:
      return CheckStore(c);
    case Op::kVar:
      if (c.arg[1] > c.arg[2] || c.arg[1] % c.arg[3] != 0 || c.arg[2] % c.arg[3] != 0) {
        return c.Bad("has bounds [", c.arg[1], ", ", c.arg[2],
                     "], expected min <= max, both a multiple of ", c.arg[3]);
      }
      return c.src.empty() ? absl::OkStatus() : ExpectScalarInt(c, 0);
    case Op::kCall:
      return ExpectTuple(c, 0);
    case Op::kLoop:
      return CheckLoop(c);
    case Op::kGetTuple: {
      if (!Is(c.src[0].op(), kTupleValue)) {
        return c.Bad("source 0 is ", Name(c.src[0].op()), ", expected a tuple, call or loop");
      }
      const UOp tuple = c.src[0].is(Op::kTuple) ? c.src[0] : c.src[0].src(0);
      if (c.arg[0] < tuple.num_src()) return absl::OkStatus();
      return c.Bad("names value ", c.arg[0], " of ", tuple.num_src());
    }
    case Op::kMma:
    case Op::kMmaAsync:
      return CheckMma(c);
    case Op::kLoadMatrix:
      return CheckLoadMatrix(c);
    case Op::kCopyAsync:
      if (c.src[0].dtype() == c.src[1].dtype()) return absl::OkStatus();
      return c.Bad("source 1 has element type ", Name(c.src[1].dtype()), ", expected ",
                   Name(c.src[0].dtype()), " as source 0");
    case Op::kShuffle:
      return ExpectScalarInt(c, 1);
    default:
      return absl::OkStatus();
  }
}

absl::Status CheckArity(const InferContext& c) {
  const auto n = static_cast<int64_t>(c.src.size());
  const bool more = c.op.max_src < 0 || Is(c.op.op, kSymbolic);
  if (n < c.op.min_src || (!more && n > c.op.max_src) || n > kMaxSources) {
    return c.Bad("has ", n, " sources, expected ", c.op.min_src,
                 c.op.max_src == c.op.min_src ? ""
                 : c.op.max_src < 0           ? " or more"
                                              : absl::StrCat(" to ", c.op.max_src));
  }
  // Only effects, orders and tuples take a node without a value as a source.
  if (Is(c.op.op, kEffect) || c.op.op == Op::kAfter || c.op.op == Op::kGetTuple) {
    return absl::OkStatus();
  }
  const size_t bodies = c.op.op == Op::kCall || c.op.op == Op::kLoop ? 1 : 0;
  for (size_t i = bodies; i < c.src.size(); ++i) {
    if (c.src[i].dtype() == DType::kVoid) return c.Bad("source ", i, " has no value");
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace internal

bool Allows(Elements elements, DType dtype) {
  if (dtype == DType::kVoid) return false;
  if (elements == Elements::kAny) return true;
  if (IsStorage(dtype)) return false;
  switch (elements) {
    case Elements::kAny:
    case Elements::kCompute:
      return true;
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
    case Elements::kU64Only:
      return dtype == DType::kUInt64;
    case Elements::kI32Only:
      return dtype == DType::kInt32;
  }
  return false;
}

absl::Status Infer(const NodeKey& key, Inferred* out) {
  const internal::InferContext c{Info(key.op), key.src, key.arg};
  TG_RETURN_IF_ERROR(internal::CheckArity(c));
  // Arguments that do not depend on the type come first: the sources' checks read them.
  TG_RETURN_IF_ERROR(internal::CheckArg(c, key.dtype));
  TG_RETURN_IF_ERROR(internal::CheckSources(c));
  TG_ASSIGN_OR_RETURN(out->dtype, internal::InferType(c, key.dtype));
  TG_RETURN_IF_ERROR(internal::InferShape(c, out));
  return internal::InferDevices(c, out);
}

}  // namespace telegrad
