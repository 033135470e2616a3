// Programs and their launches: arguments, grids, and what is refused of them; see conformance.h.
#include <bit>
#include <functional>

#include "tests/devices/conformance.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPlaced = 64;  // bytes that `place` may write in these tests

TEST_P(Conformance, LaunchesRunInOrder) {
  SKIP_IF_EXCLUDED(no_programs);
  OpenDevice();
  const auto image = GetParam().next();
  ASSERT_TRUE(image.ok()) << image.status();
  Command next;
  next.launch = Launch::Of(*device_->Load(*image));
  next.launch.arguments = {{0, 0}};
  const auto commands = *device_->Encode({next, CopyCommand({{0, 1}, {0, 0}, 1}), next});
  const BufferView buffer = Buffer(2);
  const TimelinePoint upload = Copied(buffer, HostBuffer(*host_, "a"));
  const TimelinePoint waits[] = {upload};
  const auto point = device_->queue().Submit(commands, {buffer}, waits);
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ(point->Wait(), absl::OkStatus());
  ExpectBytes(buffer, "cb");
}

// Each argument has to reach its parameter, the scalars by their width, and each workgroup and
// thread its place in the grid.
TEST_P(Conformance, ArgumentsAndTheGridReachThePrograms) {
  SKIP_IF_EXCLUDED(no_programs);
  SKIP_IF_EXCLUDED(no_scalars);
  OpenDevice();
  const auto image = GetParam().place();
  ASSERT_TRUE(image.ok()) << image.status();
  const bool deep = image->signature.group.y > 1;  // the device has more than one dimension
  Command place;
  place.launch = Launch::Of(*device_->Load(*image));
  place.launch.begin = 1;
  place.launch.grid = deep ? GridSize{3, 2, 2} : GridSize{3, 1, 1};
  place.launch.arguments = {{0, 8, BufferAccess::kWrite},
                            LaunchArgument::Scalar32(0xFFFF'FF05),
                            LaunchArgument::Scalar64(uint64_t{0x31} << 40)};
  Command twice = place;
  twice.launch.begin = 4;
  twice.launch.grid = {0, 1, 1};  // of nothing
  const auto commands = device_->Encode({place, twice, place});
  ASSERT_TRUE(commands.ok()) << commands.status();
  const BufferView buffer = Buffer(8 + 8 * kPlaced);
  const auto point = device_->queue().Submit(*commands, {buffer}, {});
  ASSERT_TRUE(point.ok()) << point.status();
  ASSERT_EQ(point->Wait(), absl::OkStatus());
  std::string expected(static_cast<size_t>(buffer.length), '\0');
  for (int64_t z = 0; z < place.launch.grid.z; ++z) {
    for (int64_t y = 0; y < place.launch.grid.y; ++y) {
      for (int64_t x = 1; x < 4; ++x) {
        for (int64_t thread = 0; thread < (deep ? 8 : 1); ++thread) {
          expected[static_cast<size_t>(8 + 8 * (x + 4 * y + 8 * z) + thread)] =
              static_cast<char>(0x36 + thread);
        }
      }
    }
  }
  ExpectBytes(buffer, expected);
}

// Commands are encoded once; each submission brings the values of its scalars, also while others
// are on their way to the same buffer.
TEST_P(Conformance, ScalarsArePatchedAtReplay) {
  SKIP_IF_EXCLUDED(no_programs);
  SKIP_IF_EXCLUDED(no_scalars);
  OpenDevice();
  const auto image = GetParam().place();
  ASSERT_TRUE(image.ok()) << image.status();
  const int64_t threads = image->signature.group.y > 1 ? 8 : 1;
  Command place, partly;
  place.launch = partly.launch = Launch::Of(*device_->Load(*image));
  place.launch.arguments = {
      {0, 0, BufferAccess::kWrite}, LaunchArgument::Scalar32At(1), LaunchArgument::Scalar64At(0)};
  partly.launch.arguments = {
      {0, 8, BufferAccess::kWrite}, LaunchArgument::Scalar32(5), LaunchArgument::Scalar64At(0)};
  const auto commands = device_->Encode({place, partly});
  ASSERT_TRUE(commands.ok()) << commands.status();
  EXPECT_EQ((*commands)->scalars(), 2u);
  const Gate gate;
  std::vector<TimelinePoint> waits = {gate.point()};
  const std::vector<BufferView> buffers = {Buffer(16), Buffer(16)};
  std::vector<BufferView> seen;
  for (uint64_t run = 0; run < 10; ++run) {
    const BufferView& buffer = buffers[run / 2 % 2];
    const auto ran = device_->queue().Submit(*commands, {buffer}, waits, nullptr, nullptr,
                                             {(10 * run) << 40, (uint64_t{0xABCD} << 32) + run});
    ASSERT_TRUE(ran.ok()) << ran.status();
    seen.push_back(Buffer(16));
    const auto kept = Copy(*device_, seen.back(), buffer, {*ran}, QueueKind::kCompute);
    ASSERT_TRUE(kept.ok()) << kept.status();
    waits = {*kept};
  }
  gate.Open();
  ASSERT_EQ(waits[0].Wait(), absl::OkStatus());
  for (size_t run = 0; run < seen.size(); ++run) {
    std::string expected(16, '\0');
    for (int64_t t = 0; t < threads; ++t) {
      expected[static_cast<size_t>(t)] = static_cast<char>(11 * run + t);
      expected[static_cast<size_t>(8 + t)] = static_cast<char>(5 + 10 * run + t);
    }
    SCOPED_TRACE(run);
    ExpectBytes(seen[run], expected);
  }
  for (const std::vector<uint64_t>& wrong : {std::vector<uint64_t>{}, {1}, {1, 2, 3}}) {
    const auto refused =
        device_->queue().Submit(*commands, {buffers[0]}, {}, nullptr, nullptr, wrong);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr(StrCat(wrong.size(), " scalars for commands of 2")));
  }
}

