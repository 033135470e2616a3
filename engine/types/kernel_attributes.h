// What the text of a kernel says of itself, as attributes of its function, to the compiler and so
// to the launch.
#pragma once

#include <string_view>

namespace telegrad {

inline constexpr std::string_view kGroupThreadsAttribute = "telegrad-group-threads";
inline constexpr std::string_view kLocalBytesAttribute = "telegrad-local-bytes";
// As ParametersText of program_signature.h; none where it is left out. In text without attributes,
// which C dialects are, it is a line of its own: this, a colon, and the parameters behind a space.
inline constexpr std::string_view kParametersAttribute = "telegrad-parameters";

}  // namespace telegrad
