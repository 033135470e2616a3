// A device with two queues for copies: what clients read goes through one of them, what they write
// through the other, and neither waits for the other but where it has to.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "devices/null/null_device.h"
#include "server/data/staging.h"
#include "tests/fakes/copy_engine.h"
#include "tests/server/transfer_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kLong = absl::Seconds(60);

class CopyQueuesTest : public TransferTest {
 protected:
  // In place of the session's devices: the host's, and one that only counts.
  void UseNull(int copy_queues) {
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(*OpenCpu({.threads = 1, .memory_limit = 256 << 20}));
    devices.push_back(OpenNull({.copy_queues = copy_queues}));
    null_ = devices[1].get();
    pool_ = *DevicePool::Create(std::move(devices));
    env_.devices = pool_.get();
  }
  // The queue of that kind is busy until `busy` opens.
  void Occupy(const fakes::Gate& busy, QueueKind kind = QueueKind::kCopy) {
    const std::shared_ptr<Memory> memory = *null_->Alloc(8);
    Command copy{.kind = CommandKind::kCopy, .launch = {}, .copy = {{0, 0}, {0, 4}, 4}};
    const TimelinePoint waits[] = {busy.point()};
    ASSERT_TRUE(null_->queue(kind).Submit(*null_->Encode({copy}), {{memory, 0, 8}}, waits).ok());
  }
  std::vector<std::string> QueueNames() {
    std::vector<std::string> out;
    for (const auto& [name, queue] : pool_->QueuesOf(*null_)) out.emplace_back(name);
    return out;
  }
  uint64_t Submitted(size_t queue) { return null_->queues()[queue]->last().value; }

  Device* null_ = nullptr;
};

TEST_F(CopyQueuesTest, HaveAFairQueueEach) {
  UseNull(0);
  EXPECT_THAT(QueueNames(), ElementsAre("compute"));
  UseNull(1);
  EXPECT_THAT(QueueNames(), ElementsAre("compute", "copy"));
  for (const int copy_queues : {2, 3}) {
    UseNull(copy_queues);
    EXPECT_THAT(QueueNames(), ElementsAre("compute", "copy", "copy_out"));
  }
}

// While the device is at an upload, it copies what another buffer's reader wants.
TEST_F(CopyQueuesTest, ADownloadPassesAnUpload) {
  UseNull(2);
  fakes::Gate busy;
  busy.Close();
  Occupy(busy);
  Submit(AllocOp{1, 8, null_->name()});
  Submit(AllocOp{2, 8, null_->name()});
  StartUpload(1, 1, 8);
  EXPECT_TRUE(Chunk(1, 0, "uploaded").ok());
  const auto queues = std::make_shared<SessionQueues>(pool_.get(), tenant_->share);
  const auto device = *null_->Alloc(8), host = *pool_->devices()[0]->Alloc(8);
  const auto up = EnqueueCopy(*queues, *null_, Part(device, 0, 4), Part(host, 0, 4), {});
  const auto down = EnqueueCopy(*queues, *null_, Part(host, 4, 4), Part(device, 4, 4), {});
  ASSERT_TRUE(up.ok() && down.ok());
  EXPECT_EQ(down->Wait(kLong), absl::OkStatus());
  EXPECT_EQ(up->timeline->value(), 0u);
  EXPECT_EQ(metrics_.count(Metric::kBytesWritten), 0);
  busy.Open();
  EXPECT_EQ(up->Wait(kLong), absl::OkStatus());
  EXPECT_TRUE(Sync().ok());
  EXPECT_EQ(metrics_.count(Metric::kBytesWritten), 8);
  EXPECT_EQ(Submitted(1), 3u);
  EXPECT_EQ(Submitted(2), 1u);
  session().Close();
}

// A reader of what is uploaded waits for the upload.
TEST_F(CopyQueuesTest, WhatHasToBeOrderedIs) {
  UseNull(2);
  fakes::Gate busy;
  busy.Close();
  Occupy(busy);
  const auto tenant = MakeTenant("test");
  const auto queues = std::make_shared<SessionQueues>(pool_.get(), tenant->share);
  const auto device = *null_->Alloc(8), host = *pool_->devices()[0]->Alloc(8);
  const auto up = EnqueueCopy(*queues, *null_, Part(device, 0, 4), Part(host, 0, 4), {});
  ASSERT_TRUE(up.ok());
  const auto down = EnqueueCopy(*queues, *null_, Part(host, 4, 4), Part(device, 0, 4), {&*up, 1});
  ASSERT_TRUE(down.ok());
  EXPECT_EQ(Submitted(2), 0u) << "the device does not have it yet";
  busy.Open();
  EXPECT_EQ(down->Wait(kLong), absl::OkStatus());
  EXPECT_EQ(up->timeline->value(), 1u);
  EXPECT_EQ(Submitted(2), 1u);
}

// Reads of a session take the one queue and its uploads the other, and what is read is not written
// meanwhile.
TEST_F(CopyQueuesTest, ASessionReadsAndWritesByBoth) {
  UseNull(2);
  Submit(AllocOp{1, 8, null_->name()});
  StartUpload(1, 1, 8);
  EXPECT_TRUE(Chunk(1, 0, "uploaded").ok());
  EXPECT_TRUE(Sync().ok());
  EXPECT_EQ(Submitted(1), 1u);
  EXPECT_EQ(Submitted(2), 0u);
  Submit(AllocOp{2, 8, null_->name()});
  ASSERT_TRUE(StatusOf(StartDownload(2, 2, 8)).ok());
  EXPECT_EQ(Pull(2, 0, 8).size(), 8u);
  EXPECT_EQ(Bytes(Read(1, 8)).size(), 8u);
  EXPECT_EQ(Submitted(1), 1u);
  EXPECT_EQ(Submitted(2), 2u);
  fakes::Gate busy;
  busy.Close();
  Occupy(busy, QueueKind::kCopyOut);
  const uint64_t read = Submit(ReadOp{1, 0, 8});
  StartUpload(1, 3, 8);
  EXPECT_TRUE(Chunk(3, 0, "again...").ok());
  EXPECT_EQ(Submitted(1), 1u) << "it is being read";
  busy.Open();
  EXPECT_TRUE(Sync().ok());
  EXPECT_TRUE(StatusOf(read).ok());
  EXPECT_EQ(Submitted(1), 2u);
  session().Close();
}

}  // namespace
}  // namespace telegrad
