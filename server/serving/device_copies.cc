#include "server/serving/device_copies.h"

#include <cstring>
#include <utility>

#include "engine/base/status.h"
#include "server/data/staging.h"

namespace telegrad {

DeviceCopies::DeviceCopies(const Environment& env, std::shared_ptr<Tenant> tenant)
    : env_(env), tenant_(std::move(tenant)), queues_(env.devices, tenant_->share) {}

absl::StatusOr<std::shared_ptr<Memory>> DeviceCopies::NewStaging(const Device& device,
                                                                 int64_t bytes) {
  TG_ASSIGN_OR_RETURN(auto paid,
                      Reservation::Take(tenant_->accounts.shared(Quota::kHostStaging), bytes));
  TG_ASSIGN_OR_RETURN(auto memory,
                      AllocStaging(*env_.devices, device, static_cast<uint64_t>(bytes)));
  paid_.push_back(std::move(paid));
  memories_.push_back(memory);
  return memory;
}

absl::Status DeviceCopies::Enqueue(Device& device, BufferView to, BufferView from) {
  TG_ASSIGN_OR_RETURN(TimelinePoint point,
                      EnqueueCopy(queues_, device, std::move(to), std::move(from), last_));
  last_ = {std::move(point)};
  return absl::OkStatus();
}

absl::StatusOr<std::span<const uint8_t>> DeviceCopies::Fetch(const DevicePart& from) {
  const int64_t bytes = from.view.length;
  if (bytes == 0) return std::span<const uint8_t>();
  TG_ASSIGN_OR_RETURN(const auto memory, NewStaging(*from.device, bytes));
  TG_RETURN_IF_ERROR(Enqueue(*from.device, {memory, 0, bytes}, from.view));
  return std::span(static_cast<const uint8_t*>(memory->host()), static_cast<size_t>(bytes));
}

absl::Status DeviceCopies::Store(const DevicePart& to, std::span<const uint8_t> bytes) {
  if (bytes.empty()) return absl::OkStatus();
  const auto length = static_cast<int64_t>(bytes.size());
  TG_ASSIGN_OR_RETURN(const auto memory, NewStaging(*to.device, length));
  std::memcpy(memory->host(), bytes.data(), bytes.size());
  BufferView view = to.view;
  view.length = length;
  return Enqueue(*to.device, std::move(view), {memory, 0, length});
}

void DeviceCopies::Then(std::function<void(const absl::Status&)> then) {
  if (last_.empty() || last_.front().timeline == nullptr) return then(absl::OkStatus());
  const TimelinePoint point = last_.front();
  point.timeline->OnReached(
      point.value, [self = shared_from_this(), then = std::move(then)](const absl::Status& status) {
        // This may be the device's thread.
        self->env_.workers->Post([self, then, status] { then(status); }, self->tenant_->share);
      });
}

}  // namespace telegrad
