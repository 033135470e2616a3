// The suite for every driver, see conformance.h. In this file: what a device says of itself, its
// memory and copies.
#include "tests/devices/conformance.h"

#include "devices/null/null_device.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

TEST_P(Conformance, SaysWhatItIs) {
  OpenDevice();
  EXPECT_EQ(device_->name().find(':'), device_->name().rfind(':'));
  EXPECT_EQ(device_->Health(), absl::OkStatus());
  const BufferView buffer = Buffer(100);
  EXPECT_EQ(buffer.memory->size(), 100);
  EXPECT_EQ(buffer.memory->host() != nullptr, device_->host_visible());
  EXPECT_GE(device_->memory_used(), 100);
  EXPECT_GE(device_->memory_limit(), device_->memory_used());
}

TEST_P(Conformance, DeclaresRatesOfWhatItDoes) {
  OpenDevice();
  const Rates rates = device_->rates();
  EXPECT_GE(rates.bytes, 0);
  EXPECT_GE(rates.iterations, 1);
  const auto unit = [&](const ArithmeticInfo& row) {
    return row.unit == ArithmeticUnit::kVector ||
           device_->target().matrix != MatrixUnit::kNone ||   // whose rows these are
           device_->accepts() == ProgramLevel::kTensorGraph;  // whose units are not told
  };
  for (const ArithmeticInfo& row : kArithmetics) {
    SCOPED_TRACE(row.text);
    EXPECT_GE(rates.flops[row.arithmetic], 0);
    EXPECT_LT(rates.flops[row.arithmetic], 1e18);
    if (rates.flops[row.arithmetic] == 0) continue;
    EXPECT_NE(device_->accepts(), ProgramLevel::kNothing);
    EXPECT_TRUE(unit(row)) << "it has no matrix instructions";
    EXPECT_GT(rates.launch_flops(), 0) << "by which launches are predicted";
  }
}

TEST_P(Conformance, CopiesMoveBytes) {
  SKIP_IF_EXCLUDED(no_contents);
  OpenDevice();
  const BufferView buffer = Buffer(16);
  EXPECT_EQ(Read(buffer), std::string(16, '\0'));
  const BufferView from = HostBuffer(*host_, "0123456789");
  auto commands =
      *device_->Encode({CopyCommand({{0, 4}, {1, 2}, 6}), CopyCommand({{0, 0}, {0, 5}, 3}),
                        CopyCommand({{0, 15}, {1, 9}, 0})});
  const auto point = device_->queue(QueueKind::kCopy).Submit(commands, {buffer, from}, {});
  ASSERT_TRUE(point.ok()) << point.status();
  ASSERT_EQ(point->Wait(), absl::OkStatus());
  EXPECT_EQ(Read(buffer), std::string("345\0"
                                      "234567\0\0\0\0\0\0",
                                      16));
  EXPECT_EQ(Read({buffer.memory, 5, 3}), "345");
}

// Larger than what a driver may move at once, and not a multiple of it.
TEST_P(Conformance, LongCopiesBetweenItsOwnBuffers) {
  SKIP_IF_EXCLUDED(no_contents);
  OpenDevice();
  std::string bytes(3'000'001, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
  const BufferView first = Buffer(bytes.size()), second = Buffer(bytes.size());
  Copied(first, HostBuffer(*host_, bytes));
  Copied(second, first);
  EXPECT_TRUE(Read(second) == bytes);
}

TEST_P(Conformance, CopiesInBothDirectionsHaveADevice) {
  SKIP_IF_EXCLUDED(no_contents);
  OpenDevice();
  const BufferView buffer = Buffer(1), out = HostBuffer(*host_, "?");
  Device& in = CopyDevice(*device_, *host_);
  const TimelinePoint there = *Copy(in, buffer, HostBuffer(*host_, "x"));
  Device& back = CopyDevice(*host_, *device_);
  const TimelinePoint here = *Copy(back, out, buffer, {there});
  EXPECT_EQ(here.Wait(), absl::OkStatus());
  EXPECT_EQ(Bytes(out), "x");
}

// What it says of a device is what its commands do with that one's memory.
TEST_P(Conformance, ReachesWhatItSays) {
  OpenDevice();
  const BufferView own = Buffer(1), theirs = HostBuffer(*host_, "x");
  const auto accepted = [&](Device& by, const BufferView& to, const BufferView& from) {
    const auto copied = Copy(by, to, from);
    if (copied.ok()) {
      EXPECT_EQ(copied->Wait(), absl::OkStatus());
      return true;
    }
    EXPECT_EQ(copied.status().code(), absl::StatusCode::kInvalidArgument) << copied.status();
    return false;
  };
  EXPECT_EQ(device_->AccessTo(*device_),
            (PeerAccess{PeerPath::kDirect, device_->accepts() != ProgramLevel::kNothing}));
  EXPECT_EQ(device_->AccessTo(*host_).path, PeerPath::kDirect);
  EXPECT_TRUE(accepted(*device_, own, theirs));
  EXPECT_TRUE(accepted(*device_, theirs, own));
  EXPECT_EQ(host_->AccessTo(*device_).reaches(), device_->host_visible());
  EXPECT_EQ(accepted(*host_, theirs, own), device_->host_visible());
  EXPECT_FALSE(NeedsHost(*device_, *host_));
  // Memory of no place.
  const auto null = OpenNull({});
  const BufferView nowhere = Whole(*null->Alloc(1));
  EXPECT_EQ(device_->AccessTo(*null).reaches(), accepted(*device_, own, nowhere));
  if (!GetParam().no_programs.empty()) return;
  // Programs of the device on the memory of another one.
  const auto commands = Next();
  ASSERT_TRUE(commands.ok()) << commands.status();
  const auto ran = device_->queue().Submit(*commands, {theirs}, {});
  EXPECT_EQ(ran.ok(), device_->AccessTo(*host_).atomics) << ran.status();
  if (ran.ok()) EXPECT_EQ(ran->Wait(), absl::OkStatus());
}

TEST_P(Conformance, MemoryIsLimitedAndZeroed) {
  SKIP_IF_EXCLUDED(no_alloc);
  OpenDevice();
  BufferView buffer = Buffer(6'000'000);
  Copied(buffer, HostBuffer(*host_, "used"));
  const auto more = device_->Alloc(6'000'000);
  EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  for (const std::string& part : {device_->name(), StrCat(kLimit), std::string("6000000")}) {
    EXPECT_THAT(std::string(more.status().message()), HasSubstr(part));
  }
  EXPECT_EQ(device_->Alloc(-1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(device_->queue(QueueKind::kCopy).last().Wait(), absl::OkStatus());
  buffer = {};
  buffer = Buffer(9'000'000);
  ExpectBytes({buffer.memory, 0, 100}, std::string(100, '\0'));
  EXPECT_EQ((*device_->Alloc(0))->size(), 0);
  device_.reset();  // memory outlives its device
  EXPECT_EQ(buffer.memory->size(), 9'000'000);
}

TEST_P(Conformance, OnlyFilesAreOpened) {
  OpenDevice();
  if (GetParam().name == "disk") GTEST_SKIP() << "a disk has files; disk_test.cc opens them";
  EXPECT_EQ(device_->Open("file", 0, 1, OpenMode::kRead).status().code(),
            absl::StatusCode::kUnimplemented);
}

INSTANTIATE_TEST_SUITE_P(Drivers, Conformance, ::testing::ValuesIn(AllDrivers()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace telegrad
