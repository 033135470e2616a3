// What of a Hopper GPU the drivers reach: the address space, the host that fetches rings and
// pushbuffers, copy engines and a compute engine. It decodes by the bits of NVIDIA's headers
// (clc36f.h, clc86f.h, clcbc0.h, clcbc0qmd.h, clc8b5.h), written down here again and not shared
// with the encoders, and takes nothing that it does not know.
//
// Work begins when it is stepped, not at the doorbell. Copies and kernels that a channel has begun
// end at any time and in any order until something makes the channel wait for them. An error ends
// the channels of the group as the driver does: a number (the Xid) in the error notifier of the
// channel; `errors` says what it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/fakes/nv/fake_memory.h"
#include "tests/fakes/nv/ptx_twin.h"

namespace telegrad::fakes {

struct FakeChannel {
  uint64_t ring = 0;  // its address on the GPU
  uint32_t entries = 0;
  std::shared_ptr<FakeMemory> userd, notifier;
  size_t userd_offset = 0;
  uint32_t token = 0, group = 0;
  bool bound = false;  // its memory is registered
  bool scheduled = false, dead = false, rung = false;
  std::vector<uint32_t> engines;           // classes of the objects that were made under it
  std::map<uint32_t, uint32_t> on;         // subchannel: the class that SET_OBJECT put there
  std::map<uint32_t, uint32_t> registers;  // subchannel << 16 | method: what was last pushed

  // The entry at hand, and where in it the host is.
  std::vector<uint32_t> push;
  size_t at = 0;
  uint32_t method = 0, subchannel = 0, left = 0;
  uint64_t rest = 0;  // steps that the channel does nothing

  // Begun and not ended. An operation gives its error.
  using Effect = std::function<std::string()>;
  std::vector<Effect> kernels, copies;
  // What copies wrote to the host's memory and did not flush.
  struct Pending {
    std::shared_ptr<FakeMemory> memory;
    size_t offset;
    std::vector<std::byte> bytes;
  };
  std::vector<Pending> pending;
};

// A kernel that is found by its code, and run by a function on the constant bank.
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

  // The GPU's side of its address space; null where [address, address + bytes) is not mapped.
  std::byte* At(uint64_t address, uint64_t bytes);
  // The host ordered its stores, or rang a doorbell: all that it wrote before is seen.
  void Ring() { ++doorbells_; }
  // Does some of the channel's work, at most `words` methods; whether there was any.
  bool Step(FakeChannel& channel, size_t words);
  // Called with each channel that faulted.
  std::function<void(FakeChannel&)> on_fault;

  std::map<uint64_t, Range> ranges;  // by address
  FakeKernel kernel;
  bool corrupt_copies = false;  // the first byte arrives wrong
  int fault_in = 0;             // the copy or kernel of this number from now, if above 0, faults
  std::vector<std::string> errors;
  int releases = 0, acquires = 0, copies = 0, fills = 0, kernels = 0, blocked = 0;
  size_t most_in_ring = 0;  // entries

 private:
  friend class QmdRun;

  bool Idle(FakeChannel& channel);
  std::string Fetch(FakeChannel& channel, uint64_t entry);
  std::string Advance(FakeChannel& channel, bool* blocked);
  std::string Method(FakeChannel& channel, uint32_t subchannel, uint32_t method, uint32_t value,
                     bool* blocked);
  std::string ComputeMethod(FakeChannel& channel, uint32_t subchannel, uint32_t method,
                            uint32_t value);
  std::string HostMethod(FakeChannel& channel, uint32_t subchannel, uint32_t method, uint32_t value,
                         bool* blocked);
  std::string LaunchCopy(FakeChannel& channel, uint32_t launch);
  std::string Transfer(FakeChannel& channel, uint64_t to, uint64_t from, uint64_t bytes,
                       uint32_t remap, uint32_t constant);
  std::string LaunchGrid(FakeChannel& channel, uint64_t address);
  std::string CheckWindows(const FakeChannel& channel) const;
  // Ends all work of these, in any order.
  std::string Finish(std::vector<FakeChannel::Effect>& work);
  void Flush(FakeChannel& channel);
  // A semaphore of four words: the value and the time.
  std::string Release(uint64_t address, uint64_t value);
  bool Fault() { return fault_in > 0 && --fault_in == 0; }
  const Range* RangeAt(uint64_t address, uint64_t bytes, uint64_t* offset) const;
  fakecuda::MemoryView View() const;

  uint64_t time_ = 1000, doorbells_ = 0;
  std::mt19937_64 random_{20240607};
  PtxTwins twins_;
};

}  // namespace telegrad::fakes
