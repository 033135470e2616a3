// The interface of the front ends to models: which tenant may use which model, and the models
// themselves.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/admin/metrics.h"
#include "server/admin/ticker.h"
#include "server/serving/alarm.h"
#include "server/serving/model_devices.h"
#include "server/serving/repository.h"
#include "server/serving/shared_regions.h"
#include "server/serving/trace_settings.h"
#include "server/tenant/tenant.h"

namespace telegrad {

struct ServingOptions {
  enum class Control { kStart, kPoll, kExplicit };
  std::vector<ModelRoot> roots;
  Control control = Control::kStart;
  std::chrono::seconds poll{15};
  std::vector<std::string> devices;  // of the pool; none: the first
  bool evict = false;                // models that are not used, where others need their memory
  int64_t response_cache = 0;        // bytes of answers that are kept for repetition
  std::string shared_memory;  // what names of memory that clients may share begin with; "": none
  std::vector<std::string> cuda_shared_memory;  // tenants that may share it; "*": all
  ReadModel read;
  ParseModelConfig parse, parse_json;  // see RepositoryOptions
};

// Thread-safe.
class ModelServer {
 public:
  // `owner` pays for weights, executables and their temporaries. What is pointed to outlives it.
  // Models are loaded in the background from now on.
  static absl::StatusOr<std::unique_ptr<ModelServer>> Start(ServingOptions options,
                                                            const Environment* env,
                                                            std::shared_ptr<Tenant> owner);
  ~ModelServer();

  // PERMISSION_DENIED unless the tenant was granted the model; says nothing about whether there is
  // such a model.
  static absl::Status MayUse(const Tenant& tenant, std::string_view model);

  // The full name of the model that the tenant means by `name`: of those that it may use, the one
  // of that name, or the one that has it in its namespace. INVALID_ARGUMENT where it may use
  // several such.
  absl::StatusOr<std::string> FullNameFor(const Tenant& tenant, std::string_view name) const;

  void Infer(const std::shared_ptr<Tenant>& tenant, InferRequest request, InferDone done);
  absl::StatusOr<std::shared_ptr<ServedModel>> Find(const Tenant& tenant, std::string_view model,
                                                    std::string_view version) const;
  ModelRepository& repository() { return *repository_; }
  const ModelRepository& repository() const { return *repository_; }

  const Clock& clock() const { return *maker_.env->clock; }
  // The protocol's extensions that are served, by their public names.
  std::vector<std::string_view> Extensions() const;
  // The two kinds of regions of a tenant have names in common.
  absl::Status RegisterRegion(const std::string& tenant, SharedRegions::Region region);
  absl::Status RegisterRegion(const std::string& tenant, DeviceRegions::Region region,
                              std::string_view handle);
  SharedRegions& regions() { return regions_; }
  DeviceRegions& device_regions() { return device_regions_; }
  // The settings of tracing, for all models or for one, after `values` are set. NOT_FOUND for a
  // model that is in no folder.
  absl::StatusOr<TraceValues> Traces(const std::string& model, const TraceValues& values);

  // Requests are refused from now on.
  void Drain() { draining_ = true; }
  bool Ready() const { return !draining_ && repository_->Ready(); }
  // Whether a request would be answered: as Find, and UNAVAILABLE while the server drains.
  absl::Status CheckReady(const Tenant& tenant, std::string_view model,
                          std::string_view version) const;

  // By Triton's names, with the labels model and version.
  std::vector<LabelledMetric> Metrics() const;

 private:
  void InferNow(const std::shared_ptr<Tenant>& tenant, InferRequest request, InferDone done);
  absl::Status Admit(Tenant& tenant, const InferRequest& request) const;
  InferDone Traced(const Tenant& tenant, InferRequest* request, InferDone done);
  absl::Status TakeRegions(Tenant& tenant, InferRequest* request) const;
  void FetchInputs(const std::shared_ptr<Tenant>& tenant, std::shared_ptr<ServedModel> model,
                   InferRequest request, InferDone done) const;
  void GiveRegions(const std::shared_ptr<Tenant>& tenant, const std::vector<WantedOutput>& wanted,
                   InferResult result, const InferDone& done) const;
  ModelServer(ServingOptions options, const Environment* env, std::shared_ptr<Tenant> owner);

  const ServingOptions options_;
  const std::shared_ptr<Tenant> owner_;
  SharedRegions regions_;
  DeviceRegions device_regions_;
  ResponseCache responses_;
  const FormMaker maker_;  // of no device
  ModelDevices devices_;
  Alarm alarm_;
  TraceSettings traces_;
  std::unique_ptr<ModelRepository> repository_;
  std::atomic<bool> draining_ = false;
  std::optional<Ticker> poller_;
};

}  // namespace telegrad