// A submission may say that workgroups from some number on do nothing: those before it run, from
// where the launch begins, and the device may leave out the others.
TEST_P(Conformance, ASubmissionSaysWhichWorkgroupsThereAre) {
  SKIP_IF_EXCLUDED(no_programs);
  SKIP_IF_EXCLUDED(no_scalars);
  OpenDevice();
  const auto image = GetParam().place();
  ASSERT_TRUE(image.ok()) << image.status();
  Command place;
  place.launch = Launch::Of(*device_->Load(*image));
  place.launch.begin = 1;
  place.launch.grid = {3, 1, 1};
  place.launch.arguments = {
      {0, 0, BufferAccess::kWrite}, LaunchArgument::Scalar32(5), LaunchArgument::Scalar64(0)};
  place.launch.groups = 0;
  place.launch.share = 1;
  const auto commands = device_->Encode({place, place});
  ASSERT_TRUE(commands.ok()) << commands.status();
  EXPECT_EQ((*commands)->scalars(), 2u);
  for (const uint64_t groups : {4, 3, 2, 1, 0, 100, 4}) {
    SCOPED_TRACE(groups);
    const BufferView buffer = Buffer(kPlaced);
    const auto ran = device_->queue().Submit(*commands, {buffer}, {}, nullptr, nullptr,
                                             {groups, std::bit_cast<uint64_t>(0.5)});
    ASSERT_TRUE(ran.ok()) << ran.status();
    ASSERT_EQ(ran->Wait(), absl::OkStatus());
    if (!GetParam().no_contents.empty()) continue;
    const std::string bytes = Read(buffer);
    for (uint64_t x = 0; x < 5; ++x) {
      const bool may = x >= 1 && x < 4;
      if (may && x >= groups) continue;
      EXPECT_EQ(bytes[8 * x], may ? 5 : 0) << x;
    }
  }
  place.launch.groups = -2;
  EXPECT_FALSE(device_->Encode({place}).ok());
}

