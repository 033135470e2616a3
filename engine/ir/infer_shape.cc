// Shapes and devices. A dim is a number, or for a symbolic one the node that computes it; the shape
// then holds its upper bound. Dims are never computed here: PAD and SHRINK say the size of their
// result, so two dims are equal when they are the same node.
#include <algorithm>

#include "engine/base/checked.h"
#include "engine/ir/infer_context.h"
#include "engine/ir/symbolic_size.h"
#include "engine/types/limits.h"

namespace telegrad::internal {
namespace {

struct Dim {
  int64_t bound = 0;
  uint32_t node = kStaticDim;
  bool is_static() const { return node == kStaticDim; }
  friend bool operator==(const Dim&, const Dim&) = default;
};

// The dims of a value being inferred.
class Dims {
 public:
  void Add(Dim dim) { dims_.push_back(dim); }
  void AddAll(UOp u, size_t first = 0) {
    for (size_t i = first; i < u.shape().size(); ++i) Add(Of(u, i));
  }
  Dim& operator[](size_t i) { return dims_[i]; }
  std::span<const Dim> all() const { return dims_; }
  // All dims are those of source `i`.
  void SetLike(size_t i) { like_ = static_cast<int>(i); }

  static Dim Of(UOp u, size_t axis) {
    const UOp dim = u.dim(static_cast<int>(axis));
    return {u.shape()[axis], dim.valid() ? dim.id() : kStaticDim};
  }

  absl::Status Write(const InferContext& c, Inferred* out) const {
    out->like = like_;
    if (like_ >= 0) return absl::OkStatus();
    bool symbolic = false;
    for (const Dim& dim : dims_) {
      out->shape.push_back(dim.bound);
      symbolic |= !dim.is_static();
    }
    if (symbolic) {
      for (const Dim& dim : dims_) out->symbolic.push_back(dim.node);
    }
    return CheckDims(c, out->shape);
  }

