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

  explicit BulkTickets(const Clock* clock = Clock::Steady()) : clock_(clock) {}

  absl::StatusOr<PresharedKey> Issue(const std::shared_ptr<Session>& session);
  // Of a ticket that is good.
  std::optional<std::string> FindSecret(std::string_view identity) const;
  // Uses up the ticket whose identity and secret, one after the other, are `token`.
  // PERMISSION_DENIED if there is none.
  absl::StatusOr<std::shared_ptr<Session>> Redeem(std::string_view token);

 private:
  struct Ticket {
    std::string secret;
    std::weak_ptr<Session> session;
    const Session* of = nullptr;  // which one, for counting alone
    int64_t until_ns = 0;
  };

  const Clock* const clock_;
  mutable std::mutex mutex_;
  std::map<std::string, Ticket, std::less<>> tickets_;  // by identity
};

}  // namespace telegrad
