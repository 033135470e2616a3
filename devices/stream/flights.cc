// A queue of flights, oldest first, under a lock that is held while another stream is made to
// wait for an event of one, so that the event is not reused meanwhile.
#include "devices/stream/flights.h"

#include <utility>

#include "engine/base/status.h"

namespace telegrad::stream {

void Flights::Add(Flight flight) {
  const MutexLock lock(mutex_);
  flights_.push_back(std::move(flight));
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

Flights::Stand Flights::Look(uint64_t value, absl::Status* failure) const {
  const MutexLock lock(mutex_);
  const Flight* flight = Find(value);
  if (flight == nullptr) return Stand::kUnknown;
  *failure = flight->status;
  return flight->status.ok() ? Stand::kInFlight : Stand::kFailed;
}

// Under the lock, so that the event is not used for something else meanwhile.
absl::StatusOr<Flights::Stand> Flights::Await(uint64_t value, Context& context, StreamHandle stream,
                                              absl::Status* failure) const {
  const MutexLock lock(mutex_);
  const Flight* flight = Find(value);
  if (flight == nullptr) return Stand::kUnknown;
  *failure = flight->status;
  if (!flight->status.ok()) return Stand::kFailed;
  if (flight->done.event != nullptr) {
    TG_RETURN_IF_ERROR(TG_STREAM(context, stream_wait_event, stream, flight->done.event, 0));
  }
  return Stand::kInFlight;
}

}  // namespace telegrad::stream
