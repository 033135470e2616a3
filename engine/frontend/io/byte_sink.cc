#include "engine/frontend/io/byte_sink.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "engine/base/status.h"

namespace telegrad {
namespace {

class FileSink final : public ByteSink {
 public:
  explicit FileSink(const std::string& path)
      : path_(path), partial_(path + ".partial"), file_(std::fopen(partial_.c_str(), "wb")) {}
  ~FileSink() override {
    if (file_ != nullptr) std::fclose(file_);
    if (!committed_) std::remove(partial_.c_str());
  }

  absl::Status Append(std::string_view bytes) override {
    if (file_ == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) {
      return Failed();
    }
    return absl::OkStatus();
  }

  absl::Status Commit() {
    if (std::fflush(file_) != 0 || fsync(fileno(file_)) != 0) return Failed();
    const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
    if (!closed || std::rename(partial_.c_str(), path_.c_str()) != 0) return Failed();
    committed_ = true;
    return absl::OkStatus();
  }

 private:
  absl::Status Failed() const {
    return absl::DataLossError(StrCat("cannot write ", path_, ": ", std::strerror(errno)));
  }

  const std::string path_, partial_;
  std::FILE* file_;
  bool committed_ = false;
};

}  // namespace

absl::Status SaveFile(const std::string& path,
                      const std::function<absl::Status(ByteSink*)>& write) {
  FileSink sink(path);
  TG_RETURN_IF_ERROR(sink.Append(""));
  TG_RETURN_IF_ERROR(write(&sink));
  return sink.Commit();
}

}  // namespace telegrad
