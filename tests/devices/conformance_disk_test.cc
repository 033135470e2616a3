// Bytes between files and every driver's memory, on the way that transfers take: one copy where
// one of the two devices reaches the other's memory, else two, through memory of the host that the
// driver has pinned where it pins any. The test itself writes and reads the files. See
// conformance.h.
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "devices/disk/disk_device.h"
#include "engine/base/status.h"
#include "engine/execution/charged_memory.h"
#include "tests/devices/conformance.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

// A medium that fails while `error` is not 0.
class BrokenMedium : public FileIo {
 public:
  std::atomic<int> error{0};

  ssize_t Read(int fd, void* to, size_t bytes, off_t at) override {
    return Fails() ? -1 : FileIo::Read(fd, to, bytes, at);
  }
  ssize_t Write(int fd, const void* from, size_t bytes, off_t at) override {
    return Fails() ? -1 : FileIo::Write(fd, from, bytes, at);
  }

 private:
  bool Fails() {
    errno = error.load();
    return errno != 0;
  }
};

// Without a period that divides a page or a chunk.
std::string PatternOf(int64_t bytes) {
  std::string out(static_cast<size_t>(bytes), '\0');
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>(i * 7 + i / 251);
  return out;
}

class FilesWith : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (IsSkipped()) return;
    SKIP_IF_EXCLUDED(no_contents);
    OpenDevice();
    auto disk = OpenDisk({.name = "files", .directory = directory_.path(), .io = medium_});
    ASSERT_TRUE(disk.ok()) << disk.status();
    disk_ = *std::move(disk);
  }
  void TearDown() override {
    if (!IsSkipped() && GetParam().problems) EXPECT_EQ(GetParam().problems(), "");
  }

  std::filesystem::path PathOf(const std::string& name) const { return directory_.path() / name; }
  BufferView File(const std::string& name, const std::string& bytes,
                  OpenMode mode = OpenMode::kWrite) {
    std::ofstream(PathOf(name), std::ios::binary) << bytes;
    auto memory = disk_->Open(name, 0, -1, mode);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return Whole(*memory);
  }
  std::string Contents(const std::string& name) const {
    std::ostringstream out;
    out << std::ifstream(PathOf(name), std::ios::binary).rdbuf();
    return out.str();
  }

  // All of `from`, which is `from_device`'s, to the beginning of `to`: the point of the last copy.
  absl::StatusOr<TimelinePoint> Transfer(Device& to_device, const BufferView& to,
                                         Device& from_device, const BufferView& from,
                                         std::vector<TimelinePoint> waits = {}) {
    if (!NeedsHost(to_device, from_device)) {
      Device& by = CopyDevice(to_device, from_device);
      return Copy(by, to, from, std::move(waits), CopyKind(by, to_device, from_device));
    }
    TG_ASSIGN_OR_RETURN(auto host, AllocHostCharged(to_device, from_device, from.length, nullptr));
    TG_ASSIGN_OR_RETURN(const TimelinePoint read,
                        Copy(from_device, Whole(host), from, std::move(waits),
                             CopyKind(from_device, to_device, from_device)));
    return Copy(to_device, to, Whole(host), {read});
  }
  TimelinePoint Load(const BufferView& to, const BufferView& file,
                     std::vector<TimelinePoint> waits = {}) {
    const auto point = Transfer(*device_, to, *disk_, file, std::move(waits));
    EXPECT_TRUE(point.ok()) << point.status();
    return point.ok() ? *point : TimelinePoint{};
  }
  TimelinePoint Store(const BufferView& file, const BufferView& from,
                      std::vector<TimelinePoint> waits = {}) {
    const auto point = Transfer(*disk_, file, *device_, from, std::move(waits));
    EXPECT_TRUE(point.ok()) << point.status();
    return point.ok() ? *point : TimelinePoint{};
  }

  const TemporaryDirectory directory_;
  const std::shared_ptr<BrokenMedium> medium_ = std::make_shared<BrokenMedium>();
  std::unique_ptr<Device> disk_;
};

