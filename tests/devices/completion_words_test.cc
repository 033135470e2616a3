// How a queue sees that a GPU has passed its work: by a word that the stream writes into memory of
// the host, without asking the driver; and without the words, or where one does not come, by
// asking.
#include "devices/api/trace.h"
#include "tests/devices/cuda_fixture.h"
#include "tests/devices/hip_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

constexpr int kSubmissions = 300;

// Ends, one after the other and then together; how long it took.
int64_t RunMany(Device& device, std::shared_ptr<LoadedProgram> program) {
  const int64_t begin = SteadyNs();
  const auto commands = device.Encode({NextCommand(std::move(program))});
  EXPECT_TRUE(commands.ok()) << commands.status();
  const BufferView buffer = Whole(*device.Alloc(1));
  absl::StatusOr<TimelinePoint> last;
  for (int i = 0; i < kSubmissions; ++i) {
    last = device.queue().Submit(*commands, {buffer}, {});
    EXPECT_TRUE(last.ok()) << last.status();
    if (i < kSubmissions / 2) {
      EXPECT_EQ(last->Wait(), absl::OkStatus());
    }
  }
  EXPECT_EQ(last->Wait(), absl::OkStatus());
  return SteadyNs() - begin;
}

// How often the driver was asked, also when the GPUs were opened.
template <typename Fake>
int64_t Asked(Fake& fake) {
  return fake.Count("event_queries") + fake.Count("stream_queries");
}
// Each of three queues may ask once in ten milliseconds.
int64_t MostAsked(int64_t ns) { return 3 * (1 + ns / 10'000'000); }

TEST_F(Cuda, TheHostReadsWordsAndAsksNoDriver) {
  Open();
  const int64_t before = Asked(fake_);
  const int64_t ns = RunMany(device(), Next());
  EXPECT_GE(fake_.Count("words"), kSubmissions);
  EXPECT_LE(Asked(fake_) - before, MostAsked(ns));
  const int64_t held = fake_.Count("live_host_allocations");
  EXPECT_GT(held, 0);
  devices_.clear();
  EXPECT_EQ(fake_.Count("live_host_allocations"), 0);
  EXPECT_EQ(fake_.Problems(), "");
}

TEST(HipWords, TheHostReadsWordsAndAsksNoDriver) {
  FakeHip fake;
  std::vector<std::string> notes;
  auto devices = OpenHips(FakeHipOptions(), &notes);
  ASSERT_GE(devices.size(), 1u) << ::testing::PrintToString(notes);
  const auto image = NextHip();
  ASSERT_TRUE(image.ok()) << image.status();
  const int64_t before = Asked(fake);
  const int64_t ns = RunMany(*devices[0], *devices[0]->Load(*image));
  EXPECT_GE(fake.Count("words"), kSubmissions);
  EXPECT_LE(Asked(fake) - before, MostAsked(ns));
  devices.clear();
  EXPECT_EQ(fake.Count("live_host_allocations"), 0);
}

// Copies from and to memory that is not pinned wait for parts of themselves.
TEST_F(Cuda, PartsOfCopiesHaveWords) {
  Open();
  const std::string bytes(size_t{24} << 20, 'b');
  const BufferView buffer = Buffer(static_cast<int64_t>(bytes.size()));
  const int64_t before = Asked(fake_), begin = SteadyNs();
  Fill(buffer, bytes);
  EXPECT_EQ(Read(buffer), bytes);
  EXPECT_LE(Asked(fake_) - before, MostAsked(SteadyNs() - begin));
}

// The driver tells, in the end; and the next word stands for what is before it.
TEST_F(Cuda, AWordThatDoesNotComeHoldsNothingUp) {
  Open();
  const BufferView buffer = Buffer(1);
  const auto program = Next();
  for (int i = 0; i < 3; ++i) {
    const int64_t before = Asked(fake_);
    fake_.Set("lose_word", 1);
    EXPECT_EQ(Run({NextCommand(program)}, {buffer}), absl::OkStatus());
    EXPECT_EQ(fake_.Get("lose_word"), 0);
    EXPECT_GT(Asked(fake_), before);
  }
  EXPECT_EQ(Read(buffer), "\3");
}

// After a fault no word comes, and the driver is asked, whose error keeps its name.
TEST_F(Cuda, AFaultIsSeenWithoutItsWord) {
  Open();
  const BufferView buffer = Buffer(1);
  fake_.Set("fault_launch", 1);
  const absl::Status failed = Run({NextCommand(Next())}, {buffer});
  EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_EQ(device().Recover(), absl::OkStatus());
  const BufferView fresh = Buffer(1);
  EXPECT_EQ(Run({NextCommand(Next())}, {fresh}), absl::OkStatus());
  EXPECT_EQ(Read(fresh), "\1");
}

TEST_F(Cuda, WithoutWordsEventsAreAsked) {
  fake_.Set("stream_words", 0);
  Open();
  const int64_t before = Asked(fake_);
  RunMany(device(), Next());
  EXPECT_EQ(fake_.Count("words"), 0);
  EXPECT_GE(Asked(fake_) - before, kSubmissions / 2);
  // From the first that is refused on, as where the GPU does not tell before.
  devices_.clear();
  fake_.Set("stream_words", 1);
  Open();
  fake_.Set("stream_words", 0);
  RunMany(device(), Next());
  EXPECT_EQ(fake_.Count("words"), 0);
  EXPECT_EQ(device().Health(), absl::OkStatus());
}

}  // namespace
}  // namespace telegrad
