// Two GPUs of one fake driver that wait for each other: on their streams, without the host, where
// the host copies nothing; what the fake was asked for is counted. And what fails with what.
#include <chrono>
#include <functional>
#include <thread>

#include "engine/base/device_lost.h"
#include "tests/devices/cuda_fixture.h"
#include "tests/devices/hip_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

// A fake driver, whose controls reset it when they go.
struct Gpus {
  std::function<void(const char*, int64_t)> set;
  std::function<int64_t(const char*)> count;
  std::function<void()> release;
  std::function<absl::StatusOr<ProgramImage>()> next;  // adds 1 to a byte
  std::vector<std::unique_ptr<Device>> devices;
};

template <typename Fake>
Gpus Controls(const std::shared_ptr<Fake>& fake) {
  return {.set = [fake](const char* knob, int64_t value) { fake->Set(knob, value); },
          .count = [fake](const char* counter) { return fake->Count(counter); },
          .release = [fake] { fake->Release(); },
          .next = nullptr,
          .devices = {}};
}

Gpus TwoOfCuda() {
  Gpus out = Controls(std::make_shared<FakeCuda>());
  out.next = [] { return NextImage(); };
  out.devices = OpenCudas(FakeOptions(), nullptr);
  return out;
}
Gpus TwoOfHip() {
  Gpus out = Controls(std::make_shared<FakeHip>());
  out.next = [] { return NextHip(); };
  out.devices = OpenHips(FakeHipOptions(), nullptr);
  return out;
}

struct Kind {
  const char* name;
  Gpus (*open)();
};

class PeerWaits : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    gpus_ = GetParam().open();
    ASSERT_EQ(gpus_.devices.size(), 2u);
    for (int i = 0; i < 2; ++i) {
      auto program = gpu(i).Load(*gpus_.next());
      ASSERT_TRUE(program.ok()) << program.status();
      Command next;
      next.launch = Launch::Of(*program);
      next.launch.arguments = {{0, 0}};
      next_[i] = *gpu(i).Encode({next});
    }
  }
  void TearDown() override {
    gpus_.release();
    gpus_.devices.clear();
  }

  Device& gpu(int i) { return *gpus_.devices[static_cast<size_t>(i)]; }
  // Of its GPU, and zero by now.
  BufferView Buffer(int i, int64_t bytes = 1) {
    const BufferView out = Whole(*gpu(i).Alloc(bytes));
    EXPECT_EQ(Copied(i, out, HostBuffer(*host_, std::string(bytes, '\0'))).Wait(),
              absl::OkStatus());
    return out;
  }
  TimelinePoint Launched(int i, const BufferView& buffer, std::vector<TimelinePoint> waits = {}) {
    const auto point = gpu(i).queue().Submit(next_[i], {buffer}, waits);
    EXPECT_TRUE(point.ok()) << point.status();
    return point.ok() ? *point : TimelinePoint{};
  }
  TimelinePoint Copied(int i, const BufferView& to, const BufferView& from,
                       std::vector<TimelinePoint> waits = {}, QueueKind kind = QueueKind::kCopy) {
    const auto point = Copy(gpu(i), to, from, std::move(waits), kind);
    EXPECT_TRUE(point.ok()) << point.status();
    return point.ok() ? *point : TimelinePoint{};
  }
  std::string Read(int i, const BufferView& view) {
    const BufferView out = HostBuffer(*host_, std::string(view.length, '?'));
    EXPECT_EQ(Copied(i, out, view).Wait(), absl::OkStatus());
    return Bytes(out);
  }
  // Waits until the GPUs have been given so many copies since there were `before`.
  void ExpectGiven(int64_t copies, int64_t before) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const auto given = [&] { return gpus_.count("given_copies") - before; };
    while (given() < copies && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_EQ(given(), copies);
  }

  std::unique_ptr<Device> host_ = OpenHost({.index = 7});
  Gpus gpus_;
  std::shared_ptr<const CommandBuffer> next_[2];
};

