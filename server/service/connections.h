// The connections that were given to gRPC, so that there are never more than descriptors for them.
// gRPC does not say when it closes one: that is noticed by looking whether its descriptor is still
// the same socket.
//
// A connection is a stranger's until a call with good credentials has come over it: from then on it
// is of the tenant of the last such call. Unix sockets have no addresses by which their calls could
// be told apart, so they count as known, and of the user who connected.
//
// Where there are as many as may be, a new one takes the place of the one that has been a
// stranger's for longest. Where all are known, it takes that of whoever has most over which no call
// has come for longest, if that one has more than an equal share of all who are there and one more.
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
