// Reads and writes fields of a vendor's struct by their offset.
#pragma once

#include <cstddef>
#include <cstring>

namespace telegrad::fakes {

template <typename T>
T Get(const std::byte* at, size_t offset) {
  T value;
  std::memcpy(&value, at + offset, sizeof(value));
  return value;
}

template <typename T>
void Put(std::byte* at, size_t offset, T value) {
  std::memcpy(at + offset, &value, sizeof(value));
}

}  // namespace telegrad::fakes
