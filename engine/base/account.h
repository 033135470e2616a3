// An account counts how much of something bounded is in use: bytes, sessions, operations. What is
// taken from it is given back exactly once, so that an account is zero when all that it paid for is
// gone. Touched on every operation: one relaxed atomic each way, no lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace telegrad {

// Thread-safe. Amounts are not negative.
class alignas(64) Account {
 public:
  // Errors call it `name` and end with `remedy`, which says how to raise the limit.
  Account(std::string name, int64_t limit, std::string remedy)
      : name_(std::move(name)), limit_(limit), remedy_(std::move(remedy)) {}
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

  // False, and nothing is taken, where the sum would pass the limit. Of several at once, as many
  // succeed as have room: the limit is never passed for a moment and nobody is refused for another
  // who is refused.
  bool TryReserve(int64_t amount) {
    int64_t used = used_.load(std::memory_order_relaxed);
    const int64_t limit = limit_.load(std::memory_order_relaxed);
    do {
      if (amount > limit - used) return false;
    } while (!used_.compare_exchange_weak(used, used + amount, std::memory_order_relaxed));
    return true;
  }
  // For what is there already and can only be counted: may pass the limit.
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
  // Likewise, for who says it himself.
  void CountRefused() { refused_.fetch_add(1, std::memory_order_relaxed); }
  const std::string& remedy() const { return remedy_; }
  int64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  const std::string name_;
  std::atomic<int64_t> limit_;
  mutable std::mutex mutex_;
  std::string remedy_;  // under it
  std::atomic<int64_t> refused_{0};
  alignas(64) std::atomic<int64_t> used_{0};
};

// An amount taken from an account, given back when it goes. Keeps the account alive, because memory
// may outlive whoever asked for it.
class Reservation {
 public:
  Reservation() = default;  // of nothing
  // None where the account has no room; without an account, of nothing.
  static std::optional<Reservation> Try(std::shared_ptr<Account> account, int64_t amount);
  // Of what is there already: may pass the limit.
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
  // Never gives it back.
  void Keep() { amount_ = 0; }

 private:
  Reservation(std::shared_ptr<Account> account, int64_t amount)
      : account_(std::move(account)), amount_(amount) {}

  std::shared_ptr<Account> account_;
  int64_t amount_ = 0;
};

}  // namespace telegrad
