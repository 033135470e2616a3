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
  explicit Cursor(std::span<const ByteSpan> pieces) : pieces_(pieces) {
    for (const ByteSpan& piece : pieces) left_ += piece.size();
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

  std::span<const ByteSpan> pieces_;
  size_t piece_ = 0;
  size_t offset_ = 0;
  uint64_t left_ = 0;
};

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

constexpr uint64_t PayloadTag(int field) { return static_cast<uint64_t>(field) << 3 | 2; }

absl::Status Malformed(const Cursor& cursor, uint64_t size) {
  return InvalidArgument("malformed message: field at byte ", size - cursor.left(), " of ", size,
                         " is cut off or has an invalid varint");
}

// Passes over the value of a field of any type but a group, appending its bytes to `copy`, if
// given.
bool SkipValue(Cursor& cursor, uint64_t wire_type, std::string* copy) {
  const auto take = [&](ByteSpan part) {
    if (copy) copy->append(reinterpret_cast<const char*>(part.data()), part.size());
  };
  uint64_t value;
  switch (wire_type) {
    case 0:
      return cursor.Varint(&value, copy);
    case 1:
      return cursor.Bytes(8, take);
    case 2:
      return cursor.Varint(&value, copy) && cursor.Bytes(value, take);
    case 5:
      return cursor.Bytes(4, take);
    default:
      return false;
  }
}

// Of a message in one piece, as short ones are: what is beside the payload is copied as a whole.
absl::Status SplitPiece(const ByteSpan& piece, int payload_field, Envelope* envelope) {
  Cursor cursor(std::span(&piece, 1));
  const uint64_t size = piece.size();
  uint64_t copied = 0;  // or payload
  const auto copy_to = [&](uint64_t end) {
    envelope->head.append(reinterpret_cast<const char*>(piece.data()) + copied, end - copied);
  };
  while (cursor.left() > 0) {
    const uint64_t begin = size - cursor.left();
    uint64_t tag;
    if (!cursor.Varint(&tag, nullptr)) return Malformed(cursor, size);
    if (tag != PayloadTag(payload_field)) {
      if (!SkipValue(cursor, tag & 7, nullptr)) return Malformed(cursor, size);
      continue;
    }
    copy_to(begin);
    envelope->payload.clear();
    const auto take = [&](ByteSpan part) { envelope->payload.push_back(part); };
    if (!cursor.Varint(&envelope->payload_bytes, nullptr) ||
        !cursor.Bytes(envelope->payload_bytes, take)) {
      return Malformed(cursor, size);
    }
    copied = size - cursor.left();
  }
  copy_to(size);
  return absl::OkStatus();
}

}  // namespace

absl::Status SplitEnvelope(std::span<const ByteSpan> message, int payload_field,
                           Envelope* envelope) {
  *envelope = {};
  if (message.size() == 1) return SplitPiece(message[0], payload_field, envelope);
  Cursor cursor(message);
  const uint64_t size = cursor.left();
  std::string tag_bytes;
  while (cursor.left() > 0) {
    tag_bytes.clear();
    uint64_t tag;
    if (!cursor.Varint(&tag, &tag_bytes)) return Malformed(cursor, size);
    if (tag == PayloadTag(payload_field)) {
      envelope->payload.clear();
      const auto take = [&](ByteSpan part) { envelope->payload.push_back(part); };
      if (!cursor.Varint(&envelope->payload_bytes, nullptr) ||
          !cursor.Bytes(envelope->payload_bytes, take)) {
        return Malformed(cursor, size);
      }
    } else {
      envelope->head += tag_bytes;
      if (!SkipValue(cursor, tag & 7, &envelope->head)) return Malformed(cursor, size);
    }
  }
  return absl::OkStatus();
}

