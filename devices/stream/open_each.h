// The GPUs that a driver shows, opened one by one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/generations_device.h"
#include "devices/stream/peer_path.h"
#include "devices/stream/stream_device.h"

namespace telegrad::stream {

struct Opening {
  std::string kind;  // "CUDA"; the devices are CUDA:0, ...
  int count = 0;
  OneDevice only = {};  // of these
  std::function<absl::StatusOr<std::unique_ptr<StreamDevice>>(int index, const std::string& name,
                                                              uint64_t generation)>
      open;
  std::function<std::string(int index)> product;  // what the driver calls it
  PeerSwitch access;                              // between two of them
  // What one measures; null, or a function that returns null: nothing.
  std::function<std::shared_ptr<Sensors>(int index)> sensors = nullptr;
};

// What cannot be used is left out; `notes`, which may be null, say why. The functions are kept and
// called again when a device is lost and recovered, on any thread.
std::vector<std::unique_ptr<Device>> OpenEach(const Opening& opening,
                                              std::vector<std::string>* notes);

}  // namespace telegrad::stream
