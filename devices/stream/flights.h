// The work that a queue has given to the GPU and that has not ended. The other queues of the
// device, and those of the driver's other GPUs, find here the mark behind a point that they wait
// for, and let their GPU wait for it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "devices/api/device.h"
#include "devices/stream/bell.h"
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
  // Points that its stream waits for and that may yet fail while this GPU is healthy: of other
  // GPUs, and of flights that depend on such ones. It ends behind them, and fails with the first
  // that does.
  std::vector<TimelinePoint> depends;
  bool passed = false;                             // by the GPU; it waits for those to end
  std::vector<std::shared_ptr<const void>> peers;  // whose memory it uses; see Context::UseByPeer
  std::vector<EventHandle> marks;  // of a traced one: before its commands and behind each
  std::vector<TraceEvent> events;  // of those commands, without times
  int64_t begin_ns = 0;            // when it was handed over
};

// Thread-safe. One thread at a time adds, one at a time ends.
class Flights {
 public:
  // How a point stands, and the status of one that will fail. A dependent one is in flight, too,
  // and may fail with others than its own GPU; see Flight::depends.
  enum class Stand { kUnknown, kInFlight, kDependent, kFailed };

  void Add(Flight flight);
  // The first, until Drop; null if there is none.
  Flight* First();
  void Drop();

  // If the point is of a flight, makes `stream`, of whichever GPU, wait for its end; `result` is
  // what the driver says to that.
  Stand Await(uint64_t value, const Calls& calls, StreamHandle stream, Result* result,
              absl::Status* failure) const;
  // The same without waiting, for the queue whose flights these are.
  Stand Look(uint64_t value, absl::Status* failure) const;
  // Rings once the point is of a flight, at once if it is or was.
  void RingAtFlight(uint64_t value, std::shared_ptr<Bell> bell);

 private:
  const Flight* Find(uint64_t value) const TG_REQUIRES(mutex_);
  Stand StandOf(const Flight* flight, absl::Status* failure) const TG_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::deque<Flight> flights_ TG_GUARDED_BY(mutex_);  // in order
  uint64_t added_ TG_GUARDED_BY(mutex_) = 0;          // the last of them
  std::multimap<uint64_t, std::shared_ptr<Bell>> bells_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad::stream
