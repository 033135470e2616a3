// A read that is being sent from device memory. While this object exists, its buffer is not
// written.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "devices/api/device.h"
#include "engine/base/mutex.h"

namespace telegrad {

class HeldRead {
 public:
  explicit HeldRead(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}
  ~HeldRead();
  const std::shared_ptr<Memory>& memory() const { return memory_; }

  // Sets the callback of its destruction, when it has let go of the memory, in place of an earlier
  // one: only the session that owns the buffer waits for it, and only with its newest callback. The
  // session calls this while it holds a reference. The callback must not block and must not do work
  // of the transport on the destroying thread.
  void OnReleased(std::function<void()> callback);

 private:
  std::shared_ptr<Memory> memory_;
  Mutex mutex_;
  std::function<void()> released_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
