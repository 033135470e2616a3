// Answers to requests of models that keep them (response_cache in the configuration), by content:
// the same inputs of the same tenant for the same load of a model get the same answer without a
// run. Bounded in bytes; the least recently used goes.
#pragma once

#include <cstdint>
#include <list>
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
  void Put(const Digest& key, const InferResult& result);

  int64_t bytes() const;

 private:
  struct Entry {
    Digest key;
    std::shared_ptr<const InferResult> result;
    int64_t bytes = 0;
  };
  using Entries = std::list<Entry>;

  const int64_t most_bytes_;
  mutable Mutex mutex_;
  Entries entries_ TG_GUARDED_BY(mutex_);  // the most recently used first
  absl::flat_hash_map<Digest, Entries::iterator> by_key_ TG_GUARDED_BY(mutex_);
  int64_t bytes_ TG_GUARDED_BY(mutex_) = 0;
};

// What an answer depends on: who asks, which load of a model, and the request's tensors. `inputs`
// are by the model's inputs which of the request's.
Digest ResponseKey(const std::string& tenant, uint64_t load, const InferRequest& request,
                   const std::vector<size_t>& inputs);

}  // namespace telegrad
