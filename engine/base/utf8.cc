#include "engine/base/utf8.h"

#include <algorithm>
#include <cstdint>

#include "engine/base/json.h"

namespace telegrad {

std::string AsUtf8(std::string_view text) {
  std::string out(text);
  if (!IsUtf8(text)) {
    std::ranges::replace_if(out, [](char c) { return static_cast<uint8_t>(c) >= 0x80; }, '?');
  }
  return out;
}

}  // namespace telegrad
