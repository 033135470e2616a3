#include "engine/base/json.h"

#include <charconv>
#include <cstdio>

namespace telegrad {
namespace {

void AppendUtf8(uint32_t code, std::string* out) {
  const auto put = [&](uint32_t byte) { *out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 63));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 63));
    put(0x80 | (code & 63));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 63));
    put(0x80 | (code >> 6 & 63));
    put(0x80 | (code & 63));
  }
}

}  // namespace

void JsonReader::Skip() {
  while (at_ < text_.size() &&
         std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
    ++at_;
  }
}

bool JsonReader::Eat(char c) {
  Skip();
  if (at_ == text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

bool JsonReader::AtEnd() {
  Skip();
  return at_ == text_.size();
}

bool JsonReader::Size(int64_t* out) {
  Skip();
  if (at_ == text_.size() || text_[at_] < '0' || text_[at_] > '9') return false;
  const char* begin = text_.data() + at_;
  const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), *out);
  if (error != std::errc() || (*begin == '0' && end != begin + 1)) return false;
  at_ += end - begin;
  return at_ == text_.size() || std::string_view(".eE").find(text_[at_]) == std::string_view::npos;
}

// The grammar is checked by hand, because from_chars takes more than JSON has.
bool JsonReader::NumberText(std::string_view* out) {
  Skip();
  const size_t begin = at_;
  const auto digits = [&] {
    const size_t from = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ > from;
  };
  const auto next = [&](std::string_view any) {
    if (at_ == text_.size() || any.find(text_[at_]) == std::string_view::npos) return false;
    ++at_;
    return true;
  };
  next("-");
  if (!next("0") && !digits()) return false;
  if (next(".") && !digits()) return false;
  if (next("eE")) {
    next("+-");
    if (!digits()) return false;
  }
  *out = text_.substr(begin, at_ - begin);
  return true;
}

bool JsonReader::Number(double* out) {
  std::string_view text;
  if (!NumberText(&text)) return false;
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, *out);
  return error == std::errc() && parsed == end;
}

bool JsonReader::Word(std::string_view word) {
  Skip();
  if (!text_.substr(at_).starts_with(word)) return false;
  at_ += word.size();
  return true;
}

bool JsonReader::Bool(bool* out) {
  *out = Word("true");
  return *out || Word("false");
}

bool JsonReader::SkipScalar() {
  Skip();
  if (at_ == text_.size()) return false;
  std::string text;
  double number;
  bool truth;
  if (text_[at_] == '"') return String(&text);
  return Word("null") || Bool(&truth) || Number(&number);
}

bool JsonReader::SkipValue() {
  std::string open;  // what closes the brackets around the next value
  while (true) {
    bool complete = false;
    if (Eat('{') || Eat('[')) {
      open += text_[at_ - 1] == '{' ? '}' : ']';
      if (open.size() > kMaxNesting) return false;
      complete = Eat(open.back());
      if (complete) open.pop_back();
    } else {
      complete = SkipScalar();
      if (!complete) return false;
    }
    if (complete) {  // and so are those that end with it
      while (!open.empty() && !Eat(',')) {
        if (!Eat(open.back())) return false;
        open.pop_back();
      }
      if (open.empty()) return true;
    }
    std::string key;
    if (open.back() == '}' && (!String(&key) || !Eat(':'))) return false;
  }
}

bool JsonReader::Hex4(uint32_t* out) {
  if (text_.size() - at_ < 4) return false;
  const char* begin = text_.data() + at_;
  if (*begin == '-') return false;
  const auto [end, error] = std::from_chars(begin, begin + 4, *out, 16);
  at_ += 4;
  return error == std::errc() && end == begin + 4;
}

bool JsonReader::Escape(std::string* out) {
  if (at_ == text_.size()) return false;
  const char c = text_[at_++];
  constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
  if (const size_t i = kFrom.find(c); i != std::string_view::npos) {
    *out += kTo[i];
    return true;
  }
  uint32_t code = 0;
  if (c != 'u' || !Hex4(&code)) return false;
  if (code >= 0xdc00 && code < 0xe000) return false;
  if (code >= 0xd800 && code < 0xdc00) {
    uint32_t low = 0;
    if (text_.substr(at_, 2) != "\\u") return false;
    at_ += 2;
    if (!Hex4(&low) || low < 0xdc00 || low >= 0xe000) return false;
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  AppendUtf8(code, out);
  return true;
}

bool JsonReader::String(std::string* out) {
  out->clear();
  if (!Eat('"')) return false;
  while (at_ < text_.size()) {
    const char c = text_[at_++];
    if (c == '"') return IsUtf8(*out);
    if (static_cast<uint8_t>(c) < 0x20) return false;
    if (c != '\\') {
      *out += c;
    } else if (!Escape(out)) {
      return false;
    }
  }
  return false;
}

bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i]);
    const int more = lead < 0x80       ? 0
                     : lead >> 5 == 6  ? 1
                     : lead >> 4 == 14 ? 2
                     : lead >> 3 == 30 ? 3
                                       : -1;
    if (more < 0 || text.size() - i <= static_cast<size_t>(more)) return false;
    uint32_t code = more == 0 ? lead : lead & (63u >> more);
    for (int k = 1; k <= more; ++k) {
      const auto next = static_cast<uint8_t>(text[i + k]);
      if (next >> 6 != 2) return false;
      code = code << 6 | (next & 63u);
    }
    constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
    if (code < kLeast[more] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    i += 1 + more;
  }
  return true;
}

std::string JsonQuote(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<uint8_t>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", c);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace telegrad
