// Rows by descriptor, with the inode of the socket: if a descriptor has another inode, its
// connection was closed.
#include "server/service/connections.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
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

// Who connected to a unix socket. No tenant's name begins so.
std::string UserOf(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return "user unknown";
  return StrCat("user ", peer.uid);
}

}  // namespace

bool Connections::Admit(int fd) {
  Row row{.inode = InodeOf(fd), .peer = PeerOf(fd)};
  const std::string owner = row.peer.empty() ? UserOf(fd) : "";
  const MutexLock lock(mutex_);
  ForgetLocked(fd);  // the number is that of another one, which is closed
  if (static_cast<int64_t>(rows_.size()) >= most_) SweepLocked();
  if (static_cast<int64_t>(rows_.size()) >= most_ && !EvictLocked()) return false;
  if (!row.peer.empty()) by_peer_[row.peer] = fd;
  OwnLocked(fd, rows_[fd] = std::move(row), owner);
  return true;
}

void Connections::OwnLocked(int fd, Row& row, std::string_view owner) {
  row.owner = owner;
  std::list<int>& all = owned_[row.owner];
  row.place = all.insert(all.end(), fd);
}

void Connections::DisownLocked(const Row& row) {
  const auto all = owned_.find(row.owner);
  all->second.erase(row.place);
  if (all->second.empty()) owned_.erase(all);
}

void Connections::Know(std::string_view peer, std::string_view tenant) {
  const MutexLock lock(mutex_);
  const auto found = by_peer_.find(peer.starts_with("ipv6") ? absl::string_view(UnescapedPeer(peer))
                                                            : ToAbsl(peer));
  if (found == by_peer_.end()) return;
  Row& row = rows_[found->second];
  if (row.owner == tenant) {
    std::list<int>& all = owned_[row.owner];
    return all.splice(all.end(), all, row.place);
  }
  DisownLocked(row);
  OwnLocked(found->second, row, tenant);
}

bool Connections::Evict() {
  const MutexLock lock(mutex_);
  return EvictLocked();
}

int64_t Connections::open() {
  const MutexLock lock(mutex_);
  SweepLocked();
  return static_cast<int64_t>(rows_.size());
}

void Connections::ForgetLocked(int fd) {
  const auto row = rows_.find(fd);
  if (row == rows_.end()) return;
  DisownLocked(row->second);
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

// Those of whom one may go; null if there are none.
std::list<int>* Connections::MayGoLocked() {
  if (const auto strangers = owned_.find(""); strangers != owned_.end()) return &strangers->second;
  const auto most =
      std::ranges::max_element(owned_, {}, [](const auto& owner) { return owner.second.size(); });
  if (most == owned_.end()) return nullptr;
  const size_t share = rows_.size() / (owned_.size() + 1);
  return most->second.size() > std::max<size_t>(share, 1) ? &most->second : nullptr;
}

// gRPC closes the descriptor a moment after both directions are shut down: until then there is one
// more than may be, which is what the descriptors in reserve are for.
bool Connections::EvictLocked() {
  const std::list<int>* const all = MayGoLocked();
  if (all == nullptr) return false;
  const int fd = all->front();
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
