// The buffers of a session, by the handles that its client has chosen. Only the session's current
// drainer uses them.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "server/session/buffer.h"
#include "server/tenant/environment.h"
#include "server/tenant/tenant.h"

namespace telegrad {

class Handles {
 public:
  // What a buffer and its memory take beside its bytes, as estimated from the smallest ones, with
  // the timelines of the runs that wrote and used it last.
  static constexpr int64_t kHandleBytes = 448 + 2 * (sizeof(Timeline) + 32);

  Handles(const Environment& env, Tenant& tenant) : env_(env), tenant_(tenant) {}

  absl::StatusOr<Buffer*> Find(uint64_t handle);
  bool empty() const { return buffers_.empty(); }
  bool contains(uint64_t handle) const { return buffers_.contains(handle); }
  // Whether a buffer may be added under that handle, and whether one may have so many bytes.
  absl::Status CheckNew(uint64_t handle) const;
  absl::Status CheckRoom(uint64_t handle, uint64_t bytes) const;
  Buffer* Add(uint64_t handle, std::unique_ptr<Buffer> buffer);
  // Keeps the error under the handle for operations that use it. If the tenant's quota has no room,
  // the handle stays unknown.
  void AddPoisoned(uint64_t handle, const absl::Status& error);
  void Drop(uint64_t handle);  // which is there
  // All of them, which go when that goes.
  void TakeAll(Handles* to) { buffers_.swap(to->buffers_); }

 private:
  const Environment& env_;
  Tenant& tenant_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Buffer>> buffers_;
  int64_t bytes_ = 0;
};

}  // namespace telegrad
