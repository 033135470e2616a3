// Three ways of lying in a file: as it is, compressed, and in another order. A tensor in another
// order (the transpose of a matrix) is gathered a block of elements at a time: the block's elements
// are read in the order of their copies, neighbours together, so that memory stays bounded and
// reads stay few.
#include "engine/frontend/io/tensor_reader.h"

#include <algorithm>
#include <cstring>

#include "engine/base/status.h"
#include "engine/frontend/io/inflate.h"

namespace telegrad {
namespace {

class PlainReader final : public TensorReader {
 public:
  PlainReader(std::shared_ptr<const ByteSource> source, const TensorEntry& entry)
      : TensorReader(std::move(source), entry), at_(entry.offset) {}

 private:
  absl::Status Next(std::span<std::byte> out) override {
    TG_RETURN_IF_ERROR(source().Read(at_, out));
    at_ += static_cast<int64_t>(out.size());
    return absl::OkStatus();
  }

  int64_t at_;
};

class DeflatedReader final : public TensorReader {
 public:
  DeflatedReader(std::shared_ptr<const ByteSource> source, const TensorEntry& entry)
      : TensorReader(std::move(source), entry),
        inflater_(&this->source(), entry.offset, entry.stored),
        skip_(entry.deflated->skip),
        crc_(entry.deflated->crc),
        to_end_(entry.deflated->skip + entry.bytes == entry.deflated->inflated) {}

 private:
  absl::Status Next(std::span<std::byte> out) override {
    std::byte skipped[4096];
    while (skip_ > 0) {
      const int64_t n = std::min<int64_t>(skip_, sizeof(skipped));
      TG_RETURN_IF_ERROR(inflater_.Read({skipped, static_cast<size_t>(n)}));
      skip_ -= n;
    }
    TG_RETURN_IF_ERROR(inflater_.Read(out));
    return left() == 0 && to_end_ ? inflater_.ExpectEnd(crc_) : absl::OkStatus();
  }

  Inflater inflater_;
  int64_t skip_;
  const uint32_t crc_;
  const bool to_end_;
};

class StridedReader final : public TensorReader {
 public:
  StridedReader(std::shared_ptr<const ByteSource> source, const TensorEntry& entry)
      : TensorReader(std::move(source), entry),
        offset_(entry.offset),
        width_(ByteSize(entry.dtype)),
        shape_(entry.shape),
        strides_(entry.strides),
        index_(entry.shape.size(), 0),
        elements_(NumElements(entry.shape)) {}

 private:
  static constexpr int64_t kBlock = 64 << 10;   // elements
  static constexpr int64_t kWindow = 64 << 10;  // bytes of one read
  static constexpr int64_t kGap = 4 << 10;      // bytes that are read though nobody needs them

  struct BlockCopy {
    int64_t at;  // in the file
    int64_t to;  // in block_
  };

  absl::Status Next(std::span<std::byte> out) override {
    while (!out.empty()) {
      if (taken_ == block_.size()) TG_RETURN_IF_ERROR(Gather());
      const size_t n = std::min(out.size(), block_.size() - taken_);
      std::memcpy(out.data(), block_.data() + taken_, n);
      taken_ += n;
      out = out.subspan(n);
    }
    return absl::OkStatus();
  }

  // The next elements into block_.
  absl::Status Gather() {
    const int64_t n = std::min(kBlock, elements_);
    std::vector<BlockCopy> copies;
    copies.reserve(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      copies.push_back({offset_ + element_ * width_, i * width_});
      Advance();
    }
    elements_ -= n;
    std::ranges::sort(copies, {}, &BlockCopy::at);
    block_.resize(static_cast<size_t>(n * width_));
    taken_ = 0;
    for (size_t first = 0; first < copies.size();) {
      size_t last = first + 1;
      while (last < copies.size() && copies[last].at - copies[last - 1].at <= kGap &&
             copies[last].at + width_ - copies[first].at <= kWindow) {
        ++last;
      }
      const int64_t begin = copies[first].at;
      window_.resize(static_cast<size_t>(copies[last - 1].at + width_ - begin));
      TG_RETURN_IF_ERROR(source().Read(begin, window_));
      for (; first < last; ++first) {
        std::memcpy(block_.data() + copies[first].to, window_.data() + copies[first].at - begin,
                    static_cast<size_t>(width_));
      }
    }
    return absl::OkStatus();
  }

  void Advance() {
    for (size_t axis = shape_.size(); axis-- > 0;) {
      element_ += strides_[axis];
      if (++index_[axis] < shape_[axis]) return;
      element_ -= strides_[axis] * shape_[axis];
      index_[axis] = 0;
    }
  }

  const int64_t offset_, width_;
  const Shape shape_, strides_;
  Shape index_;
  int64_t element_ = 0;  // the place of index_, in elements from offset_
  int64_t elements_;     // not gathered yet
  std::vector<std::byte> block_, window_;
  size_t taken_ = 0;
};

}  // namespace

std::unique_ptr<TensorReader> MakeTensorReader(std::shared_ptr<const ByteSource> source,
                                               const TensorEntry& entry) {
  if (entry.deflated) return std::make_unique<DeflatedReader>(std::move(source), entry);
  if (!entry.strides.empty()) return std::make_unique<StridedReader>(std::move(source), entry);
  return std::make_unique<PlainReader>(std::move(source), entry);
}

}  // namespace telegrad
