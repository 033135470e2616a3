// Every driver is tested against the contract of devices/api/device.h: what the files of the suite
// share. A driver's row (conformance_drivers.cc) names the requirements that it does not meet, with
// the reason.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "devices/api/host_queue.h"
#include "devices/npy/npy_device.h"
#include "engine/base/status.h"
#include "tests/devices/conformance_programs.h"
#include "tests/devices/fixture.h"
#include "tests/devices/tensor_map_programs.h"

namespace telegrad {

struct QueueLimits {
  int capacity = HostQueueOptions{}.capacity;
  absl::Duration wait_limit = HostQueueOptions{}.wait_limit;
  // A device that is away is taken for lost soon, where it otherwise would not be.
  bool impatient = false;
};

struct TestedDriver {
  std::string name;
  std::function<std::unique_ptr<Device>(const QueueLimits&)> open;
  std::function<absl::StatusOr<ProgramImage>()> next = &HostNext;
  // `place` of conformance_programs.h; null: see no_scalars.
  std::function<absl::StatusOr<ProgramImage>()> place = &HostPlace;
  // `box` and `unbox` of tensor_map_programs.h; see no_tensor_maps.
  std::function<absl::StatusOr<ProgramImage>()> box = &HostBox;
  std::function<absl::StatusOr<ProgramImage>()> unbox = &HostUnbox;
  // Of a device that takes graphs: adds variable 7 to its slot of one 64-bit integer.
  std::function<absl::StatusOr<ProgramImage>()> adds = nullptr;
  // The next launch of the device that was opened last faults; null: nothing makes it do so. Where
  // the device would come back by itself, it does not before `repair`, which may be null.
  std::function<void()> fault = nullptr;
  std::function<void()> repair = nullptr;
  // Of a fake driver: its next launch does not end before `release`, and how many copies it has
  // been given since it was there. Null: nothing tells what the driver has been given.
  std::function<void()> hang = nullptr;
  std::function<void()> release = nullptr;
  std::function<int64_t()> given_copies = nullptr;
  // The same of how many blocks of pinned memory there are, those that its queues stage with
  // included.
  std::function<int64_t()> pinned_blocks = nullptr;
  // Its memory is this process's, and has its contents also after a loss.
  bool keeps_memory = false;
  // By what its errors name it; empty: its name.
  std::string lost_name = "";
  // What a fake library found wrong in how it was called; null: it tells nothing.
  std::function<std::string()> problems = nullptr;
  // Why this machine has none; null: every machine has.
  std::function<std::string()> absent = nullptr;
  // Why a part of the contract is excluded; empty: it is not.
  std::string no_contents = "", no_alloc = "", no_programs = "", no_scalars = "";
  // What it has not got that tensor maps need, as its error says; empty: it takes them.
  std::string no_tensor_maps = "";
  // How many queues it has at least.
  size_t queues = 1;
};

// Bytes of memory that a driver has, where it can be told.
inline constexpr int64_t kLimit = 10'000'000;

std::vector<TestedDriver> AllDrivers();

// The bytes of another memory, which commands may not write.
class ReadOnlyMemory final : public Memory {
 public:
  explicit ReadOnlyMemory(std::shared_ptr<Memory> inner)
      : Memory(inner->host(), inner->size(), /*writable=*/false), inner_(std::move(inner)) {}

 private:
  const std::shared_ptr<Memory> inner_;
};

class Conformance : public ::testing::TestWithParam<TestedDriver> {
 protected:
  void SetUp() override {
    if (GetParam().absent == nullptr) return;
    if (const std::string why = GetParam().absent(); !why.empty()) GTEST_SKIP() << why;
  }

  void OpenDevice(const QueueLimits& limits = {}) { device_ = GetParam().open(limits); }

  // `next` on byte 0 of binding 0.
  absl::StatusOr<std::shared_ptr<const CommandBuffer>> Next() {
    TG_ASSIGN_OR_RETURN(const ProgramImage image, GetParam().next());
    Command next;
    TG_ASSIGN_OR_RETURN(auto program, device_->Load(image));
    next.launch = Launch::Of(std::move(program));
    next.launch.arguments = {{0, 0}};
    return device_->Encode({next});
  }

  // A buffer of the device, zeroed.
  BufferView Buffer(int64_t bytes) {
    if (auto* npy = dynamic_cast<NpyDevice*>(device_.get())) {
      const auto array = std::make_shared<std::vector<char>>(bytes);
      return Whole(*npy->Import(array->data(), bytes, array));
    }
    auto memory = device_->Alloc(bytes);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return Whole(*memory);
  }
  TimelinePoint Copied(const BufferView& to, const BufferView& from,
                       std::vector<TimelinePoint> waits = {}) {
    const auto point = Copy(*device_, to, from, std::move(waits));
    EXPECT_TRUE(point.ok()) << point.status();
    return point.ok() ? *point : TimelinePoint{};
  }
  std::string Read(const BufferView& buffer) {
    const BufferView out = HostBuffer(*host_, std::string(buffer.length, '?'));
    EXPECT_EQ(Copied(out, buffer).Wait(), absl::OkStatus());
    return Bytes(out);
  }
  void ExpectBytes(const BufferView& buffer, const std::string& expected) {
    if (GetParam().no_contents.empty()) {
      EXPECT_EQ(Read(buffer), expected);
    }
  }

  std::unique_ptr<Device> host_ = OpenHost({.index = 7});  // where bytes come from and go to
  std::unique_ptr<Device> device_;
};

#define SKIP_IF_EXCLUDED(what) \
  if (!GetParam().what.empty()) GTEST_SKIP() << GetParam().what

}  // namespace telegrad
