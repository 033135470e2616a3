#include "engine/base/account.h"

#include "engine/base/status.h"

namespace telegrad {

absl::Status Account::Refuse(int64_t asked) {
  refused_.fetch_add(1, std::memory_order_relaxed);
  return ResourceExhausted(name_, " is limited to ", limit_, ": ", used(), " in use, ", asked,
                           " more asked for; ", remedy_);
}

std::optional<Reservation> Reservation::Try(std::shared_ptr<Account> account, int64_t amount) {
  if (account == nullptr) return Reservation();
  if (!account->TryReserve(amount)) return std::nullopt;
  return Reservation(std::move(account), amount);
}

absl::StatusOr<Reservation> Reservation::Take(std::shared_ptr<Account> account, int64_t amount) {
  if (auto taken = Try(account, amount)) return *std::move(taken);
  return account->Refuse(amount);
}

}  // namespace telegrad
