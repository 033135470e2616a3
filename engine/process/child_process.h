// A process that this one started to do what may crash: with nothing of this process but one end of
// a stream socket, a pipe for its last output, limits, and the signal to end with the thread that
// started it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/sanitizers.h"

namespace telegrad {

// A sanitizer's shadow memory is larger than any limit.
inline constexpr bool kLimitsMemory = !kAddressSanitizer && !kThreadSanitizer;

inline constexpr int kChildSocket = 3;  // the child's descriptor

class ChildProcess {
 public:
  struct Options {
    std::string executable;
    std::vector<std::string> arguments = {};
    std::vector<std::string> environment = {};  // NAME=VALUE, beside BareEnvironment
    int64_t memory_bytes = 0;                   // of address space, where kLimitsMemory; 0: any
    int nice = 0;                               // see nice(2)
    // How long its end is awaited at most once it was killed: a wait of a driver in the kernel may
    // go on for ever. It works no more then, and is removed when it has ended.
    std::chrono::milliseconds bury_limit = std::chrono::seconds(1);
  };

  // UNAVAILABLE says why it could not be started.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const Options& options);
  // Kills it.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  int socket() const { return socket_; }
  // Whether it has said nothing, and has not closed its end either.
  bool IsQuiet() const;
  // Whether it has ended by itself, or by somebody else.
  bool HasEnded() const;
  // Thread-safe: breaks the connection to it, so that nobody waits for what it is doing.
  void Interrupt();

  // Ends it and says how it ended, with its last output, without control characters. Waits no
  // longer than Options::bury_limit and for one that has begun to end by itself some 200
  // milliseconds.
  std::string Bury();
  // The same apart: what it has written may be about others than the one whom it failed.
  struct End {
    std::string how, last_output;
  };
  End BuryApart();
  // Whether it was ended from outside; once it is buried.
  bool was_killed() const { return was_killed_; }

  // Removes those that have ended by now of the children that had not when they were buried. The
  // number of those that still have not. Each start and each burial does so, too.
  static size_t ReapUnended();

 private:
  ChildProcess(pid_t pid, int socket, int errors, std::chrono::milliseconds bury_limit)
      : pid_(pid), socket_(socket), errors_(errors), bury_limit_(bury_limit) {}

  bool HasLeft() const;  // it has closed its socket: its end, which may take time, has begun

  const pid_t pid_;
  const int socket_;
  const int errors_;  // the reading end of its stderr
  const std::chrono::milliseconds bury_limit_;
  bool buried_ = false;
  bool was_killed_ = false;
  std::atomic<bool> interrupted_{false};
};

// Of the child: that it dies with the thread that started it, and gains no rights. Should that
// thread be gone already, the socket is closed and the first read ends the process. False where
// kChildSocket is no socket: somebody else has started it.
bool BeginAsChild();

// The program of that name in the folder of this process's executable. NOT_FOUND names the path;
// `what`: "the compile worker".
absl::StatusOr<std::string> FindBeside(std::string_view name, std::string_view what);

}  // namespace telegrad
