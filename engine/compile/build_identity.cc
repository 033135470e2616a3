// The build id is a note of the ELF file, NT_GNU_BUILD_ID, that lies in a loaded segment (elf(5),
// dl_iterate_phdr(3)).
#include "engine/compile/build_identity.h"

#include <elf.h>
#include <link.h>

#include <cstring>
#include <string_view>

#include "absl/strings/escaping.h"
#include "engine/base/hash.h"
#include "engine/base/strings.h"
#include "llvm/Config/llvm-config.h"

namespace telegrad {
namespace {

constexpr size_t Padded(size_t size) { return (size + 3) / 4 * 4; }

std::string BuildIdIn(std::string_view notes) {
  ElfW(Nhdr) header;
  while (notes.size() >= sizeof(header)) {
    std::memcpy(&header, notes.data(), sizeof(header));
    notes.remove_prefix(sizeof(header));
    const size_t name = Padded(header.n_namesz), value = Padded(header.n_descsz);
    if (name + value > notes.size()) break;
    if (header.n_type == NT_GNU_BUILD_ID && notes.starts_with(std::string_view("GNU\0", 4))) {
      return absl::BytesToHexString(ToAbsl(notes.substr(name, header.n_descsz)));
    }
    notes.remove_prefix(name + value);
  }
  return "";
}

struct Ids {
  std::string executable;  // and this project's own libraries, where it is linked to them
  int objects = 0;         // of which `executable` has the ids
  std::string llvm;        // empty where it is part of the executable
};

int AddObject(dl_phdr_info* object, size_t, void* out) {
  auto& ids = *static_cast<Ids*>(out);
  const std::string_view name(object->dlpi_name == nullptr ? "" : object->dlpi_name);
  const bool is_llvm = name.find("libLLVM") != std::string_view::npos;
  const bool ours = name.empty() || name.find("/libtelegrad_") != std::string_view::npos;
  if (!ours && !is_llvm) return 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* begin = reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr);
    const std::string id = BuildIdIn({begin, segment.p_memsz});
    if (id.empty()) continue;
    if (is_llvm) {
      ids.llvm = id;
    } else {
      ids.executable += id;
      ++ids.objects;
    }
  }
  return 0;
}

const Ids& LoadedIds() {
  static const auto* const ids = [] {
    auto* found = new Ids();
    dl_iterate_phdr(&AddObject, found);
    if (found->objects > 1) found->executable = Sha256(found->executable).Hex();
    return found;
  }();
  return *ids;
}

}  // namespace

const std::string& ExecutableBuildId() { return LoadedIds().executable; }

const std::string& CompilerIdentity() {
  static const auto* const identity = [] {
    const Ids& ids = LoadedIds();
    return new std::string(ids.executable.empty() ? ""
                                                  : StrCat("LLVM ", LLVM_VERSION_STRING, " ",
                                                           ids.llvm, " in ", ids.executable));
  }();
  return *identity;
}

}  // namespace telegrad
