// The choice of a device for sessions that name none, in a pool of different devices, and runs
// that cannot meet their deadline.
#include "engine/base/rate_limit.h"
#include "tests/fakes/manual_clock.h"
#include "tests/server/session_fixture.h"

namespace telegrad {
namespace {

class PlacementTest : public SessionTest {
 protected:
  // CPU:0 of 256 MiB, CPU:1 of 64 MiB, CPU:2 of 256 MiB.
  PlacementTest() {
    std::vector<std::unique_ptr<Device>> devices;
    for (const int64_t memory : {256, 64, 256}) {
      CpuOptions options;
      options.index = static_cast<int>(devices.size());
      options.threads = 1;
      options.memory_limit = memory << 20;
      devices.push_back(*OpenCpu(options));
    }
    several_ = *DevicePool::Create(std::move(devices), {}, &clock_);
    env_.devices = several_.get();
    env_.clock = &clock_;
  }
  ~PlacementTest() override {
    gate_.Open();
    for (const auto& device : several_->devices()) {
      several_->queue(*device, QueueKind::kCompute)->Drained().Wait().IgnoreError();
    }
    if (session_) session_->Close();
    session_ = nullptr;
  }

  Device& device(size_t n) { return *several_->devices()[n]; }
  // Work that is predicted to take so long waits in the device's queue until the end of the test.
  void Fill(size_t n, double ms, const std::shared_ptr<Share>& share, int works = 1) {
    Command copy;
    copy.kind = Command::Kind::kCopy;
    copy.copy = {{0, 0}, {1, 0}, 1};
    const auto memory = *device(n).Alloc(1);
    FairQueue* const queue = several_->queue(device(n), QueueKind::kCompute);
    lanes_.push_back(queue->NewLane(share));
    for (int i = 0; i < works; ++i) {
      SlicedWork work;
      work.slices = *EncodeSlices(device(n), {{copy, ms / 1e3 / works}});
      work.bindings = {{memory, 0, 1}, {*device(n).Alloc(1), 0, 1}};
      work.waits = {gate_.point()};
      queue->Submit(lanes_.back(), std::move(work));
    }
  }
  // The device that a new buffer without a name of one is on.
  std::string Placed(int64_t bytes = 4) {
    std::vector<int64_t> before;
    for (const auto& d : several_->devices()) before.push_back(d->memory_used());
    const absl::Status status = AllocSync(bytes);
    if (!status.ok()) return std::string(status.message());
    for (size_t i = 0; i < before.size(); ++i) {
      if (device(i).memory_used() > before[i]) return device(i).name();
    }
    return "nowhere";
  }
  absl::Status AllocSync(int64_t bytes) {
    const uint64_t id = Alloc(++handle_, static_cast<uint64_t>(bytes));
    TG_RETURN_IF_ERROR(Sync());
    return sink_->TakeIfThere(id).status;
  }
  void NewSession() {
    if (session_) session_->Close();
    session_ = nullptr;
    sink_ = std::make_shared<Sink>();
  }

  fakes::ManualClock clock_;
  fakes::Gate gate_ = [] {
    fakes::Gate gate;
    gate.Close();
    return gate;
  }();
  std::unique_ptr<DevicePool> several_;
  std::vector<std::shared_ptr<FairQueue::Lane>> lanes_;
  const std::shared_ptr<Share> stranger_ = std::make_shared<Share>("stranger", 1);
  uint64_t handle_ = 0;
};

TEST_F(PlacementTest, TheLeastPredictedQueueAndThenTheOrderOfTheList) {
  EXPECT_EQ(Placed(), "CPU:0") << "all are idle";
  NewSession();
  Fill(0, 2, stranger_);
  EXPECT_EQ(Placed(), "CPU:0") << "less than a segment";
  NewSession();
  Fill(0, 100, stranger_);
  Fill(1, 50, stranger_);
  EXPECT_EQ(Placed(), "CPU:2");
  NewSession();
  Fill(2, 60, stranger_);
  EXPECT_EQ(Placed(), "CPU:1");
}

TEST_F(PlacementTest, WhereItsDataIsCounts) {
  EXPECT_EQ(Placed(), "CPU:0");
  Fill(0, 1000, stranger_);
  EXPECT_EQ(Placed(), "CPU:0");
  Submit(FreeOp{{1, 2}});
  EXPECT_EQ(Placed(), "CPU:0") << "it has room, and its kernels are there";
}

TEST_F(PlacementTest, RoomCounts) {
  Fill(0, 100, stranger_);
  Fill(2, 50, stranger_);
  EXPECT_EQ(Placed(80 << 20), "CPU:2") << "CPU:1 is idle, and too small";
  NewSession();
  EXPECT_EQ(Placed(40 << 20), "CPU:1");
}

TEST_F(PlacementTest, DevicesThatTakeNoWorkAreLeftOut) {
  several_->SetTakesWork(device(0), false);
  EXPECT_EQ(Placed(), "CPU:1");
}

TEST_F(PlacementTest, CachedKernelsCount) {
  const auto put = [this] {
    const uint64_t id = Submit(PutOf(CopyGraph(1), /*compile=*/true));
    EXPECT_TRUE(StatusOf(id).ok());
  };
  put();
  EXPECT_EQ(Placed(), "CPU:0");
  NewSession();
  Fill(0, 50, stranger_);
  put();
  EXPECT_EQ(Placed(), "CPU:0") << "50 ms of waiting, and nothing to compile";
  NewSession();
  Fill(0, 500, stranger_);
  put();
  EXPECT_EQ(Placed(), "CPU:1");
}

TEST_F(PlacementTest, ARunThatCannotMeetItsDeadlineIsNotStarted) {
  engine_.cost.seconds = 0.02;
  Put(1);
  for (uint64_t handle : {1, 2}) Alloc(handle, 4);
  const auto run = [&](int64_t timeout_ms, Priority priority = Priority::kNormal) {
    RunOp op{std::string(hash_.view()), {1, 2}};
    op.timeout_ms = timeout_ms;
    op.priority = priority;
    return Submit(std::move(op));
  };
  EXPECT_TRUE(StatusOf(run(20)).ok());
  const absl::Status never = StatusOf(run(19));
  EXPECT_EQ(never.code(), absl::StatusCode::kDeadlineExceeded) << never;
  Write(1, "good");
  Fill(0, 300, tenant_->share, /*works=*/60);
  const absl::Status busy = StatusOf(run(300, Priority::kLow));
  EXPECT_TRUE(absl::IsResourceExhausted(busy)) << busy;
  EXPECT_EQ(RetryAfterMs(busy), 20);
  EXPECT_EQ(metrics_.count(Metric::kRuns), 1) << "it was not started";
  Write(1, "good");
  EXPECT_TRUE(StatusOf(run(20)).ok()) << "it goes before what has no deadline";
}

}  // namespace
}  // namespace telegrad
