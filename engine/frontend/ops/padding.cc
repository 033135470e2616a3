// Tensors with something around them, or with something cut off.
#include <algorithm>

#include "engine/base/checked.h"
#include "engine/base/status.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/dim_math.h"
#include "engine/frontend/tensor/shapes.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace {

// The words (offset, size) of a SHRINK. A symbolic axis must stay as it is: its pairs were made of
// its bound.
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

// What a mode other than kConstant has before and after one axis.
Tensor PadAxis(const Tensor& x, int64_t axis, int64_t before, int64_t after, PadMode mode) {
  Builder* builder = x.builder();
  const Dim n = x.dims()[static_cast<size_t>(axis)];
  const int64_t least = BoundsOf(n).lo, most = std::max(before, after);
  // A reflection does not repeat the edge.
  const int64_t room = mode == PadMode::kReflect ? least - 1 : least;
  if (mode == PadMode::kReplicate ? least < 1 : most > room) {
    return builder->Fail(InvalidArgument("pad: axis ", axis, " of ", ToString(x.dims()),
                                         " has too few elements for (", before, ", ", after,
                                         ") more made of its own"));
  }
  const auto edge = [&](bool begins, int64_t size) {
    switch (mode) {
      case PadMode::kReflect: {
        const Dim from = begins ? Dim(1) : SubDims(builder, n, size + 1);
        return x.Narrow(axis, from, size).Flip({axis});
      }
      case PadMode::kCircular:
        return x.Narrow(axis, begins ? SubDims(builder, n, size) : Dim(0), size);
      default: {
        Dims wide = x.dims();
        wide[static_cast<size_t>(axis)] = size;
        return x.Narrow(axis, begins ? Dim(0) : SubDims(builder, n, 1), 1).Expand(wide);
      }
    }
  };
  std::vector<Tensor> parts;
  if (before > 0) parts.push_back(edge(true, before));
  parts.push_back(x);
  if (after > 0) parts.push_back(edge(false, after));
  return Concat(parts, axis);
}

}  // namespace

Tensor Tensor::Pad(const std::vector<int64_t>& pairs, double value) const {
  return Pad(pairs, PadMode::kConstant, value);
}

// What is cut off is cut off last, so that edges are made of all there is.
Tensor Tensor::Pad(const std::vector<int64_t>& pairs, PadMode mode, double value) const {
  if (!valid()) return *this;
  if (static_cast<int64_t>(pairs.size()) != 2 * rank()) {
    return builder_->Fail(InvalidArgument("pad: ", pairs.size(), " numbers for ", ToString(dims()),
                                          ", expected a pair for each of ", rank(), " axes"));
  }
  Tensor out = *this;
  Dims words;  // the offset in the result, its size
  bool grows = false, shrinks = false, joined = false;
  for (int64_t i = 0; i < rank(); ++i) {
    const int64_t before = pairs[2 * i], after = pairs[2 * i + 1];
    if (std::min(before, after) < -kMaxElements || std::max(before, after) > kMaxElements) {
      return builder_->Fail(
          InvalidArgument("pad: axis ", i, " has the padding (", before, ", ", after, ")"));
    }
    const int64_t more[] = {std::max<int64_t>(before, 0), std::max<int64_t>(after, 0)};
    grows |= more[0] + more[1] > 0;
    shrinks |= before < 0 || after < 0;
    words.push_back(more[0]);
    words.push_back(AddDims(builder_, dims()[i], more[0] + more[1]));
    if (mode != PadMode::kConstant && more[0] + more[1] > 0) {
      // Stored, because the next axis would otherwise be made of parts of parts: nine for two axes.
      if (joined) out = out.Contiguous();
      out = PadAxis(out, i, more[0], more[1], mode);
      if (!out.valid()) return out;
      joined = true;
    }
  }
  if (grows && mode == PadMode::kConstant) {
    out = builder_->MakeSized(Op::kPad, DType::kVoid, {*this}, words);
    if (value != 0 && out.valid()) {
      const Tensor inside = builder_->Full(DType::kBool, dims(), true);
      out = builder_->MakeSized(Op::kPad, DType::kVoid, {inside}, words).Where(out, Like(value));
    }
  }
  for (int64_t i = 0; shrinks && out.valid() && i < rank(); ++i) {
    const int64_t before = std::max<int64_t>(-pairs[2 * i], 0);
    const int64_t after = std::max<int64_t>(-pairs[2 * i + 1], 0);
    const Dim n = out.dims()[i];
    if (before == 0 && after == 0) continue;
    if (BoundsOf(n).lo - before < after) {
      return builder_->Fail(InvalidArgument("pad: axis ", i, " of ", ToString(dims()),
                                            " has the padding (", pairs[2 * i], ", ",
                                            pairs[2 * i + 1], "), which leaves less than nothing"));
    }
    out = out.Narrow(i, before, SubDims(builder_, n, before + after));
  }
  return out;
}

Tensor Tensor::PadTo(const Shape& shape, double value) const {
  if (!valid()) return *this;
  std::vector<int64_t> pairs;
  bool fits = shape.size() == dims().size() && dims().is_static();
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    const int64_t n = dims()[i].size(), to = shape[i] == -1 ? n : shape[i];
    fits = to >= n;
    pairs.insert(pairs.end(), {0, to - n});
  }
  if (!fits) {
    return builder_->Fail(
        InvalidArgument("pad_to: ", ToString(dims()), " cannot grow to ", ToString(shape)));
  }
  return Pad(pairs, value);
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

Tensor Tensor::ShrinkTo(const Shape& shape) const {
  if (!valid()) return *this;
  bool fits = shape.size() == dims().size();
  Tensor out = *this;
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    if (shape[i] == -1) continue;
    fits = shape[i] >= 0 && shape[i] <= BoundsOf(dims()[i]).lo;
    if (fits) out = out.Narrow(static_cast<int64_t>(i), 0, shape[i]);
  }
  if (!fits) {
    return builder_->Fail(
        InvalidArgument("shrink_to: ", ToString(dims()), " cannot shrink to ", ToString(shape)));
  }
  return out;
}

}  // namespace telegrad
