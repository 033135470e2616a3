// Who makes cubins on this machine: ptxas where there is one that takes our PTX, else nvJitLink.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/compile/ptxas.h"

namespace telegrad {

// What is looked for.
struct AssemblerNames {
  std::string ptxas;       // see FindPtxas
  std::string nvjitlink;   // see FindNvJitLink
  std::string executable;  // of compile workers, by which the library is tried; empty: it is not
};

// One that has made a cubin for `arch`. The library is opened by a compile worker of its own that
// ends with the trial, never by this process. An error says what is wrong with each. `of_ptxas`,
// which may be null, gets OK where it is ptxas, else what is wrong with that.
absl::StatusOr<Assembler> FindAssembler(const AssemblerNames& names, const std::string& arch,
                                        absl::Status* of_ptxas = nullptr);

// Of the compile worker: its arguments are this, the libraries and the kind of GPU, and it prints
// what TryNvJitLinkHere returns.
inline constexpr char kTryNvJitLink[] = "--try-nvjitlink";
// CubinFeatures of the library that has made a cubin.
absl::StatusOr<std::string> TryNvJitLinkHere(const std::string& libraries, const std::string& arch);

}  // namespace telegrad
