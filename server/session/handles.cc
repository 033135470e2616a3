// A map of buffers by handle, whose number and bytes are checked against the limits of the
// session and charged to the tenant.
#include "server/session/handles.h"

#include "engine/base/status.h"

namespace telegrad {

absl::StatusOr<Buffer*> Handles::Find(uint64_t handle) {
  const auto it = buffers_.find(handle);
  if (it == buffers_.end()) return NotFound("unknown handle ", handle);
  return it->second.get();
}

absl::Status Handles::CheckNew(uint64_t handle) const {
  const int64_t handles = static_cast<int64_t>(buffers_.size());
  if (handle == 0) return InvalidArgument("handle 0 is reserved");
  if (buffers_.contains(handle)) return InvalidArgument("handle ", handle, " is in use");
  if (handles >= env_.limits.handles) {
    return ResourceExhausted("this session has ", handles, " buffers, of which it may have ",
                             env_.limits.handles, "; raise it with --session-handles");
  }
  return absl::OkStatus();
}

absl::Status Handles::CheckRoom(uint64_t handle, uint64_t bytes) const {
  if (bytes <= static_cast<uint64_t>(env_.limits.bytes - bytes_)) return absl::OkStatus();
  return ResourceExhausted("handle ", handle, ": ", bytes, " bytes beside the ", bytes_,
                           " that this session has exceed its limit of ", env_.limits.bytes,
                           "; raise it with --session-bytes");
}

Buffer* Handles::Add(uint64_t handle, std::unique_ptr<Buffer> buffer) {
  bytes_ += buffer->bytes();
  return (buffers_[handle] = std::move(buffer)).get();
}

void Handles::AddPoisoned(uint64_t handle, const absl::Status& error) {
  auto paid = Reservation::Try(tenant_.accounts.shared(Quota::kHostMemory),
                               kHandleBytes + static_cast<int64_t>(error.message().size()));
  if (!paid) return;
  auto buffer = std::make_unique<Buffer>(error, env_.metrics);
  buffer->Pay(*std::move(paid));
  buffers_[handle] = std::move(buffer);
}

void Handles::Drop(uint64_t handle) {
  const auto it = buffers_.find(handle);
  bytes_ -= it->second->bytes();
  buffers_.erase(it);
}

}  // namespace telegrad
