// Writes what a channel reads: methods into a pushbuffer, and the ring's entry that points to it.
// Formats: NVC36F_DMA_* in clc36f.h, NVC86F_GP_ENTRY* in clc86f.h.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "devices/nv/methods.h"

namespace telegrad::nv {

constexpr uint32_t Low(uint64_t value) { return static_cast<uint32_t>(value); }
constexpr uint32_t High(uint64_t value) { return static_cast<uint32_t>(value >> 32); }

class PushBuffer {
 public:
  // `values` go to `method` and those behind it.
  void Push(Subchannel subchannel, uint32_t method, std::initializer_list<uint32_t> values) {
    constexpr uint32_t kIncreasing = 1;  // SEC_OP_INC_METHOD
    words_.push_back(kIncreasing << 29 | static_cast<uint32_t>(values.size()) << 16 |
                     subchannel << 13 | method >> 2);
    words_.insert(words_.end(), values);
  }

  // The host waits for the engines, then stores `value` and the time.
  void Release(uint64_t address, uint64_t value) {
    Push(kSubHost, kSemAddressLow,
         {Low(address), High(address), Low(value), High(value),
          kSemRelease | kSemReleaseWaitForIdle | kSemPayload64 | kSemTimestamp});
  }
  // The channel stops until the word is at least `value`; others of its group go on.
  void Acquire(uint64_t address, uint64_t value) {
    Push(kSubHost, kSemAddressLow,
         {Low(address), High(address), Low(value), High(value),
          kSemAcquire | kSemAcquireSwitchGroup | kSemPayload64});
  }

  const std::vector<uint32_t>& words() const { return words_; }
  void Clear() { words_.clear(); }

 private:
  std::vector<uint32_t> words_;
};

// An entry holds 40 bits of address; beyond them Hopper takes another entry first, which the probe
// has no use for.
inline constexpr uint64_t kPushAddressLimit = uint64_t{1} << 40;

constexpr uint64_t RingEntry(uint64_t address, uint64_t words) {
  constexpr uint64_t kSubroutine = uint64_t{1} << 41;  // LEVEL_SUBROUTINE
  return address | kSubroutine | words << 42;
}

}  // namespace telegrad::nv
