// Pinned memory for copies between a GPU and unpinned host memory: a few chunks that are used in
// turns, so that one is filled or emptied while another is on the bus, and that limit the bytes
// under way.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "devices/stream/context.h"
#include "devices/stream/marks.h"

namespace telegrad::stream {

// Used by one thread.
class Staging {
 public:
  // Waits until the GPU has passed a mark.
  using Await = std::function<absl::Status(const Mark&)>;

  Staging(std::shared_ptr<Context> context, Marks& marks, Await await)
      : context_(std::move(context)), marks_(marks), await_(std::move(await)) {}
  ~Staging();

  // The host's bytes have been read when this returns; they arrive in the stream's order.
  absl::Status Upload(Address to, const char* from, int64_t bytes, StreamHandle stream);
  // The bytes have arrived when this returns, behind everything before on the stream.
  absl::Status Download(char* to, Address from, int64_t bytes, StreamHandle stream);

 private:
  struct Chunk {
    char* host = nullptr;
    Mark passed;
    bool in_flight = false;
  };

  // The next chunk, once it is free.
  absl::StatusOr<Chunk*> Next();
  absl::Status Send(Chunk* chunk, StreamHandle stream);
  absl::Status Land(Chunk* chunk);

  const std::shared_ptr<Context> context_;
  Marks& marks_;  // the queue's
  const Await await_;
  std::array<Chunk, 4> chunks_;
  size_t next_ = 0;
};

}  // namespace telegrad::stream
