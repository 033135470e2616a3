// Checks the calls under way once a second. It ends a call whose caller has sent no message for
// a while, so that streams that never begin occupy no place, and a call whose credentials were
// withdrawn or whose tenant is no longer served.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "server/admin/limited_log.h"
#include "server/identity/authenticator.h"

namespace telegrad {

class RawStream;

// Thread-safe.
class CallWatch {
 public:
  // Who calls, and what made them known.
  struct Known {
    Principal principal;
    Grant grant;
    std::string acts_for = {};  // another tenant; empty: for itself
  };
  // OK while calls of this caller may go on.
  using Check = std::function<absl::Status(const Known&)>;
  class Row;

  CallWatch(std::chrono::milliseconds first_message, Check check,
            const Clock* clock = Clock::Steady());

  // `stream` is looked at until Leave is called of what this returns. `known`: null where nobody
  // was asked.
  std::shared_ptr<Row> Enter(RawStream* stream, std::shared_ptr<const Known> known);
  // Ends those that are to end by now.
  void Look();
  // Ends those that have sent nothing yet, now and from now on, and those that wait for nothing but
  // their caller's next question.
  void Drain();

 private:
  std::list<std::shared_ptr<Row>> All();

  const int64_t first_message_ns_;
  const Check check_;
  const Clock* const clock_;
  LimitedLog ended_{LogLevel::kWarning, "call_ended"};
  Mutex mutex_;
  std::list<std::shared_ptr<Row>> rows_ TG_GUARDED_BY(mutex_);
  bool draining_ TG_GUARDED_BY(mutex_) = false;
};

// One call.
class CallWatch::Row {
 public:
  // Nobody calls the stream any more. Not from within what the watch calls.
  void Leave();

 private:
  friend class CallWatch;
  CallWatch* watch_ = nullptr;
  std::list<std::shared_ptr<Row>>::iterator at_;
  int64_t began_ns_ = 0;
  std::shared_ptr<const Known> known_;
  Mutex mutex_;
  RawStream* stream_ TG_GUARDED_BY(mutex_) = nullptr;  // until Leave
};

}  // namespace telegrad
