// A copy is made without the lock: its submission may run what others have submitted, on this
// thread, and what follows their ends may ask for copies here or release them. Who asks meanwhile
// for the one that is being made does without.
#include "engine/execution/packed_copies.h"

#include <algorithm>

#include "engine/execution/charged_memory.h"

namespace telegrad {
namespace {

// Contents that were seen, with a copy or without: of some dozens of large models.
constexpr size_t kMaxEntries = 4096;

bool Failed(const TimelinePoint& point) {
  return point.timeline != nullptr && point.timeline->value() >= point.value &&
         !point.timeline->StatusOf(point.value).ok();
}

}  // namespace

PackedCopies::Entries::iterator PackedCopies::Find(const Wanted& wanted, Dropped* dropped) {
  const auto it = by_key_.find(KeyOf(wanted));
  if (it == by_key_.end()) return entries_.end();
  const auto entry = it->second;
  entries_.splice(entries_.end(), entries_, entry);
  if (entry->copy && Failed(entry->copy->made)) {
    dropped->push_back(std::exchange(entry->copy, std::nullopt));
  }
  return entry;
}

void PackedCopies::Erase(Entries::iterator entry, Dropped* dropped) {
  dropped->push_back(std::move(entry->copy));
  by_key_.erase(entry->key);
  entries_.erase(entry);
}

// Copies of weights that are gone, or had other contents, are of no use any more.
void PackedCopies::Add(const Wanted& wanted, Dropped* dropped) {
  const auto& memory = wanted.weight.memory;
  const Key key = KeyOf(wanted);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto it = entry++;
    const bool same = !it->weight.owner_before(memory) && !memory.owner_before(it->weight) &&
                      it->key.offset == key.offset && it->key.kernel == key.kernel;
    if (same || it->weight.expired()) Erase(it, dropped);
  }
  if (entries_.size() >= kMaxEntries) Erase(entries_.begin(), dropped);
  entries_.push_back({key, memory, std::nullopt});
  by_key_.emplace(key, std::prev(entries_.end()));
}

std::vector<std::optional<PackedCopy>> PackedCopies::Get(std::span<const Wanted> wanted,
                                                         const Make& make) {
  std::vector<std::optional<PackedCopy>> copies(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i].weight.content == 0 || !Begin(wanted[i], &copies[i])) continue;
    copies[i] =
        MakeCopy(wanted[i].bytes, [&](const BufferView& memory) { return make(i, memory); });
    End(wanted[i], copies[i]);
  }
  return copies;
}

bool PackedCopies::Begin(const Wanted& wanted, std::optional<PackedCopy>* copy) {
  Dropped dropped;
  const MutexLock lock(mutex_);
  const auto entry = Find(wanted, &dropped);
  if (entry == entries_.end()) {
    Add(wanted, &dropped);
    return false;
  }
  *copy = entry->copy;
  return !entry->copy && !std::exchange(entry->making, true);
}

// The entry may have gone meanwhile, or have come anew.
void PackedCopies::End(const Wanted& wanted, const std::optional<PackedCopy>& made) {
  Dropped dropped;
  const MutexLock lock(mutex_);
  const auto entry = Find(wanted, &dropped);
  if (entry == entries_.end()) return;
  entry->making = false;
  dropped.push_back(std::exchange(entry->copy, made));
}

std::optional<PackedCopy> PackedCopies::MakeCopy(
    int64_t bytes,
    const std::function<absl::StatusOr<TimelinePoint>(const BufferView& memory)>& make) {
  if (bytes > device_.memory_limit() - device_.memory_used()) return std::nullopt;
  auto memory = AllocCharged(device_, bytes, account_);
  if (!memory.ok()) return std::nullopt;
  BufferView view{*std::move(memory), 0, bytes};
  auto made = make(view);
  if (!made.ok()) return std::nullopt;
  return PackedCopy{std::move(view), *std::move(made)};
}

void PackedCopies::Release() {
  Dropped dropped;
  const MutexLock lock(mutex_);
  for (Entry& entry : entries_) dropped.push_back(std::exchange(entry.copy, std::nullopt));
}

int64_t PackedCopies::bytes() const {
  const MutexLock lock(mutex_);
  int64_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.copy ? entry.copy->memory.length : 0;
  return bytes;
}

}  // namespace telegrad
