// Where the writers of tensor files put their bytes, in order.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace telegrad {

class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual absl::Status Append(std::string_view bytes) = 0;
};

class StringSink final : public ByteSink {
 public:
  absl::Status Append(std::string_view bytes) override {
    bytes_ += bytes;
    return absl::OkStatus();
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// A file that appears under its name when `write` has written it, in place of what was there: a
// save that fails leaves the one before.
absl::Status SaveFile(const std::string& path, const std::function<absl::Status(ByteSink*)>& write);

}  // namespace telegrad
