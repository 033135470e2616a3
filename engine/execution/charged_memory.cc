#include "engine/execution/charged_memory.h"

#include <algorithm>
#include <utility>

#include "devices/api/host_memory.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr int64_t kStep = 64;

// The memory goes back to its device before the account says so.
struct Holder {
  Reservation reservation;
  std::shared_ptr<Memory> memory;
};

// Where a driver pins no more, the way through memory that is not pinned is as
// good.
absl::StatusOr<std::shared_ptr<Memory>> AllocHostFor(Device& to, Device& from, int64_t bytes) {
  for (Device* const device : {&to, &from}) {
    if (!device->Makes(MemoryKind::kPinnedHost)) continue;
    auto memory = device->AllocOf(MemoryKind::kPinnedHost, bytes);
    if (memory.ok()) return memory;
  }
  return AllocHostMemory(bytes);
}

}  // namespace

int64_t ChargeOf(int64_t bytes) {
  const int64_t steps = (std::max<int64_t>(bytes, 1) - 1) / kStep + 1;
  return steps > INT64_MAX / kStep ? INT64_MAX : steps * kStep;
}

std::shared_ptr<Memory> Charged(std::shared_ptr<Memory> memory, Reservation reservation) {
  Memory* const raw = memory.get();
  return {std::make_shared<Holder>(std::move(reservation), std::move(memory)), raw};
}

absl::Status NoRoom(const Device& device, int64_t bytes) {
  return ResourceExhausted(device.name(), ", whose limit is ", device.memory_limit(),
                           " bytes for all, has no room for ", bytes, " now");
}

absl::StatusOr<std::shared_ptr<Memory>> AllocCharged(Device& device, int64_t bytes,
                                                     const std::shared_ptr<Account>& account) {
  if (account == nullptr) return device.Alloc(bytes);
  TG_ASSIGN_OR_RETURN(Reservation reservation, Reservation::Take(account, ChargeOf(bytes)));
  auto memory = device.Alloc(bytes);
  if (absl::IsResourceExhausted(memory.status())) return NoRoom(device, bytes);
  TG_RETURN_IF_ERROR(memory.status());
  return Charged(*std::move(memory), std::move(reservation));
}

absl::StatusOr<std::shared_ptr<Memory>> AllocHostCharged(Device& to, Device& from, int64_t bytes,
                                                         const std::shared_ptr<Account>& account) {
  if (account == nullptr) return AllocHostFor(to, from, bytes);
  TG_ASSIGN_OR_RETURN(Reservation reservation, Reservation::Take(account, ChargeOf(bytes)));
  TG_ASSIGN_OR_RETURN(auto memory, AllocHostFor(to, from, bytes));
  return Charged(std::move(memory), std::move(reservation));
}

}  // namespace telegrad
