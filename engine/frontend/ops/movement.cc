// Movement operations of Tensor. A movement that changes nothing makes no node.
#include <algorithm>
#include <numeric>

#include "engine/base/checked.h"
#include "engine/base/status.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/dim_math.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {

int64_t Tensor::dim(int64_t axis) const {
  const absl::StatusOr<int64_t> at = ResolveAxis("dim", axis, rank());
  return at.ok() ? shape()[*at] : 0;
}

namespace {

bool Same(const Dims& a, const Dims& b) { return std::ranges::equal(a, b); }

}  // namespace

// The product of the fixed sizes tells what a -1 stands for; the IR judges symbolic ones.
Tensor Tensor::Reshape(const Dims& to) const {
  if (!valid()) return *this;
  const Dims from = dims();
  const auto fixed = [](const Dims& dims, int64_t* product) {
    *product = 1;
    for (const Dim& dim : dims) {
      if (dim.is_static() && dim.size() != -1 && !CheckedMul(*product, dim.size(), product)) {
        return false;
      }
    }
    return true;
  };
  Dims out = to;
  Dim* wild = nullptr;
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] == Dim(-1) && wild == nullptr) {
      wild = &out[i];
    } else if (out[i].size() < 0) {
      return builder_->Fail(InvalidArgument("reshape: from ", ToString(from), " to ", ToString(to),
                                            ": axis ", i, " has size ", to[i].size()));
    }
  }
  int64_t have, known;
  if (!fixed(from, &have) || !fixed(to, &known)) {
    return builder_->Fail(InvalidArgument("reshape: from ", ToString(from), " to ", ToString(to),
                                          ": too many elements"));
  }
  if (wild != nullptr) {
    if (known == 0 || have % known != 0) {
      return builder_->Fail(InvalidArgument("reshape: from ", ToString(from), " to ", ToString(to),
                                            ": ", have, " elements are not a multiple of ", known));
    }
    *wild = have / known;
  } else if (from.is_static() && to.is_static() && known != have) {
    return builder_->Fail(InvalidArgument("reshape: from ", ToString(from), " to ", ToString(to),
                                          ": ", have, " elements become ", known));
  }
  if (Same(out, from)) return *this;
  return builder_->MakeSized(Op::kReshape, DType::kVoid, {*this}, out);
}

Tensor Tensor::Expand(const Dims& to) const {
  if (!valid()) return *this;
  const Dims from = dims();
  if (from.size() > to.size()) {
    return builder_->Fail(
        InvalidArgument("expand: from ", ToString(from), " to ", ToString(to), " loses an axis"));
  }
  Dims same(to.size() - from.size(), Dim(1));
  same.insert(same.end(), from.begin(), from.end());
  Dims out = to;
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] == Dim(-1)) out[i] = same[i];
    if (same[i] != out[i] && same[i] != Dim(1)) {
      return builder_->Fail(InvalidArgument("expand: from ", ToString(from), " to ", ToString(to),
                                            ": axis ", i, " has size ", same[i].size(),
                                            " and cannot become ", out[i].size()));
    }
  }
  const Tensor aligned = Reshape(same);
  if (!aligned.valid() || Same(same, out)) return aligned;
  return builder_->MakeSized(Op::kExpand, DType::kVoid, {aligned}, out);
}

Tensor Tensor::Permute(const Axes& axes) const {
  if (!valid()) return *this;
  Axes order(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) order[i] = axes[i] < 0 ? axes[i] + rank() : axes[i];
  const absl::StatusOr<Axes> sorted = ResolveAxes("permute", axes, rank());
  if (!sorted.ok()) return builder_->Fail(sorted.status());
  if (static_cast<int64_t>(axes.size()) != rank()) {
    return builder_->Fail(InvalidArgument("permute: ", ToString(shape()), " by ", ToString(axes),
                                          " names ", axes.size(), " axes of ", rank()));
  }
  if (order == *sorted) return *this;
  return builder_->Make(Op::kPermute, DType::kVoid, {*this}, order);
}

Tensor Tensor::Transpose(int64_t a, int64_t b) const {
  if (!valid()) return *this;
  const absl::StatusOr<Axes> both = ResolveAxes("transpose", {a, b}, rank());
  if (!both.ok()) return builder_->Fail(both.status());
  Axes order(rank());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[(*both)[0]], order[(*both)[1]]);
  return Permute(order);
}

