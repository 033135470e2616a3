// Launches with tensor maps: the boxes that programs read and write by them, what is refused of
// them, and devices that have none; see conformance.h.
#include <array>
#include <cstring>

#include "tests/devices/conformance.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kFirst = 32;         // where the tensor begins in its buffer
constexpr int64_t kSourceBytes = 800;  // which has so many
constexpr int64_t kBoxBytes = 128;

// A tensor of 6 x 5 x 4 with gaps behind its rows and planes; of every second row, a box is 4 x 2 x
// 4 elements.
TensorMap Tensor() {
  return {.rank = 3,
          .sizes = {6, 5, 4, 1, 1},
          .strides = {4, 32, 176, 0, 0},
          .boxes = {4, 4, 4, 1, 1},
          .steps = {1, 2, 1, 1, 1},
          .element = DType::kInt32};
}

using Corner = std::array<int32_t, 3>;
// Inside, over each side, and beside the tensor.
constexpr Corner kCorners[] = {{0, 0, 0},
                               {1, 1, 0},
                               {4, 3, 2},
                               {-1, 0, 0},
                               {0, -3, 1},
                               {-2, 1, -3},
                               {5, 4, 3},
                               {6, 0, 0},
                               {0, 0, 4},
                               {-4, 0, 0},
                               {1 << 30, 1, -(1 << 30)}};

// Every byte different from its neighbours'.
std::string Source(uint32_t seed) {
  std::string out(kSourceBytes, '\0');
  for (size_t i = 0; i < out.size(); ++i) {
    seed = seed * 1664525 + 1013904223;
    out[i] = static_cast<char>(seed >> 24);
  }
  return out;
}

// By the definition of a box: where in the buffer its elements are, -1 for those outside.
std::vector<int64_t> Places(const Corner& corner) {
  std::vector<int64_t> out;
  for (int64_t z = 0; z < 4; ++z) {
    for (int64_t y = 0; y < 4; y += 2) {
      for (int64_t x = 0; x < 4; ++x) {
        const int64_t at[] = {corner[0] + x, corner[1] + y, corner[2] + z};
        const bool inside =
            at[0] >= 0 && at[0] < 6 && at[1] >= 0 && at[1] < 5 && at[2] >= 0 && at[2] < 4;
        out.push_back(inside ? kFirst + 4 * at[0] + 32 * at[1] + 176 * at[2] : -1);
      }
    }
  }
  return out;
}

std::string Box(const std::string& source, const Corner& corner) {
  std::string out;
  for (const int64_t place : Places(corner)) {
    out += place < 0 ? std::string(4, '\0') : source.substr(static_cast<size_t>(place), 4);
  }
  return out;
}

void PutBox(std::string* target, const Corner& corner, const std::string& box) {
  const std::vector<int64_t> places = Places(corner);
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] >= 0) target->replace(static_cast<size_t>(places[i]), 4, box.substr(4 * i, 4));
  }
}

std::vector<uint64_t> Scalars(const Corner& corner) {
  std::vector<uint64_t> out;
  for (const int32_t at : corner) out.push_back(static_cast<uint32_t>(at));
  return out;
}

class TensorMaps : public Conformance {
 protected:
  // `box`, of the tensor at kFirst of binding 0, to the beginning of binding 1.
  absl::StatusOr<Command> BoxCommand() {
    TG_ASSIGN_OR_RETURN(const ProgramImage image, GetParam().box());
    Command box;
    TG_ASSIGN_OR_RETURN(auto program, device_->Load(image));
    box.launch = Launch::Of(std::move(program));
    box.launch.name = "box";
    box.launch.arguments = {LaunchArgument::Map(Tensor(), 0, kFirst, BufferAccess::kRead),
                            {1, 0, BufferAccess::kWrite},
                            LaunchArgument::Scalar32At(0),
                            LaunchArgument::Scalar32At(1),
                            LaunchArgument::Scalar32At(2)};
    return box;
  }