// Around pages, chunks of the disk's copies (1 MiB) and of pinned memory (4 MiB), from and to odd
// offsets; what is beside stays.
TEST_P(FilesWith, PartsGoThereAndBack) {
  constexpr int64_t kMiB = 1 << 20;
  for (const int64_t bytes :
       {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{4095}, int64_t{4096}, int64_t{4097}, kMiB - 1,
        kMiB, kMiB + 1, 4 * kMiB - 1, 4 * kMiB + 1, 8 * kMiB + 1}) {
    SCOPED_TRACE(bytes);
    const std::string pattern = PatternOf(bytes + 16);
    const BufferView from = File("from", pattern);
    const BufferView to = File("to", std::string(static_cast<size_t>(bytes) + 12, '.'));
    BufferView buffer = Buffer(bytes + 8);
    const BufferView part{buffer.memory, 3, bytes};
    const TimelinePoint loaded = Load(part, {from.memory, 5, bytes});
    const TimelinePoint stored = Store({to.memory, 9, bytes}, part, {loaded});
    ASSERT_EQ(stored.Wait(), absl::OkStatus());
    EXPECT_TRUE(Contents("to") ==
                std::string(9, '.') + pattern.substr(5, static_cast<size_t>(bytes)) + "...");
    EXPECT_EQ(Read({buffer.memory, 0, 3}), std::string(3, '\0'));
    EXPECT_EQ(Read({buffer.memory, 3 + bytes, 5}), std::string(5, '\0'));
    EXPECT_TRUE(Contents("from") == pattern);
  }
}

// All of it is submitted before any of it runs: each step has only its point of the one before.
TEST_P(FilesWith, AChainOfCopiesIsInOrder) {
  constexpr int64_t kBytes = 5000;
  std::string expected = PatternOf(kBytes);
  const BufferView file = File("file", expected);
  const BufferView first = Buffer(kBytes), second = Buffer(kBytes + 1);
  const Gate gate;
  TimelinePoint last = gate.point();
  for (int round = 0; round < 10; ++round) {
    // Moves the file's bytes by one, the last of them to the front.
    last = Load(first, file, {last});
    last = Copied({second.memory, 1, kBytes}, first, {last});
    last = Copied({second.memory, 0, 1}, {second.memory, kBytes, 1}, {last});
    last = Store(file, {second.memory, 0, kBytes}, {last});
    expected = expected.back() + expected.substr(0, kBytes - 1);
  }
  EXPECT_TRUE(Contents("file") == PatternOf(kBytes)) << "it ran before its gate was open";
  gate.Open();
  ASSERT_EQ(last.Wait(), absl::OkStatus());
  EXPECT_TRUE(Contents("file") == expected);
}

TEST_P(FilesWith, FailuresOfFilesReachWhatDependsOnThem) {
  struct Case {
    const char* name;
    std::function<void()> fail;
    absl::StatusCode code;
    std::string text;
  };
  for (const Case& row : {
           Case{"ends early", [&] { std::filesystem::resize_file(PathOf("from"), 4); },
                absl::StatusCode::kOutOfRange, "ends at byte 4"},
           Case{"cannot be read", [&] { medium_->error = EIO; }, absl::StatusCode::kDataLoss,
                "reading"},
       }) {
    SCOPED_TRACE(row.name);
    const BufferView from = File("from", "0123456789"), to = File("to", "..........");
    const BufferView buffer = Buffer(10), bystander = Buffer(2);
    const Gate gate;
    const TimelinePoint loaded = Load(buffer, from, {gate.point()});
    const TimelinePoint stored = Store(to, buffer, {loaded});
    const TimelinePoint other = Copied(bystander, HostBuffer(*host_, "ok"));
    row.fail();
    gate.Open();
    const absl::Status failed = stored.Wait();
    EXPECT_EQ(failed.code(), row.code) << failed;
    EXPECT_THAT(std::string(failed.message()), HasSubstr(row.text));
    EXPECT_THAT(std::string(failed.message()), HasSubstr("DISK:files/from"));
    EXPECT_EQ(loaded.Wait(), failed);
    EXPECT_EQ(other.Wait(), absl::OkStatus());
    EXPECT_EQ(Contents("to"), "..........");
    medium_->error = 0;
    // Nothing of it stays.
    EXPECT_EQ(device_->Health(), absl::OkStatus());
    EXPECT_EQ(Store({to.memory, 0, 2}, bystander).Wait(), absl::OkStatus());
    EXPECT_EQ(Contents("to"), "ok........");
  }
}

