// A device that a driver opens anew after each loss. While it is lost its health says so, and what
// it has not ended fails, see IsDeviceLost. Recover opens it as the next generation: programs and
// encoded commands are loaded again there by whoever uses them first; the contents of its memory
// are gone, and work with memory of an older generation fails with the error that names it
// (Memory::Health).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "devices/api/peer_table.h"

namespace telegrad {

// A device as its driver has opened it once. The owner uses it on any thread, and nobody uses it
// when it is closed.
class Generation {
 public:
  virtual ~Generation() = default;
  virtual Device& device() = 0;
  // Where it stands among the devices of its driver, the same in each generation.
  virtual PeerPlace peers() const { return {}; }
  // Of a lost device: calls that wait for its hardware return with an error, where the driver can
  // do that. While others use the device.
  virtual void Interrupt() {}
  // Ends all work and gives the hardware back with everything in it; the memory and programs that
  // are left are empty from then on. UNAVAILABLE while the hardware is at work on something that
  // does not end: then it may be asked again. After OK, no more.
  virtual absl::Status Close() = 0;
};

// Of the devices that a driver shows, the one with this number, and which generation of it is
// opened first, for a process that hosts one device; below 0: all of them.
struct OneDevice {
  int64_t number = -1;
  uint64_t generation = 1;
  // Which hardware it is, where the driver shows each process other hardware: as the process said
  // that first opened the device. "": that is for the driver to say.
  std::string hardware = {};
  // Set while the devices are opened, unless they are null: how many of them there are, and which
  // hardware this one is.
  int64_t* shown = nullptr;
  std::string* opened = nullptr;

  bool Has(int64_t device) const { return number < 0 || number == device; }
  void Show(int64_t devices) const {
    if (shown != nullptr) *shown = devices;
  }
  void TellHardware(const std::string& which) const {
    if (opened != nullptr) *opened = which;
  }
};

using GenerationOpener =
    std::function<absl::StatusOr<std::unique_ptr<Generation>>(uint64_t number)>;

// The device as it is for the first time, and how it is opened each time after, on any thread.
// `sensors`, which may be null, are those of all generations; `number` is the first one's.
std::unique_ptr<Device> MakeGenerationsDevice(std::unique_ptr<Generation> first,
                                              GenerationOpener open,
                                              std::shared_ptr<Sensors> sensors = nullptr,
                                              uint64_t number = 1);

}  // namespace telegrad
