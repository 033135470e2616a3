// Who makes a cubin, the code of one kind of GPU, of PTX: NVIDIA's assembler, a program that is
// found at run time, or a library of NVIDIA's (nvjitlink.h). A driver without a compiler of its own
// needs one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/types/target.h"

namespace telegrad {

struct Assembler {
  std::string path;     // of the program or the library
  std::string version;  // "V12.8.93" of ptxas; "nvJitLink-13.0" of the library

  bool is_library() const;
};

// For people: "ptxas V12.8.93", "nvJitLink 13.0".
std::string Describe(const Assembler& assembler);

// `name`: a path, or looked for in PATH and in /usr/local/cuda/bin. NOT_FOUND, or what is wrong
// with the one that was found.
absl::StatusOr<Assembler> FindPtxas(const std::string& name);
// OK unless a key of kernels cannot have its path or its version. `name`: what it was found by.
absl::Status CheckForKeys(const Assembler& assembler, std::string_view name);

// What Target::features is where code is to be a cubin: it names the assembler and its version, so
// that a kernel's key has both.
std::string CubinFeatures(const Assembler& assembler);
// Where a driver takes PTX, too: that is what it gets if the assembler fails.
std::string CubinOrPtxFeatures(const Assembler& assembler);
bool TakesPtx(const Target& target);
// Whether `code` is what such a driver gets because the assembler has failed: PTX, of which it
// makes machine code itself.
bool IsLeftToDriver(const Target& target, std::string_view code);
// The one that a target names; nullopt for another target.
std::optional<Assembler> AssemblerOf(const Target& target);

// The cubin for `arch`, "sm_90a". INTERNAL, naming the kernel, with what the assembler says: the
// PTX comes from a compiler. UNAVAILABLE where it cannot be run.
absl::StatusOr<std::string> AssemblePtx(const Assembler& assembler, const std::string& ptx,
                                        const std::string& arch, const std::string& kernel);
// What a program prints that is run with these arguments. UNAVAILABLE where it cannot be run or
// does not end, FAILED_PRECONDITION, with what it printed, for another exit code than 0.
absl::StatusOr<std::string> OutputOf(std::vector<std::string> arguments);

}  // namespace telegrad
