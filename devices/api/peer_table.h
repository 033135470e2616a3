// Which of the devices of one driver copy straight to and from each other's memory; between the
// others, the driver takes the bytes through memory of the host, where it is trusted. It outlives
// the generations of its devices (generations_device.h), so that they can be asked while one is
// lost.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "devices/api/device.h"
#include "engine/base/mutex.h"

namespace telegrad {

// Thread-safe. Devices have the driver's numbers.
class PeerTable {
 public:
  void Set(int from, int to, PeerPath path) {
    const MutexLock lock(mutex_);
    paths_[{from, to}] = path;
  }
  // Which others copy straight to and from memory of that one.
  std::vector<int> Reaching(int to) const {
    std::vector<int> out;
    const MutexLock lock(mutex_);
    for (const auto& [pair, path] : paths_) {
      if (pair.second == to && path == PeerPath::kDirect) out.push_back(pair.first);
    }
    return out;
  }
  // Of the first to memory of the second, which is another. Programs run on their own device's
  // memory only.
  PeerAccess Access(int from, int to) const {
    const MutexLock lock(mutex_);
    const auto found = paths_.find({from, to});
    return {found == paths_.end() ? PeerPath::kThroughHost : found->second, /*atomics=*/false};
  }

 private:
  mutable Mutex mutex_;
  std::map<std::pair<int, int>, PeerPath> paths_ TG_GUARDED_BY(mutex_);
};

// A device's place in the table of its driver; null: it reaches no peers.
struct PeerPlace {
  std::shared_ptr<const PeerTable> table;
  int number = 0;

  // Of a device to memory of another one.
  PeerAccess AccessTo(const PeerPlace& other) const {
    if (table == nullptr || table != other.table) return {};
    return table->Access(number, other.number);
  }
};

}  // namespace telegrad
