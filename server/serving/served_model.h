// One version of a model as it is served: what it takes and gives, its forms, its statistics, and
// a queue for each tenant that asks for it. Immutable but for these; whoever uses it keeps it, so
// that another version may take its place at any time.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/serving/alarm.h"
#include "server/serving/batcher.h"
#include "server/serving/form_cache.h"
#include "server/serving/infer.h"
#include "server/serving/model_config.h"
#include "server/serving/statistics.h"

namespace telegrad {

class ServedModel : public std::enable_shared_from_this<ServedModel> {
 public:
  // Compiles what has to be there before the first request: the smallest and the preferred batch
  // sizes, where all other dimensions are known. `config` is complete but for what only the
  // compiled model tells of its outputs. Long: for a thread that compiles.
  static absl::StatusOr<std::shared_ptr<ServedModel>> Load(
      const FormMaker* maker, Alarm* alarm, ModelConfig config, std::string version,
      std::shared_ptr<FormSource> source, std::vector<std::vector<std::string>> labels);

  // Answers the request by `done`, now or later.
  void Infer(const std::shared_ptr<Tenant>& tenant, InferRequest request, InferDone done);

  const ModelConfig& config() const { return config_; }
  const std::string& version() const { return version_; }
  ServingStatistics& statistics() { return statistics_; }
  FormCache& forms() { return *forms_; }
  const FormMaker& maker() const { return maker_; }
  Alarm& alarm() const { return alarm_; }
  const std::vector<int64_t>& batch_sizes() const { return batch_sizes_; }
  // Of a request's inputs, for a model that depends on them. The tenant pays while they are kept.
  absl::StatusOr<InputValues> ValuesOf(const Waiting& waiting, Tenant& tenant) const;
  // Of an output by its number; empty where it has none.
  const std::vector<std::string>& labels(size_t output) const { return labels_[output]; }

  ServedModel(const FormMaker* maker, Alarm* alarm, ModelConfig config, std::string version,
              std::shared_ptr<FormSource> source, std::vector<std::vector<std::string>> labels);

 private:
  bool AnswerFromCache(const Tenant& tenant, Waiting* waiting);
  absl::Status WarmUp();
  absl::Status WarmUpByValue();
  absl::Status MakeSamples();
  absl::Status LearnOutputs(const FormCache::FormPtr& form);
  absl::StatusOr<Waiting> Admitted(InferRequest request) const;
  absl::Status CheckInput(const InferInput& input, const TensorSpec& spec) const;
  std::shared_ptr<Batcher> BatcherOf(const std::shared_ptr<Tenant>& tenant);
  void Trim();

  const FormMaker& maker_;
  Alarm& alarm_;
  ModelConfig config_;
  const std::string version_;
  const uint64_t load_;  // a number that no other load of a model has
  const std::vector<int64_t> batch_sizes_;
  std::vector<std::vector<std::string>> labels_;
  std::shared_ptr<FormCache> forms_;
  ServingStatistics statistics_;
  Mutex mutex_;
  std::map<const Tenant*, std::shared_ptr<Batcher>> batchers_ TG_GUARDED_BY(mutex_);
  bool trimming_ TG_GUARDED_BY(mutex_) = false;  // an alarm is set
};

}  // namespace telegrad
