// What the fakes of NVIDIA's assemblers make of PTX.
#pragma once

#include <string>

namespace telegrad::fakes {

// Of PTX for `arch`, "sm_80" or "sm_90a". "", with the reason in `log`, for what is no such PTX.
std::string CubinOfPtx(const std::string& text, const std::string& arch, std::string* log);

}  // namespace telegrad::fakes
