#include "devices/stream/unloads.h"

#include <utility>

namespace telegrad::stream {

bool Unloads::Put(ModuleHandle module) {
  const MutexLock lock(mutex_);
  if (closed_) return false;
  modules_.push_back(module);
  changed_.notify_all();
  return true;
}

ModuleHandle Unloads::Next() {
  ReleasableLock lock(mutex_);
  while (modules_.empty() && !closed_) changed_.wait(lock);
  if (modules_.empty()) return nullptr;
  const ModuleHandle module = modules_.back();
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
    while (const ModuleHandle module = unloads->Next()) Unload(*context, module);
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

void Unload(Context& context, ModuleHandle module) {
  context.ReleaseUnlocked([&] { context.calls().module_unload(module); });
}

}  // namespace telegrad::stream
