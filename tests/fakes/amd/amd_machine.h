// The interpreter of AMD code objects: how one is loaded, and how a launch of one of its kernels
// runs. It takes the bytes that the driver would take and shares no code with what it judges: only
// the standard library and LLVM (disassembler, object files, message packs).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fakeamd {

// One argument of a kernel, from the metadata note (NT_AMDGPU_METADATA, msgpack, code object V5):
// .offset, .size, .value_kind ("global_buffer", "by_value", "hidden_..."), .address_space,
// .access/.actual_access.
struct Argument {
  uint32_t offset = 0, bytes = 0;
  std::string kind;
};

struct Kernel {
  std::string name;                       // .name; .symbol is name + ".kd"
  uint32_t kernarg_bytes = 0;             // .kernarg_segment_size
  uint32_t group_bytes = 0;               // .group_segment_fixed_size (static LDS)
  uint32_t private_bytes = 0;             // .private_segment_fixed_size (scratch of a thread)
  uint32_t wavefront = 0;                 // 32 or 64, descriptor and metadata agree
  uint32_t max_threads = 0;               // .max_flat_workgroup_size
  std::array<uint32_t, 3> required = {};  // .reqd_workgroup_size; 0: any
  uint32_t vgprs = 0, agprs = 0, sgprs = 0;
  uint32_t vgpr_spills = 0, sgpr_spills = 0;
  bool dynamic_stack = false;
  std::vector<Argument> arguments;
};

struct Code;  // the interpreter's own: sections, decoded instructions, ...

// A loaded object; immutable after loading, so that launches may run on several threads at once.
struct CodeObject {
  std::string error;   // not empty: why it is refused (everything else is then empty)
  std::string target;  // "amdgcn-amd-amdhsa--gfx942" as the metadata says it; e_flags must agree
  std::vector<Kernel> kernels;
  std::shared_ptr<const Code> code;
};

// Checks everything that a loader checks: ELF64 little endian EM_AMDGPU, OSABI AMDGPU_HSA, ABI V5
// (LLVM 19's default; V6 too where easy), ET_DYN, segments, descriptors 64-byte aligned with
// reserved bits 0, metadata present. An instruction that the interpreter does not know is an error
// of loading (say which, with its address and text), so that no kernel gets by with a path that did
// not run. `processor`: "gfx942"; the object must be for it.
CodeObject LoadCodeObject(std::span<const uint8_t> elf, std::string_view processor);

// Device memory: ranges of device addresses, sorted, each with the host bytes behind it. Device
// addresses are nothing that the host could dereference. (As in tests/fakes/cuda/ptx/memory.h.)
struct Region {
  uint64_t base = 0;
  uint64_t bytes = 0;
  uint8_t* host = nullptr;
  std::shared_ptr<void> keep;
};
using MemoryView = std::vector<Region>;

enum class FaultCode {
  kNone,
  kIllegalAddress,  // outside every region, or LDS beyond the workgroup's bytes
  kMisaligned,
  kIllegalInstruction,  // what it may not do: unknown, reserved bits, uninitialized register or
                        // memory read
  kRace,                // between waves of a workgroup (LDS, global), or of workgroups
  kTimeout,             // the budget is used up
  kLaunchFailed,        // anything else: barrier not reached by all waves, ...
};

struct Fault {
  FaultCode code = FaultCode::kNone;
  std::string message;  // kernel, address and text of the instruction, workgroup, wave, lane, what
};

struct Counts {
  uint64_t instructions = 0;  // of waves
  uint64_t matrix_instructions = 0;
  // Cycles that conflicts in the banks of local memory add to its loads and to its stores
  // (banks.h); its atomics are not counted.
  uint64_t load_conflicts = 0, store_conflicts = 0;
  uint64_t global_stores = 0;  // instructions of waves, flat ones and of private memory included
  uint64_t global_bytes =
      0;  // read and written, in whole 64-byte (or as you define) segments of a wave's access
};

struct Launch {
  const CodeObject* object = nullptr;
  const Kernel* kernel = nullptr;            // of the object
  std::array<uint32_t, 3> grid = {1, 1, 1};  // in workgroups
  std::array<uint32_t, 3> block = {1, 1, 1};
  uint32_t dynamic_group_bytes = 0;  // LDS behind the static bytes
  std::span<const uint8_t>
      kernarg;  // exactly kernarg_bytes; the machine places it at an address of its own
  const MemoryView* memory = nullptr;
  uint64_t budget = 0;  // wave-instructions that may run
  bool check_races = true;
};

// Runs all workgroups, one after another, waves of a workgroup in an order that the machine chooses
// (deterministic), to the end or to the first fault. Thread-safe for different launches. Memory of
// regions may be changed by nobody else meanwhile. `counts` may be null.
Fault Run(const Launch& launch, Counts* counts);

}  // namespace fakeamd
