// A buffer of a session: device memory, the operations under way on it, and whether its contents
// are valid. Only the session's current drainer (see session.cc) uses it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "devices/api/device.h"
#include "engine/base/account.h"
#include "server/admin/metrics.h"
#include "server/data/held_read.h"

namespace telegrad {

bool IsReached(const TimelinePoint& point);

class Buffer {
 public:
  // Counts itself in kBuffers and kBufferBytes for as long as it lives.
  Buffer(std::shared_ptr<Memory> memory, int64_t bytes, Device* device, Metrics* metrics);
  // The result of an Alloc that failed: without memory, poisoned for good.
  Buffer(absl::Status error, Metrics* metrics);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // The charge of its tenant beside its bytes, held for as long as the buffer exists.
  void Pay(Reservation paid) { paid_ = std::move(paid); }

  const std::shared_ptr<Memory>& memory() const { return memory_; }
  int64_t bytes() const { return bytes_; }
  Device* device() const { return device_; }
  BufferView view() const { return {memory_, 0, bytes_, content_}; }
  std::byte* host(uint64_t offset) const;  // null where the host cannot address it

  // The error of the operation that should have written the contents; OK where they are valid or
  // depend on a run that has not ended.
  const absl::Status& Poison();
  void SetPoison(const absl::Status& error);
  // The host has written [offset, offset + size). A poisoned buffer is valid again once it has been
  // written in full, in ascending order.
  void Rewritten(uint64_t offset, uint64_t size);

  // The last run that writes it; a run that reads the buffer waits for it and fails if it fails.
  const TimelinePoint& last_write() const { return last_write_; }
  void WrittenBy(const TimelinePoint& run);
  // A run that uses it in any way.
  const TimelinePoint& last_use() const { return last_use_; }
  void UsedBy(const TimelinePoint& run) { last_use_ = run; }

  // Reads that have not taken their bytes yet, pruned of those that have.
  void ReadUntil(TimelinePoint copied);
  void ReadUntil(std::weak_ptr<HeldRead> sent);
  const std::vector<TimelinePoint>& copied_reads();
  std::shared_ptr<HeldRead> held_read();  // one of them, or null

 private:
  std::shared_ptr<Memory> memory_;
  const int64_t bytes_;
  uint64_t content_ = NewContent();  // a new one at each write
  Device* const device_;
  Metrics* const metrics_;
  Reservation paid_;
  absl::Status poison_;
  uint64_t rewritten_ = 0;  // the prefix written since the poison
  TimelinePoint last_write_, last_use_;
  std::vector<TimelinePoint> copied_reads_;
  std::vector<std::weak_ptr<HeldRead>> held_reads_;
};

}  // namespace telegrad