// Everything is on the streams while the first launch hangs: no point was reached, so no host was
// woken by one.
TEST_P(PeerWaits, ChainsBetweenGpusAreOnTheStreams) {
  const BufferView a = Buffer(0), b = Buffer(1), c = Buffer(0), d = Buffer(1);
  const int64_t waits = gpus_.count("peer_event_waits"), copies = gpus_.count("given_copies");
  gpus_.set("hang_launch", 1);
  const TimelinePoint first = Launched(0, a);
  const TimelinePoint second = Copied(1, b, a, {first});
  ExpectGiven(1, copies);
  const TimelinePoint third = Launched(1, b, {second});  // of its own GPU
  const TimelinePoint fourth = Copied(0, c, b, {third});
  ExpectGiven(2, copies);
  const TimelinePoint last = Copied(1, d, c, {fourth, first, second});
  ExpectGiven(3, copies);
  EXPECT_EQ(first.timeline->value(), first.value - 1);
  // For first, third, and fourth and first.
  EXPECT_GE(gpus_.count("peer_event_waits"), waits + 4);
  gpus_.release();
  EXPECT_EQ(last.Wait(), absl::OkStatus());
  EXPECT_EQ(Read(1, d), "\2");
  for (const TimelinePoint& point : {first, second, third, fourth}) {
    EXPECT_EQ(point.timeline->value() >= point.value, true) << "it ended before what it waits for";
  }
}

// A point that waits for the host itself when it is waited for is on the stream as soon as its own
// work is.
TEST_P(PeerWaits, WhatIsHandedOverLaterIsWaitedForOnTheStream) {
  const BufferView a = Buffer(0), b = Buffer(1);
  const int64_t copies = gpus_.count("given_copies");
  const Gate gate;
  gpus_.set("hang_launch", 1);
  const TimelinePoint first = Launched(0, a, {gate.point()});
  const TimelinePoint second = Copied(1, b, a, {first});
  gate.Open();
  ExpectGiven(1, copies);
  EXPECT_LT(first.timeline->value(), first.value);
  gpus_.release();
  EXPECT_EQ(second.Wait(), absl::OkStatus());
  EXPECT_EQ(Read(1, b), "\1");
}

// What the host copies is copied when it is handed over: behind all that it waits for.
TEST_P(PeerWaits, HostMemoryIsCopiedBehindPointsThatAreReached) {
  const BufferView a = Buffer(0), b = Buffer(1);
  for (int round = 1; round <= 50; ++round) {
    // Pinned by the first GPU, which writes it itself; for the other one it is the host's.
    const BufferView pinned = Whole(*gpu(0).AllocOf(MemoryKind::kPinnedHost, 1));
    const int64_t waits = gpus_.count("peer_event_waits");
    const TimelinePoint ran = Launched(0, a);
    const TimelinePoint out = Copied(0, pinned, a, {ran});
    const TimelinePoint in = Copied(1, b, pinned, {out});
    EXPECT_EQ(in.Wait(), absl::OkStatus());
    EXPECT_EQ(gpus_.count("peer_event_waits"), waits);
    ASSERT_EQ(Read(1, b), std::string(1, static_cast<char>(round)));
  }
}

TEST_P(PeerWaits, APoisonedPointPoisons) {
  const BufferView a = Buffer(0), b = Buffer(1), c = Buffer(1);
  const Gate gate;
  const absl::Status lost = absl::DataLossError("the upload broke off");
  const TimelinePoint first = Launched(0, a, {gate.point()});
  const TimelinePoint second = Copied(1, b, a, {first});
  const TimelinePoint third = Launched(0, a, {second});
  const TimelinePoint bystander = Launched(1, c);
  gate.Open(lost);
  EXPECT_EQ(third.Wait(), lost);
  EXPECT_EQ(second.Wait(), lost);
  EXPECT_EQ(bystander.Wait(), absl::OkStatus());
  // Also where it was known before.
  EXPECT_EQ(Copied(1, b, c, {third}).Wait(), lost);
  EXPECT_EQ(Copied(1, b, c, {bystander}).Wait(), absl::OkStatus());
  EXPECT_EQ(Read(1, b), "\1");
}

