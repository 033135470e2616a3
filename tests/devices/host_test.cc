// The devices that run no programs: null, which only counts its memory, and npy, which wraps
// arrays of the host.
#include "devices/npy/npy_device.h"
#include "devices/null/null_device.h"
#include "tests/devices/fixture.h"

namespace telegrad {
namespace {

TEST(Null, CountsWhatItWasAskedFor) {
  const auto device = OpenNull({.index = 2});
  EXPECT_EQ(device->name(), "NULL:2");
  const auto memory = *device->Alloc(int64_t{1} << 36);  // more than any machine has
  EXPECT_EQ(device->memory_used(), int64_t{1} << 36);
  Command launch;
  launch.launch.program = *device->Load({.name = "anything",
                                         .binary = "not an object",
                                         .signature = {.parameters = FunctionParameters(1)}});
  launch.launch.arguments = {{0, 0}};
  launch.launch.flops = 10;
  launch.launch.bytes = 100;
  const auto commands =
      *device->Encode({launch, launch, CopyCommand({{0, 0}, {0, 1 << 20}, 1 << 20})});
  const Gate gate, failing;
  const auto submit = [&](std::vector<TimelinePoint> waits) {
    return *device->queue().Submit(commands, {Whole(memory)}, waits);
  };
  const TimelinePoint lost = submit({failing.point()});
  const TimelinePoint first = submit({gate.point()});
  failing.Open(absl::DataLossError("lost"));
  EXPECT_EQ(lost.Wait().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(device->counts().launches, 0);  // a submission that fails is not run
  gate.Open();
  submit({});
  EXPECT_EQ(submit({first}).Wait(), absl::OkStatus());
  const NullDevice::Counts counts = device->counts();
  EXPECT_EQ(counts.launches, 6);
  EXPECT_EQ(counts.copies, 3);
  EXPECT_EQ(counts.copied_bytes, 3 << 20);
  EXPECT_EQ(counts.flops, 60);
  EXPECT_EQ(counts.bytes, 600);
}

TEST(Npy, WrapsWithoutCopying) {
  const auto device = OpenNpy({});
  const auto host = OpenHost();
  auto array = std::make_shared<std::vector<int64_t>>(std::vector<int64_t>{1, 2, 3});
  const std::weak_ptr<const void> watch = array;
  auto memory = *device->Import(array->data(), 24, array);
  EXPECT_EQ(memory->host(), array->data());
  EXPECT_EQ(device->memory_used(), 24);
  int64_t* const data = array->data();
  array.reset();
  // In from another device, and out to it, on either's queue.
  const int64_t five = 5;
  const auto from = HostBuffer(*host, std::string(reinterpret_cast<const char*>(&five), 8));
  EXPECT_EQ(Copy(*device, {memory, 8, 8}, from)->Wait(), absl::OkStatus());
  EXPECT_EQ(data[1], 5);
  const auto out = HostBuffer(*host, std::string(24, '?'));
  EXPECT_EQ(Copy(*host, out, Whole(memory))->Wait(), absl::OkStatus());
  EXPECT_EQ(static_cast<const int64_t*>(out.memory->host())[2], 3);
  // A submission keeps the array, though its owner and the memory are gone.
  const Gate gate;
  const TimelinePoint reading = *Copy(*host, out, Whole(std::move(memory)), {gate.point()});
  memory = nullptr;
  EXPECT_FALSE(watch.expired());
  gate.Open();
  EXPECT_EQ(reading.Wait(), absl::OkStatus());
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(device->memory_used(), 0);
}

TEST(Npy, NobodyWritesWhatIsReadOnly) {
  const auto device = OpenNpy({});
  const auto host = OpenHost();
  static constexpr char kText[] = "constant";
  const auto memory = *device->ImportReadOnly(kText, 8, nullptr);
  const auto other = HostBuffer(*host, "variable");
  for (Device* queue : {static_cast<Device*>(device.get()), host.get()}) {
    EXPECT_EQ(Copy(*queue, Whole(memory), other).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(Copy(*device, other, Whole(memory))->Wait(), absl::OkStatus());
  EXPECT_EQ(Bytes(other), "constant");
}

TEST(Npy, RefusesWhatIsNoArray) {
  const auto device = OpenNpy({});
  EXPECT_EQ(device->Import(nullptr, 8, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
  char byte;
  EXPECT_EQ(device->Import(&byte, -1, nullptr).status().code(), absl::StatusCode::kInvalidArgument);
  const auto empty = device->Import(nullptr, 0, nullptr);
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(Copy(*device, Whole(*empty), Whole(*empty))->Wait(), absl::OkStatus());
  EXPECT_EQ(device->Alloc(8).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(device->Load({"p", ""}).status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace telegrad
