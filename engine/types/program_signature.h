// What a launch of a compiled program has to pass, and how the code of each target takes it.
// Whoever compiles writes it into the program's image; drivers and whoever launches read it there.
//
// The parameters are in the order of the code's own. Code takes them in one of three forms:
//   x86-64: `void name(const uint64_t* words, int64_t begin, int64_t end)`. Word i is parameter i:
//     the address of a buffer, the bits of a scalar with zeros above, or the address of a tensor
//     map, a HostTensorMap (tensor_map.h) that stays for as long as the launch. It runs the
//     workgroups [begin, end) of the grid in x, each of one thread, so that begin is no parameter.
//   PTX, cubins and AMD's code objects: a kernel with one parameter for each, at its natural
//     alignment: the address of a buffer (64 bits), or a scalar. Workgroup x of the launch is
//     number begin + x of the grid. Only PTX takes tensor maps: a parameter of 128 bytes, aligned
//     to 64 (`.param .align 64 .b8 name[128]`), that only its instructions for tensor maps read.
//   OpenCL: the same, but that a buffer is two arguments of the kernel: the memory object, and the
//     first byte in it (ulong). It takes no tensor maps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/byte_codec.h"

namespace telegrad {

enum class ParameterKind : uint8_t {
  kBuffer,
  kScalar32,
  kScalar64,
  kBegin,  // 64 bits, of the launch's geometry and not of its arguments
  kTensorMap,
};

// Bytes that a kernel's parameter of that kind takes, and what its place is a multiple of.
constexpr int64_t ParameterBytes(ParameterKind kind) {
  if (kind == ParameterKind::kTensorMap) return 128;
  return kind == ParameterKind::kScalar32 ? 4 : 8;
}
constexpr int64_t ParameterAlignment(ParameterKind kind) {
  return kind == ParameterKind::kTensorMap ? 64 : ParameterBytes(kind);
}

// Of workgroups in a grid, or of threads in a workgroup.
struct GridSize {
  int64_t x = 1, y = 1, z = 1;
  friend bool operator==(const GridSize&, const GridSize&) = default;
};

struct ProgramSignature {
  std::vector<ParameterKind> parameters = {};
  GridSize group = {};      // threads of a workgroup
  int64_t local_bytes = 0;  // of a workgroup's own memory, to be provided at launch

  bool Takes(ParameterKind kind) const {
    return std::ranges::find(parameters, kind) != parameters.end();
  }
  friend bool operator==(const ProgramSignature&, const ProgramSignature&) = default;
};

// Bytes of all parameters, one after the other, each at its alignment.
int64_t ParametersBytes(std::span<const ParameterKind> parameters);

// The parameters as text, "buffer,scalar32,begin", and back; nullopt for a word that is none.
std::string ParametersText(std::span<const ParameterKind> parameters);
std::optional<std::vector<ParameterKind>> ParametersFromText(std::string_view text);

// `count` buffers and behind them begin, as the renderers print kernels.
std::vector<ParameterKind> KernelParameters(size_t count);
// `count` buffers, as they print functions of x86-64.
std::vector<ParameterKind> FunctionParameters(size_t count);

void Write(const ProgramSignature& signature, ByteWriter* out);
// The reader has failed if these were no bytes of Write.
ProgramSignature ReadSignature(ByteReader* in);

}  // namespace telegrad