 private:
  absl::InlinedVector<Dim, 6> dims_;
  int like_ = -1;
};

// The value of a dims or pairs word.
absl::StatusOr<Dim> Read(const InferContext& c, int64_t word) {
  if (word >= 0) return Dim{word};
  const int64_t source = -(word + 1);
  if (source < c.op.min_src || source >= static_cast<int64_t>(c.src.size())) {
    return c.Bad("dimension ", word, " is negative and names no source with a symbolic size");
  }
  const UOp u = c.src[source];
  if (u.dtype() != DType::kInt64 || !u.shape().empty()) {
    return c.Bad("the symbolic size (source ", source, ") is ", Name(u.dtype()), " ",
                 ToString(u.shape()), ", expected a scalar i64");
  }
  if (u.vmin() < 0 || u.vmax() > kMaxElements) {
    return c.Bad("the symbolic size (source ", source, ") is bounded by [", u.vmin(), ", ",
                 u.vmax(), "], expected within [0, ", kMaxElements, "]");
  }
  if (u.is_const()) return Dim{u.const_word()};
  return Dim{u.vmax(), u.id()};
}

// Every extra source must be the size of a dim, so that equal nodes have equal sources.
absl::Status CheckExtraSources(const InferContext& c) {
  for (size_t i = static_cast<size_t>(c.op.min_src); i < c.src.size(); ++i) {
    if (std::ranges::find(c.arg, -static_cast<int64_t>(i) - 1) == c.arg.end()) {
      return c.Bad("has ", c.src.size(), " sources, expected ", c.op.min_src,
                   " and the symbolic sizes that the argument names; source ", i, " is none");
    }
  }
  return absl::OkStatus();
}

std::string DescribeShape(const UOp u) {
  std::string out = ToString(u.shape());
  for (size_t i = 0; i < u.shape().size(); ++i) {
    if (u.dim(static_cast<int>(i)).valid()) return StrCat(out, " with symbolic sizes");
  }
  return out;
}

absl::Status Elementwise(const InferContext& c, Dims* out) {
  size_t from = c.src.size();
  for (size_t i = 0; i < c.src.size(); ++i) {
    if (c.src[i].shape().empty()) continue;
    if (from == c.src.size()) {
      from = i;
    } else if (!SameShape(c.src[i], c.src[from])) {
      return c.Bad("source ", i, " has shape ", DescribeShape(c.src[i]), ", expected ",
                   DescribeShape(c.src[from]), " as source ", from, ", or a scalar");
    }
  }
  if (from < c.src.size()) out->SetLike(from);
  return absl::OkStatus();
}

absl::Status Reshape(const InferContext& c, Dims* out) {
  absl::InlinedVector<int64_t, 6> bounds;
  for (int64_t word : c.arg) {
    TG_ASSIGN_OR_RETURN(const Dim dim, Read(c, word));
    out->Add(dim);
    bounds.push_back(dim.bound);
  }
  TG_RETURN_IF_ERROR(CheckDims(c, bounds));
  Dims from;
  from.AddAll(c.src[0]);
  const bool numbers = std::ranges::all_of(from.all(), &Dim::is_static) &&
                       std::ranges::all_of(out->all(), &Dim::is_static);
  const auto product = [](std::span<const Dim> dims) {  // of an admitted shape: no overflow
    int64_t n = 1;
    for (const Dim& dim : dims) n *= dim.bound;
    return n;
  };
  if (numbers && product(from.all()) == product(out->all())) return absl::OkStatus();
  const Graph* graph = c.src[0].graph();
  const auto elements = [&](std::span<const Dim> dims) {
    std::vector<SizeFactor> factors;
    for (const Dim& dim : dims) {
      factors.push_back({dim.bound, dim.is_static() ? UOp() : graph->at(dim.node)});
    }
    return MultiplySizes(factors);
  };
  const absl::StatusOr<SymbolicSize> a = elements(from.all()), b = elements(out->all());
  for (const auto* size : {&a, &b}) {
    if (!size->ok()) return c.Bad(size->status().message());
  }
  if (*a == *b) return absl::OkStatus();
  return c.Bad("from ", DescribeShape(c.src[0]), " to ", ToString(bounds),
               " changes the number of elements");
}

absl::Status Expand(const InferContext& c, Dims* out) {
  const ShapeView from = c.src[0].shape();
  if (from.size() != c.arg.size()) {
    return c.Bad("from ", ToString(from), " to ", ToString(c.arg), " changes the rank");
  }
  for (size_t i = 0; i < from.size(); ++i) {
    TG_ASSIGN_OR_RETURN(const Dim to, Read(c, c.arg[i]));
    if (to != Dims::Of(c.src[0], i) && Dims::Of(c.src[0], i) != Dim{1}) {
      return c.Bad("axis ", i, " has size ", from[i], " and cannot become ", to.bound);
    }
    out->Add(to);
  }
  return absl::OkStatus();
}

absl::Status PadOrShrink(const InferContext& c, bool pad, Dims* out) {
  const UOp x = c.src[0];
  if (c.arg.size() != 2 * x.shape().size()) {
    return c.Bad("has ", c.arg.size(), " argument words, expected ", 2 * x.shape().size());
  }
  for (size_t i = 0; i < x.shape().size(); ++i) {
    const Dim from = Dims::Of(x, i);
    TG_ASSIGN_OR_RETURN(const Dim offset, Read(c, c.arg[2 * i]));
    TG_ASSIGN_OR_RETURN(const Dim size, Read(c, c.arg[2 * i + 1]));
    for (const Dim& dim : {offset, size}) {
      if (dim.bound > kMaxElements) {
        return c.Bad("axis ", i, " has ", dim.bound, ", over the limit of ", kMaxElements,
                     " elements");
      }
    }
    if (from.is_static() && offset.is_static() && size.is_static()) {
      const Dim& inner = pad ? from : size;
      const Dim& outer = pad ? size : from;
      if (offset.bound + inner.bound > outer.bound) {
        return c.Bad("axis ", i, " of size ", from.bound,
                     pad ? " does not fit at offset " : " has no part at offset ", offset.bound,
                     pad ? " of size " : " of size ", size.bound);
      }
    }
    out->Add(size);
  }
  return absl::OkStatus();
}

absl::Status Cat(const InferContext& c, Dims* out) {
  if (c.arg.size() != 1) return c.Bad("names ", c.arg.size(), " axes, expected one");
  TG_RETURN_IF_ERROR(CheckAxes(c, c.arg, c.src[0].shape().size()));
  const auto axis = static_cast<size_t>(c.arg[0]);
  out->AddAll(c.src[0]);
  for (size_t i = 0; i < c.src.size(); ++i) {
    const UOp s = c.src[i];
    if (s.dtype() != c.src[0].dtype()) {
      return c.Bad("source ", i, " has element type ", Name(s.dtype()), ", expected ",
                   Name(c.src[0].dtype()), " as source 0");
    }
    if (s.shape().size() != c.src[0].shape().size()) {
      return c.Bad("source ", i, " has shape ", DescribeShape(s), ", expected the rank of ",
                   DescribeShape(c.src[0]));
    }
    for (size_t a = 0; a < s.shape().size(); ++a) {
      const Dim dim = Dims::Of(s, a);
      if (a == axis) {
        if (!dim.is_static()) {
          return c.Bad("source ", i, " has a symbolic size on the axis, expected a fixed one");
        }
        if (i > 0 && !CheckedAdd((*out)[a].bound, dim.bound, &(*out)[a].bound)) {
          return c.Bad("the sizes overflow");
        }
      } else if (dim != Dims::Of(c.src[0], a)) {
        return c.Bad("source ", i, " has shape ", DescribeShape(s), ", expected ",
                     DescribeShape(c.src[0]), " but for axis ", axis);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Bitcast(const InferContext& c, DType to, Dims* out) {
  const UOp x = c.src[0];
  const int from_bits = Info(x.dtype()).bits, to_bits = Info(to).bits;
  out->AddAll(x);
  if (from_bits == to_bits) return absl::OkStatus();
  if (x.shape().empty() || x.dim(static_cast<int>(x.shape().size()) - 1).valid()) {
    return c.Bad("from ", Name(x.dtype()), " to ", Name(to),
                 " changes the width, expected a last axis of fixed size");
  }
  Dim& last = (*out)[x.shape().size() - 1];
  int64_t bits;
  if (!CheckedMul(last.bound, from_bits, &bits) || bits % to_bits != 0) {
    return c.Bad("the last axis has ", last.bound, " elements of ", from_bits,
                 " bits, expected a multiple of ", to_bits, " bits");
  }
  last.bound = bits / to_bits;
  return absl::OkStatus();
}

absl::Status ExpectInteger(const InferContext& c, size_t i) {
  if (IsInt(c.src[i].dtype())) return absl::OkStatus();
  return c.Bad("the index has element type ", Name(c.src[i].dtype()), ", expected an integer type");
}

absl::Status GatherRows(const InferContext& c, Dims* out) {
  if (c.src[0].shape().empty()) return c.Bad("source 0 is a scalar, expected rows");
  TG_RETURN_IF_ERROR(ExpectInteger(c, 1));
  out->AddAll(c.src[1]);
  out->AddAll(c.src[0], 1);
  return absl::OkStatus();
}

absl::Status ScatterRows(const InferContext& c, Dims* out) {
  Dims rows;
  TG_RETURN_IF_ERROR(GatherRows(c, &rows));
  if (c.src[2].dtype() != c.src[0].dtype()) {
    return c.Bad("the rows have element type ", Name(c.src[2].dtype()), ", expected ",
                 Name(c.src[0].dtype()), " as source 0");
  }
  Dims got;
  got.AddAll(c.src[2]);
  if (!std::ranges::equal(got.all(), rows.all())) {
    return c.Bad("the rows have shape ", DescribeShape(c.src[2]),
                 ", expected the index's shape and then that of a row");
  }
  if (ScatterKind{c.arg[0]} != ScatterKind::kSet &&
      (IsStorage(c.src[0].dtype()) || IsBool(c.src[0].dtype()))) {
    return c.Bad("has element type ", Name(c.src[0].dtype()),
                 ", expected an integer or float type for ", Name(ScatterKind{c.arg[0]}));
  }
  out->SetLike(0);
  return absl::OkStatus();
}

absl::Status IndexShape(const InferContext& c, Dims* out) {
  if (!IsInt(c.src[1].dtype())) return c.Bad("source 1 is not an integer index");
  if (c.src.size() == 3) {
    if (!IsBool(c.src[2].dtype())) return c.Bad("the gate is not bool");
    if (!c.src[2].shape().empty() && !SameShape(c.src[1], c.src[2])) {
      return c.Bad("the gate has shape ", ToString(c.src[2].shape()), ", expected ",
                   ToString(c.src[1].shape()), " as the index, or a scalar");
    }
  }
  out->SetLike(1);
  return absl::OkStatus();
}

absl::Status Shapes(const InferContext& c, DType dtype, Dims* out) {
  switch (c.op.shape_rule) {
    case ShapeRule::kScalarShape:
    case ShapeRule::kNoShape:
      return absl::OkStatus();
    case ShapeRule::kArgShape:
      for (int64_t word : c.arg.subspan(ArgFields(c.op.arg).size() - 1)) {
        TG_ASSIGN_OR_RETURN(const Dim dim, Read(c, word));
        out->Add(dim);
      }
      if (c.op.op == Op::kIota && out->all().size() != 1) return c.Bad("expects one dimension");
      return absl::OkStatus();
    case ShapeRule::kBufferShape:
      if (c.arg.size() != 3) return c.Bad("expects one dimension");
      out->Add({c.arg[2]});
      return absl::OkStatus();
    case ShapeRule::kElementwise:
      return Elementwise(c, out);
    case ShapeRule::kFirstShape:
    case ShapeRule::kSameShape:
    case ShapeRule::kMmaShape: {
      const size_t number = c.op.shape_rule == ShapeRule::kMmaShape ? 2 : 0;
      const UOp like = c.src[number];
      for (size_t i = 1; c.op.shape_rule == ShapeRule::kSameShape && i < c.src.size(); ++i) {
        if (!SameShape(c.src[i], like) || c.src[i].dtype() != like.dtype()) {
          return c.Bad("source ", i, " is ", Name(c.src[i].dtype()), " ", DescribeShape(c.src[i]),
                       ", expected ", Name(like.dtype()), " ", DescribeShape(like), " as source 0");
        }
      }
      out->SetLike(number);
      return absl::OkStatus();
    }
    case ShapeRule::kReshapeTo:
      return Reshape(c, out);
    case ShapeRule::kExpandTo:
      return Expand(c, out);
    case ShapeRule::kPermuteBy:
      TG_RETURN_IF_ERROR(CheckAxes(c, c.arg, c.src[0].shape().size()));
      if (c.arg.size() != c.src[0].shape().size()) {
        return c.Bad("names ", c.arg.size(), " axes of ", c.src[0].shape().size());
      }
      for (int64_t axis : c.arg) out->Add(Dims::Of(c.src[0], static_cast<size_t>(axis)));
      return absl::OkStatus();
    case ShapeRule::kSameAxes:
      TG_RETURN_IF_ERROR(CheckAxes(c, c.arg, c.src[0].shape().size()));
      out->SetLike(0);
      return absl::OkStatus();
    case ShapeRule::kPadTo:
      return PadOrShrink(c, /*pad=*/true, out);
    case ShapeRule::kShrinkTo:
      return PadOrShrink(c, /*pad=*/false, out);
    case ShapeRule::kCatAxis:
      return Cat(c, out);
    case ShapeRule::kBitcastShape:
      return Bitcast(c, dtype, out);
    case ShapeRule::kReduceAxes:
      TG_RETURN_IF_ERROR(CheckAxes(c, c.arg.subspan(1), c.src[0].shape().size()));
      out->AddAll(c.src[0]);
      for (int64_t axis : c.arg.subspan(1)) (*out)[static_cast<size_t>(axis)] = {1};
      for (size_t i = 1; i < c.src.size(); ++i) {
        if (!c.src[i].is(Op::kRange)) return c.Bad("source ", i, " is not a range");
      }
      return absl::OkStatus();
    case ShapeRule::kGatherRows:
      return GatherRows(c, out);
    case ShapeRule::kScatterRows:
      return ScatterRows(c, out);
    case ShapeRule::kTupleShape:
      out->AddAll(TupleElement(c));
      return absl::OkStatus();
    case ShapeRule::kUnshardAxis: {
      TG_RETURN_IF_ERROR(CheckAxes(c, c.arg, c.src[0].shape().size()));
      if (c.arg.size() != 1) return c.Bad("names ", c.arg.size(), " axes, expected one");
      out->AddAll(c.src[0]);
      Dim& dim = (*out)[static_cast<size_t>(c.arg[0])];
      if (!dim.is_static()) return c.Bad("the axis has a symbolic size, expected a fixed one");
      const auto devices = static_cast<int64_t>(c.src[0].devices().size());
      if (!CheckedMul(dim.bound, std::max<int64_t>(devices, 1), &dim.bound)) {
        return c.Bad("the sizes overflow");
      }
      return absl::OkStatus();
    }
    case ShapeRule::kIndexShape:
      return IndexShape(c, out);
    case ShapeRule::kMatrixShape:
      out->Add({2 * c.arg[0]});
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InferShape(const InferContext& c, Inferred* out) {
  if (Is(c.op.op, kSymbolic)) TG_RETURN_IF_ERROR(CheckExtraSources(c));
  Dims dims;
  TG_RETURN_IF_ERROR(Shapes(c, out->dtype, &dims));
  return dims.Write(c, out);
}

absl::Status InferDevices(const InferContext& c, Inferred* out) {
  switch (c.op.op) {
    case Op::kParam:
    case Op::kArg:
      out->devices = {c.arg[1]};
      return absl::OkStatus();
    case Op::kCopy:
      if (c.arg.empty()) return c.Bad("names no device");
      if (c.src[0].devices().size() > 1) {
        return c.Bad("the source is on ", c.src[0].devices().size(), " devices, expected one");
      }
      out->devices.assign(c.arg.begin(), c.arg.end());
      return absl::OkStatus();
    case Op::kMStack:
      for (size_t i = 0; i < c.src.size(); ++i) {
        if (c.src[i].devices().size() != 1) {
          return c.Bad("source ", i, " is on ", c.src[i].devices().size(),
                       " devices, expected one");
        }
        out->devices.push_back(c.src[i].devices()[0]);
      }
      return absl::OkStatus();
    case Op::kMSelect: {
      const std::span<const int64_t> devices = c.src[0].devices();
      if (c.arg[0] >= static_cast<int64_t>(devices.size())) {
        return c.Bad("names instance ", c.arg[0], " of ", devices.size());
      }
      out->devices = {devices[static_cast<size_t>(c.arg[0])]};
      return absl::OkStatus();
    }
    case Op::kGetTuple:
      out->place = TupleElement(c).place();
      return absl::OkStatus();
    case Op::kSink:
    case Op::kTuple:
    case Op::kCall:
    case Op::kLoop:
    case Op::kAfter:
      out->place = c.op.op == Op::kAfter ? c.src[0].place() : 0;
      return absl::OkStatus();
    default:
      for (size_t i = 0; i < c.src.size(); ++i) {
        const uint16_t place = c.src[i].place();
        if (place == 0 || place == out->place) continue;
        if (out->place == 0) {
          out->place = place;
          continue;
        }
        return c.Bad("source ", i, " is on devices ", ToString(c.src[i].devices()),
                     ", expected those of the others; a copy moves it");
      }
      return absl::OkStatus();
  }
}

}  // namespace telegrad::internal