  // `unbox`, of the beginning of binding 1 to the tensor at kFirst of binding 0.
  absl::StatusOr<Command> UnboxCommand() {
    TG_ASSIGN_OR_RETURN(const ProgramImage image, GetParam().unbox());
    TG_ASSIGN_OR_RETURN(Command unbox, BoxCommand());
    TG_ASSIGN_OR_RETURN(unbox.launch.program, device_->Load(image));
    unbox.launch.arguments[0] = {1, 0, BufferAccess::kRead};
    unbox.launch.arguments[1] = LaunchArgument::Map(Tensor(), 0, kFirst, BufferAccess::kWrite);
    return unbox;
  }

  // Why this device cannot be asked for boxes; empty: it can.
  std::string WhyNone() {
    if (!GetParam().no_programs.empty()) return GetParam().no_programs;
    if (!GetParam().no_scalars.empty()) return GetParam().no_scalars;
    if (!GetParam().no_tensor_maps.empty()) return GetParam().no_tensor_maps;
    OpenDevice();
    const absl::Status loaded = BoxCommand().status();
    // A real GPU may be older.
    if (absl::IsUnimplemented(loaded) && GetParam().absent != nullptr) {
      return std::string(loaded.message());
    }
    EXPECT_EQ(loaded, absl::OkStatus());
    return "";
  }
};

#define SKIP_WITHOUT_TENSOR_MAPS() \
  if (const std::string why = WhyNone(); !why.empty()) GTEST_SKIP() << why

// Encoded once, run with other buffers and corners, while earlier runs are on their way.
TEST_P(TensorMaps, ReadBoxesOfWhatIsBoundAtReplay) {
  SKIP_WITHOUT_TENSOR_MAPS();
  Command box = *BoxCommand();
  Command again = box;
  again.launch.arguments[1] = {1, kBoxBytes, BufferAccess::kWrite};
  again.launch.arguments[4] = LaunchArgument::Scalar32(1);
  const auto commands = device_->Encode({box, again});
  ASSERT_TRUE(commands.ok()) << commands.status();
  std::vector<std::string> sources;
  std::vector<BufferView> buffers, seen;
  std::vector<TimelinePoint> waits;
  for (uint32_t i = 0; i < 3; ++i) {
    sources.push_back(Source(i));
    // The last one is a part of a longer buffer.
    buffers.push_back(Buffer(kSourceBytes + 64 * i));
    buffers.back().offset = 64 * i;
    buffers.back().length = kSourceBytes;
    waits.push_back(Copied(buffers.back(), HostBuffer(*host_, sources.back())));
  }
  const Gate gate;
  waits.push_back(gate.point());
  TimelinePoint last;
  for (size_t run = 0; run < std::size(kCorners); ++run) {
    seen.push_back(Buffer(2 * kBoxBytes));
    const auto point = device_->queue().Submit(*commands, {buffers[run % 3], seen.back()}, waits,
                                               nullptr, nullptr, Scalars(kCorners[run]));
    ASSERT_TRUE(point.ok()) << point.status();
    last = *point;
  }
  gate.Open();
  ASSERT_EQ(last.Wait(), absl::OkStatus());
  for (size_t run = 0; run < seen.size(); ++run) {
    SCOPED_TRACE(run);
    const Corner& corner = kCorners[run];
    ExpectBytes(seen[run],
                Box(sources[run % 3], corner) + Box(sources[run % 3], {corner[0], corner[1], 1}));
  }
  if (GetParam().problems != nullptr) {
    EXPECT_EQ(GetParam().problems(), "");
  }
}

