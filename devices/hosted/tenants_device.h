// A device of a driver in processes, with a process of its own for each tenant that uses it: each
// has the driver's context and its memory of the device to itself, and none can reach another's.
// Here are the device's queues, one set in front of all processes, so that the pool's fair queues
// are in front of them, too. See docs/isolation.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "devices/hosted/hosted_device.h"
#include "devices/hosted/messages.h"

namespace telegrad {

// Number `number` of the driver's devices, by its name. It is opened once, by a process that ends,
// to say what it is: `said`, which is empty where that process has said nothing. Device::ForTenant
// makes what a tenant uses; the device itself is one more tenant, without a name.
absl::StatusOr<std::unique_ptr<Device>> OpenForTenants(const HostedOptions& options,
                                                       const std::string& name, int64_t number,
                                                       HostedOpened* said);

}  // namespace telegrad
