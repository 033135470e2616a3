// Sequences: requests with one id, which a model with a state answers one after another. What is
// kept between them is theirs alone and lies on the device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "server/serving/infer.h"
#include "server/serving/model_config.h"

namespace telegrad {

// A number is another id than the text that is written like it. 0 and "" are none.
void SetSequenceNumber(uint64_t number, SequenceMark* out);
absl::Status SetSequenceText(std::string_view text, SequenceMark* out);

struct Sequence {
  std::string id;
  uint64_t number = 0;  // what the model is told of it
  // By the configuration's states, once the first request has run.
  std::vector<std::shared_ptr<Memory>> states;
  std::optional<size_t> place = {};  // the model's instance where they are
  bool active = false;               // one of those that may run
  bool running = false;              // one of its requests is
  int64_t waiting = 0;               // requests in the queue
  int64_t used_ns = 0;
  absl::Status lost;  // why it ended before its time
};

// Its state is not what its caller believes any more; the first reason stays.
void MarkLost(Sequence& sequence, const absl::Status& why);

// The sequences of one tenant for one version of a model. Not thread-safe.
class SequenceTable {
 public:
  static constexpr size_t kMostSequences = 1024;  // that live at a time
  static constexpr size_t kMostIdBytes = 128;

  SequenceTable(const SequenceBatching* config, size_t candidates)
      : config_(config), candidates_(candidates) {}

  // The sequence that a request belongs to, which waits from now on. INVALID_ARGUMENT where it has
  // not been started, UNAVAILABLE where there are too many. One that is started again begins anew.
  absl::StatusOr<std::shared_ptr<Sequence>> Take(const SequenceMark& mark, std::string_view model,
                                                 int64_t now);
  // Whether a request of it may run now: at most so many sequences take turns.
  bool Activate(Sequence& sequence);
  // A request of it has run or been dropped; `ends`: the last one.
  void Done(const std::shared_ptr<Sequence>& sequence, bool ends, int64_t now);
  // MarkLost, and it is not under way any more.
  void Lose(const std::shared_ptr<Sequence>& sequence, const absl::Status& why);
  // Ends those to which nothing has come for too long; when the next one will be due, INT64_MAX
  // where none will. What is let go is added to `gone`, to be destroyed without a lock.
  int64_t Expire(int64_t now, std::vector<std::shared_ptr<Sequence>>* gone);
  size_t size() const { return live_.size(); }

 private:
  void Deactivate(Sequence& sequence);

  const SequenceBatching* const config_;
  const size_t candidates_;
  std::map<std::string, std::shared_ptr<Sequence>, std::less<>> live_;
  size_t active_ = 0;
};

}  // namespace telegrad
