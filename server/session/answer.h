// The answers of operations, independent of any wire format, and the interface that receives
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/device_lost.h"
#include "engine/base/strings.h"

namespace telegrad {

// Beside the status. Immutable, because an answer of a resumable session is sent and kept for
// repetition.
class Result {
 public:
  virtual ~Result() = default;
  // What is kept of `self` for repetition: without device memory, and without what is sent only
  // once. `self` itself where that has neither. Null: it cannot be kept.
  virtual std::shared_ptr<const Result> Kept(const std::shared_ptr<const Result>& self) const = 0;
  // Memory that keeping it takes beside its parts of fixed size. Copies nothing.
  virtual int64_t kept_bytes() const = 0;
};

// A plain struct as a result. It may have a member kept_bytes(), and one Kept() that returns an
// optional of itself, with a member kept_whole(), which says that nothing is left out; without them
// all of it is kept.
template <typename T>
class ResultOf final : public Result {
 public:
  explicit ResultOf(T value) : value_(std::move(value)) {}
  const T& value() const { return value_; }

  std::shared_ptr<const Result> Kept(const std::shared_ptr<const Result>& self) const override {
    if constexpr (requires { value_.Kept(); }) {
      if (value_.kept_whole()) return self;
      std::optional<T> kept = value_.Kept();
      return kept ? std::make_shared<const ResultOf>(*std::move(kept)) : nullptr;
    }
    return self;
  }
  int64_t kept_bytes() const override {
    if constexpr (requires { value_.kept_bytes(); }) return value_.kept_bytes();
    return 0;
  }

 private:
  const T value_;
};

template <typename T>
std::shared_ptr<const Result> MakeResult(T value) {
  return std::make_shared<const ResultOf<T>>(std::move(value));
}

struct OpenResult {
  uint64_t session = 0;
  std::string token = {};
  uint64_t epoch = 0;
  int64_t lease_ms = 0, grace_ms = 0;
  uint64_t last_op_id = 0;
};

struct Answer {
  uint64_t id = 0;
  absl::Status status;
  std::shared_ptr<const Result> result = nullptr;  // null: the status says all
};

// The result of that kind; null where it is of another kind, or there is none.
template <typename T>
const T* ResultAs(const Answer& answer) {
  const auto* const result = dynamic_cast<const ResultOf<T>*>(answer.result.get());
  return result == nullptr ? nullptr : &result->value();
}

// Shortens an error that quotes what a client sent, because errors are kept.
inline absl::Status Clipped(const absl::Status& error) {
  constexpr size_t kMostBytes = 4096;
  if (error.message().size() <= kMostBytes) return error;
  const std::string clipped = Clip(ToStd(error.message()), kMostBytes);
  return IsDeviceLost(error) ? DeviceLostError(clipped) : absl::Status(error.code(), clipped);
}

class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  // In the order of the operations. Called under the session's lock: must not call back.
  virtual void OnAnswer(Answer answer) = 0;
  // The state of the session has changed: see Congested and Idle. Called from any thread, without
  // locks.
  virtual void OnProgress() = 0;
  // The session will not use this sink again: another has replaced it, or the session has ended.
  // Called without locks; not called for a sink that its owner has detached.
  virtual void OnDetached(const absl::Status& why) = 0;
};

}  // namespace telegrad
