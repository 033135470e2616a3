#include "client/terminal/printable.h"

#include "engine/base/json.h"
#include "engine/base/strings.h"

namespace telegrad {
namespace {

std::string Hex(unsigned char byte) {
  return absl::StrCat("\\x", absl::Hex(byte, absl::kZeroPad2));
}

std::string Escaped(std::string_view text, bool lines) {
  const bool utf8 = IsUtf8(text);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    // U+0080 to U+009F, which are 0xC2 and one of these bytes, control some terminals, too.
    const bool long_control = byte == 0xc2 && next < 0xa0;
    if (long_control && utf8) {
      out += Hex(byte) + Hex(next);
      ++i;
    } else if ((byte < 0x20 && !(lines && byte == '\n')) || byte == 0x7f ||
               (byte >= 0x80 && !utf8)) {
      out += Hex(byte);
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::string Printable(std::string_view text) { return Escaped(text, /*lines=*/false); }
std::string PrintableLines(std::string_view text) { return Escaped(text, /*lines=*/true); }

}  // namespace telegrad
