// Device memory whose size is charged to an account until its last reference is released. A run or
// a slow reader may hold it longer than the session that allocated it.
#pragma once

#include <cstdint>
#include <memory>

#include "devices/api/device.h"
#include "engine/base/account.h"

namespace telegrad {

// The amount that an allocation of this size is charged, rounded up as devices count it.
int64_t ChargeOf(int64_t bytes);

// Combines `memory` with the charge that was reserved for it.
std::shared_ptr<Memory> Charged(std::shared_ptr<Memory> memory, Reservation reservation);

// The error of a device without free memory. It does not reveal how much other tenants use.
absl::Status NoRoom(const Device& device, int64_t bytes);

// RESOURCE_EXHAUSTED of the account, before anything is allocated, or NoRoom. Without an account
// it is Device::Alloc.
absl::StatusOr<std::shared_ptr<Memory>> AllocCharged(Device& device, int64_t bytes,
                                                     const std::shared_ptr<Account>& account);

// The same for memory of the host, through which bytes go from one of two
// devices to the other: pinned by one of them that does, so that it copies from
// and to it itself, else of no device.
absl::StatusOr<std::shared_ptr<Memory>> AllocHostCharged(Device& to, Device& from, int64_t bytes,
                                                         const std::shared_ptr<Account>& account);

}  // namespace telegrad
