// Tensors made of several, or of the same one several times, and taken apart again.
#include <algorithm>

#include "engine/base/checked.h"
#include "engine/base/status.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/dim_math.h"
#include "engine/frontend/tensor/promotion.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {
namespace {

// Parts whose sizes along the axis are not all numbers, which CAT wants: each padded to the whole;
// a comparison of the position with the part's end selects.
Tensor PadAndSelect(Builder* builder, const std::vector<Tensor>& parts, int64_t axis) {
  std::vector<Dim> ends = {0};
  for (const Tensor& part : parts) {
    ends.push_back(AddDims(builder, ends.back(), part.dims()[static_cast<size_t>(axis)]));
  }
  Dims column(static_cast<size_t>(parts[0].rank()), Dim(1));
  column[static_cast<size_t>(axis)] = ends.back();
  const Tensor position = builder->Iota(DType::kInt64, ends.back()).Reshape(column);
  Tensor out;
  for (size_t i = parts.size(); i-- > 0;) {
    Dims words;
    for (int64_t k = 0; k < parts[i].rank(); ++k) {
      words.push_back(k == axis ? ends[i] : Dim(0));
      words.push_back(k == axis ? ends.back() : parts[i].dims()[static_cast<size_t>(k)]);
    }
    const Tensor padded = builder->MakeSized(Op::kPad, DType::kVoid, {parts[i]}, words);
    out = i + 1 == parts.size() ? padded
                                : position.Lt(AsTensor(builder, ends[i + 1])).Where(padded, out);
  }
  return out;
}

// The parts in the least type above all of theirs.
absl::StatusOr<std::vector<Tensor>> Promoted(std::string_view op, std::span<const Tensor> parts) {
  DType type = parts[0].dtype();
  for (const Tensor& part : parts) {
    if (!part.valid()) return InvalidArgument(op, ": a part is an empty tensor");
    if (part.dtype() == type) continue;
    const DType both = PromoteTypes(type, part.dtype());
    if (both == DType::kVoid) {
      return InvalidArgument(op, ": element types ", Name(type), " and ", Name(part.dtype()),
                             " have no common type; cast one");
    }
    type = both;
  }
  std::vector<Tensor> out;
  for (const Tensor& part : parts) out.push_back(part.Cast(type));
  return out;
}

std::vector<Tensor> Failed(Builder* builder, absl::Status status) {
  builder->Fail(std::move(status));
  return {};
}

}  // namespace

Tensor Concat(std::span<const Tensor> parts, int64_t axis) {
  if (parts.empty() || parts[0].builder() == nullptr) return {};
  Builder* builder = parts[0].builder();
  const absl::StatusOr<std::vector<Tensor>> same = Promoted("concat", parts);
  if (!same.ok()) return builder->Fail(same.status());
  const Dims first = parts[0].dims();
  const absl::StatusOr<int64_t> at = ResolveAxis("concat", axis, parts[0].rank());
  if (!at.ok()) return builder->Fail(at.status());
  bool fixed = true;
  int64_t total = 0;
  std::vector<UOp> uops;
  for (const Tensor& part : *same) {
    Dims expected = first;
    if (part.rank() == parts[0].rank()) expected[*at] = part.dims()[*at];
    if (expected != part.dims()) {
      return builder->Fail(InvalidArgument("concat: along axis ", *at, ", shape ",
                                           ToString(part.dims()), " does not match ",
                                           ToString(first)));
    }
    if (!CheckedAdd(total, part.shape()[*at], &total)) {
      return builder->Fail(InvalidArgument("concat: axis ", *at, " is too long"));
    }
    fixed &= part.dims()[*at].is_static();
    uops.push_back(part.uop());
  }
  if (uops.size() == 1) return (*same)[0];
  if (!fixed) return PadAndSelect(builder, *same, *at);
  const int64_t arg[] = {*at};
  return {builder, builder->graph().Make(Op::kCat, DType::kVoid, uops, arg)};
}

