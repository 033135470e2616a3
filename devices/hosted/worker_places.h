// How many processes the tenants of a device may have at a time, and what their contexts take of
// its memory. One that is started has a place until it has ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"

namespace telegrad {

// Thread-safe.
class WorkerPlaces : public std::enable_shared_from_this<WorkerPlaces> {
 public:
  struct Options {
    std::string device;         // "CUDA:0", for messages
    int64_t most = INT64_MAX;   // places
    int64_t memory_limit = 0;   // bytes of the device
    int64_t context_bytes = 0;  // of it that each process takes beside the first
    // Bytes that are in use. What is added for contexts here is taken away with their places.
    std::shared_ptr<std::atomic<int64_t>> used;
  };
  explicit WorkerPlaces(Options options) : options_(std::move(options)) {}

  // Kept for as long as there is the process.
  class Place {
   public:
    explicit Place(std::shared_ptr<WorkerPlaces> places) : places_(std::move(places)) {}
    ~Place() { places_->Return(); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

   private:
    const std::shared_ptr<WorkerPlaces> places_;
  };
  // `give_back` has other processes give memory back that they do not use; `end_one` ends one that
  // is idle, or returns false where none is. UNAVAILABLE while all places are taken,
  // RESOURCE_EXHAUSTED while there is no memory for one more; both say what to do.
  absl::StatusOr<std::unique_ptr<Place>> Take(const std::function<void()>& give_back,
                                              const std::function<bool()>& end_one);

  // Counts bytes as used; false, and nothing, where they would exceed the limit. `in_use`: of
  // memory and contexts, before.
  bool Charge(int64_t size, int64_t* in_use);
  int64_t context_bytes() const { return context_bytes_.load(); }  // of all

 private:
  void Return();

  const Options options_;
  std::atomic<int64_t> context_bytes_ = 0;
  Mutex taking_;  // one at a time, before mutex_
  Mutex mutex_;
  int64_t taken_ TG_GUARDED_BY(mutex_) = 0;
};

}  // namespace telegrad
