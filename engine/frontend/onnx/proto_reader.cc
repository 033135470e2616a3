#include "engine/frontend/onnx/proto_reader.h"

#include <bit>
#include <cstring>

#include "engine/base/status.h"

namespace telegrad::onnx {

absl::Status BadWire(std::string_view what) {
  return InvalidArgument("expected an ONNX file; protobuf: ", what);
}

bool TakeVarint(std::string_view* rest, uint64_t* value) {
  uint64_t out = 0;
  for (size_t i = 0; i < 10 && i < rest->size(); ++i) {
    const auto byte = static_cast<uint8_t>((*rest)[i]);
    if (i == 9 && byte > 1) return false;  // more than 64 bits
    out |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      rest->remove_prefix(i + 1);
      *value = out;
      return true;
    }
  }
  return false;
}

bool TakeFixed(std::string_view* rest, int width, uint64_t* value) {
  if (rest->size() < static_cast<size_t>(width)) return false;
  *value = 0;
  std::memcpy(value, rest->data(), width);
  rest->remove_prefix(width);
  return true;
}

bool ProtoReader::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
  return false;
}

bool ProtoReader::Next(Field* field) {
  if (!status_.ok() || rest_.empty()) return false;
  uint64_t tag = 0;
  if (!TakeVarint(&rest_, &tag)) return Fail(BadWire("a field's tag is truncated"));
  if (tag >> 3 == 0 || tag >> 3 >= uint64_t{1} << 29) {
    return Fail(BadWire(StrCat("field number ", tag >> 3, " does not exist")));
  }
  *field = Field();
  field->number = static_cast<uint32_t>(tag >> 3);
  bool ok = false;
  switch (tag & 7) {
    case 0:
      field->type = WireType::kVarint;
      ok = TakeVarint(&rest_, &field->value);
      break;
    case 1:
      field->type = WireType::kFixed64;
      ok = TakeFixed(&rest_, 8, &field->value);
      break;
    case 2: {
      field->type = WireType::kBytes;
      uint64_t length = 0;
      ok = TakeVarint(&rest_, &length) && length <= rest_.size();
      if (ok) {
        field->bytes = rest_.substr(0, length);
        rest_.remove_prefix(length);
      }
      break;
    }
    case 5:
      field->type = WireType::kFixed32;
      ok = TakeFixed(&rest_, 4, &field->value);
      break;
    default:
      return Fail(BadWire(StrCat("field ", field->number, " has the wire type ", tag & 7,
                                 ", which is not supported")));
  }
  return ok || Fail(BadWire(StrCat("field ", field->number, " is truncated")));
}

namespace {

void PutVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) *out += static_cast<char>(value | 0x80);
  *out += static_cast<char>(value);
}

void PutTag(uint32_t number, WireType type, std::string* out) {
  PutVarint(uint64_t{number} << 3 | static_cast<uint64_t>(type), out);
}

}  // namespace

void PutVarintField(uint32_t number, uint64_t value, std::string* out) {
  PutTag(number, WireType::kVarint, out);
  PutVarint(value, out);
}

void PutBytesField(uint32_t number, std::string_view bytes, std::string* out) {
  PutTag(number, WireType::kBytes, out);
  PutVarint(bytes.size(), out);
  *out += bytes;
}

void PutFloatField(uint32_t number, float value, std::string* out) {
  PutTag(number, WireType::kFixed32, out);
  const auto bits = std::bit_cast<uint32_t>(value);
  out->append(reinterpret_cast<const char*>(&bits), 4);
}

}  // namespace telegrad::onnx
