// A GPU that comes back after a loss, as a device of generations. When it faults or is stuck it is
// lost: its health says so, and what it has not ended fails with UNAVAILABLE. Recover opens it
// again. Programs and encoded commands go on in the new generation; the contents of its memory are
// gone, and work with memory of an older generation fails with UNAVAILABLE.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "devices/stream/stream_device.h"

namespace telegrad::stream {

// The device as it is for the first time, and how it is opened each time after.
// Devices whose contexts are of one driver reach each other's memory.
std::unique_ptr<Device> MakeGenerationsDevice(
    std::unique_ptr<StreamDevice> first,
    std::function<absl::StatusOr<std::unique_ptr<StreamDevice>>(uint64_t number)> open);

}  // namespace telegrad::stream
