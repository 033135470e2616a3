// Files as device memory: which paths clients may name, and the errors when files change or
// disks fail.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "devices/disk/disk_device.h"
#include "devices/disk/open_beneath.h"
#include "tests/devices/fixture.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;
using ::testing::HasSubstr;

class DiskTest : public ::testing::Test {
 protected:
  DiskTest() {
    Write("outside.txt", "secret");
    fs::create_directories(root() / "deep" / "er");
    Write("files/digits.bin", "0123456789");
    Write("files/deep/er/file", "deep");
    fs::create_symlink("../outside.txt", root() / "link_out");
    fs::create_symlink("digits.bin", root() / "link_in");
    fs::create_symlink(directory_.path(), root() / "link_up");
    fs::create_symlink("deep", root() / "link_deep");
    EXPECT_EQ(mkfifo((root() / "pipe").c_str(), 0600), 0);
    Reopen({});
  }

  fs::path root() const { return directory_.path() / "files"; }
  void Write(const std::string& path, const std::string& bytes) const {
    fs::create_directories((directory_.path() / path).parent_path());
    std::ofstream(directory_.path() / path, std::ios::binary) << bytes;
  }
  std::string Contents(const std::string& path) const {
    std::ostringstream out;
    out << std::ifstream(directory_.path() / path, std::ios::binary).rdbuf();
    return out.str();
  }
  void Reopen(DiskOptions options) {
    options.name = "data";
    options.directory = root();
    auto device = OpenDisk(options);
    ASSERT_TRUE(device.ok()) << device.status();
    disk_ = *std::move(device);
  }
  StatusCode OpenCode(const std::string& path, OpenMode mode = OpenMode::kRead, int64_t offset = 0,
                      int64_t length = -1) {
    return disk_->Open(path, offset, length, mode).status().code();
  }
  BufferView File(const std::string& path, OpenMode mode = OpenMode::kRead, int64_t offset = 0,
                  int64_t length = -1) {
    auto memory = disk_->Open(path, offset, length, mode);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return Whole(*memory);
  }
  absl::Status CopyNow(const BufferView& to, const BufferView& from) {
    const auto point = Copy(*disk_, to, from);
    return point.ok() ? point->Wait() : point.status();
  }

  TemporaryDirectory directory_;
  std::unique_ptr<Device> host_ = OpenHost();
  std::unique_ptr<Device> disk_;
};

TEST_F(DiskTest, ReadsPartsOfFiles) {
  EXPECT_EQ(disk_->name(), "DISK:data");
  const BufferView all = HostBuffer(*host_, std::string(10, '?'));
  EXPECT_EQ(CopyNow(all, File("digits.bin")), absl::OkStatus());
  EXPECT_EQ(Bytes(all), "0123456789");
  const BufferView part = HostBuffer(*host_, std::string(4, '?'));
  EXPECT_EQ(CopyNow(part, File("digits.bin", OpenMode::kRead, 3, 4)), absl::OkStatus());
  EXPECT_EQ(Bytes(part), "3456");
  const BufferView file = File("digits.bin", OpenMode::kRead, 3, 4);
  const BufferView one = HostBuffer(*host_, "?");
  EXPECT_EQ(CopyNow(one, {file.memory, 2, 1}), absl::OkStatus());
  EXPECT_EQ(Bytes(one), "5");
  EXPECT_EQ(CopyNow(part, File("deep/er/file")), absl::OkStatus());
  EXPECT_EQ(Bytes(part), "deep");
  EXPECT_EQ(File("digits.bin", OpenMode::kRead, 10).length, 0);
}

TEST_F(DiskTest, WritesInPlaceAndMakesFiles) {
  const BufferView hello = HostBuffer(*host_, "hello");
  EXPECT_EQ(CopyNow(File("digits.bin", OpenMode::kWrite, 2, 5), hello), absl::OkStatus());
  EXPECT_EQ(Contents("files/digits.bin"), "01hello789");
  const BufferView made = File("deep/new", OpenMode::kCreate, 0, 8);
  EXPECT_EQ(Contents("files/deep/new"), std::string(8, '\0'));
  EXPECT_EQ(CopyNow({made.memory, 3, 5}, hello), absl::OkStatus());
  EXPECT_EQ(Contents("files/deep/new"), std::string("\0\0\0hello", 8));
  // From file to file.
  EXPECT_EQ(CopyNow(File("digits.bin", OpenMode::kWrite), File("deep/new")), absl::OkStatus());
  EXPECT_EQ(Contents("files/digits.bin"), std::string("\0\0\0hello89", 10));
  // What is there is never replaced.
  EXPECT_EQ(OpenCode("deep/new", OpenMode::kCreate, 0, 1), StatusCode::kAlreadyExists);
  EXPECT_EQ(OpenCode("link_out", OpenMode::kCreate, 0, 1), StatusCode::kAlreadyExists);
  EXPECT_EQ(OpenCode("none/new", OpenMode::kCreate, 0, 1), StatusCode::kNotFound);
  struct stat mode{};
  ASSERT_EQ(stat((root() / "deep/new").c_str(), &mode), 0);
  EXPECT_EQ(mode.st_mode & 0077, 0u) << "others than the daemon's user may use it";
}

