// How many device numbers a serialized graph may name.
#pragma once

#include <cstdint>
#include <string_view>

namespace telegrad {

// One more than the highest number; 0 for what names none or is no graph.
int64_t DeviceNumbersOf(std::string_view graph);

}  // namespace telegrad
