#include "engine/frontend/io/inflate.h"

#include <zlib.h>

#include <algorithm>

#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr int64_t kInput = 64 << 10;
constexpr size_t kStep = size_t{1} << 30;  // zlib counts in 32 bits

}  // namespace

Inflater::Inflater(const ByteSource* source, int64_t offset, int64_t stored)
    : source_(source),
      at_(offset),
      end_(offset + stored),
      stream_(std::make_unique<z_stream_s>()),
      input_(std::make_unique<std::byte[]>(kInput)) {
  if (inflateInit2(stream_.get(), -MAX_WBITS) != Z_OK) {
    status_ = ResourceExhausted("no memory to inflate with");
  }
}

Inflater::~Inflater() { inflateEnd(stream_.get()); }

absl::Status Inflater::Read(std::span<std::byte> out) {
  TG_RETURN_IF_ERROR(status_);
  while (!out.empty()) {
    if (ended_) {
      return InvalidArgument("the compressed data ends after ", inflated_, " bytes, ", out.size(),
                             " more are due");
    }
    const std::span<std::byte> part = out.first(std::min(out.size(), kStep));
    TG_RETURN_IF_ERROR(Step(part));
    const size_t n = part.size() - stream_->avail_out;
    crc_ = static_cast<uint32_t>(
        crc32(crc_, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(n)));
    inflated_ += static_cast<int64_t>(n);
    out = out.subspan(n);
  }
  return absl::OkStatus();
}

absl::Status Inflater::Step(std::span<std::byte> out) {
  if (stream_->avail_in == 0 && at_ < end_) {
    const int64_t n = std::min(kInput, end_ - at_);
    TG_RETURN_IF_ERROR(source_->Read(at_, {input_.get(), static_cast<size_t>(n)}));
    at_ += n;
    stream_->next_in = reinterpret_cast<Bytef*>(input_.get());
    stream_->avail_in = static_cast<uInt>(n);
  }
  stream_->next_out = reinterpret_cast<Bytef*>(out.data());
  stream_->avail_out = static_cast<uInt>(out.size());
  const int result = inflate(stream_.get(), Z_NO_FLUSH);
  if (result == Z_STREAM_END) {
    ended_ = true;
  } else if (result != Z_OK) {
    const char* why = stream_->msg != nullptr ? stream_->msg : "it is cut short";
    return InvalidArgument("the compressed data is damaged after ", inflated_, " bytes: ", why);
  }
  return absl::OkStatus();
}

absl::Status Inflater::ExpectEnd(uint32_t crc) {
  TG_RETURN_IF_ERROR(status_);
  std::byte more[1];
  while (!ended_) {
    TG_RETURN_IF_ERROR(Step(more));
    if (stream_->avail_out == 0) {
      return InvalidArgument("more compressed data than the ", inflated_,
                             " bytes that the directory says");
    }
  }
  if (crc_ != crc) {
    return InvalidArgument("the CRC-32 of the content is ", crc_, ", the directory says ", crc);
  }
  return absl::OkStatus();
}

}  // namespace telegrad
