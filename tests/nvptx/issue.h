// How much of a multiprocessor's time for issuing instructions goes to matrix instructions, by the
// counts of the fake driver.
//
// A sub-core of a multiprocessor issues one instruction of a warp in a cycle. A matrix instruction
// keeps its tensor core busy for several cycles, in which other instructions are issued. The share
// of cycles supposes the least favourable case, that none is issued beside it: matrix instructions
// count their cycles, all others one each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace telegrad::testing {

struct Counter {
  std::string_view name;  // of tests/fakes/cuda/counters.def
  bool instructions;      // of warps
};
inline constexpr Counter kIssueCounters[] = {
#define KIND(name, meaning) {#name, true},
#include "tests/fakes/cuda/ptx/kinds.def"
#undef KIND
    {"instructions", false},  // of threads
    {"load_conflicts", false}, {"store_conflicts", false},
    {"global_bytes", false},   {"global_sectors", false},
};

// NVIDIA A100 Tensor Core GPU Architecture (whitepaper, 2020), "A100 SM Architecture": a
// multiprocessor has four tensor cores, each with 256 multiplications and additions of 16-bit
// floats in a cycle. One of 16 x 8 x 16 has 2048.
inline constexpr int64_t kCyclesOfMma = 16 * 8 * 16 / 256;

class IssueCounts {
 public:
  // What the fake driver has counted until now; `count` is its function fakeCudaCount.
  explicit IssueCounts(int64_t (*count)(const char*)) {
    for (const Counter& c : kIssueCounters) {
      value_.push_back(count(std::string(c.name).c_str()));
    }
  }
  int64_t operator[](std::string_view name) const {
    int64_t value = 0;
    for (size_t i = 0; i < value_.size(); ++i) {
      if (kIssueCounters[i].name == name) value = value_[i];
    }
    return value;
  }
  int64_t matrix() const { return (*this)["matrix_instructions"]; }
  int64_t instructions() const {
    int64_t sum = 0;
    for (size_t i = 0; i < value_.size(); ++i)
      sum += kIssueCounters[i].instructions ? value_[i] : 0;
    return sum;
  }
  friend IssueCounts operator-(IssueCounts x, const IssueCounts& y) {
    for (size_t i = 0; i < x.value_.size(); ++i) x.value_[i] -= y.value_[i];
    return x;
  }

 private:
  std::vector<int64_t> value_;
};

inline double ShareOfInstructions(const IssueCounts& c) {
  return static_cast<double>(c.matrix()) / static_cast<double>(c.instructions());
}
inline double ShareOfCycles(const IssueCounts& c) {
  const auto cycles = static_cast<double>(c.matrix() * kCyclesOfMma);
  return cycles / (cycles + static_cast<double>(c.instructions() - c.matrix()));
}

}  // namespace telegrad::testing
