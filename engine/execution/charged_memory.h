// Device memory whose size is charged to an account for as long as anybody refers to it, which may
// be longer than whoever asked for it: a run that uses it, a slow reader.
#pragma once

#include <cstdint>
#include <memory>

#include "devices/api/device.h"
#include "engine/base/account.h"

namespace telegrad {

// What an allocation of that size is charged: what devices count for it.
int64_t ChargeOf(int64_t bytes);

// `memory` together with what was reserved for it.
std::shared_ptr<Memory> Charged(std::shared_ptr<Memory> memory, Reservation reservation);

// That the device has no room now. What all have in use is not told to one of several.
absl::Status NoRoom(const Device& device, int64_t bytes);

// RESOURCE_EXHAUSTED of the account, before anything is allocated, or NoRoom. Without an account
// it is Device::Alloc.
absl::StatusOr<std::shared_ptr<Memory>> AllocCharged(Device& device, int64_t bytes,
                                                     const std::shared_ptr<Account>& account);

// The same for memory of the host that belongs to no device.
absl::StatusOr<std::shared_ptr<Memory>> AllocHostCharged(int64_t bytes,
                                                         const std::shared_ptr<Account>& account);

}  // namespace telegrad
