// Stand-ins for the transport of a session: bytes and graphs that come in, and the receiver of
// answers.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/ir/content_hash.h"
#include "server/operations/operations.h"
#include "server/session/session.h"

namespace telegrad {

class StringPayload final : public Payload {
 public:
  explicit StringPayload(std::string bytes) : bytes_(std::move(bytes)) {}
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  void CopyTo(void* to) const override { std::memcpy(to, bytes_.data(), bytes_.size()); }

 private:
  std::string bytes_;
};

// Collects answers; a test waits for the one with an id.
class Sink final : public AnswerSink {
 public:
  void OnAnswer(Answer answer) override {
    std::lock_guard lock(mutex_);
    order_.push_back(answer.id);
    answers_[answer.id] = std::move(answer);
    changed_.notify_all();
  }
  void OnProgress() override {
    {
      std::lock_guard lock(mutex_);
      changed_.notify_all();
    }
    if (on_progress) on_progress();
  }
  void OnDetached(const absl::Status& why) override {
    std::lock_guard lock(mutex_);
    detached_ = why;
    changed_.notify_all();
  }
  // Why it was detached, if it was.
  std::optional<absl::Status> detached() {
    std::lock_guard lock(mutex_);
    return detached_;
  }
  Answer Take(uint64_t id) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answers_.contains(id); });
    Answer answer = std::move(answers_[id]);
    return answer;
  }
  // Of an operation that may have no answer because it succeeded: once a later one has been
  // answered.
  Answer TakeIfThere(uint64_t id) {
    std::lock_guard lock(mutex_);
    return std::move(answers_[id]);
  }
  template <typename Condition>
  void Await(Condition condition) {
    std::unique_lock lock(mutex_);
    while (!condition()) changed_.wait_for(lock, std::chrono::milliseconds(1));
  }
  std::vector<uint64_t> order() {
    std::lock_guard lock(mutex_);
    return order_;
  }
  std::function<void()> on_progress;  // set while nothing is under way

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> order_;
  std::map<uint64_t, Answer> answers_;
  std::optional<absl::Status> detached_;
};

// The result of that kind, which the answer has.
template <typename T>
const T& As(const Answer& answer) {
  const T* const result = ResultAs<T>(answer);
  if (result == nullptr) std::abort();
  return *result;
}

// A graph as if it had been decoded and verified.
inline PutOp PutOf(const FrozenGraph& graph, bool compile) {
  return {[graph](Budget*) -> absl::StatusOr<VerifiedGraph> {
            return VerifiedGraph{graph, ContentHash(graph.root())};
          },
          100, compile};
}

}  // namespace telegrad
