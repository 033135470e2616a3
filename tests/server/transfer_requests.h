// Messages of the transfer protocol, for tests that build them field by field.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/base/crc32c.h"
#include "telegrad/v1/data.pb.h"

namespace telegrad {

// Without the bytes, which a message of gRPC has in its field `data`, and a frame behind it.
inline v1::TransferRequest ChunkHead(uint64_t transfer, uint64_t offset, std::string_view data) {
  v1::TransferRequest request;
  v1::Chunk& chunk = *request.mutable_upload();
  chunk.set_transfer(transfer);
  chunk.set_offset(offset);
  chunk.set_bytes(static_cast<uint32_t>(data.size()));
  chunk.set_checksum(Crc32c(data.data(), data.size()));
  return request;
}

inline v1::TransferRequest Pull(uint64_t transfer, uint64_t offset, uint64_t bytes) {
  v1::TransferRequest request;
  request.mutable_pull()->set_transfer(transfer);
  request.mutable_pull()->set_offset(offset);
  request.mutable_pull()->set_bytes(bytes);
  return request;
}

}  // namespace telegrad
