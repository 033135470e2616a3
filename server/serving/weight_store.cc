// Memory by digest, with weak references: a weight that still exists is used again, another one
// is allocated and copied.
#include "server/serving/weight_store.h"

#include <cstring>
#include <set>

#include "engine/base/status.h"
#include "server/data/staging.h"

namespace telegrad {

BufferView WeightStore::Find(const Digest& digest, int64_t bytes) {
  const MutexLock lock(mutex_);
  const auto it = kept_.find(digest);
  if (it == kept_.end()) return {};
  auto memory = it->second.memory.lock();
  if (memory == nullptr || memory->size() < bytes) return {};
  return {std::move(memory), 0, bytes, it->second.content};
}

WeightStore::Plan WeightStore::MakePlan(std::vector<std::string_view> contents) {
  Plan plan{.contents = std::move(contents), .digests = {}};
  for (const std::string_view content : plan.contents) plan.digests.push_back(Sha256(content));
  plan.new_bytes = NewBytes(plan);
  return plan;
}

int64_t WeightStore::NewBytes(const Plan& plan) {
  std::set<Digest> seen;
  int64_t out = 0;
  for (size_t i = 0; i < plan.contents.size(); ++i) {
    const auto bytes = static_cast<int64_t>(plan.contents[i].size());
    const bool first = seen.insert(plan.digests[i]).second;
    if (first && Find(plan.digests[i], bytes).memory == nullptr) out += bytes;
  }
  return out;
}

absl::StatusOr<std::shared_ptr<Memory>> WeightStore::Put(std::string_view content) {
  const auto bytes = static_cast<int64_t>(content.size());
  TG_ASSIGN_OR_RETURN(std::shared_ptr<Memory> memory, owner_.Alloc(device_, bytes));
  if (memory->host() != nullptr) {
    std::memcpy(memory->host(), content.data(), content.size());
    return memory;
  }
  auto staged = device_.LendPinned(bytes);
  if (staged == nullptr) {
    TG_ASSIGN_OR_RETURN(staged, AllocStaging(pool_, device_, content.size()));
  }
  std::memcpy(staged->host(), content.data(), content.size());
  TG_ASSIGN_OR_RETURN(const TimelinePoint copied,
                      EnqueueCopy(queues_, device_, Part(memory, 0, content.size()),
                                  Part(staged, 0, content.size()), {}));
  TG_RETURN_IF_ERROR(copied.Wait());
  return memory;
}

absl::StatusOr<std::vector<BufferView>> WeightStore::Place(const Plan& plan, Budget* budget) {
  std::vector<BufferView> out;
  for (size_t i = 0; i < plan.contents.size(); ++i) {
    const auto bytes = static_cast<int64_t>(plan.contents[i].size());
    TG_RETURN_IF_ERROR(budget->CheckTime());
    if (bytes == 0) {
      out.emplace_back();
      continue;
    }
    BufferView weight = Find(plan.digests[i], bytes);
    if (weight.memory == nullptr) {
      TG_ASSIGN_OR_RETURN(auto memory, Put(plan.contents[i]));
      weight = {std::move(memory), 0, bytes, NewContent()};
      const MutexLock lock(mutex_);
      absl::erase_if(kept_, [](const auto& entry) { return entry.second.memory.expired(); });
      // Of two that put it at once, both keep their own, and the later one is found from now on.
      kept_[plan.digests[i]] = {weight.memory, weight.content};
    }
    out.push_back(std::move(weight));
  }
  return out;
}

}  // namespace telegrad
