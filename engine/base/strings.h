// StrCat over absl::StrCat that also takes std::string_view. Debian builds Abseil as C++14, where
// absl::string_view is a type of its own, so the two are bridged here and nowhere else.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace telegrad {

inline absl::string_view ToAbsl(std::string_view s) { return {s.data(), s.size()}; }
inline std::string_view ToStd(absl::string_view s) { return {s.data(), s.size()}; }

namespace internal {
template <typename T>
decltype(auto) ForStrCat(const T& value) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return ToAbsl(value);
  } else {
    return (value);
  }
}
}  // namespace internal

// Text of at most `most` bytes; where it is longer, its beginning, not cut within a character of
// UTF-8, and "...".
inline std::string Clip(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  while (most > 0 && (static_cast<unsigned char>(text[most]) >> 6) == 2) --most;
  return std::string(text.substr(0, most)) + "...";
}

template <typename... Args>
std::string StrCat(const Args&... args) {
  return absl::StrCat(internal::ForStrCat(args)...);
}
template <typename... Args>
void StrAppend(std::string* out, const Args&... args) {
  absl::StrAppend(out, internal::ForStrCat(args)...);
}

}  // namespace telegrad
