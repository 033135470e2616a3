// Exporters write shapes as small programs: Shape, Gather one of its numbers, compute, Unsqueeze
// and Concat. They are run here on integers and what comparing them gives, so that what they feed
// (Reshape, Expand) sees a constant; sizes of the run stay what they are, so that equal ones stay
// equal. Only lists and scalars fold: everything else is left to the graph.
#include <algorithm>

#include "engine/base/checked.h"
#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/tensor/dim_math.h"
#include "engine/ir/scalar.h"

namespace telegrad::onnx {
namespace {

constexpr size_t kMaxFolded = 1024;  // elements

using List = SizeList;
using Inputs = std::vector<List>;
// No value: the node does not fold.
using FoldedList = absl::StatusOr<std::optional<List>>;

bool IsInt32(const Dim& dim) {
  const Interval bounds = BoundsOf(dim);
  return bounds.lo >= INT32_MIN && bounds.hi <= INT32_MAX;
}

FoldedList FoldGather(NodeContext& c, const Inputs& in) {
  TG_ASSIGN_OR_RETURN(const int64_t axis, c.Int("axis", 0));
  if (in[0].scalar || IsBool(in[1].dtype) || (axis != 0 && axis != -1)) return std::nullopt;
  const auto n = static_cast<int64_t>(in[0].values.size());
  List out{in[0].dtype, in[1].scalar, {}};
  for (const Dim& dim : in[1].values) {
    if (!dim.is_static()) return std::nullopt;
    const int64_t index = dim.size();
    if (index < -n || index >= n) {
      return InvalidArgument("index ", index, " is outside of a list of ", n);
    }
    out.values.push_back(in[0].values[index < 0 ? index + n : index]);
  }
  return out;
}

FoldedList FoldConcat(NodeContext& c, const Inputs& in) {
  TG_ASSIGN_OR_RETURN(const int64_t axis, c.Int("axis", 0));
  List out{in[0].dtype, false, {}};
  for (const List& part : in) {
    if (part.scalar || part.dtype != out.dtype || (axis != 0 && axis != -1)) return std::nullopt;
    out.values.insert(out.values.end(), part.values.begin(), part.values.end());
    if (out.values.size() > kMaxFolded) return std::nullopt;
  }
  return out;
}

absl::StatusOr<bool> OneAxis(NodeContext& c, const Inputs& in) {
  if (c.opset() >= 13) {
    return in.size() == 2 &&
           (in[1].values == std::vector<Dim>{Dim(0)} || in[1].values == std::vector<Dim>{Dim(-1)});
  }
  TG_ASSIGN_OR_RETURN(const auto axes, c.Ints("axes", {}));
  return axes == std::vector<int64_t>{0} || axes == std::vector<int64_t>{-1};
}

FoldedList FoldUnsqueeze(NodeContext& c, const Inputs& in) {
  TG_ASSIGN_OR_RETURN(const bool one, OneAxis(c, in));
  if (!one || !in[0].scalar) return std::nullopt;
  return List{in[0].dtype, false, in[0].values};
}

// Without axes, all that have one element are left out: the list becomes a scalar.
FoldedList FoldSqueeze(NodeContext& c, const Inputs& in) {
  const bool all = in.size() == 1 && !c.HasAttribute("axes");
  if (all && in[0].scalar) return in[0];
  TG_ASSIGN_OR_RETURN(const bool one, all ? true : OneAxis(c, in));
  if (!one || in[0].scalar || in[0].values.size() != 1) return std::nullopt;
  return List{in[0].dtype, true, in[0].values};
}

FoldedList FoldCast(NodeContext& c, const Inputs& in) {
  TG_ASSIGN_OR_RETURN(const int64_t to, c.Int("to", 0));
  c.Ignore("saturate");
  List out = in[0];
  if (to == Info(DType::kInt64).onnx) {
    out.dtype = DType::kInt64;
  } else if (to == Info(DType::kInt32).onnx) {
    out.dtype = DType::kInt32;
    for (Dim& v : out.values) {
      if (v.is_static()) v = ScalarFromInt(DType::kInt32, v.size());
      if (!IsInt32(v)) return std::nullopt;
    }
  } else {
    return std::nullopt;
  }
  return out;
}

FoldedList FoldSlice(NodeContext& c, const Inputs& in) {
  if (in[0].scalar) return std::nullopt;
  const auto n = static_cast<int64_t>(in[0].values.size());
  TG_ASSIGN_OR_RETURN(const std::vector<SlicePart> parts, SliceParts(c, Shape{n}));
  List out = in[0];
  for (const SlicePart& part : parts) {
    out.values.clear();
    const int64_t step = std::min(std::abs(part.step), n + 1);
    for (int64_t i = 0; i < part.end - part.begin; i += step) {
      const int64_t at = part.step > 0 ? part.begin + i : part.end - 1 - i;
      out.values.push_back(in[0].values[at]);
    }
  }
  return out;
}

// To a list: whether it is a list already or a scalar.
FoldedList FoldReshape(NodeContext& c, const Inputs& in) {
  c.Ignore("allowzero");
  const std::vector<Dim>& shape = in[1].values;
  if (in[1].scalar || shape.size() != 1 ||
      (shape[0] != Dim(-1) && shape[0] != Dim(in[0].values.size()))) {
    return std::nullopt;
  }
  return List{in[0].dtype, false, in[0].values};
}

// Whether lists of these lengths have elements to go with all of `n`.
bool Broadcasts(std::initializer_list<const List*> lists, size_t n) {
  return std::ranges::all_of(
      lists, [n](const List* l) { return l->values.size() == n || l->values.size() == 1; });
}

const Dim& ElementAt(const List& list, size_t i) {
  return list.values[list.values.size() == 1 ? 0 : i];
}

// Whether they are equal, if that is so, or not, for every run.
std::optional<bool> Equal(const Dim& a, const Dim& b) {
  if (a == b) return true;
  const Interval x = BoundsOf(a), y = BoundsOf(b);
  if (x.hi < y.lo || y.hi < x.lo) return false;
  return std::nullopt;
}

FoldedList FoldEqual(NodeContext&, const Inputs& in) {
  const List &a = in[0], &b = in[1];
  const size_t n = std::max(a.values.size(), b.values.size());
  if (a.dtype != b.dtype || !Broadcasts({&a, &b}, n)) return std::nullopt;
  List out{DType::kBool, a.scalar && b.scalar, {}};
  for (size_t i = 0; i < n; ++i) {
    const auto equal = Equal(ElementAt(a, i), ElementAt(b, i));
    if (!equal) return std::nullopt;
    out.values.push_back(*equal ? 1 : 0);
  }
  return out;
}

FoldedList FoldWhere(NodeContext&, const Inputs& in) {
  const List &c = in[0], &a = in[1], &b = in[2];
  const size_t n = std::max({c.values.size(), a.values.size(), b.values.size()});
  if (!IsBool(c.dtype) || !c.is_static() || a.dtype != b.dtype || !Broadcasts({&c, &a, &b}, n))
    return std::nullopt;
  List out{a.dtype, c.scalar && a.scalar && b.scalar, {}};
  for (size_t i = 0; i < n; ++i) {
    out.values.push_back(ElementAt(c, i) != Dim(0) ? ElementAt(a, i) : ElementAt(b, i));
  }
  return out;
}

// An overflow or a division by zero is no shape; the graph's own rules then decide.
bool Compute(char op, int64_t a, int64_t b, int64_t* out) {
  switch (op) {
    case '+':
      return CheckedAdd(a, b, out);
    case '-':
      return CheckedSub(a, b, out);
    case '*':
      return CheckedMul(a, b, out);
    case '<':
      *out = std::min(a, b);
      return true;
    case '>':
      *out = std::max(a, b);
      return true;
    default:
      if (b == 0 || (a == INT64_MIN && b == -1)) return false;
      *out = a / b;
      return true;
  }
}

// The same where the run knows one of them. Quotients only of what is not negative, where rounding
// down and rounding to 0 are the same.
std::optional<Dim> ComputeSizes(Builder* b, char op, const Dim& x, const Dim& y) {
  const Interval ix = BoundsOf(x), iy = BoundsOf(y);
  constexpr int64_t kMost = int64_t{1} << 31;  // so that no operation overflows
  if (ix.lo < -kMost || ix.hi > kMost || iy.lo < -kMost || iy.hi > kMost) return std::nullopt;
  switch (op) {
    case '+':
      return AddDims(b, x, y);
    case '-':
      return SubDims(b, x, y);
    case '*':
      return MulDims(b, x, y);
    case '<':
      return MinDims(b, x, y);
    case '>':
      return MaxDims(b, x, y);
    default:
      if (ix.lo < 0 || !y.is_static() || y.size() <= 0) return std::nullopt;
      return Dim(AsTensor(b, x).FloorDiv(y.size()));
  }
}

// An operation of two elements, or nothing.
std::optional<Dim> ComputeElement(NodeContext& c, char op, DType dtype, const Dim& a,
                                  const Dim& b) {
  if (!a.is_static() || !b.is_static()) {
    const auto out = ComputeSizes(&c.builder(), op, a, b);
    return out && (dtype == DType::kInt64 || IsInt32(*out)) ? out : std::nullopt;
  }
  int64_t value = 0;
  if (!Compute(op, a.size(), b.size(), &value) || ScalarFromInt(dtype, value) != value) {
    return std::nullopt;
  }
  return Dim(value);
}

template <char op>
FoldedList FoldBinary(NodeContext& c, const Inputs& in) {
  const List &a = in[0], &b = in[1];
  const size_t n = std::max(a.values.size(), b.values.size());
  // Before opset 7 attributes say how operands broadcast.
  if (c.opset() < 7 || a.dtype != b.dtype || IsBool(a.dtype) || !Broadcasts({&a, &b}, n)) {
    return std::nullopt;
  }
  List out{a.dtype, a.scalar && b.scalar, {}};
  for (size_t i = 0; i < n; ++i) {
    const auto value = ComputeElement(c, op, a.dtype, ElementAt(a, i), ElementAt(b, i));
    if (!value) return std::nullopt;
    out.values.push_back(*value);
  }
  return out;
}

// The least or the largest of several lists, element by element.
template <char op>
FoldedList FoldExtreme(NodeContext& c, const Inputs& in) {
  std::optional<List> out = in[0];
  for (size_t i = 1; i < in.size() && out; ++i) {
    const Inputs both = {*out, in[i]};
    TG_ASSIGN_OR_RETURN(out, FoldBinary<op>(c, both));
  }
  return out;
}

// The least, the largest or the product of the elements of a list.
template <char op>
FoldedList FoldReduce(NodeContext& c, const Inputs& in) {
  const List& list = in[0];
  TG_ASSIGN_OR_RETURN(const int64_t keep, c.Int("keepdims", 1));
  TG_ASSIGN_OR_RETURN(const auto axes, c.Ints("axes", {}));
  TG_ASSIGN_OR_RETURN(const int64_t noop, c.Int("noop_with_empty_axes", 0));
  if (noop != 0 || list.scalar || list.values.empty() || IsBool(list.dtype) || axes.size() > 1 ||
      (!axes.empty() && axes[0] != 0 && axes[0] != -1)) {
    return std::nullopt;
  }
  List out{list.dtype, keep == 0, {list.values[0]}};
  for (size_t i = 1; i < list.values.size(); ++i) {
    const auto value = ComputeElement(c, op, list.dtype, out.values[0], list.values[i]);
    if (!value) return std::nullopt;
    out.values[0] = *value;
  }
  return out;
}

struct FoldRow {
  std::string_view name;
  size_t inputs;  // 0: one or more
  FoldedList (*function)(NodeContext&, const Inputs&);
};

constexpr int kFirstOptional = 3;  // of Slice, the only row with inputs that may be left out

constexpr FoldRow kFolds[] = {
    {"Add", 2, FoldBinary<'+'>},
    {"Sub", 2, FoldBinary<'-'>},
    {"Mul", 2, FoldBinary<'*'>},
    {"Div", 2, FoldBinary<'/'>},
    {"Cast", 1, FoldCast},
    {"Concat", 0, FoldConcat},
    {"Equal", 2, FoldEqual},
    {"Gather", 2, FoldGather},
    {"Max", 0, FoldExtreme<'>'>},
    {"Min", 0, FoldExtreme<'<'>},
    {"ReduceMax", 1, FoldReduce<'>'>},
    {"ReduceMin", 1, FoldReduce<'<'>},
    {"ReduceProd", 1, FoldReduce<'*'>},
    {"Reshape", 2, FoldReshape},
    {"Slice", 0, FoldSlice},
    {"Squeeze", 0, FoldSqueeze},
    {"Unsqueeze", 0, FoldUnsqueeze},
    {"Where", 3, FoldWhere},
};

// The inputs, or nothing if one is not known or not a short list of integers.
absl::StatusOr<std::optional<Inputs>> KnownLists(NodeContext& c) {
  Inputs out;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.HasInput(i) && i >= kFirstOptional) {
      out.emplace_back();
      continue;
    }
    TG_ASSIGN_OR_RETURN(const ValueRef value, c.Get(i));
    if (value->sizes != nullptr) {
      out.push_back(*value->sizes);
      continue;
    }
    TG_ASSIGN_OR_RETURN(const HostTensor* known, c.Known(i, kMaxFolded * 8));
    if (known == nullptr || known->shape.size() > 1 ||
        (known->dtype != DType::kInt64 && known->dtype != DType::kInt32 &&
         known->dtype != DType::kBool)) {
      return std::nullopt;
    }
    std::vector<int64_t> values(known->bytes.begin(), known->bytes.end());
    if (!IsBool(known->dtype)) {
      TG_ASSIGN_OR_RETURN(values, ToIntegers(*known));
    }
    out.push_back({known->dtype, known->shape.empty(), {values.begin(), values.end()}});
  }
  return out;
}

