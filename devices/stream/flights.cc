// A queue of flights, oldest first, under a lock that is held while another stream is made to
// wait for an event of one, so that the event is not reused meanwhile.
#include "devices/stream/flights.h"

#include <utility>

#include "engine/base/status.h"

namespace telegrad::stream {

void Flights::Add(Flight flight) {
  std::vector<std::shared_ptr<Bell>> bells;
  {
    const MutexLock lock(mutex_);
    added_ = flight.value;
    flights_.push_back(std::move(flight));
    const auto end = bells_.upper_bound(added_);
    for (auto at = bells_.begin(); at != end; ++at) bells.push_back(std::move(at->second));
    bells_.erase(bells_.begin(), end);
  }
  for (const auto& bell : bells) bell->Ring();
}

void Flights::RingAtFlight(uint64_t value, std::shared_ptr<Bell> bell) {
  {
    const MutexLock lock(mutex_);
    if (added_ < value) {
      bells_.emplace(value, std::move(bell));
      return;
    }
  }
  bell->Ring();
}

Flight* Flights::First() {
  const MutexLock lock(mutex_);
  return flights_.empty() ? nullptr : &flights_.front();
}

void Flights::Drop() {
  Flight last;  // goes without the lock
  const MutexLock lock(mutex_);
  last = std::move(flights_.front());
  flights_.pop_front();
}

const Flight* Flights::Find(uint64_t value) const {
  if (flights_.empty() || value < flights_.front().value) return nullptr;
  const uint64_t index = value - flights_.front().value;
  return index < flights_.size() ? &flights_[index] : nullptr;
}

Flights::Stand Flights::StandOf(const Flight* flight, absl::Status* failure) const {
  if (flight == nullptr) return Stand::kUnknown;
  *failure = flight->status;
  if (!flight->status.ok()) return Stand::kFailed;
  return flight->depends.empty() ? Stand::kInFlight : Stand::kDependent;
}

Flights::Stand Flights::Look(uint64_t value, absl::Status* failure) const {
  const MutexLock lock(mutex_);
  return StandOf(Find(value), failure);
}

// Under the lock, so that the event is not used for something else meanwhile.
Flights::Stand Flights::Await(uint64_t value, const Calls& calls, StreamHandle stream,
                              Result* result, absl::Status* failure) const {
  const MutexLock lock(mutex_);
  const Flight* const flight = Find(value);
  const Stand stand = StandOf(flight, failure);
  const bool is_on_stream = stand == Stand::kInFlight || stand == Stand::kDependent;
  if (is_on_stream && flight->done.event != nullptr) {
    *result = calls.stream_wait_event(stream, flight->done.event, 0);
  }
  return stand;
}

}  // namespace telegrad::stream
