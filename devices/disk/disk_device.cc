// A buffer is a range of an open file below the root. Copies read and write it with pread and
// pwrite in chunks; growth and open files are counted against limits.
#include "devices/disk/disk_device.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <utility>

#include "devices/disk/open_beneath.h"
#include "engine/base/checked.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr int64_t kChunk = int64_t{1} << 20;  // of a copy from file to file

// A counted resource: bytes of growth, open files.
class Allowance {
 public:
  explicit Allowance(int64_t limit) : limit_(limit) {}
  bool Take(int64_t amount) {
    int64_t used = used_.load();
    do {
      if (amount > limit_ - used) return false;
    } while (!used_.compare_exchange_weak(used, used + amount));
    return true;
  }
  void Return(int64_t amount) { used_.fetch_sub(amount); }
  int64_t limit() const { return limit_; }
  int64_t used() const { return used_.load(); }

 private:
  const int64_t limit_;
  std::atomic<int64_t> used_{0};
};

struct Allowances {
  Allowance growth, files;
};

// Gives an amount back unless it is kept.
class Taken {
 public:
  Taken(std::shared_ptr<Allowances> all, Allowance Allowances::* which, int64_t amount)
      : all_(std::move(all)), which_(which), amount_(amount) {}
  Taken(Taken&& other) noexcept
      : all_(std::move(other.all_)),
        which_(other.which_),
        amount_(std::exchange(other.amount_, 0)) {}
  Taken& operator=(Taken&&) = delete;
  ~Taken() {
    if (amount_ > 0) (all_.get()->*which_).Return(amount_);
  }
  void Keep() { amount_ = 0; }

 private:
  std::shared_ptr<Allowances> all_;
  Allowance Allowances::* which_;
  int64_t amount_;
};

class DiskMemory : public Memory {
 public:
  DiskMemory(FileDescriptor file, std::string what, int64_t start, int64_t size, bool writable,
             std::vector<Taken> taken)
      : Memory(nullptr, size, writable),
        file_(std::move(file)),
        what_(std::move(what)),
        start_(start),
        taken_(std::move(taken)) {}

  absl::Status Read(FileIo& io, char* to, int64_t bytes, int64_t at) const {
    while (bytes > 0) {
      const ssize_t done = io.Read(file_.get(), to, bytes, start_ + at);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return FileError(errno, "reading", what_);
      if (done == 0) {
        return absl::OutOfRangeError(StrCat("reading \"", what_, "\": it ends at byte ",
                                            start_ + at, ", expected ", bytes, " more"));
      }
      to += done;
      at += done;
      bytes -= done;
    }
    return absl::OkStatus();
  }

  absl::Status Write(FileIo& io, const char* from, int64_t bytes, int64_t at) const {
    while (bytes > 0) {
      const ssize_t done = io.Write(file_.get(), from, bytes, start_ + at);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return FileError(errno, "writing", what_);
      if (done == 0) return FileError(EIO, "writing", what_);
      from += done;
      at += done;
      bytes -= done;
    }
    return absl::OkStatus();
  }

 private:
  const FileDescriptor file_;
  const std::string what_;  // device and path, for messages
  const int64_t start_;     // in the file
  const std::vector<Taken> taken_;
};

// Reaches files, besides what the host can address.
class DiskRunner : public CopyRunner {
 public:
  DiskRunner(std::string device, std::shared_ptr<FileIo> io)
      : CopyRunner(std::move(device)), io_(std::move(io)) {}

 private:
  static const DiskMemory* File(const Memory& memory) {
    return dynamic_cast<const DiskMemory*>(&memory);
  }

  bool Reaches(const Memory& memory) const override {
    return CopyRunner::Reaches(memory) || File(memory) != nullptr;
  }

