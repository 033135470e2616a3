// The thread polls the sockets of all workers and a descriptor that wakes it; a socket that is
// closed means that its worker has ended.
#include "devices/worker/supervisor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "devices/api/trace.h"
#include "engine/base/status.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<Supervisor>> Supervisor::Start(
    std::function<void(const WorkerEvent&)> on_event) {
  UniqueFd bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell.valid()) return ResourceExhausted("no eventfd: ", std::strerror(errno));
  return std::unique_ptr<Supervisor>(new Supervisor(std::move(bell), std::move(on_event)));
}

Supervisor::Supervisor(UniqueFd bell, std::function<void(const WorkerEvent&)> on_event)
    : bell_(std::move(bell)), on_event_(std::move(on_event)) {
  thread_ = std::thread([this] { Serve(); });
}

Supervisor::~Supervisor() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  Wake();
  thread_.join();
}

void Supervisor::Add(const std::shared_ptr<WorkerSlot>& slot) {
  const MutexLock lock(mutex_);
  std::erase_if(slots_, [](const auto& known) { return known.expired(); });
  slots_.push_back(slot);
}

void Supervisor::Wake() {
  const uint64_t one = 1;
  (void)!write(bell_.get(), &one, sizeof(one));
}

std::vector<std::shared_ptr<WorkerSlot>> Supervisor::Slots() {
  std::vector<std::shared_ptr<WorkerSlot>> out;
  const MutexLock lock(mutex_);
  for (const auto& known : slots_) {
    if (auto slot = known.lock()) out.push_back(std::move(slot));
  }
  return out;
}

// A worker that has ended has closed its socket.
void Supervisor::Serve() {
  while (true) {
    std::vector<pollfd> watched{{bell_.get(), POLLIN, 0}};
    int64_t next = INT64_MAX;
    for (const auto& slot : Slots()) {
      slot->Look(on_event_);
      next = std::min(next, slot->next_look_ns());
      if (const int socket = slot->socket(); socket >= 0) watched.push_back({socket, 0, 0});
    }
    {
      const MutexLock lock(mutex_);
      if (stop_) return;
    }
    int timeout = -1;
    if (next != INT64_MAX) {
      timeout = static_cast<int>(std::clamp<int64_t>((next - SteadyNs()) / 1'000'000 + 1, 1, 1000));
    }
    if (poll(watched.data(), watched.size(), timeout) < 0) continue;
    uint64_t rung;
    (void)!read(bell_.get(), &rung, sizeof(rung));
  }
}

}  // namespace telegrad
