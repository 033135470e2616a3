// Where tensors live: copies to devices, and parts of a tensor on each of several.
#include <algorithm>

#include "engine/base/status.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {

Tensor Tensor::To(int64_t device) const {
  if (!valid()) return *this;
  if (device < 0) return builder_->Fail(InvalidArgument("to: device ", device, " is negative"));
  const std::span<const int64_t> here = uop_.devices();
  if (here.size() == 1 && here[0] == device) return *this;
  if (here.size() > 1) {  // the instances are equal: the one that is there, else the first
    const auto at = std::ranges::find(here, device);
    const int64_t arg[] = {at == here.end() ? 0 : at - here.begin()};
    return builder_->Make(Op::kMSelect, DType::kVoid, {*this}, arg).To(device);
  }
  return builder_->Make(Op::kCopy, DType::kVoid, {*this}, std::span(&device, 1));
}

Tensor Tensor::Shard(const std::vector<int64_t>& devices, std::optional<int64_t> axis) const {
  if (!valid()) return *this;
  if (devices.empty()) return builder_->Fail(InvalidArgument("shard: expects devices, got none"));
  for (int64_t device : devices) {
    if (device < 0)
      return builder_->Fail(InvalidArgument("shard: device ", device, " is negative"));
  }
  if (devices.size() == 1) return To(devices[0]);
  if (!axis.has_value()) return builder_->Make(Op::kCopy, DType::kVoid, {*this}, devices);
  const absl::StatusOr<int64_t> at = ResolveAxis("shard", *axis, rank());
  if (!at.ok()) return builder_->Fail(at.status());
  const auto count = static_cast<int64_t>(devices.size());
  if (!dims()[*at].is_static() || shape()[*at] % count != 0) {
    return builder_->Fail(InvalidArgument("shard: axis ", *at, " of ", ToString(dims()),
                                          " does not divide into ", count, " equal parts"));
  }
  const int64_t size = shape()[*at] / count;
  std::vector<UOp> parts;
  for (int64_t i = 0; i < count; ++i) {
    const Tensor part = Narrow(*at, i * size, size).To(devices[i]);
    if (!part.valid()) return part;
    parts.push_back(part.uop());
  }
  const Tensor stacked(builder_, builder_->graph().Make(Op::kMStack, DType::kVoid, parts));
  return builder_->Make(Op::kUnshard, DType::kVoid, {stacked}, std::span(&*at, 1));
}

// An UNSHARD says the axis; anything else on several devices holds whole copies.
Tensor Tensor::ShardLike(const Tensor& other) const {
  if (!valid() || !other.valid()) return valid() ? other : *this;
  const std::vector<int64_t> devices(other.uop().devices().begin(), other.uop().devices().end());
  if (devices.empty()) return *this;
  if (!other.uop().is(Op::kUnshard)) return Shard(devices);
  return Shard(devices, other.uop().axis());
}

}  // namespace telegrad
