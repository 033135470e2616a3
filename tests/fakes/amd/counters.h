// The counters by which a wave waits for memory (ISA documents, "Data dependency resolution"). An
// access adds one to a counter; a wait for n returns when at most n are left. Accesses of one kind
// return in order, scalar loads and those of different kinds in any order, so that only a wait for
// 0 covers these.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tests/fakes/amd/code.h"

namespace fakeamd {

// Before gfx12, kLoad is vmcnt, kLocal is lgkmcnt, which scalar loads share; kStore is vscnt, or
// vmcnt on gfx9. From gfx12 on, each has its own name, and kScalar is kmcnt.
enum class Counter : uint8_t { kLoad, kStore, kLocal, kScalar, kCount };

enum class EventKind : uint8_t { kVector, kLocal, kScalar, kFlat };

class Counters {
 public:
  void Reset();
  // An access that writes these registers; none for a store.
  void Add(Counter counter, EventKind kind, uint16_t first, uint8_t words, bool scalar,
           uint32_t instruction);
  // As Add, of a store to local memory, whose completion a barrier needs.
  void AddLocalStore(Counter counter, uint32_t instruction);
  void Wait(Counter counter, uint32_t left);

  bool any() const { return pending_ != 0; }
  bool vector_pending(uint32_t reg) const { return vector_[reg] != 0; }
  bool scalar_pending(uint32_t reg) const { return scalar_[reg] != 0; }
  // Whether only loads that return in order with one of `counter` and `kind` are under way to the
  // register.
  bool OnlyInOrder(uint32_t reg, Counter counter, EventKind kind) const;
  bool local_stores() const { return local_stores_ != 0; }
  // The instruction of the latest load to the register.
  uint32_t LoadOf(uint32_t reg, bool scalar) const;

 private:
  struct Event {
    EventKind kind = EventKind::kVector;
    bool scalar = false;
    bool local_store = false;
    uint8_t words = 0;
    uint16_t first = 0;
    uint32_t instruction = 0;
  };
  void Complete(const Event& event);

  std::array<std::vector<Event>, static_cast<size_t>(Counter::kCount)> queues_;
  std::array<uint8_t, kVectors> vector_ = {};
  std::array<uint8_t, kScalars> scalar_ = {};
  uint32_t pending_ = 0;  // events with registers
  uint32_t local_stores_ = 0;
};

}  // namespace fakeamd
