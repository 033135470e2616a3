// Traces of single operations: spans, as in W3C Trace Context and OpenTelemetry, of operations
// that their caller has marked and of a sample of the others. The last ones are kept and can be
// shown as a timeline (the Trace Event Format of Chrome and Perfetto).
//
//   traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
//                   trace                            parent           flags, bit 0: sampled
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "server/admin/fair_backlog.h"

namespace telegrad {

// The sixteen hexadecimal digits by which the formats of traces name half a trace, or a span.
std::string HexDigits(uint64_t value);

struct TraceContext {
  uint64_t high = 0, low = 0;  // the trace
  uint64_t parent = 0;         // the span that caused this one; 0: none
  bool sampled = false;
};

// None for whatever is not as https://www.w3.org/TR/trace-context says: it is ignored.
std::optional<TraceContext> ParseTraceparent(std::string_view text);

struct TraceSpan {
  TraceContext of;
  uint64_t id = 0;
  std::string name;
  int64_t begin_ns = 0, end_ns = 0;  // by the clock
  std::string tenant;
  uint64_t session = 0, operation = 0;
  bool whole = false;                             // the operation's own, not a part of it
  absl::StatusCode code = absl::StatusCode::kOk;  // how it ended
};

// Where spans go beside the tracer's own list, such as an exporter.
class SpanSink {
 public:
  virtual ~SpanSink() = default;
  // Called from any thread; must not block.
  virtual void Take(const TraceSpan& span) = 0;
};

// Thread-safe.
class Tracer {
 public:
  // Keeps the last spans, at most `most`; once there are more, the oldest of the tenant that has
  // the most of them goes. Of operations that no caller has marked it takes one in `one_in`, none
  // if that is 0.
  Tracer(int64_t most, int64_t one_in, const Clock* clock = Clock::Steady());

  // The context of an operation that is to be traced. A context that says it is not sampled is
  // heeded.
  std::optional<TraceContext> Begin(const std::optional<TraceContext>& caller);
  uint64_t NewId();
  void Add(TraceSpan span);
  // Every span goes there until the sink is removed, before which it must not end.
  void AddSink(SpanSink* sink);
  void RemoveSink(SpanSink* sink);
  const Clock& clock() const { return clock_; }

  // Each trace is a row of the process "telegradd".
  std::string ChromeJson() const;

 private:
  const int64_t one_in_;
  const Clock& clock_;
  std::atomic<uint64_t> ids_;
  std::atomic<int64_t> seen_{0};
  mutable Mutex mutex_;
  FairBacklog<TraceSpan> spans_ TG_GUARDED_BY(mutex_);
  uint64_t dropped_ TG_GUARDED_BY(mutex_) = 0;
  std::vector<SpanSink*> sinks_ TG_GUARDED_BY(mutex_);
};

// One operation that is traced; null pointers to it mean that it is not. Its own span has the spans
// of what it waited for and did as children.
class OperationTrace {
 public:
  OperationTrace(Tracer* tracer, const TraceContext& caller, std::string name, std::string tenant,
                 uint64_t session, uint64_t operation);
  // A child.
  void Add(std::string_view name, int64_t begin_ns, int64_t end_ns);
  // How it ends; the first error stays.
  void Note(const absl::Status& status) {
    auto ok = absl::StatusCode::kOk;
    if (!status.ok()) code_.compare_exchange_strong(ok, status.code());
  }
  // Itself, once.
  void End();
  int64_t Now() const { return tracer_.clock().Ns(); }
  int64_t begin_ns() const { return own_.begin_ns; }
  const TraceContext& context() const { return own_.of; }

 private:
  Tracer& tracer_;
  TraceSpan own_;
  std::atomic<bool> ended_{false};
  std::atomic<absl::StatusCode> code_{absl::StatusCode::kOk};
};

}  // namespace telegrad
