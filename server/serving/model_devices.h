// The devices on which models run: those of the daemon's devices, local and remote ones, that
// the instance groups of a model select.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/serving/form.h"
#include "server/serving/model_config.h"

namespace telegrad {

// A device and how many batches of one tenant a model runs there at a time.
struct ModelDevice {
  const FormMaker* maker;
  int64_t count;
};

// Thread-safe.
class ModelDevices {
 public:
  // `base` is what makers of all devices have in common. `defaults`: for models that choose none;
  // empty: the first device that takes work. What is pointed to outlives this.
  ModelDevices(FormMaker base, std::vector<std::string> defaults)
      : base_(std::move(base)), defaults_(std::move(defaults)) {}

  // INVALID_ARGUMENT unless all defaults are devices that run models.
  absl::Status CheckDefaults();
  // Those that the groups of `config` choose, each device once; the groups then say which these
  // are. FAILED_PRECONDITION or NOT_FOUND where there is no such device.
  absl::StatusOr<std::vector<ModelDevice>> Choose(ModelConfig* config);

 private:
  absl::StatusOr<std::vector<Device*>> DevicesOf(const InstanceGroup& group) const;
  absl::StatusOr<std::vector<Device*>> Defaults() const;
  std::vector<Device*> Local(InstanceGroup::Kind kind) const;
  const FormMaker& MakerOf(Device& device);

  // What is made for a device when the first model chooses it.
  struct Room {
    WeightStore weights;
    FormMaker maker;
    Room(const FormMaker& base, Device* device, Device* view);
  };

  const FormMaker base_;
  const std::vector<std::string> defaults_;
  Mutex mutex_;
  std::map<const Device*, std::unique_ptr<Room>> rooms_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
