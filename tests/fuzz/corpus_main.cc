// Runs a fuzz target where there is no libFuzzer: on each file of a corpus and on mutants, made by
// the target's own mutator, or where it has none, as bytes; then also on prefixes and bit flips of
// each file. The same seed (TELEGRAD_SEED) gives the same inputs.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                                                size_t max_size, unsigned seed);
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomCrossOver(const uint8_t*, size_t,
                                                                  const uint8_t*, size_t, uint8_t*,
                                                                  size_t, unsigned seed);

namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kMaxInput = 16 << 10;

std::mt19937_64& Random() {
  static std::mt19937_64 rng;
  return rng;
}

void Run(const Bytes& bytes) { LLVMFuzzerTestOneInput(bytes.data(), bytes.size()); }

Bytes Mutant(const Bytes& from, const Bytes& other) {
  std::mt19937_64& rng = Random();
  Bytes bytes = from;
  bytes.resize(kMaxInput);
  const auto seed = static_cast<unsigned>(rng());
  size_t n;
  if (LLVMFuzzerCustomCrossOver != nullptr && rng() % 8 == 0) {
    n = LLVMFuzzerCustomCrossOver(from.data(), from.size(), other.data(), other.size(),
                                  bytes.data(), kMaxInput, seed);
  } else if (LLVMFuzzerCustomMutator != nullptr) {
    n = LLVMFuzzerCustomMutator(bytes.data(), from.size(), kMaxInput, seed);
  } else {
    n = LLVMFuzzerMutate(bytes.data(), from.size(), kMaxInput);
  }
  bytes.resize(n);
  return bytes;
}

}  // namespace

// Flips, overwrites, inserts or removes some bytes.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size) {
  std::mt19937_64& rng = Random();
  for (uint64_t n = 1 + rng() % 4; n > 0; --n) {
    const size_t at = size > 0 ? rng() % size : 0;
    switch (rng() % 4) {
      case 0:
        if (size > 0) data[at] ^= static_cast<uint8_t>(1 << (rng() % 8));
        break;
      case 1:
        if (size > 0) data[at] = static_cast<uint8_t>(rng());
        break;
      case 2:
        if (size < max_size) {
          std::copy_backward(data + at, data + size, data + size + 1);
          data[at] = static_cast<uint8_t>(rng());
          ++size;
        }
        break;
      default:
        if (size > 0) {
          std::copy(data + at + 1, data + size, data + at);
          --size;
        }
    }
  }
  return size;
}

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr, "usage: %s CORPUS [MUTANTS]\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  if (paths.empty()) {
    std::fprintf(stderr, "%s: there is no corpus\n", argv[1]);
    return 1;
  }
  std::vector<Bytes> corpus;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    Run(corpus.back());
  }
  const char* text = std::getenv("TELEGRAD_SEED");
  const unsigned long long seed = text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
  const int mutants = argc == 3 ? std::atoi(argv[2]) : 0;
  std::printf("%zu files, %d mutants, seed %llu\n", corpus.size(), mutants, seed);
  std::fflush(stdout);
  Random().seed(seed);
  constexpr size_t kCuts = 8;  // of each file
  for (const Bytes& bytes : corpus) {
    if (LLVMFuzzerCustomMutator != nullptr) break;
    const size_t step = bytes.size() / kCuts + 1;
    for (size_t i = 0; i < bytes.size(); i += step) {
      Run({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(i)});
      Bytes flipped = bytes;
      flipped[i] ^= static_cast<uint8_t>(1 << (i % 8));
      Run(flipped);
    }
  }
  std::mt19937_64& rng = Random();
  for (int i = 0; i < mutants; ++i) {
    Bytes mutant = Mutant(corpus[rng() % corpus.size()], corpus[rng() % corpus.size()]);
    Run(mutant);
    // Now and then mutants of mutants.
    if (rng() % 4 == 0) corpus[rng() % corpus.size()] = std::move(mutant);
  }
  return 0;
}
