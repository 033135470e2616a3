// Compressions of TIFF's strips and tiles.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace telegrad {

// Fills `out`, whose size says how much is expected; more of it is not looked at. `compression` is
// the value of the tag of that name.
absl::Status UnpackTiff(int64_t compression, std::string_view packed, std::string* out);

}  // namespace telegrad
