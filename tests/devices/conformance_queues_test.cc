// Which queues a device has, what each of them runs, and how they wait for each other; see
// conformance.h.
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "devices/null/null_device.h"
#include "tests/devices/conformance.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A copy of all of `from` on that queue.
absl::StatusOr<TimelinePoint> CopyOn(Device& device, Queue& queue, const BufferView& to,
                                     const BufferView& from,
                                     std::vector<TimelinePoint> waits = {}) {
  TG_ASSIGN_OR_RETURN(const auto commands,
                      device.Encode({CopyCommand({{0, 0}, {1, 0}, from.length})}));
  return queue.Submit(commands, {to, from}, waits);
}

TEST_P(Conformance, ListsItsQueues) {
  OpenDevice();
  const std::span<Queue* const> queues = device_->queues();
  ASSERT_GE(queues.size(), GetParam().queues);
  std::set<const Queue*> all;
  std::set<std::string> names;
  bool computes = false, copies = false;
  for (const Queue* const queue : queues) {
    ASSERT_NE(queue, nullptr);
    EXPECT_TRUE(all.insert(queue).second);
    EXPECT_TRUE(names.insert(queue->name()).second) << queue->name();
    EXPECT_THAT(queue->name(), StartsWith(device_->name() + " "));
    EXPECT_NE(queue->takes(), QueueCapability{}) << queue->name();
    EXPECT_EQ(queue->last().value, 0u);
    computes |= queue->takes().compute;
    copies |= queue->takes().copy;
  }
  EXPECT_EQ(computes, device_->accepts() != ProgramLevel::kNothing);
  EXPECT_TRUE(copies);
  EXPECT_EQ(device_->queue().takes().compute, computes);
  std::vector<Queue*> only_copy;
  for (Queue* const queue : queues) {
    if (queue->takes() == kCopiesOnly) only_copy.push_back(queue);
  }
  Queue& copy = device_->queue(QueueKind::kCopy);
  EXPECT_EQ(copy.takes(), only_copy.empty() ? kComputesAndCopies : kCopiesOnly);
  EXPECT_EQ(&device_->queue(QueueKind::kCopyOut), only_copy.size() > 1 ? only_copy[1] : &copy);
  EXPECT_TRUE(std::ranges::equal(queues, device_->queues())) << "it stays the same";
}

TEST_P(Conformance, EachQueueRunsWhatItTakes) {
  OpenDevice();
  for (Queue* const queue : device_->queues()) {
    SCOPED_TRACE(queue->name());
    const BufferView buffer = Buffer(1);
    std::string expected(1, '\0');
    if (queue->takes().copy) {
      const auto copied = CopyOn(*device_, *queue, buffer, HostBuffer(*host_, "a"));
      ASSERT_TRUE(copied.ok()) << copied.status();
      EXPECT_EQ(copied->timeline, queue->last().timeline);
      EXPECT_EQ(copied->Wait(), absl::OkStatus());
      expected = "a";
      ExpectBytes(buffer, expected);
    }
    if (queue->takes().compute) {
      const auto commands = Next();
      ASSERT_TRUE(commands.ok()) << commands.status();
      const auto ran = queue->Submit(*commands, {buffer}, {});
      ASSERT_TRUE(ran.ok()) << ran.status();
      EXPECT_EQ(ran->timeline, queue->last().timeline);
      EXPECT_EQ(ran->Wait(), absl::OkStatus());
      ++expected[0];
      ExpectBytes(buffer, expected);
    }
  }
}