  absl::Status Copy(const CopyEnd& to, const CopyEnd& from, int64_t length) override {
    const DiskMemory *target = File(*to.memory), *source = File(*from.memory);
    if (target == nullptr && source == nullptr) return CopyRunner::Copy(to, from, length);
    if (target == nullptr) return source->Read(*io_, to.host(), length, from.at);
    if (source == nullptr) return target->Write(*io_, from.host(), length, to.at);
    chunk_.resize(std::min(length, kChunk));
    for (int64_t done = 0; done < length; done += kChunk) {
      const int64_t bytes = std::min(kChunk, length - done);
      TG_RETURN_IF_ERROR(source->Read(*io_, chunk_.data(), bytes, from.at + done));
      TG_RETURN_IF_ERROR(target->Write(*io_, chunk_.data(), bytes, to.at + done));
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<FileIo> io_;
  std::vector<char> chunk_;
};

class DiskDevice : public MemoryDevice {
 public:
  DiskDevice(const std::string& name, const DiskOptions& options, FileDescriptor root)
      : MemoryDevice(name, options.queue_capacity, options.wait_limit,
                     std::make_unique<DiskRunner>(name, options.io)),
        read_only_(options.read_only),
        root_(std::move(root)),
        used_(new Allowances{Allowance(options.growth), Allowance(options.open_files)}) {}

  int64_t memory_limit() const override { return used_->growth.limit(); }
  int64_t memory_used() const override { return used_->growth.used(); }
  bool host_visible() const override { return false; }

  absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t size) override {
    if (size < 0) return InvalidArgument(name(), ": an allocation of ", size, " bytes");
    if (read_only_) return ReadOnly();
    std::vector<Taken> taken;
    TG_RETURN_IF_ERROR(Take(&Allowances::files, 1, "open files", &taken));
    TG_RETURN_IF_ERROR(Take(&Allowances::growth, size, "bytes", &taken));
    FileDescriptor file(openat(root_.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (file.get() < 0) return FileError(errno, "making a file in", name());
    if (ftruncate(file.get(), size) != 0) return FileError(errno, "growing a file in", name());
    return std::make_shared<DiskMemory>(std::move(file), name(), 0, size, true, std::move(taken));
  }

  absl::StatusOr<std::shared_ptr<Memory>> Open(std::string_view path, int64_t offset,
                                               int64_t length, OpenMode mode) override {
    const std::string file_path(path);
    const std::string what = StrCat(name(), "/", file_path);
    TG_RETURN_IF_ERROR(CheckRelativePath(path));
    int64_t end = 0;
    if (offset < 0 || length < -1 || (length == -1 && mode == OpenMode::kCreate) ||
        !CheckedAdd(offset, std::max<int64_t>(length, 0), &end)) {
      return InvalidArgument(what, ": ", length, " bytes at ", offset);
    }
    if (mode != OpenMode::kRead && read_only_) return ReadOnly();
    std::vector<Taken> taken;
    TG_RETURN_IF_ERROR(Take(&Allowances::files, 1, "open files", &taken));
    if (mode == OpenMode::kCreate) {
      TG_RETURN_IF_ERROR(Take(&Allowances::growth, end, "bytes", &taken));
    }
    const int flags = mode == OpenMode::kRead    ? O_RDONLY
                      : mode == OpenMode::kWrite ? O_RDWR
                                                 : O_RDWR | O_CREAT | O_EXCL;
    TG_ASSIGN_OR_RETURN(FileDescriptor file, OpenBeneath(root_.get(), file_path, flags));
    if (mode == OpenMode::kCreate) {
      if (ftruncate(file.get(), end) != 0) return FileError(errno, "growing", what);
      taken.back().Keep();  // the file is there to stay, whatever happens to this buffer
    } else {
      struct stat found{};
      if (fstat(file.get(), &found) != 0) return FileError(errno, "looking at", what);
      if (length == -1) end = std::max<int64_t>(found.st_size, offset);
      if (offset > found.st_size || end > found.st_size) {
        return absl::OutOfRangeError(StrCat(what, " has ", int64_t{found.st_size},
                                            " bytes, expected at least ", std::max(offset, end)));
      }
    }
    return std::make_shared<DiskMemory>(std::move(file), what, offset, end - offset,
                                        mode != OpenMode::kRead, std::move(taken));
  }

 private:
  absl::Status ReadOnly() const {
    return absl::PermissionDeniedError(StrCat(name(), " is read-only"));
  }
  absl::Status Take(Allowance Allowances::* which, int64_t amount, std::string_view unit,
                    std::vector<Taken>* taken) {
    Allowance& allowance = (*used_).*which;
    if (!allowance.Take(amount)) {
      return ResourceExhausted(name(), ": ", amount, " ", unit, " beside ", allowance.used(),
                               " would pass the limit of ", allowance.limit());
    }
    taken->emplace_back(used_, which, amount);
    return absl::OkStatus();
  }

  const bool read_only_;
  const FileDescriptor root_;
  const std::shared_ptr<Allowances> used_;
};

}  // namespace

ssize_t FileIo::Read(int fd, void* to, size_t bytes, off_t at) { return pread(fd, to, bytes, at); }
ssize_t FileIo::Write(int fd, const void* from, size_t bytes, off_t at) {
  return pwrite(fd, from, bytes, at);
}

absl::StatusOr<std::unique_ptr<Device>> OpenDisk(const DiskOptions& options) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
  };
  if (options.name.empty() || options.name.size() > 64 ||
      !std::all_of(options.name.begin(), options.name.end(), allowed)) {
    return InvalidArgument("a disk root is called \"", options.name,
                           "\"; expected 1 to 64 letters, digits, '-' and '_'");
  }
  FileDescriptor root(open(options.directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (root.get() < 0) {
    const absl::Status error = FileError(errno, "opening", options.directory);
    return InvalidArgument("disk root ", options.name, ": ", ToStd(error.message()));
  }
  return std::make_unique<DiskDevice>(StrCat("DISK:", options.name), options, std::move(root));
}

}  // namespace telegrad