Tensor Stack(std::span<const Tensor> parts, int64_t axis) {
  if (parts.empty() || parts[0].builder() == nullptr) return {};
  Builder* builder = parts[0].builder();
  const absl::StatusOr<int64_t> at = ResolveAxis("stack", axis, parts[0].rank() + 1);
  if (!at.ok()) return builder->Fail(at.status());
  std::vector<Tensor> rows;
  for (const Tensor& part : parts) {
    if (part.dims() != parts[0].dims()) {
      return builder->Fail(InvalidArgument("stack: shape ", ToString(part.dims()),
                                           " does not match ", ToString(parts[0].dims())));
    }
    rows.push_back(part.Unsqueeze(*at));
  }
  return Concat(rows, *at);
}

std::vector<Tensor> MeshGrid(std::span<const Tensor> parts, bool xy) {
  std::vector<size_t> axis(parts.size());  // of each result that its vector runs along
  for (size_t i = 0; i < parts.size(); ++i) axis[i] = i;
  if (xy && parts.size() > 1) std::swap(axis[0], axis[1]);
  Dims shape(parts.size(), Dim(1));
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].valid()) return {};
    if (parts[i].rank() > 1) {
      return Failed(parts[i].builder(),
                    InvalidArgument("mesh_grid: part ", i, " has shape ", ToString(parts[i].dims()),
                                    ", expected a vector"));
    }
    shape[axis[i]] = parts[i].rank() == 0 ? Dim(1) : parts[i].dims()[0];
  }
  std::vector<Tensor> out;
  for (size_t i = 0; i < parts.size(); ++i) {
    Dims line(parts.size(), Dim(1));
    line[axis[i]] = shape[axis[i]];
    out.push_back(parts[i].Reshape(line).Expand(shape));
  }
  return out;
}

std::vector<Tensor> Tensor::Split(const std::vector<int64_t>& sizes, int64_t axis) const {
  if (!valid()) return {};
  const absl::StatusOr<int64_t> at = ResolveAxis("split", axis, rank());
  if (!at.ok()) return Failed(builder_, at.status());
  int64_t total = 0;
  bool good = dims()[*at].is_static();
  for (int64_t size : sizes) good &= size >= 0 && CheckedAdd(total, size, &total);
  if (!good || total != shape()[*at]) {
    return Failed(builder_, InvalidArgument("split: axis ", *at, " of ", ToString(dims()),
                                            " is not made of parts of ", ToString(sizes)));
  }
  std::vector<Tensor> out;
  int64_t begin = 0;
  for (int64_t size : sizes) {
    out.push_back(Narrow(*at, begin, size));
    begin += size;
  }
  return out;
}

std::vector<Tensor> Tensor::Split(int64_t size, int64_t axis) const {
  if (!valid()) return {};
  const absl::StatusOr<int64_t> at = ResolveAxis("split", axis, rank());
  if (!at.ok()) return Failed(builder_, at.status());
  const int64_t n = shape()[*at];
  if (size < 1 && (size != 0 || n != 0)) {
    return Failed(builder_, InvalidArgument("split: axis ", *at, " of ", ToString(dims()),
                                            " is not made of parts of ", size));
  }
  std::vector<int64_t> sizes;
  for (int64_t begin = 0; begin < n; begin += size) sizes.push_back(std::min(size, n - begin));
  if (sizes.empty()) sizes = {0};
  return Split(sizes, *at);
}

std::vector<Tensor> Tensor::Chunk(int64_t chunks, int64_t axis) const {
  if (!valid()) return {};
  const absl::StatusOr<int64_t> at = ResolveAxis("chunk", axis, rank());
  if (!at.ok()) return Failed(builder_, at.status());
  if (chunks < 1) {
    return Failed(builder_, InvalidArgument("chunk: ", chunks, " chunks, expected at least 1"));
  }
  const int64_t n = shape()[*at];
  if (n == 0) return Split(std::vector<int64_t>(static_cast<size_t>(chunks), 0), *at);
  return Split(CeilDiv(n, chunks), *at);
}

