// A strict pull parser for JSON text (RFC 8259) whose structure the caller knows: the caller asks
// for what must come next. It has no recursion and no tree, allocates nothing beyond the text's own
// length, and its errors name the byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace telegrad {

class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text) : text_(text) {}

  // Skips white space; consumes `c` if it comes next.
  bool TryConsume(char c);
  absl::Status Consume(char c);
  // A string with its escapes resolved; well-formed UTF-8.
  absl::StatusOr<std::string> String();
  // An integer in [0, 2^63); no sign, fraction, exponent or leading zero.
  absl::StatusOr<int64_t> Integer();
  // OK if only white space is left.
  absl::Status End();

  // An INVALID_ARGUMENT that names the position.
  absl::Status Error(std::string_view what) const;

 private:
  void SkipSpace();
  absl::StatusOr<uint32_t> HexQuad();
  absl::Status Escape(std::string* out);

  std::string_view text_;
  size_t at_ = 0;
};

// `text` (UTF-8) as a JSON string with its quotes.
std::string JsonQuote(std::string_view text);

}  // namespace telegrad
