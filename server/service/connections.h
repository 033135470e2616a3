// The connections that were given to gRPC, so that there are never more than descriptors for them.
// gRPC does not say when it closes one: that is noticed by looking whether its descriptor is still
// the same socket.
//
// Of strangers: a connection is known once a call with good credentials has come over it. Where
// there are as many as may be, a new one takes the place of the one that has been unknown for
// longest, and is refused where all are known. Unix sockets have no addresses by which their calls
// could be told apart, so they count as known; the rights of their file say who may connect.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "engine/base/clock.h"

namespace telegrad {

// Thread-safe.
class Connections {
 public:
  explicit Connections(const Clock* clock = Clock::Steady()) : clock_(clock) {}

  // Before the first; until then none may be.
  void Limit(int64_t most) { most_ = most; }

  // Before gRPC has the socket. False if there is no room for it, and it is to be closed.
  bool Admit(int fd);
  // A call with good credentials came over the connection from `peer`, as gRPC writes it.
  void Know(std::string_view peer);
  // Hangs up on the connection that has been unknown for longest; false if there is none.
  bool Evict();

  int64_t open();  // looks which are
  int64_t most() const { return most_; }

 private:
  struct Row {
    uint64_t inode = 0;
    std::string peer = {};               // empty: a unix socket
    std::list<int>::iterator unknown{};  // its place there
    bool is_unknown = false;
  };

  void ForgetLocked(int fd);
  void SweepLocked();
  bool EvictLocked();

  int64_t most_ = 0;
  const Clock* const clock_;
  std::mutex mutex_;
  absl::flat_hash_map<int, Row> rows_;  // by descriptor
  absl::flat_hash_map<std::string, int> by_peer_;
  std::list<int> unknown_;  // the oldest first
  int64_t swept_ns_ = INT64_MIN;
};

}  // namespace telegrad