TEST_F(DiskTest, PathsStayInside) {
  for (const std::string& path :
       {std::string(), std::string("/etc/passwd"), std::string("../outside.txt"),
        std::string("deep/../../outside.txt"), std::string("deep/.."), std::string("."),
        std::string("./digits.bin"), std::string("deep//er/file"), std::string("digits.bin/"),
        std::string("digits.bin\0x", 12), std::string(5000, 'a')}) {
    for (const OpenMode mode : {OpenMode::kRead, OpenMode::kWrite, OpenMode::kCreate}) {
      EXPECT_EQ(OpenCode(path, mode, 0, 1), StatusCode::kInvalidArgument) << path;
    }
  }
  for (const char* path : {"link_out", "link_in", "link_up/outside.txt", "link_deep/er/file",
                           "link_up/files/digits.bin"}) {
    EXPECT_EQ(OpenCode(path), StatusCode::kPermissionDenied) << path;
    EXPECT_EQ(OpenCode(path, OpenMode::kWrite), StatusCode::kPermissionDenied) << path;
  }
  for (const char* path : {"deep", "pipe"}) {
    EXPECT_EQ(OpenCode(path), StatusCode::kInvalidArgument) << path;
  }
  EXPECT_EQ(OpenCode("none"), StatusCode::kNotFound);
  EXPECT_EQ(OpenCode("digits.bin/x"), StatusCode::kFailedPrecondition);      // no directory
  EXPECT_EQ(OpenCode(std::string(300, 'a')), StatusCode::kInvalidArgument);  // a name too long
  EXPECT_EQ(Contents("outside.txt"), "secret");
}

