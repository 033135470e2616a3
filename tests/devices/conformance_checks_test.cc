// What is refused when it is encoded or submitted, and what traces tell; see conformance.h.
#include "tests/devices/conformance.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

TEST_P(Conformance, RejectsWhatDoesNotFit) {
  class Foreign : public CommandBuffer {};
  OpenDevice();
  const BufferView buffer = Buffer(8), from = HostBuffer(*host_, "12345678");
  Queue& queue = device_->queue(QueueKind::kCopy);
  const auto commands = *device_->Encode({CopyCommand({{0, 0}, {1, 0}, 8})});
  const auto submit = [&](std::shared_ptr<const CommandBuffer> c, std::vector<BufferView> bindings,
                          std::vector<TimelinePoint> waits = {}) {
    return queue.Submit(std::move(c), std::move(bindings), waits).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(submit(nullptr, {buffer, from}), kInvalid);
  EXPECT_EQ(submit(std::make_shared<Foreign>(), {buffer, from}), kInvalid);
  EXPECT_EQ(submit(commands, {buffer}), kInvalid);
  EXPECT_EQ(submit(commands, {buffer, BufferView{}}), kInvalid);
  EXPECT_EQ(submit(commands, {{buffer.memory, 0, 9}, from}), kInvalid);
  EXPECT_EQ(submit(commands, {{buffer.memory, 0, 7}, from}), kInvalid);
  EXPECT_EQ(submit(commands, {{buffer.memory, -1, 8}, from}), kInvalid);
  EXPECT_EQ(submit(commands, {{buffer.memory, INT64_MAX, INT64_MAX}, from}), kInvalid);
  EXPECT_EQ(submit(commands, {buffer, buffer}), kInvalid) << "overlaps itself";
  EXPECT_EQ(submit(commands, {buffer, from}, {{queue.last().timeline, 1000}}), kInvalid);
  EXPECT_EQ(queue.last().value, 0u);
  ExpectBytes(buffer, std::string(8, '\0'));
}

TEST_P(Conformance, RejectsCommandsThatAreMalformed) {
  OpenDevice();
  const auto code = [&](const Command& bad) {
    const auto encoded = device_->Encode({CopyCommand({{0, 0}, {1, 0}, 1}), bad});
    EXPECT_THAT(std::string(encoded.status().message()), HasSubstr("command 1"));
    return encoded.status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code(CopyCommand({{0, 0}, {1, 0}, -1})), kInvalid);
  EXPECT_EQ(code(CopyCommand({{0, INT64_MAX}, {1, 0}, 8})), kInvalid);
  EXPECT_EQ(code(CopyCommand({{-1, 0}, {1, 0}, 8})), kInvalid);
  EXPECT_EQ(code(CopyCommand({{0, 0}, {1 << 30, 0}, 8})), kInvalid);
  EXPECT_EQ(code(CopyCommand({{0, 0}, {1, -8}, 8})), kInvalid);
  EXPECT_EQ(code(Command{}), kInvalid) << "a launch without a program";
}

TEST_P(Conformance, TracesEachCommand) {
  OpenDevice();
  const BufferView buffer = Buffer(4), from = HostBuffer(*host_, "1234");
  const auto commands =
      *device_->Encode({CopyCommand({{0, 0}, {1, 0}, 4}), CopyCommand({{0, 0}, {1, 1}, 2})});
  const auto trace = std::make_shared<RunTrace>();
  const int64_t before = SteadyNs();
  const auto point = device_->queue(QueueKind::kCopy).Submit(commands, {buffer, from}, {}, trace);
  ASSERT_EQ(point->Wait(), absl::OkStatus());
  const std::vector<TraceEvent> events = trace->events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_LE(before, events[0].begin_ns);
  EXPECT_LE(events[0].begin_ns, events[0].end_ns);
  EXPECT_LE(events[0].end_ns, events[1].begin_ns);
  EXPECT_LE(events[1].end_ns, SteadyNs());
  EXPECT_EQ(events[0].bytes, 4);
  EXPECT_EQ(events[1].bytes, 2);
  EXPECT_THAT(events[1].queue, HasSubstr(device_->name()));
}

}  // namespace
}  // namespace telegrad
