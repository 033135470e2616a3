#include "engine/compile/find_assembler.h"

#include <utility>

#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/compile/nvjitlink.h"

namespace telegrad {
namespace {

absl::StatusOr<Assembler> TryPtxas(const std::string& name, const std::string& arch) {
  TG_ASSIGN_OR_RETURN(Assembler found, FindPtxas(name));
  TG_RETURN_IF_ERROR(TryAssembler(found, arch));
  return found;
}

absl::StatusOr<Assembler> TryNvJitLink(const AssemblerNames& names, const std::string& arch) {
  if (names.nvjitlink.empty()) return NotFound("no library nvJitLink is looked for");
  if (names.executable.empty()) {
    return NotFound("nvJitLink is not opened without compile workers");
  }
  TG_ASSIGN_OR_RETURN(const std::string said,
                      OutputOf({names.executable, kTryNvJitLink, names.nvjitlink, arch}));
  Target target;
  target.features = said.substr(0, said.find('\n'));
  auto found = AssemblerOf(target);
  if (!found || !found->is_library()) {
    return Internal(names.executable, " said of nvJitLink: ", said);
  }
  return *std::move(found);
}

}  // namespace

absl::StatusOr<Assembler> FindAssembler(const AssemblerNames& names, const std::string& arch,
                                        absl::Status* of_ptxas) {
  const auto ptxas = TryPtxas(names.ptxas, arch);
  if (of_ptxas != nullptr) *of_ptxas = ptxas.status();
  if (ptxas.ok()) return ptxas;
  const auto library = TryNvJitLink(names, arch);
  if (library.ok()) return library;
  return absl::Status(ptxas.status().code(), StrCat(ToStd(ptxas.status().message()), "; ",
                                                    ToStd(library.status().message())));
}

absl::StatusOr<std::string> TryNvJitLinkHere(const std::string& libraries,
                                             const std::string& arch) {
  TG_ASSIGN_OR_RETURN(const Assembler found, FindNvJitLink(libraries));
  TG_RETURN_IF_ERROR(TryAssembler(found, arch));
  return CubinFeatures(found);
}

}  // namespace telegrad
