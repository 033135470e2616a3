#include "server/data/bulk_tickets.h"

#include <algorithm>
#include <utility>

#include "engine/base/random_bytes.h"
#include "engine/base/status.h"
#include "engine/net/proof.h"

namespace telegrad {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

}  // namespace

absl::Status BulkTickets::CheckRoomLocked() const {
  if (places() < most_) return absl::OkStatus();
  return ResourceExhausted("this server has ", places(),
                           " bulk sockets; raise --bulk-sockets, which is ", most_);
}

absl::StatusOr<PresharedKey> BulkTickets::Issue(const std::shared_ptr<TransferOwner>& session) {
  PresharedKey key{RandomBytes(kIdentityBytes), RandomBytes(kSecretBytes)};
  const int64_t now = clock_->Ns();
  const MutexLock lock(mutex_);
  TG_RETURN_IF_ERROR(CheckRoomLocked());
  std::erase_if(tickets_, [&](const auto& row) {
    return row.second.until_ns <= now || row.second.session.expired();
  });
  const auto unused = std::count_if(tickets_.begin(), tickets_.end(), [&](const auto& row) {
    return row.second.of == session.get();
  });
  if (unused >= kOfOneSession) {
    return ResourceExhausted("this session has ", unused, " tickets for bulk sockets, of which ",
                             kOfOneSession, " may be unused; use them, or wait ", kLifetimeMs,
                             " ms");
  }
  tickets_[key.identity] = {key.secret, session, session.get(), now + kLifetimeMs * kNsPerMs};
  return key;
}

std::optional<std::string> BulkTickets::FindSecret(std::string_view identity) const {
  const MutexLock lock(mutex_);
  const auto it = tickets_.find(identity);
  if (it == tickets_.end() || it->second.until_ns <= clock_->Ns()) return std::nullopt;
  return it->second.secret;
}

absl::StatusOr<BulkTickets::Redeemed> BulkTickets::Redeem(std::string_view token) {
  Redeemed redeemed;
  if (token.size() == kIdentityBytes + kNonceBytes + kProofBytes) {
    const std::string_view nonce = token.substr(kIdentityBytes, kNonceBytes);
    const std::string_view proof = token.substr(kIdentityBytes + kNonceBytes);
    const MutexLock lock(mutex_);
    const auto it = tickets_.find(token.substr(0, kIdentityBytes));
    if (it != tickets_.end() && it->second.until_ns > clock_->Ns() &&
        IsProof(proof, it->second.secret, Prover::kClient, nonce)) {
      TG_RETURN_IF_ERROR(CheckRoomLocked());
      places_->fetch_add(1);
      redeemed = {it->second.session.lock(), Prove(it->second.secret, Prover::kServer, nonce),
                  std::shared_ptr<const void>(
                      this, [places = places_](const void*) { places->fetch_sub(1); })};
      tickets_.erase(it);
    }
  }
  if (redeemed.session != nullptr) return redeemed;
  return absl::PermissionDeniedError(
      "unknown ticket for a bulk socket; a ticket is valid once and for a short time, request "
      "another one");
}

}  // namespace telegrad
