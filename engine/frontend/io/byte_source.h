// Bytes that can be read at any offset, of a file or of memory. The readers of tensor files look at
// headers through it and stream tensors from it, so that no file is loaded as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace telegrad {

// Thread-safe and immutable, as far as the file is.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  const std::string& name() const { return name_; }
  int64_t size() const { return size_; }

  // Fills `out` with the bytes from `offset` on. INVALID_ARGUMENT where they do not all lie within
  // size(), DATA_LOSS where the file cannot be read or has become shorter since it was opened.
  absl::Status Read(int64_t offset, std::span<std::byte> out) const;
  // The same as a string, which is not allocated unless the bytes are there.
  absl::StatusOr<std::string> ReadString(int64_t offset, int64_t bytes) const;

 protected:
  ByteSource(std::string name, int64_t size) : name_(std::move(name)), size_(size) {}

 private:
  virtual absl::Status ReadInside(int64_t offset, std::span<std::byte> out) const = 0;

  const std::string name_;
  const int64_t size_;
};

// Of a regular file, which is read and never mapped: one that shrinks is an error and no signal.
absl::StatusOr<std::shared_ptr<const ByteSource>> OpenSource(const std::string& path);
std::shared_ptr<const ByteSource> MemorySource(std::string bytes, std::string name = "memory");
// Of memory that outlives it.
std::shared_ptr<const ByteSource> ViewSource(std::string_view bytes, std::string name);

// Reads forward through a part of a source, a window at a time. Every error says at which byte of
// the source it is.
class SourceCursor {
 public:
  // The part [begin, end), which lies within the source.
  SourceCursor(const ByteSource* source, int64_t begin, int64_t end)
      : source_(source), at_(begin), end_(end) {}

  template <typename T>
  absl::StatusOr<T> Word() {
    static_assert(std::is_arithmetic_v<T>);
    T value{};
    const absl::Status status = Fill(std::as_writable_bytes(std::span(&value, 1)));
    if (!status.ok()) return status;
    return value;
  }
  // Nothing is allocated before it is known that the bytes are there.
  absl::StatusOr<std::string> Bytes(uint64_t count);

  int64_t position() const { return at_; }
  int64_t left() const { return end_ - at_; }

 private:
  absl::Status Fill(std::span<std::byte> out);

  const ByteSource* source_;
  int64_t at_, end_;
  std::string window_;
  int64_t window_begin_ = 0;
};

}  // namespace telegrad
