#include "engine/base/account.h"

#include "engine/base/status.h"

namespace telegrad {

absl::Status Account::Refuse(int64_t asked) {
  refused_.fetch_add(1, std::memory_order_relaxed);
  const MutexLock lock(mutex_);
  return ResourceExhausted(name_, " is limited to ", limit(), ": ", used(), " in use, ", asked,
                           " more asked for; ", remedy_);
}

void Account::SetLimit(int64_t limit, std::string remedy) {
  limit_.store(limit, std::memory_order_relaxed);
  const MutexLock lock(mutex_);
  remedy_ = std::move(remedy);
}

std::string Account::remedy() const {
  const MutexLock lock(mutex_);
  return remedy_;
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
