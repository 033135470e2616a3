// What telegrad-device-worker does for a driver: it opens the driver's device in this process, and
// does what the daemon asks of it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "devices/api/device.h"
#include "devices/hosted/messages.h"

namespace telegrad {

// The device that the setup is of, or none; of `opened`, the notes get what is left out and why,
// and it is set how many devices the driver has and which hardware this one is.
using HostedOpener = std::function<absl::StatusOr<std::vector<std::unique_ptr<Device>>>(
    const HostedSetup& setup, HostedOpened* opened)>;

// Until the daemon closes its end; then the process ends with the code.
int ServeDriver(int socket, const HostedOpener& open);

}  // namespace telegrad
