// Host-side random numbers that are the same on every machine and compiler; the std:: distributions
// are not. A counter-based SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number
// Generators", 2014).
#pragma once

#include <cstdint>
#include <string_view>

namespace telegrad {

// The value number `i` of the stream `seed`.
inline uint64_t RandomBits(uint64_t seed, uint64_t i) {
  uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// In [0, 1), a multiple of 2^-24 and so exact in a float.
inline double UnitFraction(uint64_t seed, uint64_t i) {
  return static_cast<double>(RandomBits(seed, i) >> 40) * 0x1p-24;
}

// In [0, n), n > 0: the high word of a 64 x 64 product; the bias is below n / 2^64.
inline uint64_t RandomBelow(uint64_t seed, uint64_t i, uint64_t n) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(RandomBits(seed, i)) * n) >> 64);
}

// A stream of its own for a named thing (FNV-1a of the name, mixed with the seed).
inline uint64_t NamedSeed(uint64_t seed, std::string_view name) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (char c : name) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return RandomBits(seed, h);
}

}  // namespace telegrad
