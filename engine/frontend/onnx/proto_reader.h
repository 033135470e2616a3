// A zero-copy reader of the protobuf wire format (protobuf.dev, "Encoding") over bytes in memory.
// Models come from strangers: every length is checked against what is left, nothing is allocated,
// and nested messages are views that the caller opens with a reader of their own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace telegrad::onnx {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct Field {
  uint32_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t value = 0;      // of a varint or fixed field
  std::string_view bytes;  // of a length-delimited field
};

class ProtoReader {
 public:
  explicit ProtoReader(std::string_view message) : rest_(message) {}

  // False at the end and after an error; then status() tells which.
  bool Next(Field* field);
  const absl::Status& status() const { return status_; }

  // Records `status` as the reader's error; false, for use in a loop's condition.
  bool Fail(absl::Status status);

 private:
  std::string_view rest_;
  absl::Status status_;
};

// Takes one varint, or fixed value of `width` bytes, off the front of `rest`. False if it is
// truncated or longer than ten bytes.
bool TakeVarint(std::string_view* rest, uint64_t* value);
bool TakeFixed(std::string_view* rest, int width, uint64_t* value);

// Takes the field's elements, which may be packed or one alone, one after the other: `item` gets
// the raw value and returns a Status. `element` is the wire type of an unpacked element.
template <typename F>
absl::Status ForEachElement(const Field& field, WireType element, F item);

// Writers, for messages of our own.
void PutVarintField(uint32_t number, uint64_t value, std::string* out);
void PutBytesField(uint32_t number, std::string_view bytes, std::string* out);
void PutFloatField(uint32_t number, float value, std::string* out);

absl::Status BadWire(std::string_view what);

// --- implementation ---

template <typename F>
absl::Status ForEachElement(const Field& field, WireType element, F item) {
  if (field.type == element) return item(field.value);
  if (field.type != WireType::kBytes) return BadWire("a repeated number has the wrong wire type");
  std::string_view rest = field.bytes;
  while (!rest.empty()) {
    uint64_t value = 0;
    const bool ok = element == WireType::kVarint
                        ? TakeVarint(&rest, &value)
                        : TakeFixed(&rest, element == WireType::kFixed32 ? 4 : 8, &value);
    if (!ok) return BadWire("a packed list is truncated");
    if (absl::Status s = item(value); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace telegrad::onnx