// One after the other into the same tensors.
TEST_P(TensorMaps, WriteBoxesToWhatIsBoundAtReplay) {
  SKIP_WITHOUT_TENSOR_MAPS();
  const auto unbox = UnboxCommand();
  ASSERT_TRUE(unbox.ok()) << unbox.status();
  Command again = *unbox;
  again.launch.arguments[4] = LaunchArgument::Scalar32(1);
  const auto commands = device_->Encode({*unbox, again});
  ASSERT_TRUE(commands.ok()) << commands.status();
  std::vector<std::string> expected;
  std::vector<BufferView> tensors;
  std::vector<TimelinePoint> waits;
  for (uint32_t i = 0; i < 2; ++i) {
    expected.push_back(Source(i));
    tensors.push_back(Buffer(kSourceBytes));
    waits.push_back(Copied(tensors.back(), HostBuffer(*host_, expected.back())));
  }
  TimelinePoint last;
  for (size_t run = 0; run < std::size(kCorners); ++run) {
    const std::string box = Source(100 + static_cast<uint32_t>(run)).substr(0, kBoxBytes);
    const BufferView from = Buffer(kBoxBytes);
    std::vector<TimelinePoint> all = waits;
    all.push_back(Copied(from, HostBuffer(*host_, box)));
    const auto point = device_->queue().Submit(*commands, {tensors[run % 2], from}, all, nullptr,
                                               nullptr, Scalars(kCorners[run]));
    ASSERT_TRUE(point.ok()) << point.status();
    last = *point;
    PutBox(&expected[run % 2], kCorners[run], box);
    PutBox(&expected[run % 2], {kCorners[run][0], kCorners[run][1], 1}, box);
  }
  ASSERT_EQ(last.Wait(), absl::OkStatus());
  for (size_t i = 0; i < tensors.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectBytes(tensors[i], expected[i]);
  }
  if (GetParam().problems != nullptr) {
    EXPECT_EQ(GetParam().problems(), "");
  }
}

// A traced launch is not part of a graph.
TEST_P(TensorMaps, ReadBoxesInTracedRuns) {
  SKIP_WITHOUT_TENSOR_MAPS();
  const auto commands = device_->Encode({*BoxCommand()});
  ASSERT_TRUE(commands.ok()) << commands.status();
  const BufferView from = Buffer(kSourceBytes), to = Buffer(kBoxBytes);
  const TimelinePoint waits[] = {Copied(from, HostBuffer(*host_, Source(9)))};
  const auto trace = std::make_shared<RunTrace>();
  const auto point =
      device_->queue().Submit(*commands, {from, to}, waits, trace, nullptr, {1, 2, 0});
  ASSERT_TRUE(point.ok()) << point.status();
  ASSERT_EQ(point->Wait(), absl::OkStatus());
  ExpectBytes(to, Box(Source(9), {1, 2, 0}));
  ASSERT_EQ(trace->events().size(), 1u);
  EXPECT_EQ(trace->events()[0].name, "box");
}

// More than fit into one message to a worker process, each with a corner of its own.
TEST_P(TensorMaps, ManyInOneSubmission) {
  SKIP_WITHOUT_TENSOR_MAPS();
  constexpr int64_t kLaunches = 300;
  std::vector<Command> commands(kLaunches, *BoxCommand());
  std::string expected;
  const std::string source = Source(5);
  for (int64_t i = 0; i < kLaunches; ++i) {
    const Corner& corner = kCorners[static_cast<size_t>(i) % std::size(kCorners)];
    auto& arguments = commands[static_cast<size_t>(i)].launch.arguments;
    arguments[1] = {1, i * kBoxBytes, BufferAccess::kWrite};
    for (size_t d = 0; d < corner.size(); ++d) {
      arguments[2 + d] = LaunchArgument::Scalar32(static_cast<uint32_t>(corner[d]));
    }
    expected += Box(source, corner);
  }
  const auto encoded = device_->Encode(commands);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  const BufferView from = Buffer(kSourceBytes), to = Buffer(kLaunches * kBoxBytes);
  const TimelinePoint waits[] = {Copied(from, HostBuffer(*host_, source))};
  const auto point = device_->queue().Submit(*encoded, {from, to}, waits);
  ASSERT_TRUE(point.ok()) << point.status();
  ASSERT_EQ(point->Wait(), absl::OkStatus());
  ExpectBytes(to, expected);
}

TEST_P(TensorMaps, AreCheckedWhenTheyAreEncoded) {
  SKIP_WITHOUT_TENSOR_MAPS();
  const Command box = *BoxCommand();
  const auto why = [&](LaunchArgument argument) {
    Command wrong = box;
    wrong.launch.arguments[0] = std::move(argument);
    const absl::Status status = device_->Encode({box, wrong}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("command 1: "));
    return std::string(status.message());
  };
  TensorMap wide = Tensor();
  wide.boxes[2] = 257;
  EXPECT_THAT(why(LaunchArgument::Map(wide, 0, 0)),
              HasSubstr("argument 0: a box of 257 in dimension 2, expected 1 to 256"));
  EXPECT_THAT(why(LaunchArgument::Map(Tensor(), -1, 0)), HasSubstr("of binding -1"));
  EXPECT_THAT(why(LaunchArgument::Map(Tensor(), 0, -16)), HasSubstr("from byte -16"));
  EXPECT_THAT(why(LaunchArgument::Map(Tensor(), 0, INT64_MAX - 15)), HasSubstr("of binding 0"));
  EXPECT_THAT(why(LaunchArgument(0, 0)),
              HasSubstr("argument 0 is a buffer, the program takes a tensor_map"));
}

