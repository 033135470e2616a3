// Plain values as bytes and back: little-endian words, texts behind their length. A reader never
// reads past its end: what is not there reads as zero and makes it fail for good.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace telegrad {

static_assert(std::endian::native == std::endian::little);

class ByteWriter {
 public:
  template <typename T>
  void Word(T value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void Text(std::string_view text) {
    Word(static_cast<uint64_t>(text.size()));
    out_ += text;
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T Word() {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    T value{};
    if (rest_.size() < sizeof(value)) {
      Fail();
    } else {
      std::memcpy(&value, rest_.data(), sizeof(value));
      rest_.remove_prefix(sizeof(value));
    }
    return value;
  }
  bool Bool() {
    const auto value = Word<uint8_t>();
    if (value > 1) Fail();
    return value == 1;
  }
  std::string_view Text() {
    const auto size = Word<uint64_t>();
    if (size > rest_.size()) Fail();
    const std::string_view text = rest_.substr(0, failed_ ? 0 : size);
    rest_.remove_prefix(text.size());
    return text;
  }
  // A count of things of at least one byte each.
  size_t Count() {
    const auto count = Word<uint64_t>();
    if (count > rest_.size()) Fail();
    return failed_ ? 0 : count;
  }
  void Fail() {
    failed_ = true;
    rest_ = {};
  }

  bool ok() const { return !failed_; }
  // Everything was there and nothing is left.
  bool Done() const { return !failed_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool failed_ = false;
};

}  // namespace telegrad
