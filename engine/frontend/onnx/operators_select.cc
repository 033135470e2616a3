// Operators whose results' shapes depend on values. What depends on constants alone is computed at
// import, and so is the rest where its size is wanted then; otherwise run_select.h has them.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/onnx/run_select.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/shapes.h"
#include "engine/ir/scalar.h"

namespace telegrad::onnx {
namespace {

// Elements as numbers that compare as they do: integers as they are, floats by their value.
struct Key {
  double real = 0;
  int64_t whole = 0;

  // A NaN comes after everything and equals nothing.
  friend bool Less(const Key& a, const Key& b) {
    if (std::isnan(a.real) || std::isnan(b.real)) return !std::isnan(a.real) && std::isnan(b.real);
    return a.real != b.real ? a.real < b.real : a.whole < b.whole;
  }
  friend bool Same(const Key& a, const Key& b) { return a.real == b.real && a.whole == b.whole; }
};

absl::StatusOr<std::vector<Key>> Keys(const HostTensor& x) {
  if (IsPacked(x.dtype)) return Unimplemented("elements of ", Name(x.dtype), " are not supported");
  std::vector<Key> out(static_cast<size_t>(NumElements(x.shape)));
  const auto width = static_cast<size_t>(ByteSize(x.dtype));
  for (size_t i = 0; i < out.size(); ++i) {
    int64_t raw = 0;
    std::memcpy(&raw, x.bytes.data() + i * width, width);
    const int64_t word = ScalarFromMemory(x.dtype, raw);
    if (IsFloat(x.dtype)) {
      out[i].real = ScalarAsDouble(x.dtype, word);
    } else {  // unsigned numbers in the order of signed ones
      out[i].whole = x.dtype == DType::kUInt64 ? word ^ INT64_MIN : word;
    }
  }
  return out;
}

HostTensor Positions(const std::vector<int64_t>& values) {
  return HostTensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values);
}

// Slices along an axis (or the elements) of a tensor, and which of them are the same.
struct Groups {
  std::vector<int64_t> first;    // of each group, in order
  std::vector<int64_t> inverse;  // the group of each slice
  std::vector<int64_t> counts;
};

// Slice `i` has elements outer * (count * inner) + i * inner + in.
struct Slices {
  int64_t outer = 1, count = 0, inner = 1;

  int64_t At(int64_t slice, int64_t k) const {
    return (k / inner) * count * inner + slice * inner + k % inner;
  }
  int64_t size() const { return outer * inner; }
};

Groups GroupSlices(const std::vector<Key>& keys, const Slices& s, bool sorted) {
  const auto less = [&](int64_t a, int64_t b) {
    for (int64_t k = 0; k < s.size(); ++k) {
      const Key &x = keys[s.At(a, k)], &y = keys[s.At(b, k)];
      if (Less(x, y)) return true;
      if (Less(y, x)) return false;
    }
    return false;
  };
  const auto same = [&](int64_t a, int64_t b) {
    for (int64_t k = 0; k < s.size(); ++k) {
      if (!Same(keys[s.At(a, k)], keys[s.At(b, k)])) return false;
    }
    return true;
  };
  std::vector<int64_t> order(static_cast<size_t>(s.count));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, less);
  Groups out;
  out.inverse.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || !same(order[i - 1], order[i])) {
      out.first.push_back(order[i]);
      out.counts.push_back(0);
    }
    out.inverse[order[i]] = static_cast<int64_t>(out.first.size()) - 1;
    ++out.counts.back();
  }
  if (sorted) return out;
  // In the order of their first slices.
  std::vector<int64_t> by_first(out.first.size()), rank(out.first.size());
  std::iota(by_first.begin(), by_first.end(), 0);
  std::ranges::sort(by_first, {}, [&](int64_t g) { return out.first[g]; });
  Groups again;
  for (size_t i = 0; i < by_first.size(); ++i) {
    rank[by_first[i]] = static_cast<int64_t>(i);
    again.first.push_back(out.first[by_first[i]]);
    again.counts.push_back(out.counts[by_first[i]]);
  }
  for (const int64_t group : out.inverse) again.inverse.push_back(rank[group]);
  return again;
}

