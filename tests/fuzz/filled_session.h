// Sessions that have a write and a read under way, on a CPU device of little memory: the state
// in which connections that carry tensor data are fuzzed.
#pragma once

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "server/admin/log.h"
#include "server/operations/operations.h"
#include "server/session/session_registry.h"
#include "tests/fakes/copy_engine.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fuzz/fuzz.h"

namespace telegrad::fuzz {

class SessionHost {
 public:
  static constexpr int64_t kBuffer = 16;  // bytes of either buffer
  static constexpr uint64_t kUpload = 1, kDownload = 2;

  SessionHost() {
    SetLogLevel(LogLevel::kOff);
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(*OpenCpu({.threads = 1, .memory_limit = 64 << 20}));
    pool_ = *DevicePool::Create(std::move(devices));
    env_ = {pool_.get(), &workers_, &compilers_, &metrics_, {}, &clock_};
    tenant_ = std::make_shared<Tenant>("fuzz", std::make_shared<fakes::CopyEngine>(), &metrics_);
    registry_ = std::make_unique<SessionRegistry>(env_);
  }

  std::shared_ptr<Session> Open() {
    const auto sink = std::make_shared<NoSink>();
    const auto session = *registry_->Create(tenant_, /*resumable=*/false, 0, sink);
    uint64_t id = 0;
    const auto submit = [&](auto op) {
      FUZZ_CHECK(session->Submit(*sink, {.id = ++id, .action = MakeAction(std::move(op))}).ok());
    };
    submit(AllocOp{1, kBuffer, ""});
    submit(AllocOp{2, kBuffer, ""});
    submit(WriteOp{1, 0, nullptr, kUpload, kBuffer});
    submit(ReadOp{2, 0, kBuffer, kDownload});
    return session;
  }
  // Waits until nothing is left of it.
  void Close(const std::shared_ptr<Session>& session) {
    registry_->Close(session, absl::OkStatus());
    while (metrics_.count(Metric::kBuffers) != 0 || used(Quota::kSharedFiles) != 0) {
      std::this_thread::yield();
    }
    FUZZ_CHECK(used(Quota::kHostStaging) == 0);
  }

  SessionRegistry& registry() { return *registry_; }
  TaskPool& workers() { return workers_; }
  Metrics& metrics() { return metrics_; }
  const std::shared_ptr<Tenant>& tenant() const { return tenant_; }

 private:
  class NoSink final : public AnswerSink {
    void OnAnswer(Answer) override {}
    void OnProgress() override {}
    void OnDetached(const absl::Status&) override {}
  };

  int64_t used(Quota quota) const { return tenant_->accounts[quota].used(); }

  fakes::ManualClock clock_;
  Metrics metrics_;
  std::unique_ptr<DevicePool> pool_;
  TaskPool workers_{2}, compilers_{1};
  Environment env_;
  std::shared_ptr<Tenant> tenant_;
  std::unique_ptr<SessionRegistry> registry_;
};

}  // namespace telegrad::fuzz
