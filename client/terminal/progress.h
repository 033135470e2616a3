// Output for people: a line at the bottom of the terminal with the progress of an operation, its
// rate and the time left, shown once it has taken two seconds; and a plot of numbers. Where the
// output is not a terminal, nothing is shown.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "client/cc/remote_session.h"
#include "client/cc/transfer_meter.h"
#include "engine/base/mutex.h"

namespace telegrad {

// Whether standard error, or standard output, is a terminal that understands escape sequences
// (TERM, NO_COLOR).
bool ErrorIsTerminal();
bool OutputIsTerminal();

// "0:07", "1:02:03"; rounded up.
std::string ClockTime(double seconds);

// "epoch 3/16: 12 of 22 steps, 55%, 41.3 steps/s, 0:07 left", without an end where `total` is 0.
std::string ProgressLine(std::string_view what, int64_t done, int64_t total, std::string_view unit,
                         double seconds);

// The line of a transfer that began when `before` was moved and asked for: "sending: 120 of 512
// MiB, 23%, 60 MiB/s, 0:07 left". `then` is what follows once everything has moved.
std::string TransferLine(std::string_view what, std::string_view then, const TransferAmount& before,
                         const TransferAmount& now, double seconds);

// What a server compiles for a session: "compiling: 12 of 53 kernels, 23%, 8.1 kernels/s, 0:06
// left", the time where it compiles nothing. One thread at a time.
class CompileLine {
 public:
  using Ask = std::function<absl::StatusOr<CompileProgress>()>;

  CompileLine(std::string what, Ask ask) : what_(std::move(what)), ask_(std::move(ask)) {}
  // `seconds` since the beginning. The rate is that of the kernels which are compiled together: it
  // counts from when they were first seen.
  std::string operator()(double seconds);

 private:
  const std::string what_;
  const Ask ask_;
  CompileProgress last_;
  double since_ = 0;
};

// The line of what a session sends or receives from now on, `moving`, and then of what its server
// compiles, `then`. Where it is clear that at least `bytes` will be moved, the line counts from the
// beginning with as many. The session has to exist as long as the line is drawn.
std::function<std::string(double)> SessionLine(const RemoteSession& session, std::string moving,
                                               std::string then, int64_t bytes = 0);

// From its construction to its end. Done may be called by any thread.
class Progress {
 public:
  static constexpr std::chrono::milliseconds kQuiet{2000};
  static constexpr std::chrono::milliseconds kRedraw{200};

  // `total` 0: the amount is unknown, and only the time is shown.
  explicit Progress(std::string what, int64_t total = 0, std::string unit = "",
                    bool terminal = ErrorIsTerminal());
  // `line` makes the text, with the seconds since the beginning, whenever it is drawn, on a thread
  // of its own, until the end.
  explicit Progress(std::function<std::string(double)> line, bool terminal = ErrorIsTerminal());
  ~Progress();
  void Say(std::string what);  // from now on in place of the first text
  void Done(int64_t done);     // so far, of `total`

  // Removes the line until the next redraw, so that output of others does not mix with it.
  void Clear();

 private:
  void Loop();

  const std::function<std::string(double)> line_;
  const int64_t total_ = 0;
  const std::string unit_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Mutex mutex_;
  ConditionVariable wake_;
  std::string what_ TG_GUARDED_BY(mutex_);
  int64_t done_ TG_GUARDED_BY(mutex_) = 0;
  bool drawn_ TG_GUARDED_BY(mutex_) = false;
  bool stop_ TG_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Values from left to right in `height` lines, each with its bound at the left: "0.83 ┤▇▅▃▂". A
// column is the mean of the values that fall into it. Values that are no numbers leave a gap.
std::string Plot(std::span<const double> values, int width, int height);

}  // namespace telegrad
