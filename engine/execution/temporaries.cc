// Memory is allocated and freed without the lock: a device may wait for what its threads do, which
// may run what follows the end of a run, and that may ask for temporaries here.
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

void AllTemporaries::Release(const Device& device) {
  std::vector<std::shared_ptr<Temporaries>> live;
  {
    const MutexLock lock(mutex_);
    for (const auto& weak : all_) {
      if (auto temporaries = weak.lock()) live.push_back(std::move(temporaries));
    }
  }
  for (const auto& temporaries : live) {
    if (temporaries->device_name_ == device.name()) temporaries->Release();
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

// A device that was lost has nothing of its memory any more. What is too small goes before there
// is more. Of two threads that allocate, each has its own, and the larger is kept.
absl::StatusOr<BufferView> Temporaries::Shared(int64_t bytes, int run_class) {
  const auto index = static_cast<size_t>(run_class);
  {
    Memories dropped;
    const MutexLock lock(mutex_);
    std::shared_ptr<Memory>& memory = memory_[index];
    if (memory != nullptr && !memory->Health().ok()) {
      dropped.swap(memory_);
    } else if (memory != nullptr && memory->size() >= bytes) {
      return BufferView{memory, 0, bytes};
    } else {
      dropped[index].swap(memory);
    }
  }
  TG_ASSIGN_OR_RETURN(std::shared_ptr<Memory> made, Allocate(bytes));
  std::shared_ptr<Memory> before;
  const MutexLock lock(mutex_);
  std::shared_ptr<Memory>& memory = memory_[index];
  if (memory == nullptr || memory->size() < bytes) before = std::exchange(memory, made);
  return BufferView{std::move(made), 0, bytes};
}

absl::StatusOr<BufferView> Temporaries::Zeroed(int64_t bytes) {
  TG_ASSIGN_OR_RETURN(std::shared_ptr<Memory> memory, Allocate(bytes));
  return BufferView{std::move(memory), 0, bytes};
}

void Temporaries::Release() {
  copies_.Release();
  Memories dropped;
  const MutexLock lock(mutex_);
  dropped.swap(memory_);
}

}  // namespace telegrad
