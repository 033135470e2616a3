// The forms of one version of a model, by the shapes of its inputs. Bounded: the least recently
// used goes, and a run in flight keeps it.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "server/serving/form.h"

namespace telegrad {

using InputShapes = std::vector<Shape>;

// Thread-safe.
class FormCache : public std::enable_shared_from_this<FormCache> {
 public:
  using FormPtr = std::shared_ptr<const Form>;
  using Done = std::function<void(const absl::StatusOr<FormPtr>&)>;
  static constexpr size_t kMost = 64;
  static constexpr size_t kMostMaking = 8;  // forms of one version made at a time

  FormCache(const FormMaker* maker, ModelConfig config, std::shared_ptr<ModelSource> source)
      : maker_(*maker), config_(std::move(config)), source_(std::move(source)) {}

  // Null if it is not there.
  FormPtr Find(const InputShapes& shapes);
  // Makes it if need be, on a thread that compiles, once for all who ask meanwhile. RESOURCE_
  // EXHAUSTED where `payer` may not compile now, or where too many are being made.
  void Get(const InputShapes& shapes, int64_t rows, const std::shared_ptr<Tenant>& payer,
           Done done);
  // The same on this thread.
  absl::StatusOr<FormPtr> Make(const InputShapes& shapes, int64_t rows, Tenant& payer);

  // Of the weights of one form: the most of any.
  int64_t weight_bytes() const;
  size_t size() const;

 private:
  struct Entry {
    FormPtr form;  // null while it is made
    std::vector<Done> waiting;
    uint64_t used = 0;
  };
  void Made(const InputShapes& shapes, const absl::StatusOr<FormPtr>& form);

  const FormMaker& maker_;
  const ModelConfig config_;
  const std::shared_ptr<ModelSource> source_;
  mutable std::mutex mutex_;
  std::map<InputShapes, Entry> forms_;
  size_t making_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace telegrad
