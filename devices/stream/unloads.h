// Modules that wait to be unloaded, and the thread that unloads them. A driver may wait for all
// that runs before it unloads one, and where work holds the last reference to a program, that is
// dropped by the queue's thread, before the work's point is signalled.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "devices/stream/context.h"
#include "engine/base/mutex.h"

namespace telegrad::stream {

// A module that the driver has loaded, with its part of the GPU's memory (Memories::HoldCode).
struct LoadedModule {
  ModuleHandle handle = nullptr;
  std::shared_ptr<const void> code = nullptr;
};

// Of a device. Thread-safe.
class Unloads {
 public:
  // Whether the thread unloads it; else it has ended.
  bool Put(const LoadedModule& module);

 private:
  friend class UnloadThread;

  // Waits for one; no handle once it is closed and none is left.
  LoadedModule Next();
  void Close();

  Mutex mutex_;
  ConditionVariable changed_;
  std::vector<LoadedModule> modules_ TG_GUARDED_BY(mutex_);
  bool closed_ TG_GUARDED_BY(mutex_) = false;
};

class UnloadThread {
 public:
  explicit UnloadThread(std::shared_ptr<Context> context);
  // Unloads what is left. On a GPU that is stuck nobody waits for that.
  ~UnloadThread();
  UnloadThread(const UnloadThread&) = delete;
  UnloadThread& operator=(const UnloadThread&) = delete;

  const std::shared_ptr<Unloads>& unloads() const { return unloads_; }

 private:
  const std::shared_ptr<Context> context_;
  const std::shared_ptr<Unloads> unloads_ = std::make_shared<Unloads>();
  std::thread thread_;
};

// On the calling thread, with no lock held. Its memory counts until it has been unloaded.
void Unload(Context& context, const LoadedModule& module);

}  // namespace telegrad::stream