TEST_P(Conformance, QueuesRefuseWhatTheyDoNotTake) {
  OpenDevice();
  // A device without programs encodes those of others.
  const auto other = OpenNull({});
  auto launch = GetParam().no_programs.empty() ? Next() : nullptr;
  if (!GetParam().no_programs.empty()) {
    Command next;
    next.launch = Launch::Of(*other->Load({.name = "next", .binary = ""}));
    launch = device_->Encode({next, CopyCommand({{0, 0}, {1, 0}, 0})});
  }
  ASSERT_TRUE(launch.ok()) << launch.status();
  EXPECT_TRUE((*launch)->needs().compute);
  const BufferView buffer = Buffer(1), from = HostBuffer(*host_, "x");
  const auto copy = *device_->Encode({CopyCommand({{0, 0}, {1, 0}, 1})});
  EXPECT_EQ(copy->needs(), kCopiesOnly);
  const auto expect_refused = [&](Queue& queue, const std::shared_ptr<const CommandBuffer>& what,
                                  const std::string& kind, const std::string& why) {
    const absl::Status refused = queue.Submit(what, {buffer, from}, {}).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_THAT(std::string(refused.message()),
                AllOf(StartsWith(queue.name()), HasSubstr(kind), HasSubstr(why)));
    EXPECT_EQ(queue.last().value, 0u);
  };
  for (Queue* const queue : device_->queues()) {
    if (!queue->takes().compute) expect_refused(*queue, *launch, "a launch", "takes copies only");
    if (!queue->takes().copy) expect_refused(*queue, copy, "a copy", "takes launches only");
  }
}

// Each behind each other one, and behind itself, while all are held up by the first.
TEST_P(Conformance, QueuesOfADeviceWaitForEachOther) {
  OpenDevice();
  const std::span<Queue* const> queues = device_->queues();
  const Gate gate;
  std::vector<BufferView> seen;
  std::string expected;
  const BufferView buffer = Buffer(1);
  TimelinePoint last = gate.point();
  for (Queue* const first : queues) {
    for (Queue* const second : queues) {
      if (!first->takes().copy || !second->takes().copy) continue;
      expected += static_cast<char>('a' + expected.size());
      const auto written = CopyOn(*device_, *first, buffer,
                                  HostBuffer(*host_, expected.substr(seen.size())), {last});
      ASSERT_TRUE(written.ok()) << written.status();
      seen.push_back(HostBuffer(*host_, "?"));
      const auto read = CopyOn(*device_, *second, seen.back(), buffer, {*written});
      ASSERT_TRUE(read.ok()) << read.status();
      last = *read;
    }
  }
  EXPECT_LT(last.timeline->value(), last.value);
  gate.Open();
  ASSERT_EQ(last.Wait(), absl::OkStatus());
  if (!GetParam().no_contents.empty()) return;
  std::string found;
  for (const BufferView& view : seen) found += Bytes(view);
  EXPECT_EQ(found, expected);
}

// What waits is given to the device while that for which it waits is still at work there.
TEST_P(Conformance, QueuesWaitForEachOtherWithoutTheHost) {
  if (GetParam().hang == nullptr) {
    GTEST_SKIP() << "only a fake driver has a launch that hangs and tells what it has been given";
  }
  OpenDevice();
  const auto commands = Next();
  ASSERT_TRUE(commands.ok()) << commands.status();
  const auto queues = device_->queues();
  std::vector<BufferView> chain = {Buffer(1)};
  for (size_t i = 0; i < queues.size(); ++i) chain.push_back(Buffer(1));
  GetParam().hang();
  const auto ran = device_->queue().Submit(*commands, {chain[0]}, {});
  ASSERT_TRUE(ran.ok()) << ran.status();
  const int64_t before = GetParam().given_copies();
  TimelinePoint last = *ran;
  for (size_t i = 0; i < queues.size(); ++i) {
    Queue& queue = *queues[queues.size() - 1 - i];  // that of the launch last
    const auto copied = CopyOn(*device_, queue, chain[i + 1], chain[i], {last});
    ASSERT_TRUE(copied.ok()) << copied.status();
    last = *copied;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    const auto given = [&] { return GetParam().given_copies() - before; };
    const auto expected = static_cast<int64_t>(i + 1);
    while (given() < expected && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_EQ(given(), expected) << queue.name();
  }
  EXPECT_LT(ran->timeline->value(), ran->value);
  GetParam().release();
  EXPECT_EQ(last.Wait(), absl::OkStatus());
  ExpectBytes(chain.back(), "\1");
}

}  // namespace
}  // namespace telegrad
