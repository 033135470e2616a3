// A CPU device in worker processes, and kernels for it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "devices/worker/worker_device.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "tests/devices/fixture.h"

namespace telegrad {

// A kernel of one argument: `body` has the pointer %b and the values %begin and %end.
inline ProgramImage Image(const std::string& body, const std::string& name) {
  auto image = Compile(StrCat("define void @", name, "(ptr %buffers, i64 %begin, i64 %end) ",
                              "\"telegrad-parameters\"=\"buffer\" {\n",
                              "  %b = load ptr, ptr %buffers\n", body, "}\n"),
                       name, HostTarget(1));
  EXPECT_TRUE(image.ok()) << image.status();
  return image.ok() ? *image : ProgramImage{};
}
inline constexpr char kNext[] =
    "  %x = load i64, ptr %b\n  %y = add i64 %x, 1\n  store i64 %y, ptr %b\n  ret void\n";
// Counts for ever, in its buffer.
inline constexpr char kEndless[] =
    "  br label %l\nl:\n  %x = load volatile i64, ptr %b\n  %y = add i64 %x, 1\n"
    "  store volatile i64 %y, ptr %b\n  br label %l\n";
inline constexpr char kFault[] =
    "  store volatile i64 1, ptr inttoptr (i64 64 to ptr)\n  ret void\n";

class WorkerDevices : public ::testing::Test {
 protected:
  Device& Open(WorkerDeviceOptions options = {}) {
    options.cpu.threads = std::max(options.cpu.threads, 1);
    options.cpu.memory_limit = int64_t{64} << 20;
    if (options.executable.empty()) options.executable = DEVICE_WORKER;
    options.on_event = [this](const WorkerEvent& event) {
      const std::lock_guard lock(mutex_);
      events_.push_back(event);
      changed_.notify_all();
    };
    auto device = OpenWorkerDevice(options);
    EXPECT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    return *device_;
  }
  ~WorkerDevices() override { device_.reset(); }

  // The `n`th thing that happened to a worker, from 0.
  WorkerEvent Event(size_t n) {
    std::unique_lock lock(mutex_);
    const bool came =
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return events_.size() > n; });
    EXPECT_TRUE(came);
    return came ? events_[n] : WorkerEvent{};
  }

  static BufferView Word(Device& device) { return Whole(*device.Alloc(8)); }
  static int64_t& Value(const BufferView& view) {
    return *static_cast<int64_t*>(view.memory->host());
  }
  static std::shared_ptr<const CommandBuffer> Commands(Device& device, const ProgramImage& image,
                                                       int times = 1) {
    const auto program = device.Load(image);
    EXPECT_TRUE(program.ok()) << program.status();
    if (!program.ok()) return nullptr;
    Command launch;
    launch.launch = Launch::Of(*program);
    launch.launch.arguments = {{0, 0}};
    launch.launch.name = image.name;
    launch.launch.flops = 1e8;  // not so short that the submitter would run it
    return *device.Encode(std::vector<Command>(times, launch));
  }
  static absl::Status Run(Device& device, const std::shared_ptr<const CommandBuffer>& commands,
                          const BufferView& word,
                          std::shared_ptr<const Cancellation> cancellation = nullptr) {
    const auto point =
        device.queue().Submit(commands, {word}, {}, nullptr, std::move(cancellation));
    return point.ok() ? point->Wait() : point.status();
  }
  // Waits until the kernel has begun.
  static void AwaitChange(const BufferView& word) {
    while (std::atomic_ref<int64_t>(Value(word)).load() == 0) std::this_thread::yield();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<WorkerEvent> events_;
  std::unique_ptr<Device> device_;
};

}  // namespace telegrad