// Of a tensor graph, the variables are the scalars.
TEST_P(Conformance, VariablesOfGraphsArePatchedAtReplay) {
  OpenDevice();
  if (device_->accepts() != ProgramLevel::kTensorGraph)
    GTEST_SKIP() << "a device of programs; graphs are for devices of the tensor level";
  const auto image = GetParam().adds();
  ASSERT_TRUE(image.ok()) << image.status();
  Command add;
  add.launch = Launch::Of(*device_->Load(*image));
  add.launch.variables = {7};
  add.launch.arguments = {{0, 0}, LaunchArgument::Scalar64At(0)};
  const auto commands = device_->Encode({add});
  ASSERT_TRUE(commands.ok()) << commands.status();
  const BufferView buffer = Buffer(8);
  const Gate gate;
  const TimelinePoint waits[] = {gate.point()};
  TimelinePoint last;
  for (const uint64_t value : {1, 20, 100}) {
    const auto point =
        device_->queue().Submit(*commands, {buffer}, waits, nullptr, nullptr, {value});
    ASSERT_TRUE(point.ok()) << point.status();
    last = *point;
  }
  gate.Open();
  ASSERT_EQ(last.Wait(), absl::OkStatus());
  ExpectBytes(buffer, std::string("\x79\0\0\0\0\0\0\0", 8));
  add.launch.variables = {7, 8};
  EXPECT_EQ(device_->Encode({add}).status().code(), absl::StatusCode::kInvalidArgument);
  add.launch.variables = {7};
  add.launch.arguments = {{0, 0}, LaunchArgument::Scalar32At(0)};
  EXPECT_EQ(device_->Encode({add}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(Conformance, RefusesLaunchesThatAreNotTheSignatures) {
  SKIP_IF_EXCLUDED(no_programs);
  SKIP_IF_EXCLUDED(no_scalars);
  OpenDevice();
  const auto image = GetParam().place();
  ASSERT_TRUE(image.ok()) << image.status();
  Command right;
  right.launch = Launch::Of(*device_->Load(*image));
  right.launch.arguments = {{0, 0}, LaunchArgument::Scalar32(1), LaunchArgument::Scalar64(2)};
  ASSERT_TRUE(device_->Encode({right}).ok());
  const auto why = [&](const std::function<void(Launch&)>& change) {
    Command wrong = right;
    change(wrong.launch);
    const absl::Status status = device_->Encode({right, wrong}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("command 1: "));
    return std::string(status.message());
  };
  EXPECT_THAT(why([](Launch& l) { l.arguments.pop_back(); }),
              HasSubstr("2 arguments for a program of 3"));
  EXPECT_THAT(why([](Launch& l) { l.arguments.emplace_back(0, 0); }),
              HasSubstr("4 arguments for a program of 3"));
  EXPECT_THAT(why([](Launch& l) { std::swap(l.arguments[1], l.arguments[2]); }),
              HasSubstr("argument 1 is a scalar64, the program takes a scalar32"));
  EXPECT_THAT(why([](Launch& l) { l.arguments[0] = LaunchArgument::Scalar64(0); }),
              HasSubstr("argument 0 is a scalar64, the program takes a buffer"));
  EXPECT_THAT(why([](Launch& l) { ++l.group.x; }), HasSubstr("threads for a program of"));
  EXPECT_THAT(why([](Launch& l) { l.local_bytes = 16; }), HasSubstr("16 bytes of local memory"));
  EXPECT_THAT(why([](Launch& l) { l.grid.y = -1; }), HasSubstr("a grid of 1 x -1 x 1"));
  EXPECT_THAT(why([](Launch& l) { l.begin = -1; }), HasSubstr("from -1"));
}

// A launch says what it writes, so memory that must not be written is safe from it.
TEST_P(Conformance, LaunchesDoNotWriteWhatIsReadOnly) {
  SKIP_IF_EXCLUDED(no_programs);
  OpenDevice();
  if (!device_->host_visible())
    GTEST_SKIP() << "no memory of this device can be read-only: it takes none of the host's";
  Command next;
  next.launch = Launch::Of(*device_->Load(*GetParam().next()));
  next.launch.arguments = {{0, 0}};
  const BufferView memory = {std::make_shared<ReadOnlyMemory>(Buffer(1).memory), 0, 1};
  const auto refused = device_->queue().Submit(*device_->Encode({next}), {memory}, {});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("binding 0, which is read-only"));
}

}  // namespace
}  // namespace telegrad
