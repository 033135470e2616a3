// Walks the elements of a tensor, which may be in several pieces, and checks that they end with
// it.
#include "server/serving/bytes_tensor.h"

#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr size_t kLengthBytes = 4;

template <typename Take>
absl::Status Walk(const std::vector<std::span<const uint8_t>>& pieces, int64_t count, Take take) {
  std::string joined;
  std::string_view rest;
  if (pieces.size() == 1) {
    rest = {reinterpret_cast<const char*>(pieces[0].data()), pieces[0].size()};
  } else {
    for (const auto& piece : pieces) {
      joined.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    rest = joined;
  }
  // So that a shape alone, without the bytes for it, takes no memory.
  if (count > static_cast<int64_t>(rest.size() / kLengthBytes)) {
    return InvalidArgument("has ", rest.size(), " bytes, expected ", count,
                           " elements, each behind its length in 4 bytes");
  }
  std::string_view element;
  for (int64_t i = 0; i < count; ++i) {
    if (!TakeElement(&rest, &element)) {
      return InvalidArgument("ends within element ", i, " of ", count,
                             "; each is expected behind its length in 4 bytes");
    }
    take(element);
  }
  if (rest.empty()) return absl::OkStatus();
  return InvalidArgument("has ", rest.size(), " bytes behind its ", count, " elements");
}

}  // namespace

void AppendElement(std::string_view element, std::string* out) {
  const auto length = static_cast<uint32_t>(element.size());
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(length >> shift));
  *out += element;
}

bool TakeElement(std::string_view* bytes, std::string_view* element) {
  if (bytes->size() < kLengthBytes) return false;
  size_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<size_t>(static_cast<uint8_t>((*bytes)[i])) << (8 * i);
  }
  if (length > bytes->size() - kLengthBytes) return false;
  *element = bytes->substr(kLengthBytes, length);
  bytes->remove_prefix(kLengthBytes + length);
  return true;
}

absl::StatusOr<std::vector<std::string>> ReadElements(
    const std::vector<std::span<const uint8_t>>& pieces, int64_t count) {
  std::vector<std::string> out;
  TG_RETURN_IF_ERROR(
      Walk(pieces, count, [&](std::string_view element) { out.emplace_back(element); }));
  return out;
}

absl::Status CheckElements(const std::vector<std::span<const uint8_t>>& pieces, int64_t count) {
  return Walk(pieces, count, [](std::string_view) {});
}

}  // namespace telegrad
