// How the daemon brings lost devices back: at which looks it tries, and what it takes for healthy.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "devices/null/null_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/device_watch.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// What a device says and how often it was asked; the device itself is a null device.
struct Script {
  absl::Status health, recovery;
  int64_t look = 0;
  std::vector<int64_t> tried;  // at which looks
};

class ScriptedDevice final : public Device {
 public:
  explicit ScriptedDevice(std::shared_ptr<Script> script) : script_(std::move(script)) {}

  const std::string& name() const override { return null_->name(); }
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
  Queue& queue(QueueKind kind) override { return null_->queue(kind); }
  absl::Status Health() const override { return script_->health; }
  absl::Status Recover() override {
    script_->tried.push_back(script_->look);
    if (script_->recovery.ok()) script_->health = absl::OkStatus();
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
    devices.push_back(std::make_unique<ScriptedDevice>(script_));
    pool_ = *DevicePool::Create(std::move(devices));
    lost_ = std::make_unique<LostDevices>(pool_.get());
  }
  bool Look() {
    ++script_->look;
    return lost_->Look();
  }

  const std::shared_ptr<Script> script_ = std::make_shared<Script>();
  std::unique_ptr<DevicePool> pool_;
  std::unique_ptr<LostDevices> lost_;
};

TEST_F(LostDevicesTest, AreBroughtBackAtTheNextLook) {
  EXPECT_TRUE(Look());
  script_->health = absl::UnavailableError("it faulted");
  EXPECT_FALSE(Look());
  EXPECT_THAT(script_->tried, IsEmpty());
  EXPECT_TRUE(Look());
  EXPECT_THAT(script_->tried, ElementsAre(3));
  EXPECT_TRUE(Look());
  EXPECT_THAT(script_->tried, ElementsAre(3));
}

TEST_F(LostDevicesTest, AreTriedWithPausesThatDouble) {
  script_->health = absl::UnavailableError("it faulted");
  script_->recovery = absl::UnavailableError("the driver refuses");
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(Look());
  EXPECT_THAT(script_->tried, ElementsAre(2, 3, 5, 9, 17, 33, 65, 129, 193));
  script_->recovery = absl::OkStatus();
  while (script_->look < 256) EXPECT_FALSE(Look());
  EXPECT_TRUE(Look());
  // The next loss begins anew.
  script_->tried.clear();
  script_->health = absl::UnavailableError("it faulted again");
  EXPECT_FALSE(Look());
  EXPECT_TRUE(Look());
  EXPECT_THAT(script_->tried, ElementsAre(259));
}

TEST_F(LostDevicesTest, ThoseThatComeBackByThemselvesDo) {
  script_->health = absl::UnavailableError("the server is away");
  script_->recovery = absl::UnimplementedError("by itself");
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(Look());
  script_->health = absl::OkStatus();
  EXPECT_TRUE(Look());
}

}  // namespace
}  // namespace telegrad
