// The descriptor of the kernel NAME is the 64 bytes at the symbol NAME.kd of the dynamic symbols.
#include "devices/hip/code_object.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "engine/base/status.h"

namespace telegrad::hip {
namespace {

constexpr unsigned char kHsa = 64;   // ELFOSABI_AMDGPU_HSA
constexpr Elf64_Half kAmdGpu = 224;  // EM_AMDGPU
constexpr size_t kDescriptorBytes = 64;
constexpr std::string_view kSuffix = ".kd";

// `count` values of the type at `offset`; nullopt where the file ends before.
template <typename T>
std::optional<std::vector<T>> ReadAt(std::string_view elf, uint64_t offset, uint64_t count) {
  if (offset > elf.size() || count > (elf.size() - offset) / sizeof(T)) return std::nullopt;
  std::vector<T> out(count);
  if (count > 0) std::memcpy(out.data(), elf.data() + offset, count * sizeof(T));
  return out;
}

absl::Status Broken(std::string_view what) {
  return InvalidArgument("it is not a code object for an AMD GPU: ", what);
}

// Where the loaded byte `address` lies in the file, and `bytes` from it on.
std::optional<std::string_view> Loaded(std::string_view elf, const std::vector<Elf64_Phdr>& parts,
                                       uint64_t address, uint64_t bytes) {
  for (const Elf64_Phdr& part : parts) {
    if (part.p_type != PT_LOAD || address < part.p_vaddr) continue;
    const uint64_t inside = address - part.p_vaddr;
    if (inside > part.p_filesz || bytes > part.p_filesz - inside) continue;
    return elf.substr(part.p_offset + inside, bytes);
  }
  return std::nullopt;
}

// Nullopt where it is more than any code.
std::optional<int64_t> LoadedBytes(const std::vector<Elf64_Phdr>& parts) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 30;
  uint64_t end = 0;
  for (const Elf64_Phdr& part : parts) {
    if (part.p_type != PT_LOAD) continue;
    if (part.p_vaddr > kMostBytes || part.p_memsz > kMostBytes - part.p_vaddr) return std::nullopt;
    end = std::max(end, part.p_vaddr + part.p_memsz);
  }
  return static_cast<int64_t>(end);
}

bool IsName(std::string_view strings, uint64_t at, std::string_view name) {
  if (at > strings.size()) return false;
  const std::string_view here = strings.substr(at);
  return here.size() > name.size() + kSuffix.size() && here.starts_with(name) &&
         here.substr(name.size()).starts_with(kSuffix) && here[name.size() + kSuffix.size()] == 0;
}

}  // namespace

absl::StatusOr<KernelFacts> ReadKernel(std::string_view elf, std::string_view name) {
  const auto headers = ReadAt<Elf64_Ehdr>(elf, 0, 1);
  if (!headers || std::memcmp(headers->front().e_ident, ELFMAG, SELFMAG) != 0) {
    return Broken("it is not an ELF file");
  }
  const Elf64_Ehdr& header = headers->front();
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_OSABI] != kHsa ||
      header.e_machine != kAmdGpu || header.e_type != ET_DYN ||
      header.e_phentsize != sizeof(Elf64_Phdr) || header.e_shentsize != sizeof(Elf64_Shdr)) {
    return Broken("its ELF header is another machine's");
  }
  const auto parts = ReadAt<Elf64_Phdr>(elf, header.e_phoff, header.e_phnum);
  const auto sections = ReadAt<Elf64_Shdr>(elf, header.e_shoff, header.e_shnum);
  if (!parts || !sections) return Broken("its headers are cut off");
  for (const Elf64_Phdr& part : *parts) {
    if (!ReadAt<char>(elf, part.p_offset, part.p_filesz)) return Broken("a segment is cut off");
  }
  for (const Elf64_Shdr& section : *sections) {
    if (section.sh_type == SHT_NOBITS) continue;
    if (!ReadAt<char>(elf, section.sh_offset, section.sh_size)) {
      return Broken("a section is cut off");
    }
  }
  for (const Elf64_Shdr& section : *sections) {
    if (section.sh_type != SHT_DYNSYM || section.sh_link >= sections->size()) continue;
    const Elf64_Shdr& names = (*sections)[section.sh_link];
    const std::string_view strings = elf.substr(names.sh_offset, names.sh_size);
    const auto symbols =
        ReadAt<Elf64_Sym>(elf, section.sh_offset, section.sh_size / sizeof(Elf64_Sym));
    for (const Elf64_Sym& symbol : *symbols) {
      if (!IsName(strings, symbol.st_name, name)) continue;
      const auto descriptor = Loaded(elf, *parts, symbol.st_value, kDescriptorBytes);
      if (!descriptor) return Broken("a kernel's descriptor is cut off");
      const auto words = *ReadAt<uint32_t>(*descriptor, 0, 3);
      const auto bytes = LoadedBytes(*parts);
      if (!bytes) return Broken("a segment is too long");
      return KernelFacts{.local_bytes = words[0],
                         .stack_bytes = words[1],
                         .argument_bytes = words[2],
                         .loaded_bytes = *bytes};
    }
  }
  return InvalidArgument("the code object has no kernel ", name);
}

}  // namespace telegrad::hip
