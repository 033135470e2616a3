// The credit of a stream of uploads: how many bytes its client may have sent that are not in
// their buffer yet. It is reserved as a whole when the stream opens, from what its session and
// its tenant may stage, and returned when the stream has ended and what it staged is placed or
// dropped. So what is staged never exceeds what was reserved.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/account.h"
#include "engine/base/mutex.h"

namespace telegrad {

// Thread-safe.
class CreditLine : public std::enable_shared_from_this<CreditLine> {
 public:
  // Receives the number of bytes that may be sent again; called from any thread, without a lock of
  // this folder.
  using Granted = std::function<void(uint64_t bytes)>;

  // `stream` numbers the streams of a session in the order in which they were attached.
  CreditLine(uint64_t stream, uint64_t bytes, std::vector<Reservation> reserved, Granted granted)
      : stream_(stream),
        bytes_(bytes),
        reserved_(std::move(reserved)),
        granted_(std::move(granted)) {}

  uint64_t bytes() const { return bytes_; }

  // A part of the line's bytes, which goes back when it is destroyed.
  class Part {
   public:
    Part() = default;
    Part(Part&& other) noexcept
        : line_(std::move(other.line_)), bytes_(std::exchange(other.bytes_, 0)) {}
    Part& operator=(Part&& other) noexcept {
      std::swap(line_, other.line_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Part() {
      if (line_ != nullptr) line_->GiveBack(bytes_);
    }
    uint64_t stream() const { return line_ != nullptr ? line_->stream_ : 0; }

   private:
    friend class CreditLine;
    Part(std::shared_ptr<CreditLine> line, uint64_t bytes)
        : line_(std::move(line)), bytes_(bytes) {}
    std::shared_ptr<CreditLine> line_;
    uint64_t bytes_ = 0;
  };

  // RESOURCE_EXHAUSTED where the client has sent more than it was granted.
  absl::StatusOr<Part> Take(uint64_t bytes);
  // The stream has ended: the callback is not called any more, and the reserved bytes are released
  // with the last part.
  void Close();

 private:
  void GiveBack(uint64_t bytes);

  const uint64_t stream_, bytes_;
  Mutex mutex_;
  std::vector<Reservation> reserved_ TG_GUARDED_BY(mutex_);
  bool closed_ TG_GUARDED_BY(mutex_) = false;
  Granted granted_ TG_GUARDED_BY(mutex_);
  uint64_t used_ TG_GUARDED_BY(mutex_) = 0;
};

}  // namespace telegrad
