// The file descriptors of this process: their limit and their number.
#pragma once

#include <cstdint>

namespace telegrad {

// Raises the limit to the hard limit and returns it.
int64_t RaiseDescriptorLimit();

// The number of open descriptors; 0 where the system does not report it.
int64_t CountOpenDescriptors();

}  // namespace telegrad
