// The frame of a fuzz target: under libFuzzer (preset `fuzz`) it is driven by mutation, in every
// other build by the files of its corpus (corpus_main.cc).
#pragma once

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
