// What a driver may still read, write or call, though nobody can wait for it any more: it must stay
// as long as the process lives.
#pragma once

#include <memory>

namespace telegrad {

// Thread-safe.
void KeepForDriver(std::shared_ptr<const void> kept);

}  // namespace telegrad
