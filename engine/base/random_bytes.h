// Unpredictable random bytes for tokens, secrets and epochs.
#pragma once

#include <cstddef>
#include <string>

namespace telegrad {

// At most 256, from the system's generator.
std::string RandomBytes(size_t size);

}  // namespace telegrad
