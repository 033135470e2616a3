// Limits on what a client may describe. They bound arithmetic so that sizes and index expressions
// of an admitted graph never overflow a signed 64-bit integer.
#pragma once

#include <cstdint>

namespace telegrad {

inline constexpr int kMaxRank = 16;
inline constexpr int64_t kMaxElements = int64_t{1} << 48;     // of one tensor
inline constexpr int64_t kMaxNodes = 1'000'000;               // of one client graph
inline constexpr int kMaxSources = 65'535;                    // of one node
inline constexpr int kMaxParams = 16'384;                     // slots of one graph
inline constexpr int64_t kMaxTrips = 1 << 20;                 // of one LOOP
inline constexpr int64_t kMaxGraphBytes = int64_t{64} << 20;  // serialized

}  // namespace telegrad
