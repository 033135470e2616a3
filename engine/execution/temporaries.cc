#include "engine/execution/temporaries.h"

#include <utility>

#include "engine/base/status.h"
#include "engine/execution/charged_memory.h"

namespace telegrad {

void AllTemporaries::Add(std::weak_ptr<Temporaries> temporaries) {
  const MutexLock lock(mutex_);
  std::erase_if(all_, [](const auto& weak) { return weak.expired(); });
  all_.push_back(std::move(temporaries));
}

// Skips tenants that are allocating: two that release each other's memory would wait for each
// other.
void AllTemporaries::Release(const Device& device) {
  std::vector<std::shared_ptr<Temporaries>> live;
  {
    const MutexLock lock(mutex_);
    for (const auto& weak : all_) {
      if (auto temporaries = weak.lock()) live.push_back(std::move(temporaries));
    }
  }
  for (const auto& temporaries : live) {
    if (&temporaries->device_ != &device) continue;
    temporaries->copies_.TryRelease();
    if (!temporaries->mutex_.try_lock()) continue;
    const MutexLock lock(temporaries->mutex_, std::adopt_lock);
    temporaries->memory_ = {};
  }
}

bool Temporaries::HasRoom(int64_t bytes) const {
  return bytes <= device_.memory_limit() - device_.memory_used();
}

absl::StatusOr<std::shared_ptr<Memory>> Temporaries::Allocate(int64_t bytes) {
  if (!HasRoom(bytes)) copies_.Release();
  if (!HasRoom(bytes) && all_ != nullptr) all_->Release(device_);
  if (HasRoom(bytes)) {
    auto memory = AllocCharged(device_, bytes, account_);
    if (absl::IsResourceExhausted(memory.status()) && copies_.bytes() > 0) {
      copies_.Release();
      memory = AllocCharged(device_, bytes, account_);
    }
    if (!absl::IsResourceExhausted(memory.status())) return memory;
    return ResourceExhausted("temporaries of the run: ", ToStd(memory.status().message()));
  }
  return ResourceExhausted("the run needs ", bytes, " bytes for temporaries; ",
                           ToStd(NoRoom(device_, bytes).message()));
}

absl::StatusOr<BufferView> Temporaries::Shared(int64_t bytes, int run_class) {
  const MutexLock lock(mutex_);
  std::shared_ptr<Memory>& memory = memory_[static_cast<size_t>(run_class)];
  // A device that was lost has nothing of it any more.
  if (memory != nullptr && !memory->Health().ok()) memory_ = {};
  if (memory == nullptr || memory->size() < bytes) {
    memory.reset();
    TG_ASSIGN_OR_RETURN(memory, Allocate(bytes));
  }
  return BufferView{memory, 0, bytes};
}

absl::StatusOr<BufferView> Temporaries::Zeroed(int64_t bytes) {
  TG_ASSIGN_OR_RETURN(std::shared_ptr<Memory> memory, Allocate(bytes));
  return BufferView{std::move(memory), 0, bytes};
}

void Temporaries::Release() {
  copies_.Release();
  const MutexLock lock(mutex_);
  memory_ = {};
}

}  // namespace telegrad
