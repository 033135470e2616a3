// Models that copy their input, on the real CPU device, without a daemon and without compiling:
// what a form is said to need decides whether it fits.
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/serving/form_cache.h"
#include "tests/fakes/copy_engine.h"
#include "tests/server/copy_graph.h"

namespace telegrad {

// y = x, of floats.
class CopySource final : public FormSource {
 public:
  std::atomic<int> reads = 0;

  absl::StatusOr<ReadForm> Read(const ImportOptions& options, Budget*) override {
    ++reads;
    const Shape shape = options.input_shapes.find("x")->second;
    ReadForm out;
    out.model.graph.graph = CopyGraph(NumElements(shape));
    out.model.graph.hash = ContentHash(out.model.graph.graph.root());
    const auto add = [&](ImportedSlot::Role role, const std::string& name) {
      out.model.slots.push_back({.role = role,
                                 .name = name,
                                 .model_names = {name},
                                 .dtype = DType::kFloat32,
                                 .shape = shape,
                                 .bytes = NumElements(shape) * 4});
      out.model.contents.emplace_back();
    };
    add(ImportedSlot::Role::kOutput, "y");
    add(ImportedSlot::Role::kInput, "x");
    return out;
  }
};

class FormsTest : public ::testing::Test {
 protected:
  static constexpr int64_t kMemory = 1 << 20;   // of all forms
  static constexpr int64_t kTooMuch = 1 << 21;  // which does not fit in there

  FormsTest() {
    CpuOptions options;
    options.threads = 1;
    options.memory_limit = 256 << 20;
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(*OpenCpu(options));
    pool_ = *DevicePool::Create(std::move(devices));
    env_ = {pool_.get(), &workers_, &compilers_, &metrics_, {}};
    Quotas quotas;
    quotas[Quota::kDeviceMemory] = kMemory;
    owner_ = MakeTenant("owner", quotas);
    tenant_ = MakeTenant("tenant", {});
    Device& device = *pool_->devices().front();
    weights_ = std::make_unique<WeightStore>(pool_.get(), &device, owner_.get());
    maker_ = {.env = &env_,
              .device = &device,
              .owner = owner_.get(),
              .weights = weights_.get(),
              .responses = nullptr,
              .read = nullptr,
              .make_room = [this](const std::string&) { return MakeRoom(); },
              .pooled = &device,
              .expected_ns = std::make_shared<std::atomic<int64_t>>(0)};
    config_.name = "copies";
    config_.inputs = {{.name = "x", .dtype = DType::kFloat32, .shape = {-1, -1}}};
    config_.outputs = {{.name = "y", .dtype = DType::kFloat32, .shape = {-1, -1}}};
  }
  ~FormsTest() override {
    compilers_.Stop();
    workers_.Stop();
  }

  std::shared_ptr<Tenant> MakeTenant(const std::string& name, const Quotas& quotas) {
    const std::shared_ptr<Engine> engine(&engine_, [](Engine*) {});
    return std::make_shared<Tenant>(name, Accounts(name, quotas, "ask for more"), engine,
                                    &metrics_);
  }
  std::shared_ptr<FormCache> MakeCache() {
    return std::make_shared<FormCache>(&maker_, config_, source_);
  }
  // Asks for a form; what becomes of it is in the future.
  std::future<absl::StatusOr<FormCache::FormPtr>> Get(FormCache& cache, const Shape& shape,
                                                      FormCache::Wanted wanted,
                                                      std::shared_ptr<Tenant> payer = nullptr) {
    auto made = std::make_shared<std::promise<absl::StatusOr<FormCache::FormPtr>>>();
    cache.Get({.shapes = {shape}}, 0, nullptr, payer == nullptr ? tenant_ : payer,
              std::move(wanted),
              [made](const absl::StatusOr<FormCache::FormPtr>& form) { made->set_value(form); });
    return made->get_future();
  }
  static absl::Status Always() { return absl::OkStatus(); }
  // Until the only thread that compiles has done all that was posted for `tenant_` so far: a pool
  // keeps the order of a tenant's tasks alone.
  void AwaitCompilers() {
    std::promise<void> done;
    compilers_.Post([&] { done.set_value(); }, tenant_->share);
    done.get_future().wait();
  }
  std::shared_ptr<Ending> MakeRoom() {
    ++asked_for_room_;
    return room_;
  }

  fakes::CopyEngine engine_;
  Metrics metrics_;
  std::unique_ptr<DevicePool> pool_;
  TaskPool workers_{1};
  TaskPool compilers_{1};
  Environment env_;
  std::shared_ptr<Tenant> owner_, tenant_;
  std::unique_ptr<WeightStore> weights_;
  FormMaker maker_;
  ModelConfig config_;
  std::shared_ptr<CopySource> source_ = std::make_shared<CopySource>();
  std::atomic<int> asked_for_room_ = 0;
  std::shared_ptr<Ending> room_;  // what is answered to that
};

}  // namespace telegrad