TEST_P(FilesWith, FilesThatCannotBeWritten) {
  const BufferView buffer = Buffer(10), read_back = Buffer(10);
  ASSERT_EQ(Load(buffer, File("from", "0123456789")).Wait(), absl::OkStatus());
  const BufferView read_only = File("to", "..........", OpenMode::kRead);
  const auto refused = Transfer(*disk_, read_only, *device_, buffer);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << refused.status();
  EXPECT_EQ(Contents("to"), "..........");
  // Where the disk is full only once it is written.
  const BufferView full = File("full", "..........");
  const Gate gate;
  const TimelinePoint stored = Store(full, buffer, {gate.point()});
  const TimelinePoint behind = Load(read_back, full, {stored});
  medium_->error = ENOSPC;
  gate.Open();
  const absl::Status failed = behind.Wait();
  EXPECT_EQ(failed.code(), absl::StatusCode::kResourceExhausted) << failed;
  EXPECT_THAT(std::string(failed.message()), HasSubstr("DISK:files/full"));
  EXPECT_EQ(stored.Wait(), failed);
  medium_->error = 0;
  EXPECT_EQ(Store(full, buffer).Wait(), absl::OkStatus());
  EXPECT_EQ(Contents("full"), "0123456789");
}

// What the disk reads into and writes from is memory that the driver has pinned, where it pins any:
// then the driver's own copy is the only one beside the disk's, and it stages nothing.
TEST_P(FilesWith, PinnedMemorySavesACopy) {
  if (!NeedsHost(*device_, *disk_)) {
    EXPECT_TRUE(device_->host_visible() || &CopyDevice(*device_, *disk_) == device_.get());
    GTEST_SKIP() << "one copy brings it there";
  }
  ASSERT_TRUE(NeedsHost(*disk_, *device_));
  const bool pins = device_->Makes(MemoryKind::kPinnedHost);
  for (const bool out : {false, true}) {
    const auto host = out ? AllocHostCharged(*disk_, *device_, 100, nullptr)
                          : AllocHostCharged(*device_, *disk_, 100, nullptr);
    ASSERT_TRUE(host.ok()) << host.status();
    EXPECT_EQ((*host)->kind() == MemoryKind::kPinnedHost, pins);
  }
  if (!GetParam().given_copies || !GetParam().pinned_blocks) return;
  ASSERT_TRUE(pins);
  const BufferView from = File("from", PatternOf(5000)), to = File("to", std::string(5000, '.'));
  const BufferView buffer = Buffer(5000);
  const int64_t blocks = GetParam().pinned_blocks(), copies = GetParam().given_copies();
  ASSERT_EQ(Load(buffer, from).Wait(), absl::OkStatus());
  EXPECT_EQ(GetParam().given_copies(), copies + 1);
  ASSERT_EQ(Store(to, buffer).Wait(), absl::OkStatus());
  EXPECT_EQ(GetParam().given_copies(), copies + 2);
  EXPECT_TRUE(Contents("to") == PatternOf(5000));
  EXPECT_EQ(GetParam().pinned_blocks(), blocks) << "what staging pins stays";
}

INSTANTIATE_TEST_SUITE_P(Drivers, FilesWith, ::testing::ValuesIn(AllDrivers()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace telegrad
