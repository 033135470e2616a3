// Cubins for the fake GPU, with the sections, attributes, symbols and relocations that ptxas 12.8
// writes for sm_90a, also for sm_80; where NVIDIA's instructions would be is the PTX (ptx_twin.h).
#include "tests/fakes/nv/ptxas/make_cubin.h"

#include <elf.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/fakes/cuda/ptx/assemble.h"
#include "tests/fakes/nv/ptx_twin.h"

namespace telegrad::fakes {
namespace {

constexpr uint32_t kRegisters = 40, kParameterBase = 0x210;

template <typename T>
void Append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

struct Section {
  std::string name, bytes;
  uint32_t type = SHT_PROGBITS;
  uint64_t flags = 0, size = 0;  // the size where it has no bytes
  uint32_t link = 0, info = 0;
  uint64_t align = 4, entry = 0;
};

class Elf {
 public:
  explicit Elf(uint32_t arch) : arch_(arch) {
    sections_.push_back({.name = "", .bytes = "", .type = SHT_NULL});
  }

  size_t Add(Section section) {
    sections_.push_back(std::move(section));
    return sections_.size() - 1;
  }
  Section& at(size_t i) { return sections_[i]; }

  uint32_t Symbol(const std::string& name, size_t section, uint64_t value, uint64_t size,
                  unsigned char type) {
    Elf64_Sym symbol{};
    symbol.st_name = static_cast<Elf64_Word>(strings_.size());
    strings_ += name + '\0';
    symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, type);
    symbol.st_shndx = static_cast<Elf64_Half>(section);
    symbol.st_value = value;
    symbol.st_size = size;
    Append(symbols_, symbol);
    return static_cast<uint32_t>(symbols_.size() / sizeof(symbol) - 1);
  }

  std::string Write() {
    const size_t strtab = Add({.name = ".strtab", .bytes = strings_, .type = SHT_STRTAB});
    const size_t symtab = Add({.name = ".symtab",
                               .bytes = symbols_,
                               .type = SHT_SYMTAB,
                               .link = static_cast<uint32_t>(strtab),
                               .align = 8,
                               .entry = sizeof(Elf64_Sym)});
    for (Section& section : sections_) {
      if (section.type == SHT_RELA) section.link = static_cast<uint32_t>(symtab);
    }
    const size_t names_at = Add({.name = ".shstrtab", .bytes = "", .type = SHT_STRTAB});
    std::string names, body(sizeof(Elf64_Ehdr), '\0');
    for (const Section& section : sections_) names += section.name + '\0';
    sections_[names_at].bytes = names;
    std::string headers;
    size_t name = 0;
    for (const Section& section : sections_) {
      body.resize((body.size() + section.align - 1) / section.align * section.align);
      Elf64_Shdr header{};
      header.sh_name = static_cast<Elf64_Word>(name);
      name += section.name.size() + 1;
      header.sh_type = section.type;
      header.sh_flags = section.flags;
      header.sh_offset = body.size();
      header.sh_size = section.type == SHT_NOBITS ? section.size : section.bytes.size();
      header.sh_link = section.link;
      header.sh_info = section.info;
      header.sh_addralign = section.align;
      header.sh_entsize = section.entry;
      Append(headers, header);
      body += section.bytes;
    }
    body.resize((body.size() + 7) / 8 * 8);
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_ident[EI_OSABI] = 0x33;
    header.e_ident[EI_ABIVERSION] = 7;
    header.e_type = ET_EXEC;
    header.e_machine = 190;
    header.e_version = 0x80;
    header.e_flags = arch_ << 16 | 0x500 | arch_;
    header.e_ehsize = sizeof(Elf64_Ehdr);
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shoff = body.size();
    header.e_shnum = static_cast<Elf64_Half>(sections_.size());
    header.e_shstrndx = static_cast<Elf64_Half>(names_at);
    std::memcpy(body.data(), &header, sizeof(header));
    return body + headers;
  }

