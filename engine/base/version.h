// The version of this build, which CMakeLists.txt names once.
#pragma once

#include <string_view>

namespace telegrad {

// "MAJOR.MINOR.PATCH".
std::string_view Version();

}  // namespace telegrad
