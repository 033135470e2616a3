// For tests of the interpreter: assembles PTX and runs its kernel on buffers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakes/cuda/ptx/assemble.h"
#include "tests/fakes/cuda/ptx/launch.h"

namespace fakecuda {

struct RunResult {
  std::string error;  // of the assembler; empty: it ran
  Fault fault;
  uint64_t instructions = 0;
  LaunchCounts counts;
};

inline constexpr uint64_t kBufferBase = uint64_t{0x12} << 32;
inline constexpr uint64_t kBufferStride = uint64_t{1} << 30;

// Runs the first kernel of `text`, whose parameters are the addresses of the buffers, in order,
// then `scalars`.
inline RunResult RunPtx(const std::string& text, const LaunchShape& shape,
                        std::vector<std::vector<uint8_t>>* buffers,
                        const std::vector<uint64_t>& scalars = {}, uint64_t budget = 100'000'000) {
  RunResult result;
  Assembly assembly = ReadModule(text, {});
  if (assembly.error == AssembleError::kNone) MakeKernels(uint64_t{1} << 40, &assembly);
  if (assembly.error != AssembleError::kNone || assembly.kernels.empty()) {
    result.error = assembly.log.empty() ? "no kernel" : assembly.log;
    return result;
  }
  std::vector<uint64_t> parameters;
  MemoryView view;
  for (size_t i = 0; i < buffers->size(); ++i) {
    const uint64_t base = kBufferBase + i * kBufferStride;
    view.push_back({.base = base,
                    .bytes = (*buffers)[i].size(),
                    .host = (*buffers)[i].data(),
                    .keep = nullptr});
    parameters.push_back(base);
  }
  parameters.insert(parameters.end(), scalars.begin(), scalars.end());
  parameters.resize(64);
  Launch launch;
  launch.kernel = &assembly.kernels[0];
  launch.shape = shape;
  launch.parameters = reinterpret_cast<const uint8_t*>(parameters.data());
  launch.memory = &view;
  launch.budget = budget;
  result.fault = Run(launch);
  result.instructions = launch.instructions;
  result.counts = launch.counts;
  return result;
}

// A module of one kernel `k` with `parameters` 64-bit parameters p0, p1, ...; its body must declare
// its registers.
inline std::string Module(int parameters, const std::string& body,
                          const std::string& declarations = "") {
  std::string text =
      ".version 8.0\n.target sm_90\n.address_size 64\n" + declarations + "\n.visible .entry k(";
  for (int i = 0; i < parameters; ++i) {
    text += (i > 0 ? ", .param .u64 p" : ".param .u64 p") + std::to_string(i);
  }
  return text + ")\n{\n" + body + "\n}\n";
}

// The text with something else in the place of its first such piece.
inline std::string Without(std::string text, const std::string& piece,
                           const std::string& instead = "") {
  const size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  return at == std::string::npos ? text : text.replace(at, piece.size(), instead);
}

template <class T>
std::vector<uint8_t> BytesOf(const std::vector<T>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
template <class T>
std::vector<T> ValuesOf(const std::vector<uint8_t>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

// Runs one instruction on many operands, one set per thread. `instruction` names its operands d, a,
// b and c; `types` has a letter each for d, then the operands: p (predicate), h (16 bits), w (32),
// l (64), f (f32), g (f64). Results and operands are the registers' bits.
inline std::vector<uint64_t> Evaluate(const std::string& instruction, const std::string& types,
                                      const std::vector<std::vector<uint64_t>>& operands,
                                      std::string* error) {
  const auto reg = [](char type) -> std::string {
    switch (type) {
      case 'p':
        return ".pred";
      case 'h':
        return ".b16";
      case 'w':
        return ".b32";
      case 'f':
        return ".f32";
      case 'g':
        return ".f64";
      default:
        return ".b64";
    }
  };
  const auto bits = [](char type) -> std::string {
    return type == 'h' ? ".b16" : type == 'w' || type == 'f' ? ".b32" : ".b64";
  };
  const std::string names = "dabc";
  std::string body =
      ".reg .b32 %n<4>; .reg .b64 %x<8>; .reg .b64 %t;\n"
      "mov.u32 %n0, %tid.x; mov.u32 %n1, %ctaid.x; mad.lo.s32 %n2, %n1, 128, %n0;\n"
      "mul.wide.u32 %x0, %n2, 8;\n";
  for (size_t i = 0; i < types.size(); ++i) {
    body += ".reg " + reg(types[i]) + " " + names[i] + ";\n";
    if (i == 0) continue;
    body += "ld.param.u64 %x1, [p" + std::to_string(i) + "]; add.s64 %x1, %x1, %x0;\n";
    if (types[i] == 'p') {
      body += "ld.global.u64 %t, [%x1]; setp.ne.s64 " + std::string(1, names[i]) + ", %t, 0;\n";
    } else {
      body += "ld.global" + bits(types[i]) + " " + names[i] + ", [%x1];\n";
    }
  }
  body += instruction + "\n";
  body += "ld.param.u64 %x1, [p0]; add.s64 %x1, %x1, %x0;\n";
  if (types[0] == 'p') {
    body += "selp.b64 %t, 1, 0, d; st.global.b64 [%x1], %t;\n";
  } else {
    body += "st.global" + bits(types[0]) + " [%x1], d;\n";
  }
  body += "ret;";
  const size_t count = (operands.at(0).size() + 127) / 128 * 128;
  std::vector<std::vector<uint8_t>> buffers(1, std::vector<uint8_t>(8 * count));
  for (std::vector<uint64_t> values : operands) {
    values.resize(count);
    buffers.push_back(BytesOf(values));
  }
  const LaunchShape shape = {.grid = {static_cast<uint32_t>(count / 128), 1, 1},
                             .block = {128, 1, 1}};
  const RunResult run = RunPtx(Module(static_cast<int>(types.size()), body), shape, &buffers);
  *error = run.error + run.fault.message;
  std::vector<uint64_t> results = ValuesOf<uint64_t>(buffers[0]);
  results.resize(operands.at(0).size());
  return results;
}

}  // namespace fakecuda