 private:
  const uint32_t arch_;  // 90 of "sm_90a"
  std::vector<Section> sections_;
  std::string strings_ = std::string(1, '\0'), symbols_ = std::string(sizeof(Elf64_Sym), '\0');
};

// {format, attribute, size}, then so many bytes.
void Attribute(std::string& info, uint8_t attribute, std::initializer_list<uint32_t> words) {
  Append<uint8_t>(info, 4);
  Append<uint8_t>(info, attribute);
  Append<uint16_t>(info, static_cast<uint16_t>(4 * words.size()));
  for (const uint32_t word : words) Append(info, word);
}

std::string CodeOf(const fakecuda::Assembly& assembly, const fakecuda::Kernel& kernel,
                   const std::string& text) {
  PtxCodeHead head;
  head.registers = kRegisters;
  head.parameter_base = kParameterBase;
  head.global_bytes = static_cast<uint32_t>(assembly.module.global_bytes);
  head.name_bytes = static_cast<uint32_t>(kernel.name.size());
  head.text_bytes = static_cast<uint32_t>(text.size());
  const size_t bytes = sizeof(head) + kernel.name.size() + text.size();
  head.bytes = static_cast<uint32_t>((bytes + 127) / 128 * 128);
  std::string code;
  Append(code, head);
  code += kernel.name + text;
  code.resize(head.bytes);
  return code;
}

std::string MakeCubin(const fakecuda::Assembly& assembly, const std::string& text, uint32_t arch) {
  Elf elf(arch);
  std::string info;
  for (const fakecuda::Kernel& kernel : assembly.kernels) {
    const std::string code = CodeOf(assembly, kernel, text);
    constexpr uint64_t kBarriers = 1;
    const size_t section = elf.Add({.name = ".text." + kernel.name,
                                    .bytes = code,
                                    .flags = SHF_ALLOC | SHF_EXECINSTR | kBarriers << 20,
                                    .align = 128});
    const uint32_t symbol = elf.Symbol(kernel.name, section, 0, code.size(), STT_FUNC);
    Attribute(info, 0x2F, {symbol, kRegisters});
    Attribute(info, 0x12, {symbol, static_cast<uint32_t>(kernel.local_bytes)});
    std::string own;
    uint32_t number = 0;
    for (const fakecuda::Variable& parameter : kernel.parameters) {
      Attribute(own, 0x17,
                {0, number | static_cast<uint32_t>(parameter.offset) << 16,
                 static_cast<uint32_t>(parameter.bytes) << 18 | 0x1f000});
      ++number;
    }
    if (const auto& required = kernel.required_threads; required[0] != 0) {
      Attribute(own, 0x10, {required[0], required[1], required[2]});
    }
    const auto parameter_bytes = static_cast<uint32_t>(kernel.parameter_bytes);
    Attribute(own, 0x0A, {symbol, kParameterBase | parameter_bytes << 16});
    elf.Add({.name = ".nv.info." + kernel.name, .bytes = own, .type = SHT_LOPROC});
    elf.Add({.name = ".nv.constant0." + kernel.name,
             .bytes = std::string(kParameterBase + parameter_bytes, '\0'),
             .flags = SHF_ALLOC});
    if (kernel.shared_bytes > 0) {
      elf.Add({.name = ".nv.shared." + kernel.name,
               .bytes = "",
               .type = SHT_NOBITS,
               .flags = SHF_ALLOC | SHF_WRITE,
               .size = 1024 + kernel.shared_bytes,
               .align = 16});
    }
  }
  elf.Add({.name = ".nv.info", .bytes = info, .type = SHT_LOPROC});
  if (assembly.module.global_bytes > 0) {
    std::string bytes(assembly.module.global_bytes, '\0');
    for (const fakecuda::Variable& variable : assembly.module.variables) {
      if (variable.space == fakecuda::Space::kShared || variable.initial.empty()) continue;
      std::memcpy(&bytes[variable.offset], variable.initial.data(), variable.initial.size());
    }
    // Bytes in front, so that a relocation without its symbol or its addend is wrong.
    constexpr uint64_t kInFront = 64;
    const size_t data = elf.Add({.name = ".nv.global.init",
                                 .bytes = std::string(kInFront, '\0') + bytes,
                                 .flags = SHF_ALLOC | SHF_WRITE,
                                 .align = 64});
    const size_t bank = elf.Add(
        {.name = ".nv.constant4", .bytes = std::string(8, '\0'), .flags = SHF_ALLOC, .align = 8});
    const uint32_t symbol = elf.Symbol("variables", data, kInFront / 2, bytes.size(), STT_OBJECT);
    Elf64_Rela rela{};
    rela.r_info = ELF64_R_INFO(uint64_t{symbol}, uint64_t{2});
    rela.r_addend = kInFront / 2;
    std::string relocations;
    Append(relocations, rela);
    elf.Add({.name = ".rela.nv.constant4",
             .bytes = relocations,
             .type = SHT_RELA,
             .info = static_cast<uint32_t>(bank),
             .align = 8,
             .entry = sizeof(rela)});
  }
  return elf.Write();
}

}  // namespace

std::string CubinOfPtx(const std::string& text, const std::string& arch, std::string* log) {
  const bool hopper = arch == "sm_90a";
  if (!hopper && arch != "sm_80") {
    *log = "another kind of GPU than sm_80 and sm_90a";
    return "";
  }
  fakecuda::Assembly assembly = fakecuda::ReadModule(text, {});
  constexpr uint64_t kAnyAddress = uint64_t{1} << 40;
  if (assembly.error == fakecuda::AssembleError::kNone) {
    fakecuda::MakeKernels(kAnyAddress, &assembly);
  }
  if (assembly.error == fakecuda::AssembleError::kNone &&
      text.find(hopper ? ".target sm_90a" : ".target sm_80") == text.npos) {
    *log = "the PTX is for another kind of GPU";
    return "";
  }
  if (assembly.error != fakecuda::AssembleError::kNone || assembly.kernels.empty()) {
    *log = assembly.log;
    return "";
  }
  return MakeCubin(assembly, text, hopper ? 90 : 80);
}

}  // namespace telegrad::fakes
