// Tickets by identity, with their secret, session and time of expiry. Each use removes one; for
// peers it makes the next one valid.
#include "server/data/bulk_tickets.h"

#include <algorithm>
#include <utility>

#include "engine/base/random_bytes.h"
#include "engine/base/status.h"
#include "engine/net/peer_key.h"
#include "engine/net/proof.h"

namespace telegrad {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
constexpr size_t kTokenBytes = kIdentityBytes + kNonceBytes + kProofBytes;

}  // namespace

absl::Status BulkTickets::CheckRoomLocked() const {
  if (places() < most_) return absl::OkStatus();
  return ResourceExhausted("this server has ", places(),
                           " bulk sockets; raise --bulk-sockets, which is ", most_);
}

absl::StatusOr<PresharedKey> BulkTickets::Issue(const std::shared_ptr<TransferOwner>& session,
                                                ServeOperations operations) {
  PresharedKey key{RandomBytes(kIdentityBytes), RandomBytes(kSecretBytes)};
  const int64_t now = clock_->Ns();
  const MutexLock lock(mutex_);
  TG_RETURN_IF_ERROR(CheckRoomLocked());
  DropOverLocked();
  const auto unused = std::count_if(tickets_.begin(), tickets_.end(), [&](const auto& row) {
    return row.second.of == session.get() && row.second.peer_key.empty();
  });
  if (unused >= kOfOneSession) {
    return ResourceExhausted("this session has ", unused, " tickets for bulk sockets, of which ",
                             kOfOneSession, " may be unused; use them, or wait ", kLifetimeMs,
                             " ms");
  }
  tickets_[key.identity] = {key.secret, session, session.get(), now + kLifetimeMs * kNsPerMs,
                            std::move(operations)};
  return key;
}

void BulkTickets::DropOverLocked() {
  std::erase_if(tickets_, [now = clock_->Ns()](const auto& row) {
    const Ticket& ticket = row.second;
    return ticket.until_ns <= now || ticket.session.expired() ||
           (!ticket.peer_key.empty() && ticket.upload.expired());
  });
}

// Of these there are as many as transfers.
PresharedKey BulkTickets::IssueToPeer(const std::shared_ptr<TransferOwner>& session,
                                      const Peer& peer, int64_t lifetime_ms) {
  PresharedKey key{RandomBytes(kIdentityBytes), RandomBytes(kSecretBytes)};
  const MutexLock lock(mutex_);
  DropOverLocked();
  tickets_[key.identity] = {.secret = key.secret,
                            .session = session,
                            .of = session.get(),
                            .until_ns = clock_->Ns() + lifetime_ms * kNsPerMs,
                            .peer_key = peer.key,
                            .transfer = peer.transfer,
                            .upload = peer.upload};
  return key;
}

std::optional<std::string> BulkTickets::FindSecret(std::string_view identity) const {
  const MutexLock lock(mutex_);
  const auto it = tickets_.find(identity);
  if (it == tickets_.end() || it->second.until_ns <= clock_->Ns()) return std::nullopt;
  return it->second.secret;
}

absl::StatusOr<BulkTickets::Redeemed> BulkTickets::Redeem(std::string_view token,
                                                          std::function<void()> hang_up) {
  // The connection before is ended even where this one finds no place, for its place is the next to
  // become free.
  std::function<void()> before;
  auto redeemed = RedeemAndFollow(token, std::move(hang_up), &before);
  if (before) before();
  return redeemed;
}

absl::StatusOr<BulkTickets::Redeemed> BulkTickets::RedeemAndFollow(std::string_view token,
                                                                   std::function<void()> hang_up,
                                                                   std::function<void()>* before) {
  Redeemed redeemed;
  const bool signed_by_peer = token.size() == kTokenBytes + kPeerSignatureBytes;
  if (token.size() == kTokenBytes || signed_by_peer) {
    const std::string_view nonce = token.substr(kIdentityBytes, kNonceBytes);
    const std::string_view proof = token.substr(kIdentityBytes + kNonceBytes, kProofBytes);
    const MutexLock lock(mutex_);
    const auto it = tickets_.find(token.substr(0, kIdentityBytes));
    if (it != tickets_.end() && it->second.until_ns > clock_->Ns() &&
        signed_by_peer == !it->second.peer_key.empty() &&
        IsProof(proof, it->second.secret, Prover::kClient, nonce) &&
        (!signed_by_peer || IsPeerSignature(it->second.peer_key, token.substr(0, kTokenBytes),
                                            token.substr(kTokenBytes)))) {
      *before = std::exchange(it->second.hang_up, nullptr);
      TG_RETURN_IF_ERROR(CheckRoomLocked());
      places_->fetch_add(1);
      redeemed = {it->second.session.lock(), Prove(it->second.secret, Prover::kServer, nonce),
                  std::shared_ptr<const void>(
                      this, [places = places_](const void*) { places->fetch_sub(1); }),
                  std::nullopt, std::move(it->second.operations)};
      Ticket used = std::move(it->second);
      tickets_.erase(it);
      if (signed_by_peer) {
        redeemed.peer = Peer{used.peer_key, used.transfer, used.upload.lock()};
        if (redeemed.peer->upload == nullptr) redeemed.session = nullptr;
        NextTicket next = NextTicketOf(used.secret, nonce);
        used.secret = std::move(next.secret);
        used.until_ns = INT64_MAX;
        used.hang_up = std::move(hang_up);
        tickets_[std::move(next.identity)] = std::move(used);
      }
    }
  }
  if (redeemed.session != nullptr) return redeemed;
  return absl::PermissionDeniedError(
      "unknown ticket for a bulk socket; a ticket is valid once and for a short time, request "
      "another one");
}

}  // namespace telegrad