Tensor Tensor::Flip(const Axes& axes) const {
  if (!valid()) return *this;
  const absl::StatusOr<Axes> resolved = ResolveAxes("flip", axes, rank());
  if (!resolved.ok()) return builder_->Fail(resolved.status());
  if (resolved->empty()) return *this;
  return builder_->Make(Op::kFlip, DType::kVoid, {*this}, *resolved);
}

Tensor Tensor::T() const {
  Axes order(static_cast<size_t>(rank()));
  std::iota(order.rbegin(), order.rend(), 0);
  return Permute(order);
}

Tensor Tensor::MoveAxis(int64_t from, int64_t to) const {
  if (!valid()) return *this;
  const absl::StatusOr<int64_t> source = ResolveAxis("move_axis", from, rank());
  const absl::StatusOr<int64_t> target = ResolveAxis("move_axis", to, rank());
  if (!source.ok() || !target.ok()) {
    return builder_->Fail(source.ok() ? target.status() : source.status());
  }
  Axes order(static_cast<size_t>(rank()));
  std::iota(order.begin(), order.end(), 0);
  order.erase(order.begin() + *source);
  order.insert(order.begin() + *target, *source);
  return Permute(order);
}

Tensor Tensor::Slice(int64_t axis, int64_t begin, int64_t end) const {
  if (!valid()) return *this;
  const absl::StatusOr<int64_t> at = ResolveAxis("slice", axis, rank());
  if (!at.ok()) return builder_->Fail(at.status());
  const Dim n = dims()[*at];
  const Dim first = begin < 0 ? AddDims(builder_, n, begin) : Dim(begin);
  const Dim last = end < 0 ? AddDims(builder_, n, end) : Dim(end);
  const Dim length = SubDims(builder_, last, first);
  // A symbolic axis may be too short for some of its sizes, and is then cut off.
  const bool fits = n.is_static()
                        ? first.size() >= 0 && length.size() >= 0 && last.size() <= n.size()
                        : BoundsOf(first).lo >= 0 && BoundsOf(length).hi >= 0;
  if (!fits) {
    return builder_->Fail(InvalidArgument("slice: axis ", *at, " of size ", n.size(),
                                          " has no part [", begin, ", ", end, ")"));
  }
  return Narrow(*at, first, MaxDims(builder_, length, 0));
}

// Padded to rows of `step` elements, of which the first are taken. A symbolic axis is read by
// positions.
Tensor Tensor::Stride(int64_t axis, int64_t step) const {
  if (!valid()) return *this;
  const absl::StatusOr<int64_t> at = ResolveAxis("stride", axis, rank());
  if (!at.ok()) return builder_->Fail(at.status());
  if (step < 1) return builder_->Fail(InvalidArgument("stride: the step ", step, " is below 1"));
  if (step == 1) return *this;
  const Dim size = dims()[*at];
  if (!size.is_static()) {
    const Dim count(AsTensor(builder_, AddDims(builder_, size, step - 1)).FloorDiv(step));
    return IndexSelect(*at, builder_->Iota(DType::kInt64, count) * step);
  }
  const int64_t n = size.size();
  if (n == 0) return *this;
  step = std::min(step, n);
  const int64_t rows = CeilDiv(n, step);
  std::vector<int64_t> pairs(2 * rank(), 0);
  pairs[2 * *at + 1] = rows * step - n;
  Dims split = dims();
  split[*at] = rows;
  split.insert(split.begin() + *at + 1, step);
  return Pad(pairs).Reshape(split).Narrow(*at + 1, 0, 1).Squeeze(*at + 1);
}

Tensor Tensor::Squeeze(int64_t axis) const {
  if (!valid()) return *this;
  const absl::StatusOr<int64_t> at = ResolveAxis("squeeze", axis, rank());
  if (!at.ok()) return builder_->Fail(at.status());
  if (shape()[*at] != 1) {
    return builder_->Fail(InvalidArgument("squeeze: axis ", *at, " of ", ToString(shape()),
                                          " has size ", shape()[*at], ", expected 1"));
  }
  Dims out = dims();
  out.erase(out.begin() + *at);
  return Reshape(out);
}

Tensor Tensor::Squeeze() const {
  Dims out;
  for (const Dim& dim : dims()) {
    if (dim != Dim(1)) out.push_back(dim);
  }
  return Reshape(out);
}

