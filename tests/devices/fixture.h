// What the tests of devices share: gates and copies.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/temporary_directory.h"

namespace telegrad {

// A point that the test reaches when it likes.
struct Gate {
  std::shared_ptr<Timeline> timeline = std::make_shared<Timeline>();
  TimelinePoint point() const { return {timeline, 1}; }
  void Open(const absl::Status& status = absl::OkStatus()) const { timeline->Signal(1, status); }
};

// One thread and 64 MiB, where `options` say nothing else.
inline std::unique_ptr<Device> OpenHost(CpuOptions options = {}) {
  if (options.threads == 0) options.threads = 1;
  if (options.memory_limit == 0) options.memory_limit = int64_t{64} << 20;
  auto device = OpenCpu(options);
  EXPECT_TRUE(device.ok()) << device.status();
  return *std::move(device);
}

inline BufferView Whole(std::shared_ptr<Memory> memory) { return {memory, 0, memory->size()}; }

// A host buffer with those bytes, and its bytes.
inline BufferView HostBuffer(Device& host, const std::string& bytes) {
  auto memory = host.Alloc(static_cast<int64_t>(bytes.size()));
  EXPECT_TRUE(memory.ok()) << memory.status();
  std::memcpy((*memory)->host(), bytes.data(), bytes.size());
  return Whole(*memory);
}
inline std::string Bytes(const BufferView& view) {
  return {static_cast<const char*>(view.memory->host()) + view.offset,
          static_cast<size_t>(view.length)};
}

// What a fake library tells of problems, one a line, without the faults that tests ask it for.
inline std::string Unasked(const std::string& problems) {
  std::string out;
  for (size_t at = 0; at < problems.size();) {
    const size_t end = std::min(problems.find('\n', at), problems.size() - 1) + 1;
    const std::string line = problems.substr(at, end - at);
    if (line.find("a fault that the test asked for") == std::string::npos) out += line;
    at = end;
  }
  return out;
}

inline Command CopyCommand(const CopyBytes& copy) { return {CommandKind::kCopy, {}, copy}; }

// Enqueues on `device` a copy of all of `from` to the beginning of `to`.
inline absl::StatusOr<TimelinePoint> Copy(Device& device, const BufferView& to,
                                          const BufferView& from,
                                          std::vector<TimelinePoint> waits = {},
                                          QueueKind kind = QueueKind::kCopy) {
  auto commands =
      device.Encode({CopyCommand({.to = {0, 0}, .from = {1, 0}, .length = from.length})});
  if (!commands.ok()) return commands.status();
  return device.queue(kind).Submit(*commands, {to, from}, waits);
}

}  // namespace telegrad
