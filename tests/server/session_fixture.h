// A session on the real CPU device, with runs that can be held at a gate.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/session/session.h"
#include "tests/fakes/copy_engine.h"
#include "tests/server/copy_graph.h"
#include "tests/server/session_ends.h"

namespace telegrad {

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    CpuOptions options;
    options.threads = 1;
    options.memory_limit = 256 << 20;
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(*OpenCpu(options));
    device_ = devices[0].get();
    pool_ = *DevicePool::Create(std::move(devices));
    env_ = {pool_.get(), &workers_, &compilers_, &metrics_, {}};
  }
  ~SessionTest() override {
    if (session_) session_->Close();
  }

  std::shared_ptr<Tenant> MakeTenant(std::string name) {
    const std::shared_ptr<Engine> engine(&engine_, [](Engine*) {});
    const auto tenant =
        std::make_shared<Tenant>(name, Accounts(name, quotas_, "ask for more"), engine, &metrics_);
    tenant->Grant(disks_);
    return tenant;
  }
  Session& session() {
    if (!session_) {
      tenant_ = MakeTenant("test");
      session_ = std::make_shared<Session>(env_, tenant_, terms_, sink_);
    }
    return *session_;
  }
  template <typename Op>
  uint64_t Submit(Op op) {
    EXPECT_TRUE(
        session().Submit(*sink_, {.id = ++last_id_, .action = MakeAction(std::move(op))}).ok());
    return last_id_;
  }
  uint64_t Alloc(uint64_t handle, uint64_t bytes) { return Submit(AllocOp{handle, bytes, ""}); }
  uint64_t Write(uint64_t handle, std::string bytes, uint64_t offset = 0) {
    return Submit(WriteOp{handle, offset, std::make_unique<StringPayload>(std::move(bytes))});
  }
  uint64_t Read(uint64_t handle, uint64_t bytes, uint64_t offset = 0) {
    return Submit(ReadOp{handle, offset, bytes});
  }
  // Copies `from` to `to`.
  uint64_t Run(uint64_t to, uint64_t from, bool quiet = false) {
    return Submit(RunOp{std::string(hash_.view()), {to, from}, quiet});
  }
  void Put(int64_t elements) {
    const FrozenGraph graph = CopyGraph(elements);
    hash_ = ContentHash(graph.root());
    const uint64_t id = Submit(PutOf(graph, /*compile=*/false));
    ASSERT_TRUE(sink_->Take(id).status.ok());
  }
  std::string Bytes(uint64_t read) {
    const Answer answer = sink_->Take(read);
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    if (!answer.status.ok()) return "error";
    const auto& result = As<ReadResult>(answer);
    if (!result.held) return result.copy;
    return std::string(static_cast<const char*>(result.held->memory()->host()) + result.at,
                       result.bytes);
  }
  absl::Status StatusOf(uint64_t id) { return sink_->Take(id).status; }
  absl::Status Sync() { return StatusOf(Submit(SyncOp{})); }

  fakes::CopyEngine engine_;
  Metrics metrics_;
  Device* device_ = nullptr;
  std::unique_ptr<DevicePool> pool_;
  TaskPool workers_{1};
  TaskPool compilers_{1};
  Environment env_;
  Quotas quotas_;  // of the tenants made from now on
  DiskGrants disks_ = {.write = {"*"}};
  SessionTerms terms_ = {.id = 1};
  std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
  std::shared_ptr<Tenant> tenant_;
  std::shared_ptr<Session> session_;
  Digest hash_;
  uint64_t last_id_ = 0;
};

}  // namespace telegrad
