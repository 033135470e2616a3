// The accounts to which the caches of one tenant are charged, and the clock that orders the use of
// their entries.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "engine/base/account.h"

namespace telegrad {

struct CacheAccounts {
  std::shared_ptr<Account>
      device_memory;  // temporaries and values passed between the parts of a run; null: unlimited
  std::shared_ptr<Account> cache;  // of kept_bytes; null: unlimited
  const std::shared_ptr<std::atomic<uint64_t>> clock = std::make_shared<std::atomic<uint64_t>>(0);
};

}  // namespace telegrad
