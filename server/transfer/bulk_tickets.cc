#include "server/transfer/bulk_tickets.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <utility>

#include "engine/base/random_bytes.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr size_t kIdentityBytes = 16, kSecretBytes = 32;
constexpr int64_t kNsPerMs = 1'000'000;

}  // namespace

absl::StatusOr<PresharedKey> BulkTickets::Issue(const std::shared_ptr<Session>& session) {
  PresharedKey key{RandomBytes(kIdentityBytes), RandomBytes(kSecretBytes)};
  const int64_t now = clock_->Ns();
  std::lock_guard lock(mutex_);
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
  std::lock_guard lock(mutex_);
  const auto it = tickets_.find(identity);
  if (it == tickets_.end() || it->second.until_ns <= clock_->Ns()) return std::nullopt;
  return it->second.secret;
}

absl::StatusOr<std::shared_ptr<Session>> BulkTickets::Redeem(std::string_view token) {
  std::shared_ptr<Session> session;
  std::lock_guard lock(mutex_);
  const auto it = tickets_.find(token.substr(0, kIdentityBytes));
  if (it != tickets_.end() && token.size() == kIdentityBytes + kSecretBytes &&
      it->second.until_ns > clock_->Ns() &&
      CRYPTO_memcmp(token.data() + kIdentityBytes, it->second.secret.data(), kSecretBytes) == 0) {
    session = it->second.session.lock();
    tickets_.erase(it);
  }
  if (session != nullptr) return session;
  return absl::PermissionDeniedError(
      "no such ticket for a bulk socket; each is good once and not for long: ask for another");
}

}  // namespace telegrad
