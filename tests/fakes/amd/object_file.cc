// Reads segments, dynamic symbols and the metadata note, after checking that the file is a
// shared object for this processor with a supported ABI version. A symbol without a definition
// is an error.
#include "tests/fakes/amd/object_file.h"

#include <llvm/Object/ELF.h>

#include <cstring>

namespace fakeamd {
namespace {

using File = llvm::object::ELFFile<llvm::object::ELF64LE>;

// A value of LLVM, or the error's text in `error`.
template <class T>
bool Take(llvm::Expected<T> value, T* out, std::string* error) {
  if (!value) {
    *error = llvm::toString(value.takeError());
    return false;
  }
  *out = std::move(*value);
  return true;
}

std::string CheckHeader(const File& file, uint32_t machine) {
  const auto& header = file.getHeader();
  if (header.e_machine != llvm::ELF::EM_AMDGPU || header.e_type != llvm::ELF::ET_DYN) {
    return "is no shared object for AMDGPU";
  }
  if (header.e_ident[llvm::ELF::EI_OSABI] != llvm::ELF::ELFOSABI_AMDGPU_HSA) {
    return "is not for the HSA runtime";
  }
  const int version = header.e_ident[llvm::ELF::EI_ABIVERSION];
  if (version < llvm::ELF::ELFABIVERSION_AMDGPU_HSA_V4 ||
      version > llvm::ELF::ELFABIVERSION_AMDGPU_HSA_V6) {
    return "has the ABI version " + std::to_string(version) + "; expected 2, 3 or 4";
  }
  if ((header.e_flags & llvm::ELF::EF_AMDGPU_MACH) != machine) return "is for another processor";
  return "";
}

std::string ReadSegments(const File& file, std::vector<Segment>* segments) {
  constexpr uint64_t kLimit = uint64_t{1} << 30;
  File::Elf_Phdr_Range headers;
  std::string error;
  if (!Take(file.program_headers(), &headers, &error)) return error;
  for (const auto& header : headers) {
    if (header.p_type != llvm::ELF::PT_LOAD) continue;
    const uint64_t size = file.getBufSize();
    if (header.p_filesz > header.p_memsz || header.p_offset > size ||
        header.p_filesz > size - header.p_offset || header.p_memsz > kLimit ||
        header.p_vaddr > kLimit) {
      return "has a segment outside of the file, or larger than 1 GiB";
    }
    Segment segment;
    segment.address = header.p_vaddr;
    segment.bytes.resize(header.p_memsz);
    if (header.p_filesz != 0) {
      std::memcpy(segment.bytes.data(), file.base() + header.p_offset, header.p_filesz);
    }
    if (!segments->empty() &&
        segment.address < segments->back().address + segments->back().bytes.size()) {
      return "has segments that overlap";
    }
    segments->push_back(std::move(segment));
  }
  return "";
}

std::string ReadSymbols(const File& file, const File::Elf_Shdr& section, ObjectFile* out) {
  File::Elf_Sym_Range symbols;
  llvm::StringRef names;
  std::string error;
  if (!Take(file.symbols(&section), &symbols, &error) ||
      !Take(file.getStringTableForSymtab(section), &names, &error)) {
    return error;
  }
  for (const auto& symbol : symbols) {
    llvm::StringRef name;
    if (!Take(symbol.getName(names), &name, &error)) return error;
    if (name.empty()) continue;
    if (symbol.st_shndx == llvm::ELF::SHN_UNDEF) {
      return "needs the symbol " + name.str() + ", which nothing defines";
    }
    out->symbols[name.str()] = {.address = symbol.st_value, .bytes = symbol.st_size};
  }
  return "";
}

std::string ReadNotes(const File& file, const File::Elf_Shdr& section, std::string* metadata) {
  llvm::Error error = llvm::Error::success();
  for (auto note : file.notes(section, error)) {
    if (note.getName() != "AMDGPU" || note.getType() != llvm::ELF::NT_AMDGPU_METADATA) continue;
    const auto bytes = note.getDesc(section.sh_addralign);
    metadata->assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return error ? llvm::toString(std::move(error)) : "";
}

std::string Read(const File& file, uint32_t machine, ObjectFile* out) {
  std::string error = CheckHeader(file, machine);
  if (error.empty()) error = ReadSegments(file, &out->segments);
  if (!error.empty()) return error;
  File::Elf_Shdr_Range sections;
  if (!Take(file.sections(), &sections, &error)) return error;
  for (const auto& section : sections) {
    if (section.sh_type == llvm::ELF::SHT_NOTE) error = ReadNotes(file, section, &out->metadata);
    if (section.sh_type == llvm::ELF::SHT_DYNSYM) error = ReadSymbols(file, section, out);
    if (!error.empty()) return error;
  }
  return "";
}

}  // namespace

const uint8_t* ObjectFile::At(uint64_t address, uint64_t bytes) const {
  for (const Segment& segment : segments) {
    const uint64_t offset = address - segment.address;
    if (offset < segment.bytes.size() && bytes <= segment.bytes.size() - offset) {
      return segment.bytes.data() + offset;
    }
  }
  return nullptr;
}

ObjectFile ReadObjectFile(std::span<const uint8_t> elf, uint32_t machine) {
  ObjectFile object;
  if (elf.size() < llvm::ELF::EI_NIDENT || elf[llvm::ELF::EI_CLASS] != llvm::ELF::ELFCLASS64 ||
      elf[llvm::ELF::EI_DATA] != llvm::ELF::ELFDATA2LSB) {
    object.error = "is no ELF file of 64 bits, little endian";
    return object;
  }
  // LLVM requires an aligned buffer.
  std::vector<uint64_t> aligned((elf.size() + 7) / 8);
  std::memcpy(aligned.data(), elf.data(), elf.size());
  auto file =
      File::create(llvm::StringRef(reinterpret_cast<const char*>(aligned.data()), elf.size()));
  if (!file) {
    object.error = llvm::toString(file.takeError());
  } else {
    object.error = Read(*file, machine, &object);
  }
  return object;
}

}  // namespace fakeamd