// Its dependents are on the other GPU's streams when the first is lost. They end with its error, as
// do theirs on whichever queue, and the GPU goes on.
TEST_P(PeerWaits, ALostGpuFailsWhatWaitsForItOnTheStream) {
  const BufferView a = Buffer(0), b = Buffer(1), c = Buffer(1), d = Buffer(1), e = Buffer(1);
  const int64_t waits = gpus_.count("peer_event_waits"), copies = gpus_.count("given_copies");
  gpus_.set("hold", 1);  // so that nothing runs yet
  gpus_.set("fault_launch", 1);
  const TimelinePoint first = Launched(0, a);
  const TimelinePoint second = Copied(1, b, c, {first});
  const TimelinePoint of_sibling = Launched(1, b, {second});
  const TimelinePoint of_queue = Copied(1, d, b, {second});
  const TimelinePoint further = Copied(1, d, b, {of_sibling}, QueueKind::kCopyOut);
  const TimelinePoint bystander = Launched(1, e);
  ExpectGiven(3, copies);
  EXPECT_GE(gpus_.count("peer_event_waits"), waits + 1);
  gpus_.set("hold", 0);
  const absl::Status lost = first.Wait();
  EXPECT_TRUE(IsDeviceLost(lost)) << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr(gpu(0).name()));
  for (const TimelinePoint& point : {second, of_sibling, of_queue, further}) {
    EXPECT_EQ(point.Wait(), lost);
  }
  EXPECT_EQ(bystander.Wait(), absl::OkStatus());
  EXPECT_EQ(gpu(1).Health(), absl::OkStatus());
  EXPECT_EQ(Read(1, e), "\1");
  // The next generation's points are waited for on the stream again.
  EXPECT_EQ(gpu(0).Recover(), absl::OkStatus());
  const BufferView fresh = Buffer(0);
  const int64_t before = gpus_.count("given_copies");
  gpus_.set("hang_launch", 1);
  const TimelinePoint again = Launched(0, fresh);
  const TimelinePoint behind = Copied(1, e, fresh, {again});
  ExpectGiven(1, before);
  gpus_.release();
  EXPECT_EQ(behind.Wait(), absl::OkStatus());
}

