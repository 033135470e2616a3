// The payload of an outgoing message: memory that is sent without a copy, or the content of a file,
// which is read chunk by chunk as it is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "client/cc/chunk_pool.h"
#include "engine/frontend/io/tensor_file.h"

namespace telegrad {

struct OutPayload {
  std::span<const std::byte> bytes = {};
  std::shared_ptr<const void> keep = nullptr;    // what `bytes` lie in
  std::unique_ptr<TensorReader> file = nullptr;  // in place of them

  uint64_t left() const {
    return file != nullptr ? static_cast<uint64_t>(file->left()) : bytes.size();
  }
  // Moves the next `n` bytes, at most as many as are left, to `part`. Bytes of a file go through
  // one chunk of the pool, which holds at least `n`.
  absl::Status Next(uint64_t n, ChunkPool* chunks, OutPayload* part) {
    if (file == nullptr) {
      part->bytes = bytes.first(n);
      part->keep = keep;
      bytes = bytes.subspan(n);
      return absl::OkStatus();
    }
    const std::shared_ptr<std::byte[]> chunk = chunks->Take();
    const std::span<std::byte> read(chunk.get(), n);
    part->bytes = read;
    part->keep = chunk;
    return file->Read(read);
  }
};

}  // namespace telegrad
