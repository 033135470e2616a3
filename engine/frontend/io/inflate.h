// A raw DEFLATE stream (RFC 1951) in a part of a source, inflated as it is read: at most what is
// asked for, through buffers of fixed size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "engine/frontend/io/byte_source.h"

struct z_stream_s;

namespace telegrad {

class Inflater {
 public:
  // The bytes [offset, offset + stored) of the source.
  Inflater(const ByteSource* source, int64_t offset, int64_t stored);
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Fills `out` with the next bytes. INVALID_ARGUMENT if the stream is damaged or ends before.
  absl::Status Read(std::span<std::byte> out);
  // INVALID_ARGUMENT unless the stream ends here and everything before has this CRC-32.
  absl::Status ExpectEnd(uint32_t crc);

 private:
  // Inflates once into `out`; how much came is in the stream.
  absl::Status Step(std::span<std::byte> out);

  const ByteSource* const source_;
  int64_t at_, end_;
  std::unique_ptr<z_stream_s> stream_;
  std::unique_ptr<std::byte[]> input_;
  uint32_t crc_ = 0;
  int64_t inflated_ = 0;
  bool ended_ = false;
  absl::Status status_;  // of the stream's initialization
};

}  // namespace telegrad