TEST_P(PeerWaits, AClosedGpuEndsWhatWaitsForIt) {
  const BufferView b = Buffer(1), c = Buffer(1), e = Buffer(1);
  {
    const Gate never;
    const TimelinePoint waiting = Launched(0, Buffer(0), {never.point()});
    const TimelinePoint behind = Copied(1, b, c, {waiting});
    const TimelinePoint ran = Launched(0, Buffer(0));
    const TimelinePoint behind_ran = Copied(1, e, c, {ran}, QueueKind::kCopyOut);
    gpus_.devices[0] = nullptr;
    EXPECT_EQ(waiting.Wait().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(behind.Wait(), waiting.Wait());
    EXPECT_EQ(behind_ran.Wait(), absl::OkStatus());
    EXPECT_EQ(Copied(1, e, c, {ran}).Wait(), absl::OkStatus()) << "long after it was closed";
  }
  EXPECT_EQ(gpu(1).Health(), absl::OkStatus());
}

// The one that waits is closed first: what it has ends behind what that waits for.
TEST_P(PeerWaits, AGpuIsClosedWhileItWaits) {
  const BufferView a = Buffer(0), b = Buffer(1), c = Buffer(1);
  const int64_t copies = gpus_.count("given_copies");
  gpus_.set("hang_launch", 1);
  const TimelinePoint first = Launched(0, a);
  const TimelinePoint second = Copied(1, b, c, {first});
  ExpectGiven(1, copies);
  std::thread closing([&] { gpus_.devices[1] = nullptr; });
  gpus_.release();
  EXPECT_EQ(second.Wait(), absl::OkStatus());
  closing.join();
  EXPECT_EQ(first.Wait(), absl::OkStatus());
}

// A driver that lets no stream wait for another device's event: then it is the host that waits.
TEST_P(PeerWaits, WhatADriverRefusesTheHostDoes) {
  gpus_.set("peer_wait_error", 801);  // CUDA_ERROR_NOT_SUPPORTED
  const BufferView a = Buffer(0), b = Buffer(1), c = Buffer(1);
  TimelinePoint last;
  for (int round = 0; round < 20; ++round) {
    last = Launched(0, a, {last});
    last = Launched(1, b, {last});
    last = Copied(1, c, b, {last, Launched(0, a)});
  }
  EXPECT_EQ(last.Wait(), absl::OkStatus());
  EXPECT_EQ(Read(0, a), std::string(1, 40));
  EXPECT_EQ(Read(1, c), std::string(1, 20));
  EXPECT_EQ(gpus_.count("peer_event_waits"), 0);
  EXPECT_EQ(gpu(0).Health(), absl::OkStatus());
  EXPECT_EQ(gpu(1).Health(), absl::OkStatus());
}

// Many at once, on streams that get their turns at random.
TEST_P(PeerWaits, BytesGoRound) {
  const BufferView a = Buffer(0), b = Buffer(1);
  TimelinePoint last;
  for (int round = 0; round < 100; ++round) {
    last = Launched(0, a, {last});
    last = Copied(1, b, a, {last}, round % 2 == 0 ? QueueKind::kCopy : QueueKind::kCompute);
    last = Copied(0, a, b, {last}, round % 3 == 0 ? QueueKind::kCopyOut : QueueKind::kCopy);
  }
  EXPECT_EQ(last.Wait(), absl::OkStatus());
  EXPECT_EQ(Read(0, a), std::string(1, 100));
}

INSTANTIATE_TEST_SUITE_P(Drivers, PeerWaits,
                         ::testing::Values(Kind{"cuda", &TwoOfCuda}, Kind{"hip", &TwoOfHip}),
                         [](const auto& info) { return std::string(info.param.name); });

// Points of another driver, and of the CPU, are waited for by the host.
TEST(PeerWaitsOfOtherDrivers, GoThroughTheHost) {
  Gpus cuda = TwoOfCuda(), hip = TwoOfHip();
  ASSERT_FALSE(cuda.devices.empty() || hip.devices.empty());
  const auto host = OpenHost();
  const BufferView from = Whole(*cuda.devices[0]->Alloc(1)), to = Whole(*hip.devices[0]->Alloc(1));
  const BufferView between = HostBuffer(*host, "?"), moved = HostBuffer(*host, "?");
  const int64_t before[2] = {cuda.count("peer_event_waits"), hip.count("peer_event_waits")};
  const TimelinePoint in = *Copy(*cuda.devices[0], from, HostBuffer(*host, "x"));
  const TimelinePoint out = *Copy(*cuda.devices[0], between, from, {in});
  const TimelinePoint on_host = *Copy(*host, moved, between, {out});
  const TimelinePoint there = *Copy(*hip.devices[0], to, moved, {on_host});
  const BufferView zero = Whole(*hip.devices[0]->Alloc(1));
  const TimelinePoint last = *Copy(*hip.devices[0], zero, to, {in, there}, QueueKind::kCompute);
  EXPECT_EQ(last.Wait(), absl::OkStatus());
  const BufferView seen = HostBuffer(*host, "?");
  EXPECT_EQ(Copy(*hip.devices[0], seen, zero)->Wait(), absl::OkStatus());
  EXPECT_EQ(Bytes(seen), "x");
  EXPECT_EQ(cuda.count("peer_event_waits"), before[0]);
  EXPECT_EQ(hip.count("peer_event_waits"), before[1]);
}

}  // namespace
}  // namespace telegrad