Tensor Tensor::Unsqueeze(int64_t axis) const {
  if (!valid()) return *this;
  const absl::StatusOr<int64_t> at = ResolveAxis("unsqueeze", axis, rank() + 1);
  if (!at.ok()) return builder_->Fail(at.status());
  Dims out = dims();
  out.insert(out.begin() + *at, Dim(1));
  return Reshape(out);
}

Tensor Tensor::Flatten(int64_t from, int64_t to) const {
  if (!valid()) return *this;
  if (rank() == 0) return Reshape({1});
  const absl::StatusOr<int64_t> first = ResolveAxis("flatten", from, rank());
  const absl::StatusOr<int64_t> last = ResolveAxis("flatten", to, rank());
  if (!first.ok() || !last.ok()) return builder_->Fail(first.ok() ? last.status() : first.status());
  if (*first > *last) {
    return builder_->Fail(InvalidArgument("flatten: axis ", *first, " comes after ", *last));
  }
  Axes joined;
  for (int64_t axis = *first; axis <= *last; ++axis) joined.push_back(axis);
  Dims out = dims();
  out.erase(out.begin() + *first, out.begin() + *last + 1);
  out.insert(out.begin() + *first, Dim(SizeOf(joined)));
  return Reshape(out);
}

Tensor Tensor::Unflatten(int64_t axis, const Shape& sizes) const {
  if (!valid()) return *this;
  const absl::StatusOr<int64_t> at = ResolveAxis("unflatten", axis, rank());
  if (!at.ok()) return builder_->Fail(at.status());
  const Dim n = dims()[*at];
  Dims parts(sizes);
  const auto wild = std::ranges::find(parts, Dim(-1));
  int64_t known = 1;
  bool fits = n.is_static();
  for (auto it = parts.begin(); it != parts.end(); ++it) {
    if (it != wild) fits &= it->size() >= 0 && CheckedMul(known, it->size(), &known);
  }
  if (fits && wild != parts.end()) {
    fits = known != 0 && n.size() % known == 0;
    if (fits) *wild = n.size() / known;
  } else {
    fits &= known == n.size();
  }
  if (!fits) {
    return builder_->Fail(InvalidArgument("unflatten: axis ", *at, " of ", ToString(dims()),
                                          " is not made of axes of sizes ", ToString(sizes)));
  }
  Dims out = dims();
  out.erase(out.begin() + *at);
  out.insert(out.begin() + *at, parts.begin(), parts.end());
  return Reshape(out);
}

Tensor Tensor::Narrow(int64_t axis, const Dim& begin, const Dim& length) const {
  if (!valid()) return *this;
  const absl::StatusOr<int64_t> at = ResolveAxis("narrow", axis, rank());
  if (!at.ok()) return builder_->Fail(at.status());
  const Dims from = dims();
  const Dim& whole = from[*at];
  if (begin.size() < 0 || length.size() < 0 ||
      (begin.is_static() && length.is_static() && whole.is_static() &&
       (begin.size() > whole.size() || length.size() > whole.size() - begin.size()))) {
    return builder_->Fail(InvalidArgument("narrow: axis ", *at, " of size ", whole.size(),
                                          " has no ", length.size(), " elements from ",
                                          begin.size(), " on"));
  }
  if (begin == Dim(0) && length == whole) return *this;
  Dims words;
  for (int64_t i = 0; i < rank(); ++i) {
    words.push_back(i == *at ? begin : Dim(0));
    words.push_back(i == *at ? length : from[i]);
  }
  return builder_->MakeSized(Op::kShrink, DType::kVoid, {*this}, words);
}

Tensor Tensor::Unfold(int64_t axis, int64_t size, int64_t step) const {
  if (!valid()) return *this;
  const absl::StatusOr<int64_t> at = ResolveAxis("unfold", axis, rank());
  if (!at.ok()) return builder_->Fail(at.status());
  const Dim n = dims()[*at];
  if (!n.is_static() || size < 1 || size > n.size() || step < 1) {
    return builder_->Fail(InvalidArgument("unfold: axis ", *at, " of ", ToString(dims()),
                                          " has no windows of ", size, " with step ", step));
  }
  return MoveAxis(*at, -1).Windows({size}, {.stride = {step}}).MoveAxis(-2, *at);
}

}  // namespace telegrad
