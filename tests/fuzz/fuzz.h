// The frame of a fuzz target: under libFuzzer (preset `fuzz`) it is driven by mutation, in every
// other build by the files of its corpus and a fixed number of mutants of them (corpus_main.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

// Ends the process: a finding.
#define FUZZ_CHECK(condition)                                              \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                        \
    }                                                                      \
  } while (false)

#define FUZZ_TARGET(data)                                                    \
  static void RunFuzzTarget(std::span<const uint8_t> data);                  \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) { \
    RunFuzzTarget({bytes, size});                                            \
    return 0;                                                                \
  }                                                                          \
  static void RunFuzzTarget(std::span<const uint8_t> data)

// Of libFuzzer; corpus_main.cc has a plain one.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace telegrad::fuzz {

// Counts inputs, and those of them that got through a stage; printed when the process exits.
class Count {
 public:
  explicit Count(const char* what) : what_(what) {}
  ~Count() {
    std::fprintf(
        stderr, "inputs: %llu, %s: %llu (%.1f%%)\n", inputs_, what_, passed_,
        inputs_ > 0 ? 100.0 * static_cast<double>(passed_) / static_cast<double>(inputs_) : 0.0);
  }
  void Input() { ++inputs_; }
  void Passed() { ++passed_; }

 private:
  const char* const what_;
  unsigned long long inputs_ = 0, passed_ = 0;
};

}  // namespace telegrad::fuzz
