// The code of the fake GPU. There is no interpreter of NVIDIA's instructions, so what the fake
// assembler (tests/fakes/nv/ptxas) puts into a cubin where these would be is the PTX itself behind
// a head: the code of the kernel is its text, found where the QMD says that the program is, and
// interpreted through the GPU's addresses. So a kernel runs if and only if its bytes reached the
// GPU, with the parameters and addresses that did.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tests/fakes/cuda/ptx/assemble.h"
#include "tests/fakes/cuda/ptx/launch.h"

namespace telegrad::fakes {

struct PtxCodeHead {
  static constexpr uint64_t kMagic = 0x45444f4358545046;
  uint64_t magic = kMagic;
  uint32_t bytes = 0;           // of the code, with this head
  uint32_t registers = 0;       // that it was assembled for
  uint32_t parameter_base = 0;  // where it reads its parameters, in bank 0
  uint32_t global_bytes = 0;    // of its variables, whose address is the first word of bank 4
  uint32_t name_bytes = 0, text_bytes = 0;  // behind the head: the entry's name, then the PTX
};

class PtxTwins {
 public:
  // One launch as the GPU decoded it.
  struct Grid {
    const std::byte* code = nullptr;
    fakecuda::LaunchShape shape;  // without dynamic memory
    uint64_t shared_bytes = 0;    // of a workgroup, without the system's part
    uint64_t stack_bytes = 0;     // of a thread
    const std::byte* bank0 = nullptr;
    uint64_t bank0_bytes = 0, globals = 0;
  };
  // What went wrong; empty: nothing. "not mapped" is in it for an access outside of the memory.
  std::string Run(const Grid& grid, const fakecuda::MemoryView& memory);

 private:
  struct Loaded {
    fakecuda::Assembly assembly;
    const fakecuda::Kernel* kernel = nullptr;
  };
  std::map<std::string, std::unique_ptr<Loaded>> loaded_;  // by name, text and globals
};

}  // namespace telegrad::fakes
