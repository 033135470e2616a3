// Keeps, for the life of the process, objects that a driver may still read, write or call after
// it has become impossible to wait for it.
#pragma once

#include <memory>

namespace telegrad {

// Thread-safe.
void KeepForDriver(std::shared_ptr<const void> kept);

}  // namespace telegrad
