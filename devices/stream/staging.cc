// Chunks are allocated when they are first used, up to a few. Each has a mark behind its last
// copy, for which the next use waits.
#include "devices/stream/staging.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "engine/base/status.h"

namespace telegrad::stream {
namespace {

constexpr int64_t kChunkBytes = int64_t{4} << 20;

}  // namespace

Staging::~Staging() {
  context_->ReleaseUnlocked([&] {
    for (const Chunk& chunk : chunks_) {
      if (chunk.host != nullptr) context_->calls().host_free(chunk.host);
      if (chunk.passed.event != nullptr) context_->ReturnEvent(chunk.passed.event, kUntimed);
    }
  });
}

absl::StatusOr<Staging::Chunk*> Staging::Next() {
  Chunk& chunk = chunks_[next_++ % chunks_.size()];
  if (chunk.passed.event == nullptr) {
    TG_ASSIGN_OR_RETURN(chunk.passed.event, context_->TakeEvent(kUntimed));
  }
  if (chunk.host == nullptr) {
    void* host = nullptr;
    TG_RETURN_IF_ERROR(TG_STREAM(*context_, host_allocate, &host, kChunkBytes, kPortable));
    chunk.host = static_cast<char*>(host);
  }
  TG_RETURN_IF_ERROR(Land(&chunk));
  return &chunk;
}

// Without a mark behind it, a chunk is free when the whole stream is.
absl::Status Staging::Send(Chunk* chunk, StreamHandle stream) {
  const absl::Status recorded = marks_.Put(&chunk->passed, stream);
  chunk->in_flight = recorded.ok() || !await_(Mark{}).ok();
  return recorded;
}

absl::Status Staging::Land(Chunk* chunk) {
  if (!chunk->in_flight) return absl::OkStatus();
  TG_RETURN_IF_ERROR(await_(chunk->passed));
  chunk->in_flight = false;
  return absl::OkStatus();
}

absl::Status Staging::Upload(Address to, const char* from, int64_t bytes, StreamHandle stream) {
  for (int64_t at = 0; at < bytes; at += kChunkBytes) {
    const auto length = static_cast<size_t>(std::min(bytes - at, kChunkBytes));
    TG_ASSIGN_OR_RETURN(Chunk * chunk, Next());
    std::memcpy(chunk->host, from + at, length);
    TG_RETURN_IF_ERROR(context_->Enter());
    TG_RETURN_IF_ERROR(TG_STREAM(*context_, copy_from_host, to + static_cast<Address>(at),
                                 chunk->host, length, stream));
    TG_RETURN_IF_ERROR(Send(chunk, stream));
  }
  return absl::OkStatus();
}

absl::Status Staging::Download(char* to, Address from, int64_t bytes, StreamHandle stream) {
  struct Part {
    Chunk* chunk;
    int64_t at;
    size_t length;
  };
  std::deque<Part> sent;
  for (int64_t at = 0; at < bytes || !sent.empty();) {
    if (at < bytes && sent.size() < chunks_.size()) {
      const auto length = static_cast<size_t>(std::min(bytes - at, kChunkBytes));
      TG_ASSIGN_OR_RETURN(Chunk * chunk, Next());
      TG_RETURN_IF_ERROR(context_->Enter());
      TG_RETURN_IF_ERROR(TG_STREAM(*context_, copy_to_host, chunk->host,
                                   from + static_cast<Address>(at), length, stream));
      TG_RETURN_IF_ERROR(Send(chunk, stream));
      sent.push_back({chunk, at, length});
      at += static_cast<int64_t>(length);
      continue;
    }
    const Part part = sent.front();
    sent.pop_front();
    TG_RETURN_IF_ERROR(Land(part.chunk));
    std::memcpy(to + part.at, part.chunk->host, part.length);
  }
  return absl::OkStatus();
}

}  // namespace telegrad::stream
