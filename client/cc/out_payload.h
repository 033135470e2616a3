// What follows the fields of a message on its way out: memory that is sent from where it lies, or
// the content of a file, a chunk of which is read when its turn has come.
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
  // Moves the next `n` bytes, of which there are as many left, to `part`. A file's go through one
  // of the pool's chunks, which holds as many.
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