absl::Status SplitPayloads(std::span<const ByteSpan> message, int payload_field, uint64_t most_head,
                           size_t most, Payloads* out) {
  *out = {};
  TG_ASSIGN_OR_RETURN(const uint64_t head, HeadBytes(message, payload_field));
  if (head > most_head) {
    return ResourceExhausted("the message has ", head, " bytes beside its raw contents; ",
                             most_head, " are allowed");
  }
  Cursor cursor(message);
  const uint64_t size = cursor.left();
  std::string tag_bytes;
  while (cursor.left() > 0) {
    tag_bytes.clear();
    uint64_t tag, bytes;
    if (!cursor.Varint(&tag, &tag_bytes)) return Malformed(cursor, size);
    if (tag != PayloadTag(payload_field)) {
      out->head += tag_bytes;
      if (!SkipValue(cursor, tag & 7, &out->head)) return Malformed(cursor, size);
      continue;
    }
    if (out->payloads.size() >= most) {
      return ResourceExhausted("the message has more than ", most, " raw contents");
    }
    std::vector<ByteSpan>& payload = out->payloads.emplace_back();
    if (!cursor.Varint(&bytes, nullptr) ||
        !cursor.Bytes(bytes, [&](ByteSpan part) { payload.push_back(part); })) {
      return Malformed(cursor, size);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> HeadBytes(std::span<const ByteSpan> message, int payload_field) {
  Cursor cursor(message);
  const uint64_t size = cursor.left();
  uint64_t head = size;
  while (cursor.left() > 0) {
    const uint64_t before = cursor.left();
    uint64_t tag;
    if (!cursor.Varint(&tag, nullptr) || !SkipValue(cursor, tag & 7, nullptr)) {
      return Malformed(cursor, size);
    }
    if (tag == PayloadTag(payload_field)) head -= before - cursor.left();
  }
  return head;
}

absl::StatusOr<int64_t> CountFields(std::string_view message, int field) {
  const ByteSpan piece(reinterpret_cast<const uint8_t*>(message.data()), message.size());
  Cursor cursor(std::span(&piece, 1));
  int64_t count = 0;
  while (cursor.left() > 0) {
    uint64_t tag;
    if (!cursor.Varint(&tag, nullptr) || !SkipValue(cursor, tag & 7, nullptr)) {
      return Malformed(cursor, message.size());
    }
    if (tag >> 3 == static_cast<uint64_t>(field)) ++count;
  }
  return count;
}

std::string EnvelopeHead(std::string head, int payload_field, uint64_t bytes) {
  AppendVarint(PayloadTag(payload_field), &head);
  AppendVarint(bytes, &head);
  return head;
}

void AppendBytesHead(int field, uint64_t bytes, std::string* message) {
  AppendVarint(PayloadTag(field), message);
  AppendVarint(bytes, message);
}

void AppendBytes(int field, std::string_view bytes, std::string* message) {
  AppendBytesHead(field, bytes.size(), message);
  message->append(bytes);
}

void AppendInteger(int field, uint64_t value, std::string* message) {
  AppendVarint(static_cast<uint64_t>(field) << 3, message);
  AppendVarint(value, message);
}

absl::Status TakeFields(std::string_view message, int field, size_t most,
                        std::vector<std::string_view>* taken, std::string* rest) {
  const ByteSpan piece(reinterpret_cast<const uint8_t*>(message.data()), message.size());
  Cursor cursor(std::span(&piece, 1));
  const auto at = [&] { return message.size() - cursor.left(); };
  while (cursor.left() > 0) {
    const size_t begin = at();
    uint64_t tag, bytes;
    if (!cursor.Varint(&tag, nullptr)) return Malformed(cursor, message.size());
    if (tag != PayloadTag(field)) {
      if (!SkipValue(cursor, tag & 7, nullptr)) return Malformed(cursor, message.size());
      rest->append(message.substr(begin, at() - begin));
      continue;
    }
    if (taken->size() >= most) {
      return ResourceExhausted("field ", field, " is there more than ", most, " times");
    }
    const auto skip = [](ByteSpan) {};
    if (!cursor.Varint(&bytes, nullptr)) return Malformed(cursor, message.size());
    const size_t from = at();
    if (!cursor.Bytes(bytes, skip)) return Malformed(cursor, message.size());
    taken->push_back(message.substr(from, bytes));
  }
  return absl::OkStatus();
}

}  // namespace telegrad
