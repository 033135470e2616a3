#include "engine/execution/kernel_heat.h"

#include <algorithm>
#include <utility>

namespace telegrad {
namespace {

constexpr size_t kMaxTenants = 16;     // of a kernel that are told apart
constexpr uint32_t kMostNodes = 4096;  // of a kernel

}  // namespace

void KernelHeat::DropOneLocked(const Share* comer) {
  std::map<const Share*, int64_t> held;
  for (const auto& [number, known] : kernels_) ++held[known.holder.get()];
  // With what comes: who has a full share makes room for what is its own.
  if (const auto own = held.find(comer); own != held.end()) ++own->second;
  const auto most = std::ranges::max_element(held, {}, [&](const auto& entry) {
    const int64_t weight = entry.first == nullptr ? 1 : entry.first->weight();
    return std::pair(static_cast<double>(entry.second) / static_cast<double>(weight),
                     entry.first == comer);
  });
  const auto heat = [](const Known& known) {
    return known.taken ? -1 : known.wanted_by != nullptr ? INT64_MAX : known.kernel.ns;
  };
  auto coldest = kernels_.end();
  for (auto it = kernels_.begin(); it != kernels_.end(); ++it) {
    if (it->second.holder.get() != most->first) continue;
    if (coldest == kernels_.end() || heat(it->second) < heat(coldest->second)) coldest = it;
  }
  numbers_.erase(coldest->second.kernel.key);
  kernels_.erase(coldest);
}

uint64_t KernelHeat::Know(HotKernel kernel, std::shared_ptr<const Share> share) {
  if (kernel.graph.graph->size() > kMostNodes) return 0;
  const MutexLock lock(mutex_);
  if (const auto it = numbers_.find(kernel.key); it != numbers_.end()) return it->second;
  if (kernels_.size() >= most_ && !kernels_.empty()) DropOneLocked(share.get());
  const uint64_t number = next_++;
  numbers_[kernel.key] = number;
  kernels_.emplace(number, Known{std::move(kernel), std::move(share)});
  return number;
}

void KernelHeat::Spent(std::span<const KernelInfo> kernels, int64_t ns,
                       const std::shared_ptr<const Share>& share) {
  double predicted = 0;
  for (const KernelInfo& k : kernels) predicted += k.seconds;
  if (predicted <= 0 || ns <= 0) return;
  const MutexLock lock(mutex_);
  for (const KernelInfo& k : kernels) {
    const auto it = kernels_.find(k.heat);
    if (it == kernels_.end()) continue;
    const auto part = static_cast<int64_t>(static_cast<double>(ns) * k.seconds / predicted);
    it->second.kernel.ns += part;
    auto& by_share = it->second.by_share;
    if (by_share.size() < kMaxTenants || by_share.contains(share)) by_share[share] += part;
  }
}

void KernelHeat::Want(std::span<const KernelInfo> kernels,
                      const std::shared_ptr<const Share>& share) {
  const MutexLock lock(mutex_);
  for (const KernelInfo& k : kernels) {
    const auto it = kernels_.find(k.heat);
    if (it == kernels_.end() || it->second.taken || it->second.wanted_by != nullptr) continue;
    it->second.wanted_by = share;
  }
}

std::optional<HotKernel> KernelHeat::TakeHottest(int64_t least_ns) {
  const MutexLock lock(mutex_);
  Known* hottest = nullptr;
  for (auto& [number, known] : kernels_) {
    if (known.wanted_by != nullptr) {
      hottest = &known;
      break;
    }
    if (known.taken || known.kernel.ns < std::max<int64_t>(least_ns, 1)) continue;
    if (hottest == nullptr || known.kernel.ns > hottest->kernel.ns) hottest = &known;
  }
  if (hottest == nullptr) return std::nullopt;
  HotKernel out = hottest->kernel;
  hottest->taken = true;
  hottest->kernel.ns = 0;
  const auto payer = std::ranges::max_element(hottest->by_share, {},
                                              [](const auto& entry) { return entry.second; });
  if (payer != hottest->by_share.end()) out.share = payer->first;
  if (hottest->wanted_by != nullptr) out.share = std::exchange(hottest->wanted_by, nullptr);
  hottest->by_share.clear();
  return out;
}

void KernelHeat::PutBack(const std::string& key) {
  const MutexLock lock(mutex_);
  const auto it = numbers_.find(key);
  if (it != numbers_.end()) kernels_.at(it->second).taken = false;
}

}  // namespace telegrad
