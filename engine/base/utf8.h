// Text for messages that take UTF-8 alone, as those of protobuf and JSON do.
#pragma once

#include <string>
#include <string_view>

namespace telegrad {

// `text`; with '?' in place of each byte outside of ASCII, if it is not UTF-8. For errors, which
// may repeat what a client has sent or what a file contains.
std::string AsUtf8(std::string_view text);

}  // namespace telegrad
