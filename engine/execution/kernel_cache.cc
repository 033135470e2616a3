#include "engine/execution/kernel_cache.h"

#include "engine/compile/compiler.h"
#include "engine/execution/clock.h"
#include "engine/ir/content_hash.h"
#include "engine/render/llvm.h"

namespace telegrad {

absl::StatusOr<std::shared_ptr<const Kernel>> KernelCache::Make(const FrozenGraph& kernel,
                                                                const std::string& name,
                                                                Device& device, Budget* budget) {
  const Stopwatch lowering;
  BoundsStats bounds;
  TG_ASSIGN_OR_RETURN(const Program program, Lower(kernel, device.target(), name, budget, &bounds));
  TG_ASSIGN_OR_RETURN(const std::string source, RenderLlvm(program, device.target()));
  TG_RETURN_IF_ERROR(budget->SpendCode(static_cast<int64_t>(source.size())));
  const uint64_t lower_ns = lowering.ns();
  const Stopwatch compiling;
  TG_ASSIGN_OR_RETURN(const ProgramImage image, Compile(source, name, device.target()));
  auto out = std::make_shared<Kernel>();
  out->name = name;
  TG_ASSIGN_OR_RETURN(out->program, device.Load(image));
  out->arguments = program.arguments;
  out->iterations = program.iterations;
  out->flops = program.flops;
  out->bytes = program.bytes;

  const std::lock_guard lock(mutex_);
  ++stats_.compiled;
  stats_.lower_ns += lower_ns;
  stats_.compile_ns += compiling.ns();
  stats_.bounds += bounds;
  return out;
}

absl::StatusOr<std::shared_ptr<const Kernel>> KernelCache::Get(const FrozenGraph& kernel,
                                                               Device& device, Budget* budget) {
  const std::string hash = ContentHash(kernel.root()).Hex();
  const std::string key = hash + "|" + device.name() + "|" + device.target().Key();
  {
    std::unique_lock lock(mutex_);
    while (true) {
      const auto it = entries_.find(key);
      if (it == entries_.end()) break;
      if (it->second.kernel != nullptr) {
        ++stats_.hits;
        by_age_.splice(by_age_.end(), by_age_, it->second.age);
        return it->second.kernel;
      }
      made_.wait(lock);
    }
    by_age_.push_back(key);
    entries_.emplace(key, Entry{nullptr, std::prev(by_age_.end())});
  }
  auto made = Make(kernel, "k_" + hash.substr(0, 16), device, budget);
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(key);
  if (made.ok()) {
    it->second.kernel = *made;
    Evict();
  } else {
    by_age_.erase(it->second.age);
    entries_.erase(it);
  }
  made_.notify_all();
  return made;
}

void KernelCache::Evict() {
  auto oldest = by_age_.begin();
  while (static_cast<int64_t>(entries_.size()) > capacity_ && oldest != by_age_.end()) {
    const auto it = entries_.find(*oldest);
    if (it->second.kernel == nullptr) {  // being compiled
      ++oldest;
      continue;
    }
    entries_.erase(it);
    oldest = by_age_.erase(oldest);
  }
}

KernelStats KernelCache::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace telegrad
