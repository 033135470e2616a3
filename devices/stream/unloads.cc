#include "devices/stream/unloads.h"

#include <utility>

namespace telegrad::stream {

bool Unloads::Put(const LoadedModule& module) {
  const MutexLock lock(mutex_);
  if (closed_) return false;
  modules_.push_back(module);
  changed_.notify_all();
  return true;
}

LoadedModule Unloads::Next() {
  ReleasableLock lock(mutex_);
  while (modules_.empty() && !closed_) changed_.wait(lock);
  if (modules_.empty()) return {};
  LoadedModule module = std::move(modules_.back());
  modules_.pop_back();
  return module;
}

void Unloads::Close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

UnloadThread::UnloadThread(std::shared_ptr<Context> context) : context_(std::move(context)) {
  thread_ = std::thread([context = context_, unloads = unloads_] {
    while (true) {
      const LoadedModule module = unloads->Next();
      if (module.handle == nullptr) return;
      Unload(*context, module);
    }
  });
}

UnloadThread::~UnloadThread() {
  unloads_->Close();
  if (context_->stuck()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Unload(Context& context, const LoadedModule& module) {
  context.ReleaseUnlocked([&] { context.calls().module_unload(module.handle); });
}

}  // namespace telegrad::stream
