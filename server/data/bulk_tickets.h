// Tickets for bulk sockets. A session gets a ticket over an authenticated call and shows it on a
// new connection, which then belongs to that session. So a socket needs no credentials of its own,
// and a connection without a ticket is refused. A ticket is valid once and for a short time.
//
// A ticket for another server is good for one transfer and for the server that can sign with a
// certain key; its use makes the one that follows it valid, for when the connection breaks. The use
// of that one ends the connection before, of which this server may not know that it is broken: a
// transfer has one connection at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "engine/net/psk_tls.h"
#include "engine/net/stream_socket.h"
#include "server/data/transfers.h"

namespace telegrad {

// Thread-safe.
class BulkTickets {
 public:
  static constexpr int64_t kLifetimeMs = 10'000;
  static constexpr int kOfOneSession = 8;  // not used yet

  // For at most `most` sockets at a time.
  explicit BulkTickets(int64_t most, const Clock* clock = Clock::Steady())
      : most_(most), clock_(clock) {}

  // Serves operations on a socket until that is over, on the calling thread.
  using ServeOperations = std::function<absl::Status(const std::shared_ptr<StreamSocket>& socket)>;
  // RESOURCE_EXHAUSTED where there are too many sockets, or tickets of the session. `operations`:
  // what serves the socket, if it is not for transfers.
  absl::StatusOr<PresharedKey> Issue(const std::shared_ptr<TransferOwner>& session,
                                     ServeOperations operations = nullptr);
  // What a ticket for another server admits.
  struct Peer {
    std::string key;  // its public one
    uint64_t transfer = 0;
    std::shared_ptr<Upload> upload;
  };
  // Valid for `lifetime_ms`, and no longer than the upload.
  PresharedKey IssueToPeer(const std::shared_ptr<TransferOwner>& session, const Peer& peer,
                           int64_t lifetime_ms);
  // The secret of a valid ticket.
  std::optional<std::string> FindSecret(std::string_view identity) const;
  struct Redeemed {
    std::shared_ptr<TransferOwner> session;
    std::string proof;                  // for the client
    std::shared_ptr<const void> place;  // its place among the allowed sockets
    std::optional<Peer> peer;           // if it is another server
    ServeOperations operations;         // null: it is for transfers
  };
  // Uses up the ticket of which `token` is the identity, a nonce and the client's proof of that,
  // one after the other, and of another server its signature. PERMISSION_DENIED if there is none,
  // RESOURCE_EXHAUSTED where there are too many sockets. `hang_up` ends the connection that shows
  // the ticket of another server; called without locks when another one shows the next ticket.
  absl::StatusOr<Redeemed> Redeem(std::string_view token, std::function<void()> hang_up = nullptr);
  int64_t places() const { return places_->load(); }  // that are taken

 private:
  struct Ticket {
    std::string secret;
    std::weak_ptr<TransferOwner> session;
    const TransferOwner* of = nullptr;  // which one, for counting alone
    int64_t until_ns = 0;
    ServeOperations operations = nullptr;
    // Of another server.
    std::string peer_key = {};
    uint64_t transfer = 0;
    std::weak_ptr<Upload> upload = {};
    std::function<void()> hang_up = {};  // ends the connection of the ticket before
  };

  absl::StatusOr<Redeemed> RedeemAndFollow(std::string_view token, std::function<void()> hang_up,
                                           std::function<void()>* before);
  absl::Status CheckRoomLocked() const TG_REQUIRES(mutex_);
  void DropOverLocked() TG_REQUIRES(mutex_);

  const int64_t most_;
  const Clock* const clock_;
  mutable Mutex mutex_;
  std::map<std::string, Ticket, std::less<>> tickets_ TG_GUARDED_BY(mutex_);  // by identity
  // Taken under the mutex; may be given back after this object has been destroyed.
  const std::shared_ptr<std::atomic<int64_t>> places_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace telegrad