// What a kernel with openat2 and one without make of the same path is the same.
TEST_F(DiskTest, TheWalkAgreesWithTheKernel) {
  const FileDescriptor root_fd(open(root().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const auto resolve = [&](auto* how, const std::string& path, int flags) {
    errno = 0;
    const FileDescriptor file(how(root_fd.get(), path, flags));
    return file.get() >= 0 ? 0 : errno;
  };
  if (resolve(&ResolveByKernel, "digits.bin", O_RDONLY) == ENOSYS) {
    GTEST_SKIP() << "this kernel has no openat2";
  }
  for (const char* path :
       {"digits.bin", "deep/er/file", "deep", "none", "none/none", "digits.bin/x", "link_out",
        "link_in", "link_up/outside.txt", "link_deep/er/file", "link_deep/none", "pipe"}) {
    for (const int flags : {O_RDONLY | O_NONBLOCK, O_RDWR | O_NONBLOCK}) {
      EXPECT_EQ(resolve(&ResolveByKernel, path, flags), resolve(&ResolveByWalk, path, flags))
          << path << " " << flags;
    }
  }
  const int make = O_RDWR | O_CREAT | O_EXCL;
  EXPECT_EQ(resolve(&ResolveByWalk, "deep/walked", make), 0);
  EXPECT_EQ(resolve(&ResolveByKernel, "deep/resolved", make), 0);
  for (const char* path : {"deep/walked", "deep/resolved", "link_out", "link_deep/new"}) {
    EXPECT_EQ(resolve(&ResolveByKernel, path, make), resolve(&ResolveByWalk, path, make)) << path;
  }
  EXPECT_FALSE(fs::exists(root() / "deep/new"));
}

TEST_F(DiskTest, RangesLieInsideOfTheFile) {
  EXPECT_EQ(OpenCode("digits.bin", OpenMode::kRead, 4, 7), StatusCode::kOutOfRange);
  EXPECT_EQ(OpenCode("digits.bin", OpenMode::kWrite, 4, 7), StatusCode::kOutOfRange);
  EXPECT_EQ(OpenCode("digits.bin", OpenMode::kRead, 11), StatusCode::kOutOfRange);
  EXPECT_EQ(OpenCode("digits.bin", OpenMode::kRead, -1, 1), StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenCode("digits.bin", OpenMode::kRead, 0, -2), StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenCode("digits.bin", OpenMode::kRead, INT64_MAX, INT64_MAX),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenCode("new", OpenMode::kCreate, 0, -1), StatusCode::kInvalidArgument);
  EXPECT_FALSE(fs::exists(root() / "new"));
}

TEST_F(DiskTest, AReadOnlyRootIsNotWritten) {
  Reopen({.read_only = true});
  for (const auto code :
       {OpenCode("digits.bin", OpenMode::kWrite), OpenCode("new", OpenMode::kCreate, 0, 1),
        disk_->Alloc(1).status().code()}) {
    EXPECT_EQ(code, StatusCode::kPermissionDenied);
  }
  const BufferView hello = HostBuffer(*host_, "hello");
  EXPECT_EQ(CopyNow(File("digits.bin"), hello).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Contents("files/digits.bin"), "0123456789");
}

TEST_F(DiskTest, GrowthIsLimited) {
  Reopen({.growth = 100});
  EXPECT_EQ(OpenCode("big", OpenMode::kCreate, 0, 101), StatusCode::kResourceExhausted);
  EXPECT_EQ(OpenCode("big", OpenMode::kCreate, 90, 11), StatusCode::kResourceExhausted);
  EXPECT_FALSE(fs::exists(root() / "big"));
  EXPECT_EQ(OpenCode("first", OpenMode::kCreate, 0, 60), StatusCode::kOk);
  EXPECT_EQ(disk_->memory_used(), 60);  // the file outlives its buffer
  EXPECT_EQ(OpenCode("first", OpenMode::kCreate, 0, 40), StatusCode::kAlreadyExists);
  EXPECT_EQ(OpenCode("none/second", OpenMode::kCreate, 0, 40), StatusCode::kNotFound);
  EXPECT_EQ(disk_->memory_used(), 60);
  EXPECT_EQ(disk_->Alloc(41).status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(disk_->Alloc(40).ok());  // and gone again
  EXPECT_EQ(OpenCode("second", OpenMode::kCreate, 0, 40), StatusCode::kOk);
  EXPECT_EQ(OpenCode("digits.bin", OpenMode::kWrite), StatusCode::kOk);  // does not grow
}

TEST_F(DiskTest, ATruncatedFileFailsTheCopyAndWhatDependsOnIt) {
  const BufferView file = File("digits.bin");
  const BufferView staged = HostBuffer(*host_, std::string(10, '?'));
  const BufferView out = HostBuffer(*host_, std::string(10, '?'));
  fs::resize_file(root() / "digits.bin", 4);
  const Gate gate;
  const TimelinePoint read = *Copy(*disk_, staged, file, {gate.point()});
  const TimelinePoint computed = *Copy(*host_, out, staged, {read}, QueueKind::kCompute);
  const TimelinePoint written = *Copy(*disk_, Whole(*disk_->Alloc(10)), out, {computed});
  const TimelinePoint other = *Copy(*disk_, HostBuffer(*host_, "1234"), File("deep/er/file"));
  gate.Open();
  const absl::Status failed = read.Wait();
  EXPECT_EQ(failed.code(), StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("DISK:data/digits.bin"));
  EXPECT_THAT(std::string(failed.message()), HasSubstr("ends at byte 4"));
  EXPECT_EQ(computed.Wait(), failed);
  EXPECT_EQ(written.Wait(), failed);
  EXPECT_EQ(other.Wait(), absl::OkStatus());
  EXPECT_EQ(Bytes(out), std::string(10, '?'));
  EXPECT_EQ(disk_->Health(), absl::OkStatus());
}

TEST_F(DiskTest, CommandsBehindTheFailedOneDoNotRun) {
  const BufferView file = File("digits.bin");
  const BufferView staged = HostBuffer(*host_, "??????????");
  const BufferView text = HostBuffer(*host_, "text");
  fs::resize_file(root() / "digits.bin", 4);
  const auto commands =
      *disk_->Encode({CopyCommand({{0, 0}, {2, 0}, 4}), CopyCommand({{0, 0}, {1, 0}, 10}),
                      CopyCommand({{0, 4}, {2, 0}, 4})});
  const auto trace = std::make_shared<RunTrace>();
  const auto point = disk_->queue().Submit(commands, {staged, file, text}, {}, trace);
  EXPECT_EQ(point->Wait().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(Bytes(staged), "0123??????");
  EXPECT_EQ(trace->events().size(), 2u);
}

// Answers each call from a list of errors, or of how many bytes it may move; then as it should.
class FailingIo : public FileIo {
 public:
  std::vector<ssize_t> answers;  // negative: errno
  int calls = 0;

  ssize_t Read(int fd, void* to, size_t bytes, off_t at) override {
    const ssize_t most = Next(bytes);
    return most < 0 ? -1 : FileIo::Read(fd, to, most, at);
  }
  ssize_t Write(int fd, const void* from, size_t bytes, off_t at) override {
    const ssize_t most = Next(bytes);
    return most < 0 ? -1 : FileIo::Write(fd, from, most, at);
  }

 private:
  ssize_t Next(size_t bytes) {
    const size_t call = calls++;
    if (call >= answers.size()) return static_cast<ssize_t>(bytes);
    if (answers[call] < 0) errno = static_cast<int>(-answers[call]);
    return std::min(answers[call], static_cast<ssize_t>(bytes));
  }
};

TEST_F(DiskTest, ShortAndInterruptedCallsGoOn) {
  const auto io = std::make_shared<FailingIo>();
  Reopen({.io = io});
  io->answers = {1, -EINTR, 3, -EINTR, 2};
  const BufferView out = HostBuffer(*host_, std::string(10, '?'));
  EXPECT_EQ(CopyNow(out, File("digits.bin")), absl::OkStatus());
  EXPECT_EQ(Bytes(out), "0123456789");
  EXPECT_EQ(io->calls, 6);
  io->calls = 0;
  EXPECT_EQ(CopyNow(File("new", OpenMode::kCreate, 0, 10), out), absl::OkStatus());
  EXPECT_EQ(Contents("files/new"), "0123456789");
  EXPECT_EQ(io->calls, 6);
}

TEST_F(DiskTest, FailuresOfTheDiskAreStatuses) {
  const auto io = std::make_shared<FailingIo>();
  Reopen({.io = io});
  const BufferView file = File("digits.bin", OpenMode::kWrite);
  const BufferView out = HostBuffer(*host_, std::string(10, '?'));
  const struct {
    int error;
    StatusCode code;
  } kRows[] = {{EIO, StatusCode::kDataLoss},
               {ENOSPC, StatusCode::kResourceExhausted},
               {EDQUOT, StatusCode::kResourceExhausted},
               {EFBIG, StatusCode::kResourceExhausted}};
  for (const auto& row : kRows) {
    for (const bool write : {false, true}) {
      io->answers = {4, -row.error};
      io->calls = 0;
      const absl::Status status = write ? CopyNow(file, out) : CopyNow(out, file);
      EXPECT_EQ(status.code(), row.code) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(write ? "writing" : "reading"));
      EXPECT_THAT(std::string(status.message()), HasSubstr("DISK:data/digits.bin"));
    }
  }
  EXPECT_EQ(disk_->Health(), absl::OkStatus());
}

TEST_F(DiskTest, FewFilesAreOpenAtOnce) {
  Reopen({.open_files = 3});
  {
    const BufferView a = File("digits.bin"), b = File("digits.bin");
    const auto c = disk_->Alloc(1);
    EXPECT_EQ(OpenCode("digits.bin"), StatusCode::kResourceExhausted);
    EXPECT_EQ(disk_->Alloc(1).status().code(), StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(OpenCode("digits.bin"), StatusCode::kOk);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(OpenCode("none"), StatusCode::kNotFound);
  EXPECT_EQ(OpenCode("digits.bin"), StatusCode::kOk);  // failures hold nothing
}

// The process itself has no descriptors left.
TEST_F(DiskTest, NoDescriptorsLeft) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);  // the lowest that is free
  ASSERT_GE(next, 0);
  close(next);
  rlimit none = before;
  none.rlim_cur = next;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status opened = disk_->Open("deep/er/file", 0, -1, OpenMode::kRead).status();
  const absl::Status allocated = disk_->Alloc(1).status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(opened.code(), StatusCode::kResourceExhausted) << opened;
  EXPECT_EQ(allocated.code(), StatusCode::kResourceExhausted) << allocated;
  EXPECT_EQ(OpenCode("deep/er/file"), StatusCode::kOk);
}

TEST_F(DiskTest, RootsAreCheckedAtTheStart) {
  const auto code = [](const std::string& name, const fs::path& directory) {
    return OpenDisk({.name = name, .directory = directory}).status().code();
  };
  EXPECT_EQ(code("data", root() / "none"), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("data", root() / "digits.bin"), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("", root()), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("a:b", root()), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("a/b", root()), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::string(65, 'a'), root()), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("models-1_x", root()), StatusCode::kOk);
}

}  // namespace
}  // namespace telegrad
