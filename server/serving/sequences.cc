// Sequences by id, of which a bounded number can be active. Those that are idle for too long
// expire.
#include "server/serving/sequences.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {

void SetSequenceNumber(uint64_t number, SequenceMark* out) {
  out->number = number;
  out->id = number == 0 ? "" : StrCat(number);
}

absl::Status SetSequenceText(std::string_view text, SequenceMark* out) {
  out->number = 0;
  out->id = text.empty() ? "" : StrCat("'", text, "'");
  if (text.size() <= SequenceTable::kMostIdBytes) return absl::OkStatus();
  return InvalidArgument("a sequence_id of ", text.size(), " bytes; ", SequenceTable::kMostIdBytes,
                         " are allowed");
}

absl::StatusOr<std::shared_ptr<Sequence>> SequenceTable::Take(const SequenceMark& mark,
                                                              std::string_view model, int64_t now) {
  const auto it = live_.find(mark.id);
  if (!mark.start) {
    if (it == live_.end()) {
      return InvalidArgument("model '", model, "': sequence ", Clip(mark.id, 64),
                             " is not under way: its first request must have sequence_start, and "
                             "it ends with sequence_end, after max_sequence_idle_microseconds, "
                             "with a request that fails, or when the model is loaded anew");
    }
    const std::shared_ptr<Sequence> known = it->second;
    ++known->waiting;
    if (mark.end) live_.erase(it);  // what comes later under this id has to start
    return known;
  }
  if (it == live_.end() && live_.size() >= kMostSequences) {
    return absl::UnavailableError(StrCat("model '", model, "': ", live_.size(),
                                         " sequences of this tenant are under way, which is the "
                                         "limit; end some"));
  }
  auto fresh = std::make_shared<Sequence>();
  fresh->id = mark.id;
  fresh->number = mark.number;
  fresh->used_ns = now;
  fresh->waiting = 1;
  if (it != live_.end()) {
    // Requests that are in the queue still have the sequence that they came to.
    const std::shared_ptr<Sequence> old = it->second;
    if (old->waiting == 0 && !old->running) Deactivate(*old);
    live_.erase(it);
  }
  if (!mark.end) live_[mark.id] = fresh;
  return fresh;
}

bool SequenceTable::Activate(Sequence& sequence) {
  if (!sequence.active && active_ >= candidates_) return false;
  if (!std::exchange(sequence.active, true)) ++active_;
  return true;
}

void SequenceTable::Deactivate(Sequence& sequence) {
  if (std::exchange(sequence.active, false)) --active_;
}

void SequenceTable::Done(const std::shared_ptr<Sequence>& sequence, bool ends, int64_t now) {
  sequence->running = false;
  sequence->used_ns = now;
  if (ends) Deactivate(*sequence);
  // One that was started anew meanwhile is nobody's once its last request is done.
  const auto it = live_.find(sequence->id);
  const bool live = it != live_.end() && it->second == sequence;
  if (!live && sequence->waiting == 0) Deactivate(*sequence);
}

void MarkLost(Sequence& sequence, const absl::Status& why) {
  if (!sequence.lost.ok()) return;
  sequence.lost =
      absl::Status(absl::StatusCode::kAborted,
                   StrCat("sequence ", Clip(sequence.id, 64),
                          " has ended because a request of it failed: ", ToStd(why.message())));
}

void SequenceTable::Lose(const std::shared_ptr<Sequence>& sequence, const absl::Status& why) {
  MarkLost(*sequence, why);
  Deactivate(*sequence);
  const auto it = live_.find(sequence->id);
  if (it != live_.end() && it->second == sequence) live_.erase(it);
}

int64_t SequenceTable::Expire(int64_t now, std::vector<std::shared_ptr<Sequence>>* gone) {
  constexpr int64_t kNsInUs = 1000;
  int64_t next = INT64_MAX;
  for (auto it = live_.begin(); it != live_.end();) {
    Sequence& sequence = *it->second;
    const int64_t due = sequence.used_ns + config_->idle_us * kNsInUs;
    const bool idle = !sequence.running && sequence.waiting == 0;
    if (idle && due <= now) {
      Deactivate(sequence);
      gone->push_back(std::move(it->second));
      it = live_.erase(it);
      continue;
    }
    if (idle) next = std::min(next, due);
    ++it;
  }
  return next;
}

}  // namespace telegrad
