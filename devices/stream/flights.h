// The work that a queue has given to the GPU and that has not ended. The device's other queues
// find here the mark behind a point that it waits for, and let the GPU wait for it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "devices/api/device.h"
#include "devices/stream/command_buffer.h"
#include "devices/stream/marks.h"
#include "engine/base/mutex.h"

namespace telegrad::stream {

// What was submitted, as it came.
struct Submission {
  std::shared_ptr<const StreamCommandBuffer> commands;
  std::vector<BufferView> bindings;
  std::vector<uint64_t> scalars;
  std::vector<TimelinePoint> waits;
  std::shared_ptr<RunTrace> trace;
  std::shared_ptr<const Cancellation> cancellation;
};

// A submission of which everything that the GPU is to do is on its stream.
struct Flight {
  uint64_t value = 0;  // of its point
  Submission work;
  absl::Status status;     // of handing it over: what follows a failure is not on the stream
  bool on_stream = false;  // something of it may be on the stream
  Mark done;               // behind all that is; none: it has ended when the whole stream is idle
  StreamCommandBuffer::Instance* instance = nullptr;
  std::vector<std::shared_ptr<const void>> peers;  // whose memory it uses; see Context::UseByPeer
  std::vector<EventHandle> marks;  // of a traced one: before its commands and behind each
  std::vector<TraceEvent> events;  // of those commands, without times
  int64_t begin_ns = 0;            // when it was handed over
};

// Thread-safe. One thread at a time adds, one at a time ends.
class Flights {
 public:
  // How a point stands, and the status of one that will fail.
  enum class Stand { kUnknown, kInFlight, kFailed };

  void Add(Flight flight);
  // The first, until Drop; null if there is none.
  Flight* First();
  void Drop();

  // If the point is of a flight, makes `stream` wait for its end.
  absl::StatusOr<Stand> Await(uint64_t value, Context& context, StreamHandle stream,
                              absl::Status* failure) const;
  // The same without waiting, for the queue whose flights these are.
  Stand Look(uint64_t value, absl::Status* failure) const;

 private:
  const Flight* Find(uint64_t value) const TG_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::deque<Flight> flights_ TG_GUARDED_BY(mutex_);  // in order
};

}  // namespace telegrad::stream
