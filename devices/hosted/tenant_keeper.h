// The thread that looks after the slots of tenants (tenant_slot.h).
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/hosted/tenant_slot.h"

namespace telegrad {

// Looks after the slots of a device: brings lost ones back, and destroys those that nobody refers
// to, on a thread of its own. Whoever drops the last reference may be a thread of the process that
// goes with the slot. Thread-safe.
class TenantKeeper {
 public:
  static absl::StatusOr<std::unique_ptr<TenantKeeper>> Start();
  ~TenantKeeper();

  std::shared_ptr<TenantSlot> Keep(std::unique_ptr<TenantSlot> slot);
  std::vector<std::shared_ptr<TenantSlot>> slots() const;
  // Destroys them soon.
  void Discard(std::unique_ptr<TenantRemains> remains);
  // Until all are gone that nobody refers to. Not by a thread of a process.
  void AwaitUnused();
  // Has it look at all slots.
  std::function<void()> Waker() const;

 private:
  struct State;
  TenantKeeper();

  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace telegrad