TEST_P(TensorMaps, FitIntoTheirBuffers) {
  SKIP_WITHOUT_TENSOR_MAPS();
  const auto commands = device_->Encode({*BoxCommand()});
  ASSERT_TRUE(commands.ok()) << commands.status();
  const BufferView source = Buffer(kSourceBytes), to = Buffer(kBoxBytes);
  const auto why = [&](int64_t offset, int64_t length) {
    const auto point =
        device_->queue().Submit(*commands, {BufferView{source.memory, offset, length}, to}, {},
                                nullptr, nullptr, {0, 0, 0});
    if (point.ok()) {
      EXPECT_EQ(point->Wait(), absl::OkStatus());
    } else {
      EXPECT_EQ(point.status().code(), absl::StatusCode::kInvalidArgument);
    }
    return std::string(point.status().message());
  };
  // 5 elements, 4 rows and 3 planes after the first one.
  constexpr int64_t kEnd = kFirst + 5 * 4 + 4 * 32 + 3 * 176 + 4;
  EXPECT_EQ(why(0, kEnd), "");
  EXPECT_THAT(why(0, kEnd - 1), HasSubstr(StrCat("expected at least ", kEnd)));
  EXPECT_EQ(why(16, kEnd), "");
  EXPECT_THAT(why(8, kEnd), AllOf(HasSubstr("a tensor map at byte 32 of binding 0"),
                                  HasSubstr("no multiple of 16")));
}

TEST_P(TensorMaps, AreOfMemoryThatProgramsReach) {
  SKIP_WITHOUT_TENSOR_MAPS();
  SKIP_IF_EXCLUDED(no_contents);
  if (device_->AccessTo(*host_).atomics) GTEST_SKIP() << "its programs reach the host's memory";
  const auto commands = device_->Encode({*BoxCommand()});
  ASSERT_TRUE(commands.ok()) << commands.status();
  const auto refused =
      device_->queue().Submit(*commands, {HostBuffer(*host_, Source(1)), Buffer(kBoxBytes)}, {},
                              nullptr, nullptr, {0, 0, 0});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("binding 0 is not memory of"));
}

TEST_P(TensorMaps, DoNotWriteWhatIsReadOnly) {
  SKIP_WITHOUT_TENSOR_MAPS();
  if (!device_->host_visible())
    GTEST_SKIP() << "no memory of this device can be read-only: it takes none of the host's";
  const BufferView source = Buffer(kSourceBytes);
  const BufferView read_only = {std::make_shared<ReadOnlyMemory>(source.memory), 0, kSourceBytes};
  Command box = *BoxCommand();
  box.launch.arguments[0] = LaunchArgument::Map(Tensor(), 0, kFirst, BufferAccess::kWrite);
  const auto refused = device_->queue().Submit(*device_->Encode({box}), {read_only, Buffer(128)},
                                               {}, nullptr, nullptr, {0, 0, 0});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("binding 0, which is read-only"));
}

TEST_P(TensorMaps, AreRefusedWhereThereAreNone) {
  SKIP_IF_EXCLUDED(no_programs);
  SKIP_IF_EXCLUDED(no_scalars);
  if (GetParam().no_tensor_maps.empty()) GTEST_SKIP() << "it takes them";
  OpenDevice();
  auto image = GetParam().place();
  ASSERT_TRUE(image.ok()) << image.status();
  image->signature.parameters[0] = ParameterKind::kTensorMap;
  const absl::Status status = device_->Load(*image).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(device_->name()),
                    HasSubstr(StrCat("the program ", image->name, " takes tensor maps, and ",
                                     GetParam().no_tensor_maps))));
}

INSTANTIATE_TEST_SUITE_P(Drivers, TensorMaps, ::testing::ValuesIn(AllDrivers()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace telegrad
