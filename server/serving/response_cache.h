// Answers to requests of models that keep them (response_cache in the configuration), by content:
// the same inputs of the same tenant for the same load of a model get the same answer without a
// run. Bounded in bytes: of the tenant that has the most, the least recently used goes.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "engine/base/hash.h"
#include "engine/base/mutex.h"
#include "server/serving/infer.h"

namespace telegrad {

// Thread-safe.
class ResponseCache {
 public:
  explicit ResponseCache(int64_t most_bytes) : most_bytes_(most_bytes) {}

  // Null where it is not there.
  std::shared_ptr<const InferResult> Find(const Digest& key);
  // Keeps a copy, unless it has more bytes than a quarter of the whole.
  void Put(const std::string& tenant, const Digest& key, const InferResult& result);

  int64_t bytes() const;

 private:
  struct Entry {
    Digest key;
    std::shared_ptr<const InferResult> result;
    int64_t bytes = 0;
  };
  using Entries = std::list<Entry>;
  struct Share {
    Entries entries;  // the most recently used first
    int64_t bytes = 0;
  };
  using Shares = std::map<std::string, Share>;
  struct Place {
    Shares::iterator share;
    Entries::iterator entry;
  };
  void DropOneLocked(Entries* dropped) TG_REQUIRES(mutex_);

  const int64_t most_bytes_;
  mutable Mutex mutex_;
  Shares shares_ TG_GUARDED_BY(mutex_);  // by tenant, of those that have any
  absl::flat_hash_map<Digest, Place> by_key_ TG_GUARDED_BY(mutex_);
  int64_t bytes_ TG_GUARDED_BY(mutex_) = 0;
};

// What an answer depends on: who asks, which load of a model, and the request's tensors. `inputs`
// are by the model's inputs which of the request's.
Digest ResponseKey(const std::string& tenant, uint64_t load, const InferRequest& request,
                   const std::vector<size_t>& inputs);

}  // namespace telegrad
