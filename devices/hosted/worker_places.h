// How many processes the tenants of a device may have at a time, and what their contexts take of
// its memory. One that is started has a place until it has ended.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
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
    // How long one that is being ended is awaited at most: a little longer than its end takes, see
    // ChildProcess::Options::bury_limit.
    absl::Duration patience = absl::Seconds(3);
  };
  explicit WorkerPlaces(Options options) : options_(std::move(options)) {}

  // Kept for as long as there is the process: until it has ended, its context takes memory.
  class Place {
   public:
    explicit Place(std::shared_ptr<WorkerPlaces> places) : places_(std::move(places)) {}
    ~Place() { places_->Return(is_ending_); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    // The process is being ended, so whoever needs a place waits for this one. By its owner, once.
    void NoteEnding();

   private:
    const std::shared_ptr<WorkerPlaces> places_;
    bool is_ending_ = false;
  };
  // `give_back` has other processes give memory back that they do not use; `end_one` begins to end
  // one that is idle, or returns false where none is. Waits for those that are being ended. Not by
  // a thread of one of them. UNAVAILABLE while all places are taken, or where one that is being
  // ended has not ended in time; RESOURCE_EXHAUSTED while there is no memory for one more; all say
  // what to do.
  absl::StatusOr<std::unique_ptr<Place>> Take(const std::function<void()>& give_back,
                                              const std::function<bool()>& end_one);

  // Counts bytes as used; false, and nothing, where they would exceed the limit. `in_use`: of
  // memory and contexts, before.
  bool Charge(int64_t size, int64_t* in_use);
  int64_t context_bytes() const { return context_bytes_.load(); }  // of all

 private:
  void Return(bool was_ending);
  bool IsEnding() const;
  bool AwaitReturn(std::chrono::steady_clock::time_point until);

  const Options options_;
  std::atomic<int64_t> context_bytes_ = 0;
  Mutex taking_;  // one at a time, before mutex_
  mutable Mutex mutex_;
  ConditionVariable returned_;
  int64_t taken_ TG_GUARDED_BY(mutex_) = 0, ending_ TG_GUARDED_BY(mutex_) = 0;
};

}  // namespace telegrad
