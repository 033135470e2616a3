// A warp of a running workgroup: registers, where each lane is, and its way to memory. A lane runs
// until it ends or waits; of the lanes that can run, those at the lowest instruction do, together,
// so that lanes which parted meet again where their ways join.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/fakes/cuda/ptx/bulk_store.h"
#include "tests/fakes/cuda/ptx/code.h"
#include "tests/fakes/cuda/ptx/launch.h"
#include "tests/fakes/cuda/ptx/shadow.h"

namespace fakecuda {

class Workgroup;

// A cp.async that was started and not waited for.
struct AsyncCopy {
  uint64_t to = 0;  // in shared memory
  uint64_t from = 0;
  uint32_t bytes = 0;
  uint32_t source_bytes = 0;  // the rest is zero
  int line = 0;
};

class Warp {
 public:
  Warp(Workgroup* group, const Kernel& kernel, int index);

  // Sets everything for a new workgroup: `threads` lanes that live.
  void Start(int threads);
  // Runs until every lane has ended or waits. Whether anything ran.
  bool Run();

  uint64_t* Slot(uint32_t slot) { return &registers_[size_t{slot} * kLanes]; }
  uint32_t live() const { return live_; }
  int index() const { return index_; }
  Workgroup& group() { return *group_; }
  Clocks& clocks() { return clocks_; }
  uint8_t* Local(int lane) { return &local_[kernel_.local_bytes * static_cast<uint64_t>(lane)]; }

  // The bytes of an access, checked in every way; null after a fault.
  uint8_t* Access(const Instruction& i, int lane, Space space, uint64_t address, uint32_t bytes,
                  AccessKind kind);
  // The same for the target of a cp.async, which nobody may touch until it is complete.
  bool BeginAsync(const Instruction& i, int lane, const AsyncCopy& copy);
  void CommitAsync(int lane);
  // Completes all but the last `pending` committed groups; with `all`, also what is not committed.
  void WaitAsync(const Instruction& i, int lane, size_t pending, bool all);
  // Counts how the accesses of these lanes, each of `bytes` bytes, suit the memory.
  void CountShared(const uint64_t* addresses, int64_t offset, uint32_t lanes, uint32_t bytes,
                   bool store);
  void CountGlobal(const uint64_t* addresses, int64_t offset, uint32_t lanes, uint32_t bytes);

  // The same for bytes that a bulk copy, which this lane starts, will read of global memory, and
  // for those that it will write in shared memory, which nobody may touch until it is complete.
  const uint8_t* ReadByCopier(const Instruction& i, int lane, uint64_t address, uint32_t bytes,
                              const Clocks& copier);
  bool WriteByCopier(const Instruction& i, int lane, uint64_t address, uint32_t bytes,
                     const Clocks& copier);
  // And in the other direction.
  uint8_t* WriteGlobalByCopier(const Instruction& i, int lane, uint64_t address, uint32_t bytes,
                               const Clocks& copier);
  bool ReadSharedByCopier(const Instruction& i, int lane, uint64_t address, uint32_t bytes,
                          const Clocks& copier);
  BulkStores& stores() { return stores_; }

  void Fail(FaultCode code, const Instruction& i, int lane, const std::string& what);
  bool failed() const;

  // The barrier at which all lanes wait, if they do.
  const Instruction* AtBarrier() const;
  void PassBarrier();
  // Lanes that try a phase in vain run again after the others had their turn.
  void WakeTrying() { trying_ = 0; }
  bool trying() const { return trying_ != 0; }
  // Lines at which lanes wait, for the message about a deadlock.
  std::string Waiting() const;

 private:
  uint32_t Guarded(const Instruction& i, uint32_t lanes);
  void RunTogether(uint32_t lanes);
  void SetPc(uint32_t lanes, uint32_t pc);
  bool Collective(const Instruction& i, uint32_t pc, uint32_t lanes);
  Accessor Self(int lane) const { return {.clocks = &clocks_, .warp = index_, .lane = lane}; }
  static Accessor CopierOf(const Clocks& clocks);
  uint8_t* Global(const Instruction& i, int lane, uint64_t address, uint32_t bytes, AccessKind kind,
                  const Accessor& who);
  uint8_t* Shared(const Instruction& i, int lane, uint64_t address, uint32_t bytes, AccessKind kind,
                  const Accessor& who);
  void Complete(const Instruction& i, int lane, const AsyncCopy& copy);
  void Spend(uint64_t instructions);

  Workgroup* group_;
  const Kernel& kernel_;
  int index_;
  uint32_t live_ = 0;
  uint32_t blocked_ = 0;  // wait at a barrier or for other lanes
  uint32_t trying_ = 0;
  size_t last_region_ = 0;
  std::array<uint32_t, kLanes> pc_ = {};
  std::vector<uint64_t> registers_;
  std::vector<uint8_t> local_;
  Clocks clocks_;
  std::array<std::vector<AsyncCopy>, kLanes> open_;
  std::array<std::vector<std::vector<AsyncCopy>>, kLanes> committed_;
  BulkStores stores_;
};

// Calls f(lane) for each of the lanes.
template <class F>
inline void Each(uint32_t lanes, F f) {
  if (lanes == kAllLanes) {
    for (int lane = 0; lane < kLanes; ++lane) f(lane);
  } else {
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) f(std::countr_zero(rest));
  }
}

// A register's 64 bits as a value of T and back; what lies above T's width is zero.
template <class T>
inline T Get(uint64_t bits) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(bits);
  } else {
    return static_cast<T>(bits);
  }
}
template <class T>
inline uint64_t Put(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<uint32_t>(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<uint64_t>(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? 1 : 0;
  } else {
    return static_cast<uint64_t>(static_cast<std::make_unsigned_t<T>>(value));
  }
}

}  // namespace fakecuda
