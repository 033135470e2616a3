#include "engine/frontend/io/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr int64_t kWindow = 64 << 10;

class FileSource final : public ByteSource {
 public:
  FileSource(std::string path, int64_t size, int fd) : ByteSource(std::move(path), size), fd_(fd) {}
  ~FileSource() override { close(fd_); }

 private:
  absl::Status ReadInside(int64_t offset, std::span<std::byte> out) const override {
    while (!out.empty()) {
      const ssize_t n = pread(fd_, out.data(), out.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        return absl::DataLossError(
            StrCat("cannot read at byte ", offset, ": ", std::strerror(errno)));
      }
      if (n == 0) {
        return absl::DataLossError(StrCat("the file ends at byte ", offset, ", but had ", size(),
                                          " bytes when it was opened"));
      }
      offset += n;
      out = out.subspan(static_cast<size_t>(n));
    }
    return absl::OkStatus();
  }

  const int fd_;
};

// Of bytes that it keeps, or that another keeps.
template <typename Bytes>
class BytesSource final : public ByteSource {
 public:
  BytesSource(std::string name, Bytes bytes)
      : ByteSource(std::move(name), static_cast<int64_t>(bytes.size())), bytes_(std::move(bytes)) {}

 private:
  absl::Status ReadInside(int64_t offset, std::span<std::byte> out) const override {
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return absl::OkStatus();
  }

  const Bytes bytes_;
};

}  // namespace

absl::Status ByteSource::Read(int64_t offset, std::span<std::byte> out) const {
  if (offset < 0 || offset > size_ || out.size() > static_cast<uint64_t>(size_ - offset)) {
    return InvalidArgument(out.size(), " bytes at byte ", offset, " are not there, the end is at ",
                           size_);
  }
  return out.empty() ? absl::OkStatus() : ReadInside(offset, out);
}

absl::StatusOr<std::string> ByteSource::ReadString(int64_t offset, int64_t bytes) const {
  if (offset < 0 || bytes < 0 || offset > size_ || bytes > size_ - offset) {
    return InvalidArgument(bytes, " bytes at byte ", offset, " are not there, the end is at ",
                           size_);
  }
  std::string out(static_cast<size_t>(bytes), '\0');
  TG_RETURN_IF_ERROR(Read(offset, std::as_writable_bytes(std::span(out.data(), out.size()))));
  return out;
}

absl::StatusOr<std::shared_ptr<const ByteSource>> OpenSource(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return NotFound("cannot open ", path, ": ", std::strerror(errno));
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return InvalidArgument(path, " is not a regular file");
  }
  return std::make_shared<FileSource>(path, info.st_size, fd);
}

std::shared_ptr<const ByteSource> MemorySource(std::string bytes, std::string name) {
  return std::make_shared<BytesSource<std::string>>(std::move(name), std::move(bytes));
}

std::shared_ptr<const ByteSource> ViewSource(std::string_view bytes, std::string name) {
  return std::make_shared<BytesSource<std::string_view>>(std::move(name), bytes);
}

absl::StatusOr<std::string> SourceCursor::Bytes(uint64_t count) {
  if (count > static_cast<uint64_t>(left())) {
    return InvalidArgument(count, " bytes are due at byte ", at_, ", ", left(), " are left");
  }
  std::string out(count, '\0');
  TG_RETURN_IF_ERROR(Fill(std::as_writable_bytes(std::span(out.data(), out.size()))));
  return out;
}

absl::Status SourceCursor::Fill(std::span<std::byte> out) {
  if (out.size() > static_cast<uint64_t>(left())) {
    return InvalidArgument(out.size(), " bytes are due at byte ", at_, ", ", left(), " are left");
  }
  while (!out.empty()) {
    const int64_t skipped = at_ - window_begin_;
    if (window_.empty() || skipped >= static_cast<int64_t>(window_.size())) {
      TG_ASSIGN_OR_RETURN(window_, source_->ReadString(at_, std::min(kWindow, left())));
      window_begin_ = at_;
      continue;
    }
    const size_t n = std::min(out.size(), window_.size() - static_cast<size_t>(skipped));
    std::memcpy(out.data(), window_.data() + skipped, n);
    at_ += static_cast<int64_t>(n);
    out = out.subspan(n);
  }
  return absl::OkStatus();
}

}  // namespace telegrad
