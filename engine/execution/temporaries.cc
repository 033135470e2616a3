#include "engine/execution/temporaries.h"

#include <utility>

#include "engine/base/status.h"

namespace telegrad {

absl::StatusOr<std::shared_ptr<Memory>> Temporaries::Allocate(int64_t bytes) {
  const int64_t used = device_.memory_used(), limit = device_.memory_limit();
  if (bytes > limit - used) {
    return ResourceExhausted("the run needs ", bytes, " bytes for temporaries; ", device_.name(),
                             " has ", used, " of its limit of ", limit, " bytes in use");
  }
  return device_.Alloc(bytes);
}

absl::StatusOr<BufferView> Temporaries::Shared(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (memory_ == nullptr || memory_->size() < bytes) {
    memory_.reset();
    TG_ASSIGN_OR_RETURN(memory_, Allocate(bytes));
  }
  return BufferView{memory_, 0, bytes};
}

absl::StatusOr<BufferView> Temporaries::Zeroed(int64_t bytes) {
  TG_ASSIGN_OR_RETURN(std::shared_ptr<Memory> memory, Allocate(bytes));
  return BufferView{std::move(memory), 0, bytes};
}

void Temporaries::Release() {
  const std::lock_guard lock(mutex_);
  memory_.reset();
}

}  // namespace telegrad
