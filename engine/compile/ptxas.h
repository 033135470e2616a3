// NVIDIA's assembler, a program that is found at run time: it makes a cubin, the code of one kind
// of GPU, from PTX. A driver without a compiler of its own needs it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/types/target.h"

namespace telegrad {

struct Ptxas {
  std::string path;
  std::string version;  // "V12.8.93"
};

// `name`: a path, or looked for in PATH and in /usr/local/cuda/bin. NOT_FOUND, or what is wrong
// with the one that was found.
absl::StatusOr<Ptxas> FindPtxas(const std::string& name);

// What Target::features is where code is to be a cubin: it names the assembler and its version, so
// that a kernel's key has both. And the path in it, or nullopt for another target's.
std::string CubinFeatures(const Ptxas& ptxas);
// Where a driver takes PTX, too: that is what it gets if the assembler fails.
std::string CubinOrPtxFeatures(const Ptxas& ptxas);
bool TakesPtx(const Target& target);
std::optional<std::string> PtxasOf(const Target& target);
// Its version, or "" for another target.
std::string PtxasVersionOf(const Target& target);

// The cubin for `arch`, "sm_90a". INTERNAL, naming the kernel, with what ptxas says: the PTX comes
// from a compiler. UNAVAILABLE where it cannot be run.
absl::StatusOr<std::string> AssemblePtx(const std::string& path, const std::string& ptx,
                                        const std::string& arch, const std::string& kernel);

}  // namespace telegrad
