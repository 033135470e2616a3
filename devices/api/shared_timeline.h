// Timelines of other processes. One process exports a timeline (Timeline::Export): its word, and
// the failures of its points, are in memory that both map from then on. Another one imports it by
// the handle, and waits for its points as for those of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "devices/api/shared_memory.h"
#include "devices/api/timeline.h"
#include "devices/api/timeline_word.h"

namespace telegrad {

inline constexpr uint32_t kSharedFailures = 31, kSharedMessage = 100;

// Points [first, last] have failed with one status.
struct SharedFailure {
  std::atomic<uint64_t> first, last;
  int32_t code;  // absl::StatusCode
  uint32_t message_bytes;
  char message[kSharedMessage];  // NOLINT(modernize-avoid-c-arrays): shared memory
};

// What is in the memory. Its writer records a failure before the point is reached. When there is no
// room for more, the last one is stretched over what follows: a failure is never left out.
struct SharedTimeline {
  TimelineWord word;
  std::atomic<uint32_t> failures;
  SharedFailure failure[kSharedFailures];  // NOLINT(modernize-avoid-c-arrays): shared memory
};

// The writer's side, which a timeline has once it is exported. Under the timeline's lock.
class ExportedTimeline {
 public:
  // RESOURCE_EXHAUSTED where the system has no memory for it.
  static absl::StatusOr<std::unique_ptr<ExportedTimeline>> Create();
  const std::string& handle() const { return file_.handle; }

  // Points [first, last] fail; before they are reached.
  void Fail(uint64_t first, uint64_t last, const absl::Status& status);
  void Reach(uint64_t value) { shared().word.Signal(value); }

 private:
  ExportedTimeline(ExportedFile file, std::unique_ptr<SharedMapping> mapping)
      : file_(std::move(file)), mapping_(std::move(mapping)) {}
  SharedTimeline& shared() const { return *reinterpret_cast<SharedTimeline*>(mapping_->base()); }

  const ExportedFile file_;
  const std::unique_ptr<SharedMapping> mapping_;
};

// The timeline of that handle, whose points a thread of this process reaches soon after the other
// process. When that has ended, all points that it has not reached fail with UNAVAILABLE.
// INVALID_ARGUMENT for a handle that names nothing.
absl::StatusOr<std::shared_ptr<Timeline>> ImportTimeline(std::string_view handle);

}  // namespace telegrad