struct Box {
  float y1, x1, y2, x2;
  float area() const { return (y2 - y1) * (x2 - x1); }
};

Box MakeBox(const float* f, bool center) {
  if (center) {
    return {f[1] - f[3] / 2, f[0] - f[2] / 2, f[1] + f[3] / 2, f[0] + f[2] / 2};
  }
  return {std::min(f[0], f[2]), std::min(f[1], f[3]), std::max(f[0], f[2]), std::max(f[1], f[3])};
}

float Overlap(const Box& a, const Box& b) {
  const float height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  const float width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  if (!(height > 0 && width > 0)) return 0;
  const float common = height * width;
  const float all = a.area() + b.area() - common;
  return all > 0 ? common / all : 0;
}

}  // namespace

absl::Status NonZeroOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const bool by_run, c.DecidedByRun({0}));
  if (by_run) return NonZeroOfRun(c);
  TG_ASSIGN_OR_RETURN(const HostTensor* x, c.Content(0));
  const std::vector<double> values = x->AsDoubles();
  const Shape shape = x->shape.empty() ? Shape{1} : x->shape;
  std::vector<std::vector<int64_t>> at(shape.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == 0) continue;
    auto rest = static_cast<int64_t>(i);
    for (size_t axis = shape.size(); axis-- > 0;) {
      at[axis].push_back(rest % shape[axis]);
      rest /= shape[axis];
    }
  }
  std::vector<int64_t> all;
  for (const auto& row : at) all.insert(all.end(), row.begin(), row.end());
  return c.OutputKnown(HostTensor::Of<int64_t>(
      {static_cast<int64_t>(at.size()), static_cast<int64_t>(at[0].size())}, all));
}

// What lies where the condition holds; a condition shorter than the axis takes nothing behind it.
absl::Status CompressOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const bool by_run, c.DecidedByRun({1}));
  if (by_run) return CompressOfRun(c);
  TG_ASSIGN_OR_RETURN(Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const HostTensor* condition, c.Content(1));
  int64_t axis = 0;
  if (c.HasAttribute("axis")) {
    TG_ASSIGN_OR_RETURN(const int64_t given, c.Int("axis", 0));
    TG_ASSIGN_OR_RETURN(axis, ResolveAxis("compress", given, x.rank()));
  } else {
    x = x.Reshape(Shape{x.size()});
  }
  if (!IsBool(condition->dtype) || condition->shape.size() != 1) {
    return InvalidArgument("the condition is not a list of bools");
  }
  std::vector<int64_t> taken;
  for (int64_t i = 0; i < std::min(condition->shape[0], x.dim(axis)); ++i) {
    if (condition->bytes[static_cast<size_t>(i)] != 0) taken.push_back(i);
  }
  if (taken.empty()) return c.Output(x.Slice(axis, 0, 0));
  TG_ASSIGN_OR_RETURN(const Tensor index, c.Weight(Positions(taken)));
  return c.Output(x.IndexSelect(axis, index));
}

