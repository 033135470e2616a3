// What code is made for: part of every cache key.
#pragma once

#include <cstdint>
#include <string>

namespace telegrad {

struct Target {
  std::string arch;       // "x86-64", later "sm_90a", "gfx942"
  std::string cpu;        // LLVM's processor name, for tuning
  std::string features;   // "+avx2,+fma,...", sorted: what the code may use
  int vector_bytes = 16;  // width of the widest useful vector register
  int vector_registers = 16;
  int threads = 1;  // workers that run one launch

  // Every field, unambiguously: equal keys mean interchangeable code.
  std::string Key() const;
};

}  // namespace telegrad
