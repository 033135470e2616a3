#include "server/service/connections.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <utility>
#include <vector>

#include "engine/base/strings.h"
#include "engine/base/unique_fd.h"
#include "server/service/peer.h"

namespace telegrad {
namespace {

// Looking at all of them takes about a microsecond for each, so it is not done for every newcomer.
constexpr int64_t kSweepNs = 100'000'000;

// Sockets that are open at a time have different ones. 0: closed.
uint64_t InodeOf(int fd) {
  struct stat found{};
  return fstat(fd, &found) == 0 ? uint64_t{found.st_ino} : 0;
}

}  // namespace

bool Connections::Admit(int fd) {
  Row row{.inode = InodeOf(fd), .peer = PeerOf(fd)};
  const std::lock_guard lock(mutex_);
  ForgetLocked(fd);  // the number is that of another one, which is closed
  if (static_cast<int64_t>(rows_.size()) >= most_) SweepLocked();
  if (static_cast<int64_t>(rows_.size()) >= most_ && !EvictLocked()) return false;
  if (!row.peer.empty()) {
    row.is_unknown = true;
    row.unknown = unknown_.insert(unknown_.end(), fd);
    by_peer_[row.peer] = fd;
  }
  rows_[fd] = std::move(row);
  return true;
}

void Connections::Know(std::string_view peer) {
  const std::lock_guard lock(mutex_);
  const auto found = by_peer_.find(peer.starts_with("ipv6") ? absl::string_view(UnescapedPeer(peer))
                                                            : ToAbsl(peer));
  if (found == by_peer_.end()) return;
  Row& row = rows_[found->second];
  if (!row.is_unknown) return;
  unknown_.erase(row.unknown);
  row.is_unknown = false;
}

bool Connections::Evict() {
  const std::lock_guard lock(mutex_);
  return EvictLocked();
}

int64_t Connections::open() {
  const std::lock_guard lock(mutex_);
  SweepLocked();
  return static_cast<int64_t>(rows_.size());
}

void Connections::ForgetLocked(int fd) {
  const auto row = rows_.find(fd);
  if (row == rows_.end()) return;
  if (row->second.is_unknown) unknown_.erase(row->second.unknown);
  const auto named = by_peer_.find(row->second.peer);
  if (named != by_peer_.end() && named->second == fd) by_peer_.erase(named);
  rows_.erase(row);
}

void Connections::SweepLocked() {
  const int64_t now = clock_->Ns();
  if (swept_ns_ != INT64_MIN && now - swept_ns_ < kSweepNs) return;
  swept_ns_ = now;
  std::vector<int> closed;
  for (const auto& [fd, row] : rows_) {
    if (InodeOf(fd) != row.inode) closed.push_back(fd);
  }
  for (const int fd : closed) ForgetLocked(fd);
}

// gRPC closes the descriptor a moment after both directions are shut down: until then there is one
// more than may be, which is what the descriptors in reserve are for.
bool Connections::EvictLocked() {
  if (unknown_.empty()) return false;
  const int fd = unknown_.front();
  const uint64_t inode = rows_[fd].inode;
  ForgetLocked(fd);
  // A descriptor of our own, so that what is looked at is what is shut down. Without one, nobody
  // else has got the number meanwhile.
  const UniqueFd own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  const int at = own.valid() ? own.get() : fd;
  if (InodeOf(at) == inode) shutdown(at, SHUT_RDWR);
  return true;
}

}  // namespace telegrad
