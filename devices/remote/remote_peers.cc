// A server can send to another if its list of allowed peers has the bulk address of the other.
// Copies are started one after another: a thread that comes while another one starts copies
// leaves its own to it.
#include "devices/remote/remote_peers.h"

#include <string_view>
#include <utility>

namespace telegrad {

bool RemotePeers::Sends(const Connection& from, const Connection& to) {
  const std::string_view address = to.server().bulk_address;
  if (from.server().peer_key.empty() || to.server().peer_key.empty() || address.empty()) {
    return false;
  }
  if (IsLoopbackAddress(address) && !IsLoopbackAddress(from.address())) return false;
  for (const std::string_view allowed : from.server().peers) {
    if (allowed == address) return true;
    if (allowed.ends_with(":*") &&
        address.substr(0, address.rfind(':')) == allowed.substr(0, allowed.size() - 2)) {
      return true;
    }
  }
  return false;
}

void RemotePeers::InOrder(std::function<void()> post) {
  ReleasableLock lock(mutex_);
  waiting_.push_back(std::move(post));
  if (running_) return;
  running_ = true;
  while (!waiting_.empty()) {
    const std::function<void()> next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    next();
    lock.lock();
  }
  running_ = false;
}

}  // namespace telegrad
