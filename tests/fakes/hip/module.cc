// Modules: linked code objects for the device's processor. Like HIP, the function is told no length
// and takes it from the file's headers.
#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "tests/fakes/amd/amd_machine.h"
#include "tests/fakes/cuda/device_memory.h"
#include "tests/fakes/hip/functions.h"

namespace {

constexpr uint64_t kLocalBytes = 64 << 10;  // of a workgroup

fakecuda::Result ResultOf(fakeamd::FaultCode code) {
  switch (code) {
    case fakeamd::FaultCode::kNone:
      return fakecuda::CUDA_SUCCESS;
    case fakeamd::FaultCode::kIllegalAddress:
      return fakecuda::CUDA_ERROR_ILLEGAL_ADDRESS;
    case fakeamd::FaultCode::kTimeout:
      return fakecuda::CUDA_ERROR_LAUNCH_TIMEOUT;
    default:
      return fakecuda::CUDA_ERROR_LAUNCH_FAILED;
  }
}

class AmdKernel final : public fakecuda::DeviceKernel {
 public:
  AmdKernel(std::shared_ptr<const fakeamd::CodeObject> object, const fakeamd::Kernel& kernel)
      : object_(std::move(object)), kernel_(kernel) {
    name = kernel.name;
    for (const fakeamd::Argument& a : kernel.arguments) parameters.push_back({a.offset, a.bytes});
    parameter_bytes = kernel.kernarg_bytes;
    required_threads = kernel.required;
    maximal_threads = kernel.max_threads;
    shared_bytes = kernel.group_bytes;
    local_bytes = kernel.private_bytes;
    registers = static_cast<int>(kernel.vgprs);
  }

  fakecuda::KernelEnd Run(const fakecuda::KernelRun& run) const override {
    fakeamd::MemoryView memory;
    for (const fakecuda::Region& r : *run.memory) {
      memory.push_back({.base = r.base, .bytes = r.bytes, .host = r.host, .keep = r.keep});
    }
    fakeamd::Launch launch;
    launch.object = object_.get();
    launch.kernel = &kernel_;
    launch.grid = run.grid;
    launch.block = run.block;
    launch.dynamic_group_bytes = static_cast<uint32_t>(run.dynamic_shared);
    launch.kernarg = *run.parameters;
    launch.memory = &memory;
    launch.budget = run.budget;
    fakeamd::Counts counts;
    const fakeamd::Fault fault = fakeamd::Run(launch, &counts);
    return {.result = ResultOf(fault.code),
            .message = fault.message,
            .instructions = counts.instructions};
  }

 private:
  const std::shared_ptr<const fakeamd::CodeObject> object_;  // owns the kernel
  const fakeamd::Kernel& kernel_;
};

// EF_AMDGPU_MACH of the ELF header's flags (LLVM's "User Guide for AMDGPU Backend", "Header").
struct Machine {
  int64_t processor;  // the knob
  uint32_t flags;
};
constexpr Machine kMachines[] = {{0x90a, 0x3f}, {0x942, 0x4c}, {0x1100, 0x41}, {0x1201, 0x4e}};
constexpr uint32_t kMachineMask = 0xff;

// Whether the file is for another processor than the device's.
bool IsForAnother(const uint8_t* image, int64_t processor) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof(header));
  for (const Machine& machine : kMachines) {
    if (machine.processor == processor) return (header.e_flags & kMachineMask) != machine.flags;
  }
  return true;
}

// As far as the headers say that the file goes.
uint64_t BytesOf(const uint8_t* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof(header));
  return header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize;
}

}  // namespace

FAKE_HIP_API int hipModuleLoadData(Handle* module, const void* image) {
  FAKE_HIP_USE();
  fakecuda::Call call;
  if (call.result() != fakecuda::CUDA_SUCCESS) return fakehip::HipOf(call.result());
  if (module == nullptr || image == nullptr) return fakehip::hipErrorInvalidValue;
  const auto* bytes = static_cast<const uint8_t*>(image);
  if (std::memcmp(bytes, ELFMAG, SELFMAG) != 0) return fakehip::hipErrorInvalidImage;
  fakecuda::Driver& driver = call.driver();
  if (IsForAnother(bytes, driver.knobs.processor)) return fakehip::hipErrorNoBinaryForGpu;
  if (driver.knobs.jit_error != 0) return static_cast<int>(driver.knobs.jit_error);
  char processor[16];
  std::snprintf(processor, sizeof(processor), "gfx%x",
                static_cast<unsigned>(driver.knobs.processor));
  auto object = std::make_shared<fakeamd::CodeObject>(
      fakeamd::LoadCodeObject({bytes, BytesOf(bytes)}, processor));
  if (!object->error.empty()) {
    driver.Problem("code object: " + object->error);
    return fakehip::hipErrorInvalidImage;
  }
  fakecuda::DevicePointer own = 0;
  if (!fakecuda::TakeCode(driver, call.context().handle, &own)) return fakehip::hipErrorOutOfMemory;
  *module = driver.NewHandle();
  fakecuda::LoadedModule& loaded = driver.modules[*module];
  loaded.context = call.context().handle;
  loaded.code = own;
  loaded.most_shared = kLocalBytes;
  for (const fakeamd::Kernel& kernel : object->kernels) {
    for (const fakeamd::Argument& argument : kernel.arguments) {
      if (argument.kind.starts_with("hidden_")) {
        driver.Problem("kernel " + kernel.name + " has the argument " + argument.kind +
                       ", which the fake does not fill");
        if (own != 0) fakecuda::FreeDevice(driver, own);
        driver.modules.erase(*module);
        return fakehip::hipErrorNotSupported;
      }
    }
    loaded.kernels.push_back(std::make_shared<AmdKernel>(object, kernel));
    driver.counters.vgpr_spills += kernel.vgpr_spills;
    driver.counters.sgpr_spills += kernel.sgpr_spills;
    driver.counters.private_bytes =
        std::max<int64_t>(driver.counters.private_bytes, kernel.private_bytes);
  }
  ++driver.counters.modules_loaded;
  ++driver.counters.live_modules;
  return fakehip::hipSuccess;
}
