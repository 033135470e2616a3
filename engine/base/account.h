// An account counts how much of something bounded is in use: bytes, sessions, operations. Every
// amount taken is given back exactly once, so an account is zero when everything charged to it has
// been released. Taking and giving back are one relaxed atomic operation each, without a lock,
// because every operation does both.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"

namespace telegrad {

// Thread-safe. Amounts are not negative.
class alignas(64) Account {
 public:
  // Errors call it `name` and end with `remedy`, which says how to raise the limit.
  Account(std::string name, int64_t limit, std::string remedy)
      : name_(std::move(name)), limit_(limit), remedy_(std::move(remedy)) {}
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

  // False, and nothing is taken, where the sum would pass the limit. Of several concurrent calls,
  // as many succeed as there is room for: the limit is never exceeded, and a call that is refused
  // never causes another one to be refused.
  bool TryReserve(int64_t amount) {
    int64_t used = used_.load(std::memory_order_relaxed);
    const int64_t limit = limit_.load(std::memory_order_relaxed);
    do {
      if (amount > limit - used) return false;
    } while (!used_.compare_exchange_weak(used, used + amount, std::memory_order_relaxed));
    return true;
  }
  // Charges an amount that exists already and cannot be refused; the sum may exceed the limit.
  void Charge(int64_t amount) { used_.fetch_add(amount, std::memory_order_relaxed); }
  void Release(int64_t amount) { used_.fetch_sub(amount, std::memory_order_relaxed); }

  int64_t used() const { return used_.load(std::memory_order_relaxed); }
  bool full() const { return used() >= limit(); }
  int64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  // May be below what is in use: then nothing more is reserved until enough was given back.
  void SetLimit(int64_t limit, std::string remedy);
  const std::string& name() const { return name_; }

  // RESOURCE_EXHAUSTED: the limit, what is in use, what was asked for, how to raise it. Counted.
  absl::Status Refuse(int64_t asked);
  // The same error, for callers that reserve in another way.
  void CountRefused() { refused_.fetch_add(1, std::memory_order_relaxed); }
  std::string remedy() const;
  int64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  const std::string name_;
  std::atomic<int64_t> limit_;
  mutable Mutex mutex_;
  std::string remedy_ TG_GUARDED_BY(mutex_);
  std::atomic<int64_t> refused_{0};
  alignas(64) std::atomic<int64_t> used_{0};
};

// An amount taken from an account, which the destructor gives back. Keeps the account alive,
// because memory may outlive the session that allocated it.
class Reservation {
 public:
  Reservation() = default;  // of nothing
  // nullopt where the account has no room; without an account, a charge of nothing.
  static std::optional<Reservation> Try(std::shared_ptr<Account> account, int64_t amount);
  // Charges memory that exists already; the sum may exceed the limit.
  static Reservation Charge(std::shared_ptr<Account> account, int64_t amount) {
    account->Charge(amount);
    return Reservation(std::move(account), amount);
  }
  // The same as Try, or the account's error.
  static absl::StatusOr<Reservation> Take(std::shared_ptr<Account> account, int64_t amount);
  Reservation(Reservation&& other) noexcept
      : account_(std::move(other.account_)), amount_(std::exchange(other.amount_, 0)) {}
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(account_, other.account_);
    std::swap(amount_, other.amount_);
    return *this;
  }
  ~Reservation() {
    if (account_ != nullptr) account_->Release(amount_);
  }

  int64_t amount() const { return amount_; }
  // Takes over what `other` has taken of the same account.
  void Add(Reservation other) {
    if (account_ == nullptr) {
      *this = std::move(other);
    } else {
      amount_ += std::exchange(other.amount_, 0);
    }
  }
  // The amount stays charged for good.
  void Keep() { amount_ = 0; }

 private:
  Reservation(std::shared_ptr<Account> account, int64_t amount)
      : account_(std::move(account)), amount_(amount) {}

  std::shared_ptr<Account> account_;
  int64_t amount_ = 0;
};

}  // namespace telegrad
