// Tickets for bulk sockets. A session gets one over a call whose caller was authenticated, and who
// shows it on a new connection is that session: so a socket needs no credentials of its own, and
// one that knows no ticket gets nothing. Each is good once and for a short time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/net/psk_tls.h"
#include "server/session/session.h"

namespace telegrad {

// Thread-safe.
class BulkTickets {
 public:
  static constexpr int64_t kLifetimeMs = 10'000;
  static constexpr int kOfOneSession = 8;  // not used yet

  // For at most `most` sockets at a time.
  explicit BulkTickets(int64_t most, const Clock* clock = Clock::Steady())
      : most_(most), clock_(clock) {}

  // RESOURCE_EXHAUSTED where there are too many sockets, or tickets of the session.
  absl::StatusOr<PresharedKey> Issue(const std::shared_ptr<Session>& session);
  // Of a ticket that is good.
  std::optional<std::string> FindSecret(std::string_view identity) const;
  struct Redeemed {
    std::shared_ptr<Session> session;
    std::string proof;                  // for the client
    std::shared_ptr<const void> place;  // among the sockets there may be; this outlives it
  };
  // Uses up the ticket of which `token` is the identity, a nonce and the client's proof of that,
  // one after the other. PERMISSION_DENIED if there is none, RESOURCE_EXHAUSTED where there are too
  // many sockets.
  absl::StatusOr<Redeemed> Redeem(std::string_view token);
  int64_t places() const;  // that are taken

 private:
  struct Ticket {
    std::string secret;
    std::weak_ptr<Session> session;
    const Session* of = nullptr;  // which one, for counting alone
    int64_t until_ns = 0;
  };

  absl::Status CheckRoomLocked() const;

  const int64_t most_;
  const Clock* const clock_;
  mutable std::mutex mutex_;
  std::map<std::string, Ticket, std::less<>> tickets_;  // by identity
  int64_t places_ = 0;
};

}  // namespace telegrad
