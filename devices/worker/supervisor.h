// Starts the workers of a device when they are needed, and replaces those that have ended. It is
// one thread that lives as long as the workers may, because workers end with the thread that
// started them.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "devices/worker/worker_slot.h"
#include "engine/base/mutex.h"
#include "engine/base/unique_fd.h"

namespace telegrad {

// Thread-safe.
class Supervisor {
 public:
  static absl::StatusOr<std::unique_ptr<Supervisor>> Start(
      std::function<void(const WorkerEvent&)> on_event);
  ~Supervisor();

  // Looks after it for as long as it is there.
  void Add(const std::shared_ptr<WorkerSlot>& slot);
  void Wake();

 private:
  Supervisor(UniqueFd bell, std::function<void(const WorkerEvent&)> on_event);
  void Serve();
  // Of all slots; also those that may still be wanted.
  std::vector<std::shared_ptr<WorkerSlot>> Slots();

  const UniqueFd bell_;
  const std::function<void(const WorkerEvent&)> on_event_;
  Mutex mutex_;
  bool stop_ TG_GUARDED_BY(mutex_) = false;
  std::vector<std::weak_ptr<WorkerSlot>> slots_ TG_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace telegrad
