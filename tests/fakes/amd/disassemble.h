// Machine code to text, by LLVM's disassembler.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fakeamd {

struct Line {
  uint64_t address = 0;
  uint32_t bytes = 0;
  std::string text;
};

// The instructions of `code`, whose first is at `address`. Empty, with an error, where one is
// unknown.
std::vector<Line> Disassemble(const std::string& processor, uint32_t wavefront,
                              std::span<const uint8_t> code, uint64_t address, std::string* error);

}  // namespace fakeamd
