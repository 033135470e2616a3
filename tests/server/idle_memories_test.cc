// When the daemon has devices give idle memory back, and that none waits for another.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "devices/api/timeline.h"
#include "devices/null/null_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/device_watch.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Notes at which looks it was asked.
class NotedMemory final : public IdleMemory {
 public:
  absl::StatusOr<int64_t> GiveBack() override {
    asked.push_back(look.load());
    ++times;
    if (gate != nullptr) (void)gate->Wait(1);
    return answer;
  }

  std::atomic<int64_t> look{0};
  Timeline* gate = nullptr;  // null, or what its driver is at
  absl::StatusOr<int64_t> answer = 0;
  std::vector<int64_t> asked;
  std::atomic<int64_t> times{0};
};

// A null device that holds it.
class HoldingDevice final : public Device {
 public:
  HoldingDevice(std::string name, std::shared_ptr<IdleMemory> memory)
      : name_(std::move(name)), memory_(std::move(memory)) {}

  const std::string& name() const override { return name_; }
  const Target& target() const override { return null_->target(); }
  int64_t memory_limit() const override { return null_->memory_limit(); }
  int64_t memory_used() const override { return null_->memory_used(); }
  std::shared_ptr<IdleMemory> idle_memory() override { return memory_; }
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
  absl::Status Health() const override { return absl::OkStatus(); }

 private:
  const std::string name_;
  const std::shared_ptr<IdleMemory> memory_;
  const std::unique_ptr<Device> null_ = OpenNull({});
};

class IdleMemoriesTest : public ::testing::Test {
 protected:
  IdleMemoriesTest() {
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::make_unique<HoldingDevice>("NULL:0", first_));
    devices.push_back(std::make_unique<HoldingDevice>("NULL:1", nullptr));
    devices.push_back(std::make_unique<HoldingDevice>("NULL:2", second_));
    pool_ = *DevicePool::Create(std::move(devices));
  }
  void Look(IdleMemories& memories) {
    ++first_->look;
    ++second_->look;
    memories.Look();
  }
  // Looks, and the end of what each has begun.
  void LookAndAwait(IdleMemories& memories, int times) {
    for (int i = 0; i < times; ++i) {
      Look(memories);
      memories.Await();
    }
  }

  const std::shared_ptr<NotedMemory> first_ = std::make_shared<NotedMemory>();
  const std::shared_ptr<NotedMemory> second_ = std::make_shared<NotedMemory>();
  std::unique_ptr<DevicePool> pool_;
};

TEST_F(IdleMemoriesTest, AreAskedFromTimeToTime) {
  IdleMemories memories(pool_.get(), 3);
  LookAndAwait(memories, 7);
  EXPECT_THAT(first_->asked, ElementsAre(3, 6));
  EXPECT_THAT(second_->asked, ElementsAre(3, 6));
}

TEST_F(IdleMemoriesTest, AreNeverAskedWhereThatIsSwitchedOff) {
  IdleMemories memories(pool_.get(), 0);
  LookAndAwait(memories, 7);
  EXPECT_THAT(first_->asked, IsEmpty());
}

TEST_F(IdleMemoriesTest, ADeviceThatIsAtWorkIsAskedAgainSoon) {
  IdleMemories memories(pool_.get(), 5);
  first_->answer = absl::FailedPreconditionError("it is at work");
  second_->answer = absl::InternalError("the driver refuses");
  LookAndAwait(memories, 7);
  first_->answer = 1 << 20;
  LookAndAwait(memories, 4);
  EXPECT_THAT(first_->asked, ElementsAre(5, 6, 7, 8, 10));
  EXPECT_THAT(second_->asked, ElementsAre(5, 10));
}

// Its driver takes long: no look waits for it, it is not asked again meanwhile, and others are.
TEST_F(IdleMemoriesTest, OneThatTakesLongHoldsUpNobody) {
  Timeline gate;
  first_->gate = &gate;
  IdleMemories memories(pool_.get(), 1);
  Look(memories);
  while (first_->times == 0) std::this_thread::yield();
  while (second_->times < 4) {
    Look(memories);
    std::this_thread::yield();
  }
  gate.Signal(1);
  memories.Await();
  EXPECT_THAT(first_->asked, ElementsAre(1));
  LookAndAwait(memories, 1);
  EXPECT_EQ(first_->asked.size(), 2u);
}

}  // namespace
}  // namespace telegrad
