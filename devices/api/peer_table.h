// Which of the devices of one driver copy straight to and from each other's memory; between the
// others, the driver takes the bytes through memory of the host. It outlives the generations of its
// devices (generations_device.h), so that they can be asked while one is lost.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "devices/api/device.h"
#include "engine/base/mutex.h"

namespace telegrad {

// Thread-safe. Devices have the driver's numbers.
class PeerTable {
 public:
  void SetDirect(int from, int to, bool direct) {
    const MutexLock lock(mutex_);
    if (direct) {
      direct_.insert({from, to});
    } else {
      direct_.erase({from, to});
    }
  }
  // Which others copy straight to and from memory of that one.
  std::vector<int> Reaching(int to) const {
    std::vector<int> out;
    const MutexLock lock(mutex_);
    for (const auto& [from, reached] : direct_) {
      if (reached == to) out.push_back(from);
    }
    return out;
  }
  // Of the first to memory of the second, which is another. Programs run on their own device's
  // memory only.
  PeerAccess Access(int from, int to) const {
    const MutexLock lock(mutex_);
    return {direct_.contains({from, to}) ? PeerPath::kDirect : PeerPath::kThroughHost,
            /*atomics=*/false};
  }

 private:
  mutable Mutex mutex_;
  std::set<std::pair<int, int>> direct_ TG_GUARDED_BY(mutex_);
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
