// An ELF file for AMDGPU as a loader of the HSA runtime takes it: what lies where, symbols,
// metadata.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tests/fakes/amd/code.h"

namespace fakeamd {

struct ObjectFile {
  struct Symbol {
    uint64_t address = 0;
    uint64_t bytes = 0;
  };
  std::string error;  // not empty: why the file is refused
  std::vector<Segment> segments;
  std::map<std::string, Symbol> symbols;
  std::string metadata;  // the message pack

  // The bytes at a virtual address; null where they are not of one segment.
  const uint8_t* At(uint64_t address, uint64_t bytes) const;
};

// `machine` is the processor in e_flags.
ObjectFile ReadObjectFile(std::span<const uint8_t> elf, uint32_t machine);

}  // namespace fakeamd
