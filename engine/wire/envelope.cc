// Only the outermost level of the protobuf encoding is read
// (https://protobuf.dev/programming-guides/encoding): a tag is a varint of field number and wire
// type; types 0, 1, 2 and 5 are a varint, eight bytes, a length with as many bytes, and four bytes.
// Groups (3 and 4) do not occur in our messages and are refused.
#include "engine/wire/envelope.h"

#include <algorithm>

#include "engine/base/status.h"

namespace telegrad {
namespace {

class Cursor {
 public:
  explicit Cursor(std::span<const Piece> pieces) : pieces_(pieces) {
    for (const Piece& piece : pieces) left_ += piece.size();
    SkipEmpty();
  }

  uint64_t left() const { return left_; }

  // Reads a varint and appends its bytes to `copy`, if given.
  bool Varint(uint64_t* value, std::string* copy) {
    *value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (left_ == 0) return false;
      const uint8_t byte = pieces_[piece_][offset_];
      Advance(1);
      if (copy) copy->push_back(static_cast<char>(byte));
      if (shift == 63 && byte > 1) return false;
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  // Passes `n` bytes to `take`, one contiguous part at a time.
  template <typename Take>
  bool Bytes(uint64_t n, Take take) {
    if (n > left_) return false;
    while (n > 0) {
      const size_t part = std::min<uint64_t>(n, pieces_[piece_].size() - offset_);
      take(pieces_[piece_].subspan(offset_, part));
      Advance(part);
      n -= part;
    }
    return true;
  }

 private:
  void Advance(size_t n) {
    offset_ += n;
    left_ -= n;
    SkipEmpty();
  }
  void SkipEmpty() {
    while (piece_ < pieces_.size() && offset_ == pieces_[piece_].size()) {
      ++piece_;
      offset_ = 0;
    }
  }

  std::span<const Piece> pieces_;
  size_t piece_ = 0;
  size_t offset_ = 0;
  uint64_t left_ = 0;
};

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

constexpr uint64_t PayloadTag(int field) { return static_cast<uint64_t>(field) << 3 | 2; }

}  // namespace

absl::Status SplitEnvelope(std::span<const Piece> message, int payload_field, Envelope* envelope) {
  envelope->head.clear();
  envelope->payload.clear();
  envelope->payload_bytes = 0;
  Cursor cursor(message);
  const uint64_t size = cursor.left();
  const auto truncated = [&] {
    return InvalidArgument("malformed message: field at byte ", size - cursor.left(), " of ", size,
                           " is cut off or has an invalid varint");
  };
  const auto to_head = [&](Piece part) {
    envelope->head.append(reinterpret_cast<const char*>(part.data()), part.size());
  };
  while (cursor.left() > 0) {
    std::string tag_bytes;
    uint64_t tag, value;
    if (!cursor.Varint(&tag, &tag_bytes)) return truncated();
    if (tag == PayloadTag(payload_field)) {
      if (!cursor.Varint(&value, nullptr)) return truncated();
      envelope->payload.clear();
      envelope->payload_bytes = value;
      const auto to_payload = [&](Piece part) { envelope->payload.push_back(part); };
      if (!cursor.Bytes(value, to_payload)) return truncated();
      continue;
    }
    envelope->head += tag_bytes;
    bool ok;
    switch (tag & 7) {
      case 0:
        ok = cursor.Varint(&value, &envelope->head);
        break;
      case 1:
        ok = cursor.Bytes(8, to_head);
        break;
      case 2:
        ok = cursor.Varint(&value, &envelope->head) && cursor.Bytes(value, to_head);
        break;
      case 5:
        ok = cursor.Bytes(4, to_head);
        break;
      default:
        return InvalidArgument("malformed message: wire type ", tag & 7, " of field ", tag >> 3);
    }
    if (!ok) return truncated();
  }
  return absl::OkStatus();
}

std::string EnvelopeHead(std::string head, int payload_field, uint64_t bytes) {
  AppendVarint(PayloadTag(payload_field), &head);
  AppendVarint(bytes, &head);
  return head;
}

}  // namespace telegrad
