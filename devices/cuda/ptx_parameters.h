// What a kernel in PTX takes, which the driver does not tell.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace telegrad::cuda {

// Bytes of each parameter of the entry point `name`, in order; of a type that is not understood 0.
// Empty where there is no such entry point.
std::vector<int64_t> PtxParameterBytes(std::string_view ptx, std::string_view name);

}  // namespace telegrad::cuda
