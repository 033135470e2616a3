// How the daemon brings lost devices back: at which looks it tries, and what it takes for healthy.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "devices/api/timeline.h"
#include "devices/null/null_device.h"
#include "engine/base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/device_watch.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// What a device says and how often it was asked; the device itself is a null device.
struct Script {
  absl::Status Health() const {
    const MutexLock lock(mutex);
    return health;
  }
  void SetHealth(const absl::Status& now) {
    const MutexLock lock(mutex);
    health = now;
  }

  std::string name = "NULL:0";
  mutable Mutex mutex;
  absl::Status health TG_GUARDED_BY(mutex);
  absl::Status recovery;
  Timeline* gate = nullptr;  // null, or what it waits for to come back
  std::atomic<int64_t> look{0};
  std::vector<int64_t> tried;  // at which looks
  std::atomic<int64_t> times{0};
};

class ScriptedDevice final : public Device {
 public:
  explicit ScriptedDevice(std::shared_ptr<Script> script) : script_(std::move(script)) {}

  const std::string& name() const override { return script_->name; }
  const Target& target() const override { return null_->target(); }
  int64_t memory_limit() const override { return null_->memory_limit(); }
  int64_t memory_used() const override { return null_->memory_used(); }
  bool host_visible() const override { return false; }
  absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t size) override {
    return null_->Alloc(size);
  }
  absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const ProgramImage& image) override {
    return null_->Load(image);
  }
  absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(
      std::vector<Command> commands) override {
    return null_->Encode(std::move(commands));
  }
  std::span<Queue* const> queues() override { return null_->queues(); }
  absl::Status Health() const override { return script_->Health(); }
  absl::Status Recover() override {
    script_->tried.push_back(script_->look.load());
    ++script_->times;
    if (script_->gate != nullptr) (void)script_->gate->Wait(1);
    if (script_->recovery.ok()) script_->SetHealth(absl::OkStatus());
    return script_->recovery;
  }

 private:
  const std::shared_ptr<Script> script_;
  const std::unique_ptr<Device> null_ = OpenNull({});
};

class LostDevicesTest : public ::testing::Test {
 protected:
  LostDevicesTest() {
    std::vector<std::unique_ptr<Device>> devices;
    other_->name = "NULL:1";
    for (const auto& script : {script_, other_}) {
      devices.push_back(std::make_unique<ScriptedDevice>(script));
    }
    pool_ = *DevicePool::Create(std::move(devices));
    lost_ = std::make_unique<LostDevices>(pool_.get());
  }
  bool Look() {
    ++script_->look;
    ++other_->look;
    return lost_->Look();
  }
  // A look, and the end of what it has begun.
  bool LookAndAwait() {
    const bool none = Look();
    lost_->AwaitRecoveries();
    return none;
  }

  const std::shared_ptr<Script> script_ = std::make_shared<Script>();
  const std::shared_ptr<Script> other_ = std::make_shared<Script>();
  std::unique_ptr<DevicePool> pool_;
  std::unique_ptr<LostDevices> lost_;
};

TEST_F(LostDevicesTest, AreBroughtBackAtTheNextLook) {
  EXPECT_TRUE(LookAndAwait());
  script_->SetHealth(absl::UnavailableError("it faulted"));
  EXPECT_FALSE(LookAndAwait());
  EXPECT_THAT(script_->tried, IsEmpty());
  EXPECT_FALSE(LookAndAwait());
  EXPECT_THAT(script_->tried, ElementsAre(3));
  EXPECT_TRUE(LookAndAwait());
  EXPECT_TRUE(LookAndAwait());
  EXPECT_THAT(script_->tried, ElementsAre(3));
}

TEST_F(LostDevicesTest, AreTriedWithPausesThatDouble) {
  script_->SetHealth(absl::UnavailableError("it faulted"));
  script_->recovery = absl::UnavailableError("the driver refuses");
  for (int i = 0; i < 800; ++i) EXPECT_FALSE(LookAndAwait());
  EXPECT_THAT(script_->tried, ElementsAre(2, 3, 5, 9, 17, 33, 65, 129, 257, 513, 769));
  script_->recovery = absl::OkStatus();
  while (script_->look < 1025) EXPECT_FALSE(LookAndAwait());
  EXPECT_TRUE(LookAndAwait());
  // The next loss begins anew.
  script_->tried.clear();
  script_->SetHealth(absl::UnavailableError("it faulted again"));
  EXPECT_FALSE(LookAndAwait());
  EXPECT_FALSE(LookAndAwait());
  EXPECT_TRUE(LookAndAwait());
  EXPECT_THAT(script_->tried, ElementsAre(1028));
}

TEST_F(LostDevicesTest, ThoseThatComeBackByThemselvesDo) {
  script_->SetHealth(absl::UnavailableError("the server is away"));
  script_->recovery = absl::UnimplementedError("by itself");
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(LookAndAwait());
  script_->SetHealth(absl::OkStatus());
  EXPECT_TRUE(LookAndAwait());
}

// A driver that takes its time holds up neither the looks nor the other devices.
TEST_F(LostDevicesTest, OneThatTakesLongHoldsUpNothing) {
  Timeline gate;
  script_->gate = &gate;
  script_->SetHealth(absl::UnavailableError("it faulted"));
  other_->SetHealth(absl::UnavailableError("it faulted, too"));
  EXPECT_FALSE(Look());
  EXPECT_FALSE(Look());  // both are being brought back
  while (script_->times == 0 || !other_->Health().ok()) std::this_thread::yield();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(Look());
  EXPECT_FALSE(script_->Health().ok());
  gate.Signal(1);
  lost_->AwaitRecoveries();
  EXPECT_TRUE(Look());
  EXPECT_THAT(script_->tried, ElementsAre(2)) << "one attempt at a time";
  EXPECT_THAT(other_->tried, ElementsAre(2));
}

// The daemon ends while a driver is at it.
TEST_F(LostDevicesTest, TheEndWaitsForWhatIsUnderWay) {
  Timeline gate;
  script_->gate = &gate;
  script_->SetHealth(absl::UnavailableError("it faulted"));
  EXPECT_FALSE(Look());
  EXPECT_FALSE(Look());
  std::thread end([&] { lost_.reset(); });
  gate.Signal(1);
  end.join();
  EXPECT_TRUE(script_->Health().ok());
}

}  // namespace
}  // namespace telegrad
