#include "engine/frontend/json_cursor.h"

#include "engine/base/checked.h"
#include "engine/base/status.h"
#include "engine/frontend/host_bytes.h"

namespace telegrad {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

void AppendUtf8(uint32_t code, std::string* out) {
  if (code < 0x80) {
    *out += static_cast<char>(code);
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr uint32_t kLead[] = {0, 0xc0, 0xe0, 0xf0};
  *out += static_cast<char>(kLead[more] | code >> (6 * more));
  for (int k = more - 1; k >= 0; --k) *out += static_cast<char>(0x80 | (code >> (6 * k) & 0x3f));
}

}  // namespace

absl::Status JsonCursor::Error(std::string_view what) const {
  return InvalidArgument("JSON at byte ", at_, ": ", what);
}

void JsonCursor::SkipSpace() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) {
    ++at_;
  }
}

bool JsonCursor::TryConsume(char c) {
  SkipSpace();
  if (at_ >= text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

absl::Status JsonCursor::Consume(char c) {
  if (TryConsume(c)) return absl::OkStatus();
  return Error(StrCat("expected '", std::string(1, c), "'"));
}

absl::StatusOr<uint32_t> JsonCursor::HexQuad() {
  if (text_.size() - at_ < 4) return Error("expected four hex digits");
  uint32_t code = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = text_[at_];
    const int digit = IsDigit(c)             ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return Error("expected a hex digit");
    code = code << 4 | static_cast<uint32_t>(digit);
    ++at_;
  }
  return code;
}

// What follows a backslash.
absl::Status JsonCursor::Escape(std::string* out) {
  if (at_ >= text_.size()) return Error("the text ends in an escape");
  constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
  const char c = text_[at_++];
  if (const size_t i = kNames.find(c); i != kNames.npos) {
    *out += kValues[i];
    return absl::OkStatus();
  }
  if (c != 'u') return Error("unknown escape");
  TG_ASSIGN_OR_RETURN(uint32_t code, HexQuad());
  if (code >= 0xd800 && code < 0xdc00) {
    if (text_.substr(at_, 2) != "\\u") return Error("expected the second half of a surrogate pair");
    at_ += 2;
    TG_ASSIGN_OR_RETURN(const uint32_t low, HexQuad());
    if (low < 0xdc00 || low >= 0xe000) return Error("the second half of a surrogate pair is wrong");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (code >= 0xdc00 && code < 0xe000) {
    return Error("half of a surrogate pair");
  }
  AppendUtf8(code, out);
  return absl::OkStatus();
}

absl::StatusOr<std::string> JsonCursor::String() {
  TG_RETURN_IF_ERROR(Consume('"'));
  std::string out;
  while (true) {
    if (at_ >= text_.size()) return Error("the text ends in a string");
    const char c = text_[at_++];
    if (c == '"') break;
    if (static_cast<uint8_t>(c) < 0x20) return Error("a control character in a string");
    if (c == '\\') {
      TG_RETURN_IF_ERROR(Escape(&out));
    } else {
      out += c;
    }
  }
  if (!IsUtf8(out)) return Error("the string that ends here is not UTF-8");
  return out;
}

absl::StatusOr<int64_t> JsonCursor::Integer() {
  SkipSpace();
  const size_t begin = at_;
  int64_t value = 0;
  for (; at_ < text_.size() && IsDigit(text_[at_]); ++at_) {
    if (!CheckedMul(value, 10, &value) || !CheckedAdd(value, text_[at_] - '0', &value)) {
      return Error("the integer is too large");
    }
  }
  if (at_ == begin) return Error("expected an integer >= 0");
  if (text_[begin] == '0' && at_ - begin > 1) return Error("the integer has a leading zero");
  return value;
}

absl::Status JsonCursor::End() {
  SkipSpace();
  return at_ == text_.size() ? absl::OkStatus() : Error("expected the end of the text");
}

std::string JsonQuote(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<uint8_t>(c) < 0x20) {
      out += "\\u00";
      out += kHex[static_cast<uint8_t>(c) >> 4];
      out += kHex[c & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace telegrad
