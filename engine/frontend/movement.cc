// Movement operations of Tensor. A movement that changes nothing makes no node.
#include <algorithm>
#include <numeric>

#include "engine/base/checked.h"
#include "engine/base/status.h"
#include "engine/frontend/builder.h"
#include "engine/frontend/shapes.h"

namespace telegrad {

int64_t Tensor::dim(int64_t axis) const {
  const absl::StatusOr<int64_t> at = ResolveAxis("dim", axis, rank());
  return at.ok() ? shape()[*at] : 0;
}

namespace {

bool Same(const Dims& a, const Dims& b) { return std::ranges::equal(a, b); }

// The words (offset, size) of a PAD or SHRINK. A symbolic axis must stay as it is: its pairs were
// made of its bound.
absl::StatusOr<Dims> KeepSymbolic(std::string_view op, const Tensor& x,
                                  const std::vector<int64_t>& words) {
  Dims out(words.begin(), words.end());
  const Dims from = x.dims();
  for (size_t i = 0; i < from.size() && 2 * i + 1 < out.size(); ++i) {
    if (from[i].is_static()) continue;
    if (words[2 * i] != 0 || words[2 * i + 1] != from[i].size()) {
      return InvalidArgument(op, ": axis ", i, " of ", ToString(from),
                             " is symbolic; Narrow takes a part of it");
    }
    out[2 * i + 1] = from[i];
  }
  return out;
}

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

Tensor Tensor::Pad(const std::vector<int64_t>& pairs, double value) const {
  if (!valid() || std::ranges::all_of(pairs, [](int64_t p) { return p == 0; })) return *this;
  std::vector<int64_t> placed = pairs;  // the offset in the result, its size
  for (size_t i = 0; i + 1 < pairs.size() && i / 2 < shape().size(); i += 2) {
    const int64_t size = shape()[i / 2];
    if (pairs[i] < 0 || pairs[i + 1] < 0 || !CheckedAdd(size, pairs[i], &placed[i + 1]) ||
        !CheckedAdd(placed[i + 1], pairs[i + 1], &placed[i + 1])) {
      return builder_->Fail(InvalidArgument("pad: axis ", i / 2, " has padding (", pairs[i], ", ",
                                            pairs[i + 1], "), expected two sizes >= 0"));
    }
  }
  const absl::StatusOr<Dims> words = KeepSymbolic("pad", *this, placed);
  if (!words.ok()) return builder_->Fail(words.status());
  const Tensor padded = builder_->MakeSized(Op::kPad, DType::kVoid, {*this}, *words);
  if (value == 0 || !padded.valid()) return padded;
  const Tensor inside = builder_->Full(DType::kBool, dims(), true);
  return builder_->MakeSized(Op::kPad, DType::kVoid, {inside}, *words).Where(padded, Like(value));
}

Tensor Tensor::Shrink(const std::vector<int64_t>& pairs) const {
  if (!valid()) return *this;
  bool whole = static_cast<int64_t>(pairs.size()) == 2 * rank();
  for (int64_t i = 0; whole && i < rank(); ++i) {
    whole = pairs[2 * i] == 0 && pairs[2 * i + 1] == shape()[i];
  }
  if (whole) return *this;
  std::vector<int64_t> part = pairs;  // the offset, the size
  for (size_t i = 0; i + 1 < pairs.size() && i / 2 < shape().size(); i += 2) {
    const int64_t begin = pairs[i], end = pairs[i + 1];
    if (begin < 0 || begin > end || end > shape()[i / 2]) {
      return builder_->Fail(InvalidArgument("shrink: axis ", i / 2, " of size ", shape()[i / 2],
                                            " has no part [", begin, ", ", end, ")"));
    }
    part[i + 1] = end - begin;
  }
  const absl::StatusOr<Dims> words = KeepSymbolic("shrink", *this, part);
  return words.ok() ? builder_->MakeSized(Op::kShrink, DType::kVoid, {*this}, *words)
                    : builder_->Fail(words.status());
}

Tensor Tensor::Slice(int64_t axis, int64_t begin, int64_t end) const {
  if (!valid()) return *this;
  const absl::StatusOr<int64_t> at = ResolveAxis("slice", axis, rank());
  if (!at.ok()) return builder_->Fail(at.status());
  const int64_t n = shape()[*at];
  std::vector<int64_t> pairs;
  for (int64_t dim : shape()) pairs.insert(pairs.end(), {0, dim});
  pairs[2 * *at] = begin < 0 ? begin + n : begin;
  pairs[2 * *at + 1] = end < 0 ? end + n : end;
  return Shrink(pairs);
}

// Padded to rows of `step` elements, of which the first are taken.
Tensor Tensor::Stride(int64_t axis, int64_t step) const {
  if (!valid()) return *this;
  const absl::StatusOr<int64_t> at = ResolveAxis("stride", axis, rank());
  if (!at.ok()) return builder_->Fail(at.status());
  if (step < 1) return builder_->Fail(InvalidArgument("stride: the step ", step, " is below 1"));
  const int64_t n = shape()[*at];
  if (step == 1 || n == 0) return *this;
  step = std::min(step, n);
  const int64_t rows = CeilDiv(n, step);
  std::vector<int64_t> pairs(2 * rank(), 0);
  pairs[2 * *at + 1] = rows * step - n;
  Shape split = ToShape(shape());
  split[*at] = rows;
  split.insert(split.begin() + *at + 1, step);
  return Pad(pairs).Reshape(split).Slice(*at + 1, 0, 1).Squeeze(*at + 1);
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

// Each part padded to the whole; a comparison of the position with the part's end selects, so that
// every element arrives unchanged (a sum of padded parts would turn -0 into +0, and bool has no
// sum).
Tensor Concat(std::span<const Tensor> parts, int64_t axis) {
  if (parts.empty() || parts[0].builder() == nullptr) return {};
  Builder* builder = parts[0].builder();
  const ShapeView first = parts[0].shape();
  const absl::StatusOr<int64_t> at = ResolveAxis("concat", axis, parts[0].rank());
  if (!at.ok()) return builder->Fail(at.status());
  int64_t total = 0;
  for (const Tensor& part : parts) {
    Shape expected = ToShape(first);
    if (part.rank() == parts[0].rank()) expected[*at] = part.shape()[*at];
    if (!std::ranges::equal(expected, part.shape()) || part.dtype() != parts[0].dtype()) {
      return builder->Fail(InvalidArgument("concat: along axis ", *at, ", ", Name(part.dtype()),
                                           " ", ToString(part.shape()), " does not match ",
                                           Name(parts[0].dtype()), " ", ToString(first)));
    }
    if (!CheckedAdd(total, part.shape()[*at], &total)) {
      return builder->Fail(InvalidArgument("concat: axis ", *at, " is too long"));
    }
  }
  const Axes column = [&] {
    Axes shape(parts[0].rank(), 1);
    shape[*at] = total;
    return shape;
  }();
  const Tensor position = builder->Iota(DType::kInt64, total).Reshape(column);
  Tensor out;
  int64_t begin = total;
  for (size_t i = parts.size(); i-- > 0;) {
    const int64_t end = begin;
    begin -= parts[i].shape()[*at];
    std::vector<int64_t> pairs(2 * parts[i].rank(), 0);
    pairs[2 * *at] = begin;
    pairs[2 * *at + 1] = total - end;
    const Tensor padded = parts[i].Pad(pairs);
    out = end == total ? padded : position.Lt(end).Where(padded, out);
  }
  return out;
}

}  // namespace telegrad
