// Credit for uploads: how many bytes the clients may have on their way that are not placed in their
// buffers yet. A stream's credit is reserved as a whole when it opens, from its session's share, and
// goes back when the stream is over and what it staged is placed or dropped. So what is staged never
// exceeds what was reserved.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "server/session/staging.h"

namespace telegrad {

// Thread-safe.
class CreditLine : public std::enable_shared_from_this<CreditLine> {
 public:
  // Told how many bytes may be sent again; called without locks, from any thread.
  using Granted = std::function<void(uint64_t bytes)>;

  CreditLine(Reservation reserved, Granted granted)
      : bytes_(reserved.bytes()), reserved_(std::move(reserved)), granted_(std::move(granted)) {}

  // A part of the line's bytes, which goes back when it is destroyed.
  class Part {
   public:
    Part() = default;
    Part(Part&& other) noexcept : line_(std::move(other.line_)), bytes_(other.bytes_) {}
    Part& operator=(Part&& other) noexcept {
      std::swap(line_, other.line_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Part() {
      if (line_ != nullptr) line_->GiveBack(bytes_);
    }

   private:
    friend class CreditLine;
    Part(std::shared_ptr<CreditLine> line, uint64_t bytes) : line_(std::move(line)), bytes_(bytes) {}
    std::shared_ptr<CreditLine> line_;
    uint64_t bytes_ = 0;
  };

  // RESOURCE_EXHAUSTED where the client has sent more than it was granted.
  absl::StatusOr<Part> Take(uint64_t bytes);
  // The stream is over: nobody is told any more.
  void Close();
  uint64_t bytes() const { return bytes_; }

 private:
  void GiveBack(uint64_t bytes);

  const uint64_t bytes_;
  std::mutex mutex_;
  Reservation reserved_;  // lives until the last part is back
  Granted granted_;
  uint64_t used_ = 0;
};

}  // namespace telegrad