absl::Status UniqueOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const bool by_run, c.DecidedByRun({0}));
  if (by_run) return UniqueOfRun(c);
  TG_ASSIGN_OR_RETURN(const HostTensor* x, c.Content(0));
  TG_ASSIGN_OR_RETURN(const int64_t sorted, c.Int("sorted", 1));
  TG_ASSIGN_OR_RETURN(const std::vector<Key> keys, Keys(*x));
  Slices slices{1, NumElements(x->shape), 1};
  Shape shape = {slices.count};
  int64_t axis = 0;
  if (c.HasAttribute("axis")) {
    TG_ASSIGN_OR_RETURN(const int64_t given, c.Int("axis", 0));
    shape = x->shape;
    TG_ASSIGN_OR_RETURN(axis, ResolveAxis("unique", given, static_cast<int64_t>(shape.size())));
    const ShapeView view = shape;
    slices = {NumElements(view.subspan(0, axis)), shape[axis], NumElements(view.subspan(axis + 1))};
  }
  const Groups groups = GroupSlices(keys, slices, sorted != 0);
  shape[axis] = static_cast<int64_t>(groups.first.size());
  HostTensor out{x->dtype, shape, {}};
  const auto width = static_cast<size_t>(ByteSize(x->dtype));
  for (int64_t outer = 0; outer < slices.outer; ++outer) {
    for (const int64_t slice : groups.first) {
      const int64_t at = slices.At(slice, outer * slices.inner);
      out.bytes.append(x->bytes, static_cast<size_t>(at) * width,
                       static_cast<size_t>(slices.inner) * width);
    }
  }
  TG_RETURN_IF_ERROR(c.OutputKnown(std::move(out)));
  TG_RETURN_IF_ERROR(c.OutputKnown(Positions(groups.first)));
  TG_RETURN_IF_ERROR(c.OutputKnown(Positions(groups.inverse)));
  return c.OutputKnown(Positions(groups.counts));
}

// Of each class the boxes in the order of their scores, without those that overlap one taken
// before.
absl::Status NonMaxSuppressionOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const bool by_run, c.DecidedByRun({0, 1, 2, 3, 4}));
  if (by_run) return NonMaxSuppressionOfRun(c);
  TG_ASSIGN_OR_RETURN(const HostTensor* boxes, c.Content(0));
  TG_ASSIGN_OR_RETURN(const HostTensor* scores, c.Content(1));
  TG_ASSIGN_OR_RETURN(const int64_t center, c.Int("center_point_box", 0));
  double number[3] = {0, 0, -INFINITY};  // boxes of a class, overlap, least score
  for (int i = 0; i < 3; ++i) {
    if (!c.HasInput(i + 2)) continue;
    TG_ASSIGN_OR_RETURN(number[i], c.Number(i + 2));
  }
  if (boxes->dtype != DType::kFloat32 || scores->dtype != DType::kFloat32 ||
      boxes->shape.size() != 3 || scores->shape.size() != 3 || boxes->shape[2] != 4 ||
      boxes->shape[0] != scores->shape[0] || boxes->shape[1] != scores->shape[2]) {
    return InvalidArgument("boxes are ", Name(boxes->dtype), " ", ToString(boxes->shape),
                           " and scores ", Name(scores->dtype), " ", ToString(scores->shape),
                           ", expected f32 [batch, n, 4] and [batch, classes, n]");
  }
  const std::vector<float> corners = boxes->Values<float>(), score = scores->Values<float>();
  const int64_t classes = scores->shape[1], n = scores->shape[2];
  const auto most = static_cast<int64_t>(std::clamp(number[0], 0.0, 1e9));
  std::vector<int64_t> out;
  for (int64_t row = 0; row < scores->shape[0] * classes; ++row) {
    const float* of = score.data() + row * n;
    std::vector<int64_t> order;
    for (int64_t i = 0; i < n; ++i) {
      if (!c.HasInput(4) || of[i] > static_cast<float>(number[2])) order.push_back(i);
    }
    std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return of[a] > of[b]; });
    std::vector<Box> taken;
    for (const int64_t i : order) {
      TG_RETURN_IF_ERROR(c.values().budget()->SpendSteps(static_cast<int64_t>(taken.size()) + 1));
      if (static_cast<int64_t>(taken.size()) >= most) break;
      const Box box = MakeBox(corners.data() + (row / classes * n + i) * 4, center != 0);
      const auto covers = [&](const Box& other) {
        return Overlap(box, other) > static_cast<float>(number[1]);
      };
      if (std::ranges::any_of(taken, covers)) continue;
      taken.push_back(box);
      out.insert(out.end(), {row / classes, row % classes, i});
    }
  }
  return c.OutputKnown(HostTensor::Of<int64_t>({static_cast<int64_t>(out.size()) / 3, 3}, out));
}

}  // namespace telegrad::onnx
