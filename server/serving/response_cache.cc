// An ordered list of results for each tenant; the oldest of whoever has the most are removed until
// there is room.
#include "server/serving/response_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/base/strings.h"

namespace telegrad {
namespace {

constexpr int64_t kEntryBytes = 1024;  // of an entry beside its tensors

}  // namespace

std::shared_ptr<const InferResult> ResponseCache::Find(const Digest& key) {
  const MutexLock lock(mutex_);
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return nullptr;
  const auto& [share, entry] = it->second;
  Entries& entries = share->second.entries;
  entries.splice(entries.begin(), entries, entry);
  return entry->result;
}

void ResponseCache::Put(const std::string& tenant, const Digest& key, const InferResult& result) {
  int64_t bytes = kEntryBytes;
  for (const InferOutput& output : result.outputs) bytes += output.bytes;
  if (bytes > most_bytes_ / 4) return;
  auto copy = std::make_shared<InferResult>(result);
  for (InferOutput& output : copy->outputs) {
    // Not the model's buffers, which the next run takes.
    const auto content = std::make_shared<const std::string>(static_cast<const char*>(output.data),
                                                             static_cast<size_t>(output.bytes));
    output.data = content->data();
    output.owner = content;
  }
  Entries dropped;  // without the lock
  const MutexLock lock(mutex_);
  if (by_key_.contains(key)) return;
  const auto share = shares_.try_emplace(tenant).first;
  Entries& entries = share->second.entries;
  entries.push_front({key, std::move(copy), bytes});
  by_key_[key] = {share, entries.begin()};
  share->second.bytes += bytes;
  bytes_ += bytes;
  while (bytes_ > most_bytes_) DropOneLocked(&dropped);
}

void ResponseCache::DropOneLocked(Entries* dropped) {
  const auto most =
      std::ranges::max_element(shares_, {}, [](const auto& share) { return share.second.bytes; });
  Entries& entries = most->second.entries;
  const auto last = std::prev(entries.end());
  bytes_ -= last->bytes;
  most->second.bytes -= last->bytes;
  by_key_.erase(last->key);
  dropped->splice(dropped->begin(), entries, last);
  if (entries.empty()) shares_.erase(most);
}

int64_t ResponseCache::bytes() const {
  const MutexLock lock(mutex_);
  return bytes_;
}

Digest ResponseKey(const std::string& tenant, uint64_t load, const InferRequest& request,
                   const std::vector<size_t>& inputs) {
  // Each part behind its length, so that no two lists of parts are the same text.
  std::string text;
  const auto add = [&](std::string_view part) { StrAppend(&text, part.size(), ":", part); };
  add(tenant);
  add(StrCat(load));
  for (const size_t i : inputs) {
    const InferInput& input = request.inputs[i];
    add(ToString(input.shape));
    std::string content;
    for (const auto& piece : input.pieces) {
      content.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    add(Sha256(content).view());
  }
  for (const WantedOutput& output : request.outputs) {
    add(output.name);
    add(StrCat(output.classes));
  }
  return Sha256(text);
}

}  // namespace telegrad
