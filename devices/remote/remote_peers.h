// What the connections of one front to its servers share: between which servers buffers can be
// sent directly, and the order in which such copies are started.
#pragma once

#include <deque>
#include <functional>

#include "client/cc/connection.h"
#include "engine/base/mutex.h"

namespace telegrad {

// Thread-safe.
class RemotePeers {
 public:
  // Whether the one, by what it has said of itself to this process, sends to the other: its
  // operator allows the other's bulk address, and that means the same there as here.
  static bool Sends(const Connection& from, const Connection& to);

  // Runs one at a time and in the order of the calls, perhaps on another thread. All servers get
  // the two halves of every copy in one order this way, so no two copies wait for each other.
  void InOrder(std::function<void()> post);

 private:
  Mutex mutex_;
  std::deque<std::function<void()>> waiting_ TG_GUARDED_BY(mutex_);
  bool running_ TG_GUARDED_BY(mutex_) = false;
};

}  // namespace telegrad
