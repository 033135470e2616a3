// On one device a COPY is a value in memory that all its instances share. On several, a COPY is one
// for each device that it goes to, and collectives are what collectives.h makes of them; which part
// of the graph runs when is not decided here.
#include "engine/schedule/legalizer.h"

namespace telegrad {
namespace {

// An UNSHARD gives every device the whole value: their sum is as many times as much, which nobody
// asks for who means the sum of the shards. A maximum of equal values is that value.
absl::Status CheckReduces(UOp u, size_t instances) {
  const bool gathered = u.is(Op::kAllReduce) && u.src(0).is(Op::kUnshard) && instances > 1;
  if (!gathered || u.reduce_kind() == ReduceKind::kMax) return absl::OkStatus();
  return InvalidArgument(Name(u.op()), ": every one of ", instances,
                         " devices has the whole value of an ", Name(Op::kUnshard),
                         ", which would be ",
                         u.reduce_kind() == ReduceKind::kAdd ? "added" : "multiplied",
                         " once for each; reduce its shards, which are the source of the ",
                         Name(Op::kUnshard), ", or use the value as it is");
}

}  // namespace

absl::StatusOr<int64_t> Legalizer::DeviceOf(int64_t number) const {
  if (placement_ == nullptr) return 0;
  const std::vector<int64_t>& known = placement_->device_of;
  if (number < static_cast<int64_t>(known.size()) && known[number] >= 0) return known[number];
  return InvalidArgument("the graph names device ", number, ", which is bound to none");
}

absl::StatusOr<InstanceRef> Legalizer::Copy(UOp u, UOp x) {
  const auto count = static_cast<int64_t>(u.arg().size());
  TG_RETURN_IF_ERROR(Spend(count));
  if (placement_ == nullptr) {
    return Repeated(x.is_const() ? x : g_.Make(Op::kContiguous, {x}), u.arg().size());
  }
  const auto first = static_cast<uint32_t>(pool_.size());
  for (const int64_t number : u.arg()) {
    TG_ASSIGN_OR_RETURN(const int64_t device, DeviceOf(number));
    pool_.push_back(CopyTo(&g_, x, device, budget_));
  }
  return InstanceRef{first, static_cast<uint32_t>(count)};
}

absl::StatusOr<InstanceRef> Legalizer::Collective(UOp u, InstanceRef all) {
  const auto n = static_cast<int64_t>(all.count);
  TG_RETURN_IF_ERROR(CheckReduces(u, all.count));
  TG_RETURN_IF_ERROR(Spend(placement_ == nullptr ? n : n * n));
  const auto from = std::span(pool_).subspan(all.first, all.count);
  const std::vector<UOp> values(from.begin(), from.end());
  if (placement_ == nullptr || all.count == 1) {
    const UOp one = u.is(Op::kUnshard) ? Concatenate(&g_, values, u.axis())
                                       : FoldValues(&g_, u.reduce_kind(), values);
    return Repeated(one, all.count);
  }
  std::vector<int64_t> devices;
  for (const int64_t number : u.src(0).devices()) {
    TG_ASSIGN_OR_RETURN(devices.emplace_back(), DeviceOf(number));
  }
  if (devices.size() != values.size()) {
    return InvalidArgument(Name(u.op()), ": a value of ", values.size(), " instances on ",
                           devices.size(), " devices: the body of a loop moves what it carries");
  }
  std::vector<UOp> made;
  if (u.is(Op::kAllReduce)) {
    made =
        AllReduceInstances(&g_, u.reduce_kind(), values, devices, placement_->all_reduce, budget_);
  } else {
    for (const int64_t device : devices) {
      std::vector<UOp> parts;
      for (const UOp x : values) parts.push_back(CopyTo(&g_, x, device, budget_));
      made.push_back(Concatenate(&g_, std::move(parts), u.axis()));
    }
  }
  pool_.insert(pool_.end(), made.begin(), made.end());
  return InstanceRef{static_cast<uint32_t>(pool_.size() - made.size()), all.count};
}

}  // namespace telegrad
