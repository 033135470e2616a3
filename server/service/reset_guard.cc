// gRPC has no way to close one connection of a server. Its socket is found by the address of the
// other end, among the descriptors of this process.
#include "server/service/reset_guard.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <charconv>
#include <filesystem>
#include <utility>

#include "engine/base/unique_fd.h"
#include "server/service/peer.h"

namespace telegrad {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

}  // namespace

bool HangUp(std::string_view peer) {
  const std::string wanted = UnescapedPeer(peer);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename();
    int number = -1;
    std::from_chars(name.data(), name.data() + name.size(), number);
    // A descriptor of our own, so that what is looked at is what is shut down.
    const UniqueFd fd(fcntl(number, F_DUPFD_CLOEXEC, 0));
    if (fd.valid() && PeerOf(fd.get()) == wanted) return shutdown(fd.get(), SHUT_RDWR) == 0;
  }
  return false;
}

ResetGuard::ResetGuard(int64_t most, std::function<bool(std::string_view)> hang_up,
                       const Clock* clock)
    : most_(most),
      hang_up_(std::move(hang_up)),
      clock_(clock),
      log_(LogLevel::kWarning, "hung_up_on", clock),
      second_(clock->Ns()) {}

void ResetGuard::Count(const std::string& peer) {
  if (most_ == 0 || !peer.starts_with("ip")) return;
  {
    const MutexLock lock(mutex_);
    if (const int64_t now = clock_->Ns(); now - second_ >= kSecondNs) {
      second_ = now;
      resets_.clear();
    }
    if (++resets_[peer] != most_) return;
  }
  if (hang_up_(peer)) log_.Write({{"peer", peer}, {"resets", most_}});
}

}  // namespace telegrad
