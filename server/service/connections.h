// The connections that gRPC serves, counted so that there are never more than file descriptors
// for them. gRPC does not report that it has closed one, so this checks whether its descriptor
// is still the same socket.
//
// A connection is unauthenticated until a call with valid credentials has arrived over it; from
// then on it belongs to the tenant of the last such call. Calls over Unix sockets cannot be
// assigned to their connections, because these have no addresses; so their connections count as
// authenticated, and belong to the user that connected.
//
// At the limit, a new connection replaces the one that has been unauthenticated for the longest
// time. If all are authenticated, it replaces one of the tenant that has the most, the one over
// which no call has come for the longest time, provided that this tenant has more than an equal
// share among all and the new one.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"

namespace telegrad {

// Thread-safe.
class Connections {
 public:
  explicit Connections(const Clock* clock = Clock::Steady()) : clock_(clock) {}

  // Before the first; until then none may be.
  void Limit(int64_t most) { most_ = most; }

  // Before gRPC has the socket. False if there is no room for it, and it is to be closed.
  bool Admit(int fd);
  // A call of this tenant with good credentials came over the connection from `peer`, as gRPC
  // writes it.
  void Know(std::string_view peer, std::string_view tenant);
  // Hangs up on a connection to make room; false if there is none that may go.
  bool Evict();

  int64_t open();  // looks which are
  int64_t most() const { return most_; }

 private:
  struct Row {
    uint64_t inode = 0;
    std::string peer = {};             // empty: a unix socket
    std::string owner = {};            // empty: a stranger
    std::list<int>::iterator place{};  // among its owner's
  };

  void OwnLocked(int fd, Row& row, std::string_view owner) TG_REQUIRES(mutex_);
  void DisownLocked(const Row& row) TG_REQUIRES(mutex_);
  void ForgetLocked(int fd) TG_REQUIRES(mutex_);
  void SweepLocked() TG_REQUIRES(mutex_);
  bool EvictLocked() TG_REQUIRES(mutex_);
  std::list<int>* MayGoLocked() TG_REQUIRES(mutex_);

  int64_t most_ = 0;
  const Clock* const clock_;
  Mutex mutex_;
  absl::flat_hash_map<int, Row> rows_ TG_GUARDED_BY(mutex_);  // by descriptor
  absl::flat_hash_map<std::string, int> by_peer_ TG_GUARDED_BY(mutex_);
  // By owner, the one first that was heard of longest ago. Few have many.
  absl::flat_hash_map<std::string, std::list<int>> owned_ TG_GUARDED_BY(mutex_);
  int64_t swept_ns_ TG_GUARDED_BY(mutex_) = INT64_MIN;
};

}  // namespace telegrad
