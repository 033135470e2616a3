// The descriptors of this process: how many it may have and how many it has.
#pragma once

#include <cstdint>

namespace telegrad {

// Raises the limit as far as the system allows without privileges, to the hard one; what it is
// then.
int64_t RaiseDescriptorLimit();

// That are open now; 0 where the system does not say.
int64_t CountOpenDescriptors();

}  // namespace telegrad
