// The way on which copies go between two GPUs of a driver. A driver offers direct access where the
// hardware says that it has it; on a machine whose IOMMU redirects what GPUs send each other, the
// bytes that arrive are others, and no call fails (CUDA C++ Programming Guide, "IOMMU on Linux":
// "silent device memory corruption"). So a pattern goes both ways before a path is used.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "devices/stream/context.h"

namespace telegrad::stream {

// How a driver lets copies of a device go straight to memory of a peer.
struct PeerSwitch {
  // Lets them, and tells whether they do; where not, the driver takes them through the host.
  std::function<absl::StatusOr<bool>(Context& device, const Context& peer)> enable;
  // Takes that back.
  std::function<absl::Status(Context& device, const Context& peer)> disable;
};

// Decides about the copies of either GPU to and from memory of the other: direct, else through the
// host by the driver, else not at all, so that two copies take the bytes through memory of the
// host. The driver's table of peers says so from then on. `note` is called with what is worse than
// the driver promises, and why.
void ConnectPeers(const PeerSwitch& access, const std::shared_ptr<Context>& a,
                  const std::shared_ptr<Context>& b, const std::function<void(std::string)>& note);

}  // namespace telegrad::stream
