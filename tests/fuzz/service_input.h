// What a service is fuzzed with: a call of one of the rows of methods.def.
//
//   "/package.Service/Method" '\n' FLAGS { LENGTH, two bytes, little-endian; message }*
//
// The path stands there as text, so that a row more or less leaves the corpus as it is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace telegrad::fuzz {

struct ServiceInput {
  static constexpr uint8_t kCancels = 1;  // the client goes; else it says that no more follow
  static constexpr uint8_t kSliced = 2;   // messages arrive in small pieces

  std::string path;
  uint8_t flags = 0;
  std::vector<std::string> messages;
};

// What stands in a message for the token (16 bytes) and the epoch (fixed64) of a session that is
// open: they are another one each time.
inline constexpr std::string_view kTokenMark = "<token-of-this->";
inline constexpr uint64_t kEpochMark = 0x3e68636f70653c3c;  // "<<epoch>"

std::span<const std::string_view> ServicePaths();  // of all rows

// Any bytes are an input; what is cut off is left out.
ServiceInput ParseInput(std::span<const uint8_t> bytes);
std::string Serialize(const ServiceInput& input);

}  // namespace telegrad::fuzz