std::vector<Tensor> Tensor::Unbind(int64_t axis) const {
  if (!valid()) return {};
  const absl::StatusOr<int64_t> at = ResolveAxis("unbind", axis, rank());
  if (!at.ok()) return Failed(builder_, at.status());
  if (!dims()[*at].is_static()) {
    return Failed(builder_,
                  InvalidArgument("unbind: axis ", *at, " of ", ToString(dims()), " is symbolic"));
  }
  std::vector<Tensor> out;
  for (int64_t i = 0; i < shape()[*at]; ++i) out.push_back(Narrow(*at, i, 1).Squeeze(*at));
  return out;
}

// [a, b] -> [1, a, 1, b] -> [r, a, s, b] -> [r a, s b]. As in NumPy the shorter of the shape and
// the times is filled up with 1 in front.
Tensor Tensor::Repeat(const Dims& times) const {
  if (!valid()) return *this;
  Dims sizes = dims();
  Dims repeats = times;
  if (sizes.size() < repeats.size()) sizes.insert(sizes.begin(), repeats.size() - sizes.size(), 1);
  if (repeats.size() < sizes.size()) {
    repeats.insert(repeats.begin(), sizes.size() - repeats.size(), 1);
  }
  Dims split, spread, joined;
  for (size_t i = 0; i < repeats.size(); ++i) {
    if (repeats[i].size() < 0) {
      return builder_->Fail(
          InvalidArgument("repeat: ", ToString(dims()), " cannot repeat ", ToString(times)));
    }
    if (repeats[i] != Dim(1)) {
      split.push_back(1);
      spread.push_back(repeats[i]);
    }
    split.push_back(sizes[i]);
    spread.push_back(sizes[i]);
    joined.push_back(MulDims(builder_, sizes[i], repeats[i]));
  }
  return Reshape(split).Expand(spread).Reshape(joined);
}

Tensor Tensor::RepeatInterleave(int64_t times, int64_t axis) const {
  if (!valid()) return *this;
  const absl::StatusOr<int64_t> at = ResolveAxis("repeat_interleave", axis, rank());
  if (!at.ok()) return builder_->Fail(at.status());
  if (times < 0) {
    return builder_->Fail(InvalidArgument("repeat_interleave: ", times, " times"));
  }
  Dims spread = dims(), joined = dims();
  joined[*at] = MulDims(builder_, joined[*at], times);
  spread.insert(spread.begin() + *at + 1, times);
  return Unsqueeze(*at + 1).Expand(spread).Reshape(joined);
}

Tensor Tensor::Roll(const std::vector<int64_t>& shifts, const Axes& axes) const {
  if (!valid()) return *this;
  if (shifts.size() != axes.size()) {
    return builder_->Fail(
        InvalidArgument("roll: ", shifts.size(), " shifts for ", axes.size(), " axes"));
  }
  Tensor out = *this;
  for (size_t i = 0; i < axes.size(); ++i) {
    const absl::StatusOr<int64_t> at = ResolveAxis("roll", axes[i], rank());
    if (!at.ok()) return builder_->Fail(at.status());
    const Dim n = dims()[*at];
    if (!n.is_static()) {
      return builder_->Fail(
          InvalidArgument("roll: axis ", *at, " of ", ToString(dims()), " is symbolic"));
    }
    if (n.size() == 0) continue;
    const int64_t shift = (shifts[i] % n.size() + n.size()) % n.size();
    if (shift == 0) continue;
    const int64_t kept = n.size() - shift;
    const Tensor parts[] = {out.Narrow(*at, kept, shift), out.Narrow(*at, 0, kept)};
    out = Concat(parts, *at);
  }
  return out;
}

}  // namespace telegrad
