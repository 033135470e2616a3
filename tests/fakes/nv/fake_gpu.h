// What of a Hopper GPU the probe reaches: the address space, the host that fetches rings and
// pushbuffers, a copy engine, and a compute engine that runs one known kernel. It decodes by the
// bits of NVIDIA's headers (clc36f.h, clc86f.h, clcbc0.h, clcbc0qmd.h, clc8b5.h), written down here
// again and not shared with the encoders, and takes nothing that it does not know.
//
// Work begins when it is run, not at the doorbell. An error ends its channel as the driver does: a
// number (the Xid) in the channel's error notifier; `errors` says what it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace telegrad::fakes {

struct FakeMemory {
  explicit FakeMemory(size_t size) : owned(size), data(owned.data()), bytes(size) {}
  FakeMemory(std::byte* at, size_t size) : data(at), bytes(size) {}
  std::vector<std::byte> owned;
  std::byte* data;
  size_t bytes;
};

struct FakeChannel {
  uint64_t ring = 0;  // its address on the GPU
  uint32_t entries = 0;
  std::shared_ptr<FakeMemory> userd, notifier;
  size_t userd_offset = 0;
  uint32_t token = 0;
  bool bound = false;  // its memory is registered
  bool scheduled = false, dead = false;
  std::vector<uint32_t> engines;           // classes of the objects that were made under it
  std::map<uint32_t, uint32_t> on;         // subchannel: the class that SET_OBJECT put there
  std::map<uint32_t, uint32_t> registers;  // subchannel << 16 | method: what was last pushed
};

// The one kernel: found by its code, run by a function on the constant bank.
struct FakeKernel {
  std::vector<uint32_t> code;
  uint32_t registers = 0;
  std::function<std::string(class FakeGpu&, const std::byte* constants, size_t bytes)> run;
};

class FakeGpu {
 public:
  struct Range {
    uint64_t bytes;
    std::shared_ptr<FakeMemory> memory;  // null: there, and not mapped
  };

  // Memory of the GPU's address space; null where [address, address + bytes) is not mapped.
  std::byte* At(uint64_t address, uint64_t bytes);
  // Does all the work of the channel's ring up to its put.
  void Run(FakeChannel& channel);

  std::map<uint64_t, Range> ranges;  // by address
  FakeKernel kernel;
  bool corrupt_copies = false;  // the first byte arrives wrong
  std::vector<std::string> errors;
  int releases = 0, copies = 0, kernels = 0;

 private:
  std::string Fetch(FakeChannel& channel, uint64_t entry);
  std::string Method(FakeChannel& channel, uint32_t subchannel, uint32_t method, uint32_t value);
  std::string HostMethod(FakeChannel& channel, uint32_t subchannel, uint32_t method,
                         uint32_t value);
  std::string LaunchCopy(FakeChannel& channel, uint32_t launch);
  std::string LaunchGrid(uint64_t address);
  // A semaphore of four words: the value and the time.
  std::string Release(uint64_t address, uint64_t value);

  uint64_t time_ = 1000;
};

}  // namespace telegrad::fakes
