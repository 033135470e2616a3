// Finds the section of the kernel in the ELF file and counts its instruction words by their
// opcode.
#include "tests/nvptx/sass.h"

#include <elf.h>

#include <cstring>

#include "engine/base/status.h"
#include "engine/base/strings.h"

namespace telegrad::testing {
namespace {

template <typename T>
bool Read(const std::string& elf, uint64_t at, T* out) {
  if (at > elf.size() || elf.size() - at < sizeof(T)) return false;
  std::memcpy(out, elf.data() + at, sizeof(T));
  return true;
}

}  // namespace

absl::StatusOr<std::map<int, int>> CountInstructions(const std::string& elf,
                                                     const std::string& name) {
  constexpr uint64_t kInstruction = 16, kCodeMask = 0xfff;
  Elf64_Ehdr header;
  Elf64_Shdr names;
  if (!Read(elf, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      !Read(elf, header.e_shoff + header.e_shstrndx * sizeof(names), &names)) {
    return Internal("no ELF file");
  }
  for (int i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    if (!Read(elf, header.e_shoff + i * sizeof(section), &section)) return Internal("cut off");
    const uint64_t at = names.sh_offset + section.sh_name;
    if (at >= elf.size() || StrCat(".text.", name) != elf.c_str() + at) continue;
    std::map<int, int> counts;
    for (uint64_t offset = 0; offset + kInstruction <= section.sh_size; offset += kInstruction) {
      uint64_t low;
      if (!Read(elf, section.sh_offset + offset, &low)) return Internal("cut off");
      ++counts[static_cast<int>(low & kCodeMask)];
    }
    return counts;
  }
  return absl::NotFoundError(StrCat("no kernel ", name));
}

}  // namespace telegrad::testing
