// The bytes of a copy are read at the latest moment that the waits allow, and written no earlier
// than that.
#include "tests/fakes/cuda/ptx/bulk_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/fakes/cuda/ptx/phase_barrier.h"
#include "tests/fakes/cuda/ptx/workgroup.h"

namespace fakecuda {
namespace {

void ReadBox(Workgroup& group, BulkStore* store) {
  store->box.resize(store->bytes);
  for (uint64_t at = 0; at < store->bytes; at += kSwizzled) {
    const uint64_t from = Swizzled(kSharedBegin + store->from + at, store->span) - kSharedBegin;
    const size_t bytes = std::min<size_t>(kSwizzled, store->bytes - at);
    std::memcpy(store->box.data() + at, group.shared(from), bytes);
  }
}

void WriteRows(const BulkStore& store) {
  for (const BulkStore::Row& row : store.rows) {
    std::memcpy(row.to, store.box.data() + row.at, row.bytes);
  }
}

}  // namespace

void BulkStores::Clear() {
  for (Lane& lane : lanes_) lane = {};
}

void BulkStores::Commit(int lane) {
  Lane& at = At(lane);
  at.groups.push_back({.stores = std::exchange(at.open, {})});
}

void BulkStores::Wait(Warp& warp, int lane, size_t pending, bool read) {
  std::deque<Group>& groups = At(lane).groups;
  uint32_t& seen = warp.clocks().seen[kCopier];
  for (size_t i = 0; i + pending < groups.size(); ++i) {
    for (BulkStore& store : groups[i].stores) {
      if (!groups[i].is_read) ReadBox(warp.group(), &store);
      seen = std::max(seen, read ? store.read_clock : store.write_clock);
    }
    groups[i].is_read = true;
  }
  while (!read && groups.size() > pending) {
    for (const BulkStore& store : groups.front().stores) WriteRows(store);
    groups.pop_front();
  }
}

int BulkStores::Finish() {
  for (Lane& lane : lanes_) {
    if (!lane.open.empty()) return lane.open[0].line;
    for (const Group& group : lane.groups) {
      for (const BulkStore& store : group.stores) {
        if (!group.is_read) return store.line;
        WriteRows(store);
      }
    }
  }
  return 0;
}

}  // namespace fakecuda
