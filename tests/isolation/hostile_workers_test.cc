// Workers that break the protocol in each way that a process can: what they were running fails with
// a reason, and nothing else does.
#include <random>

#include "devices/api/trace.h"
#include "engine/base/status.h"
#include "tests/isolation/worker_devices.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class HostileWorkers : public WorkerDevices {
 protected:
  // How a run ends of a program of that name, on a worker that takes it for an order.
  absl::Status RunOn(const std::string& order) {
    Device& device = Open({.executable = HOSTILE_WORKER,
                           .hang_limit = absl::Milliseconds(order == "silent" ? 3000 : 300)});
    const auto program = device.Load({order, "code", {.parameters = FunctionParameters(1)}});
    if (!program.ok()) return program.status();
    Command launch;
    launch.launch = Launch::Of(*program);
    launch.launch.arguments = {{0, 0}};
    launch.launch.flops = 1e8;
    const auto trace = std::make_shared<RunTrace>();
    const auto commands = device.Encode(std::vector<Command>(600, launch));
    if (!commands.ok()) return commands.status();
    const int64_t before = SteadyNs();
    const auto wish = std::make_shared<Cancellation>();
    const BufferView word = Word(device);
    const auto point = device.queue().Submit(*commands, {word}, {}, trace, wish);
    if (!point.ok()) return point.status();
    if (order == "silent") {
      AwaitChange(word);
      wish->Cancel();
    }
    const absl::Status status = point->Wait(absl::Seconds(60));
    for (const TraceEvent& event : trace->events()) {
      EXPECT_LE(before, event.begin_ns);
      EXPECT_LE(event.begin_ns, event.end_ns);
      EXPECT_LE(event.end_ns, SteadyNs());
    }
    return status;
  }
};

TEST_F(HostileWorkers, WhatItEndsMustHaveBeenBegun) {
  const absl::Status status = RunOn("ends_too_much");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("broke the protocol"));
}

TEST_F(HostileWorkers, AStatusThatThereIsNot) {
  const absl::Status status = RunOn("unknown_code");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(status.message().size(), 496u);
  EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
}

TEST_F(HostileWorkers, WildTimesAreTamed) { EXPECT_EQ(RunOn("wild_times"), absl::OkStatus()); }

TEST_F(HostileWorkers, OneThatNeverEndsARunThatWasCancelled) {
  const absl::Status status = RunOn("silent");
  EXPECT_THAT(std::string(status.message()), HasSubstr("went on with what was cancelled"));
}

TEST_F(HostileWorkers, RepliesThatAreNone) {
  for (const char* order :
       {"replies_garbage", "replies_no_frame", "replies_to_another", "leaves"}) {
    const absl::Status status = RunOn(order);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << order << ": " << status;
    device_.reset();
  }
}

TEST_F(HostileWorkers, OneThatHangsUpIsReplaced) {
  (void)RunOn("hangs_up");
  EXPECT_GT(Event(1).pid, 0);
}

TEST_F(HostileWorkers, RandomBytesInAllThatIsShared) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(StrCat("seed ", seed));
  for (uint64_t i = 0; i < 20; ++i) {
    const absl::Status status = RunOn(StrCat("random", seed + i));
    EXPECT_FALSE(status.ok());
    device_.reset();
    events_.clear();
  }
}

}  // namespace
}  // namespace telegrad
