// The timeline of a run as Chrome trace JSON, which Perfetto and chrome://tracing open: the phases
// of this process, and the server's trace of its devices.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/cc/remote_session.h"

namespace telegrad::cli {

// All times are nanoseconds of one clock, that of the steady clock of this process.
class Timeline {
 public:
  // A phase; phases follow each other on a track.
  struct Span {
    std::string name;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
  };

  static int64_t Now();

  // Ends the phase before, if there is one, and begins the next.
  void Begin(std::string_view phase, int64_t now = Now());
  void End(int64_t now = Now());

  // The server's side of a run that was asked for when the current phase began and was answered at
  // `now`. The server's clock has another zero: request and answer are assumed to travel equally
  // long, so the server's events lie in the middle of the phase.
  void AddRun(const RunInfo& run, int64_t now = Now());

  // Trace Event Format, the form with an object: a process for the client and one for the server,
  // a thread for each queue, complete events ("X") in microseconds since the first phase began.
  std::string ToJson() const;

 private:
  std::vector<Span> phases_;
  bool open_ = false;             // the last phase has not ended
  std::vector<Span> served_;      // the server's phases
  std::vector<RunEvent> events_;  // begin_ns by this clock
  int64_t dropped_ = 0;
};

}  // namespace telegrad::cli