HostTensor ToHost(const List& list) {
  HostTensor out{list.dtype, {}, {}};
  if (!list.scalar) out.shape = {static_cast<int64_t>(list.values.size())};
  for (const Dim& value : list.values) {
    const int64_t raw = ScalarToMemory(list.dtype, value.size());
    out.bytes.append(reinterpret_cast<const char*>(&raw), ByteSize(list.dtype));
  }
  return out;
}

}  // namespace

absl::StatusOr<bool> TryFold(NodeContext& c) {
  const auto row = std::ranges::find(kFolds, c.node().op_type, &FoldRow::name);
  if (row == std::end(kFolds) || c.num_inputs() == 0 ||
      (row->inputs != 0 && row->inputs != static_cast<size_t>(c.num_inputs()))) {
    return false;
  }
  TG_ASSIGN_OR_RETURN(const std::optional<Inputs> inputs, KnownLists(c));
  if (!inputs) return false;
  TG_ASSIGN_OR_RETURN(const std::optional<List> out, row->function(c, *inputs));
  if (!out) return false;
  if (out->is_static()) {
    TG_RETURN_IF_ERROR(c.OutputKnown(ToHost(*out)));
    return true;
  }
  TG_ASSIGN_OR_RETURN(ValueRef value, c.values().FromSizes(*out));
  TG_RETURN_IF_ERROR(c.OutputValue(std::move(value)));
  return true;
}

}  // namespace telegrad::onnx
