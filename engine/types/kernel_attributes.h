// What the text of a kernel says of itself, as attributes of its function, to the compiler and so
// to the launch.
#pragma once

#include <string_view>

namespace telegrad {

inline constexpr std::string_view kGroupThreadsAttribute = "telegrad-group-threads";
inline constexpr std::string_view kLocalBytesAttribute = "telegrad-local-bytes";

}  // namespace telegrad
