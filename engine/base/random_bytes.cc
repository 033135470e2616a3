#include "engine/base/random_bytes.h"

#include <sys/random.h>

#include <cstdlib>

namespace telegrad {

std::string RandomBytes(size_t size) {
  std::string bytes(size, '\0');
  // For so few bytes it neither fails nor is interrupted once the system has its entropy.
  if (getrandom(bytes.data(), size, 0) != static_cast<ssize_t>(size)) std::abort();
  return bytes;
}

}  // namespace telegrad
