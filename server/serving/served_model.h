// One version of a model as it is served: its inputs and outputs, its forms, its statistics, and
// a queue for each tenant that sends requests. The rest is immutable. Its users hold references,
// so that another version can replace it on its device at any time.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/serving/alarm.h"
#include "server/serving/batcher.h"
#include "server/serving/form_cache.h"
#include "server/serving/infer.h"
#include "server/serving/model_config.h"
#include "server/serving/model_devices.h"
#include "server/serving/statistics.h"

namespace telegrad {

struct StepModels;

// What the load of a model needs to begin again once room is made for it.
struct LoadRoom : FormRoom {
  // What it has put on devices, which stays there meanwhile.
  std::vector<FormCache::FormPtr> kept;
};

class ServedModel : public std::enable_shared_from_this<ServedModel> {
 public:
  // What it has on one of its devices.
  struct Instance {
    Instance(const ModelDevice& device, const ModelConfig& config,
             const std::shared_ptr<FormSource>& source)
        : maker(*device.maker),
          count(device.count),
          forms(std::make_shared<FormCache>(device.maker, config, source)) {}

    const FormMaker& maker;
    const int64_t count;  // see ModelDevice
    const std::shared_ptr<FormCache> forms;
    LearnedTime time{{.skipped = 1}};    // of the device's for a batch, lately
    std::atomic<int64_t> usual_rows{0};  // of a batch; see BatchSize::usual
    // From when on a form may be made that no request needs, as the clock has it.
    std::atomic<int64_t> next_form_ns{0};
    std::atomic<int64_t> avoid_ns{0};  // until then, as the clock has it: a run was lost there
  };

  // Compiles what has to be there before the first request: the smallest and the preferred batch
  // sizes, where all other dimensions are known. `config` is complete but for what only the
  // compiled model tells of its outputs. RESOURCE_EXHAUSTED where it does not fit; then see `room`,
  // which is not null. Long: for a thread that compiles.
  static absl::StatusOr<std::shared_ptr<ServedModel>> Load(
      const std::vector<ModelDevice>& devices, Alarm* alarm, ModelConfig config,
      std::string version, std::shared_ptr<FormSource> source,
      std::vector<std::vector<std::string>> labels, LoadRoom* room);

  // An ensemble whose steps are run one by one; they are loaded.
  static absl::StatusOr<std::shared_ptr<ServedModel>> OfSteps(
      const std::vector<ModelDevice>& devices, Alarm* alarm, ModelConfig config,
      std::string version, StepModels steps, std::vector<std::vector<std::string>> labels);

  // Answers the request by `done`, now or later.
  void Infer(const std::shared_ptr<Tenant>& tenant, InferRequest request, InferDone done);

  // Whether its batches copy inputs and outputs from and to memory of devices themselves. Those of
  // a model whose requests are looked at before they run do not.
  bool TakesDeviceParts() const {
    return !config_.by_value && config_.ragged.empty() && !config_.cached && steps_ == nullptr;
  }
  const ModelConfig& config() const { return config_; }
  const std::string& version() const { return version_; }
  ServingStatistics& statistics() { return statistics_; }
  // When it was loaded or last had a request, in milliseconds since the epoch; none while one is
  // waiting or running.
  std::optional<uint64_t> IdleSince() const;
  const std::vector<std::unique_ptr<Instance>>& instances() const { return instances_; }
  // OK if one of its devices takes work, or UNAVAILABLE with why the first one does not.
  absl::Status CheckDevices() const;
  // Of its weights, on all devices, and on each by its name.
  int64_t weight_bytes() const;
  std::map<std::string, int64_t> WeightBytesByDevice() const;
  // Each ends once weights that it has are gone; see FormCache::gone.
  std::vector<std::shared_ptr<Ending>> Gone() const;
  // The clock, threads and owner, which are the same on all devices.
  const FormMaker& maker() const { return maker_; }
  Alarm& alarm() const { return alarm_; }
  const std::vector<int64_t>& batch_sizes() const { return batch_sizes_; }
  // Of a request's inputs, for a model that depends on them. The tenant pays while they are kept.
  absl::StatusOr<InputValues> ValuesOf(const Waiting& waiting, Tenant& tenant) const;
  // Of an output by its number; empty where it has none.
  const std::vector<std::string>& labels(size_t output) const { return labels_[output]; }

  ServedModel(const std::vector<ModelDevice>& devices, Alarm* alarm, ModelConfig config,
              std::string version, const std::shared_ptr<FormSource>& source,
              std::vector<std::vector<std::string>> labels);

 private:
  absl::StatusOr<FormCache::FormPtr> MakeEverywhere(const FormKey& key, int64_t rows,
                                                    const InputValues& values,
                                                    LoadRoom* room) const;
  bool AnswerFromCache(const Tenant& tenant, Waiting* waiting);
  absl::StatusOr<InferResult> Paid(const Tenant& tenant,
                                   const std::shared_ptr<const InferResult>& kept) const;
  absl::Status CheckCache() const;
  absl::Status WarmUp(LoadRoom* room);
  absl::Status WarmUpByValue(LoadRoom* room);
  absl::Status MakeSamples(LoadRoom* room);
  absl::Status LearnOutputs(const FormCache::FormPtr& form);
  absl::StatusOr<Waiting> Admitted(InferRequest request) const;
  absl::Status CheckInput(const InferInput& input, const TensorSpec& spec) const;
  std::shared_ptr<Batcher> BatcherOf(const std::shared_ptr<Tenant>& tenant);
  void Trim();

  const FormMaker& maker_;
  Alarm& alarm_;
  ModelConfig config_;
  const std::string version_;
  const uint64_t loaded_ms_;
  const uint64_t load_;  // a number that no other load of a model has
  const std::vector<int64_t> batch_sizes_;
  std::vector<std::vector<std::string>> labels_;
  std::vector<std::unique_ptr<Instance>> instances_;
  std::shared_ptr<const StepModels> steps_;  // of an ensemble without a graph of its own, else null
  ServingStatistics statistics_;
  Mutex mutex_;
  std::map<const Tenant*, std::shared_ptr<Batcher>> batchers_ TG_GUARDED_BY(mutex_);
  bool trimming_ TG_GUARDED_BY(mutex_) = false;  // an alarm is set
};

}  // namespace telegrad
