#include "server/serving/model_devices.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {
namespace {

using Kind = InstanceGroup::Kind;

// By its name: CPU:0, CUDA:1; those of other machines have the machine's before it, b/CPU:0.
Kind KindOf(const Device& device) {
  const std::string_view name = device.name();
  if (name.find('/') != name.npos || name.starts_with("NULL:")) return Kind::kModel;
  return name.starts_with("CPU:") ? Kind::kCpu : Kind::kGpu;
}

bool RunsModels(const Device& device) { return device.accepts() != ProgramLevel::kNothing; }

}  // namespace

ModelDevices::Room::Room(const FormMaker& base, Device* device, Device* view)
    : weights(base.env->devices, view, base.owner), maker(base) {
  maker.device = view;
  maker.pooled = device;
  maker.weights = &weights;
  maker.expected_ns = std::make_shared<std::atomic<int64_t>>(0);
}

const FormMaker& ModelDevices::MakerOf(Device& device) {
  const MutexLock lock(mutex_);
  std::unique_ptr<Room>& room = rooms_[&device];
  if (room == nullptr) {
    room = std::make_unique<Room>(base_, &device, base_.owner->View(device));
  }
  return room->maker;
}

std::vector<Device*> ModelDevices::Local(Kind kind) const {
  std::vector<Device*> out;
  for (const auto& device : base_.env->devices->devices()) {
    if (RunsModels(*device) && KindOf(*device) == kind) out.push_back(device.get());
  }
  return out;
}

absl::StatusOr<std::vector<Device*>> ModelDevices::Defaults() const {
  std::vector<Device*> out;
  std::vector<std::string> names = defaults_;
  if (names.empty()) names.emplace_back();
  for (const std::string& name : names) {
    TG_ASSIGN_OR_RETURN(out.emplace_back(), base_.env->devices->Find(name));
    if (RunsModels(*out.back())) continue;
    return InvalidArgument("--models-device ", out.back()->name(), " runs no models");
  }
  return out;
}

absl::Status ModelDevices::CheckDefaults() { return Defaults().status(); }

absl::StatusOr<std::vector<Device*>> ModelDevices::DevicesOf(const InstanceGroup& group) const {
  std::vector<Device*> out;
  for (const std::string& name : group.devices) {
    TG_ASSIGN_OR_RETURN(out.emplace_back(), base_.env->devices->Find(name));
    if (RunsModels(*out.back())) continue;
    return InvalidArgument("instance_group: device ", out.back()->name(), " runs no models");
  }
  if (!out.empty()) return out;
  const bool gpu = group.kind == Kind::kGpu || !group.gpus.empty();
  if (!gpu && group.kind != Kind::kCpu) return Defaults();
  const std::vector<Device*> local = Local(gpu ? Kind::kGpu : Kind::kCpu);
  if (local.empty()) {
    return FailedPrecondition("instance_group asks for ", gpu ? "KIND_GPU" : "KIND_CPU",
                              ", and this server has no ", gpu ? "GPU" : "CPU device",
                              "; say KIND_AUTO, or devices by their names");
  }
  for (const int64_t number : group.gpus) {
    if (number >= static_cast<int64_t>(local.size())) {
      return FailedPrecondition("instance_group asks for GPU ", number, ", and this server has ",
                                local.size());
    }
    out.push_back(local[static_cast<size_t>(number)]);
  }
  return out.empty() ? local : out;
}

absl::StatusOr<std::vector<ModelDevice>> ModelDevices::Choose(ModelConfig* config) {
  std::vector<ModelDevice> out;
  std::vector<InstanceGroup> groups = config->groups;
  if (groups.empty()) groups.emplace_back();
  for (const InstanceGroup& group : groups) {
    TG_ASSIGN_OR_RETURN(const std::vector<Device*> devices, DevicesOf(group));
    for (Device* const device : devices) {
      const FormMaker& maker = MakerOf(*device);
      const auto known = std::ranges::find(out, &maker, &ModelDevice::maker);
      if (known != out.end()) {
        known->count += group.count;
      } else {
        out.push_back({&maker, group.count});
      }
    }
  }
  config->groups.clear();
  for (const ModelDevice& place : out) {
    Device& device = *place.maker->pooled;
    InstanceGroup& group = config->groups.emplace_back();
    group.kind = KindOf(device);
    group.count = place.count;
    group.devices = {device.name()};
    if (group.kind != Kind::kGpu) continue;
    const std::vector<Device*> gpus = Local(Kind::kGpu);
    group.gpus = {std::ranges::find(gpus, &device) - gpus.begin()};
  }
  return out;
}

}  // namespace telegrad
