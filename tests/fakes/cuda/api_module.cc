// Modules: PTX text compiled for the current context's device, and cubins of fake_ptxas.
#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "tests/fakes/cuda/device_facts.h"
#include "tests/fakes/cuda/device_memory.h"
#include "tests/fakes/cuda/ptx/assemble.h"
#include "tests/fakes/cuda/ptx/launch.h"
#include "tests/fakes/cuda/state.h"
#include "tests/fakes/nv/ptx_twin.h"

using fakecuda::Assembly;
using fakecuda::Call;
using fakecuda::Driver;
using fakecuda::Handle;
using fakecuda::LoadedFunction;
using fakecuda::Result;

namespace {

class PtxKernel final : public fakecuda::DeviceKernel {
 public:
  PtxKernel(std::shared_ptr<const Assembly> assembly, const fakecuda::Kernel& kernel)
      : assembly_(std::move(assembly)), kernel_(kernel) {
    name = kernel.name;
    for (const auto& p : kernel.parameters) parameters.push_back({p.offset, p.bytes});
    parameter_bytes = kernel.parameter_bytes;
    required_threads = kernel.required_threads;
    maximal_threads = kernel.maximal_threads;
    shared_bytes = kernel.shared_bytes;
    local_bytes = kernel.local_bytes;
    registers = std::clamp(static_cast<int>(kernel.register_bits.size()), 16, 255);
  }

  fakecuda::KernelEnd Run(const fakecuda::KernelRun& run) const override {
    fakecuda::Launch launch;
    launch.kernel = &kernel_;
    launch.shape = {.grid = run.grid, .block = run.block, .dynamic_shared = run.dynamic_shared};
    launch.parameters = run.parameters->data();
    launch.memory = run.memory;
    launch.budget = run.budget;
    const fakecuda::Fault fault = fakecuda::Run(launch);
    return {static_cast<Result>(fault.code), fault.message, launch.instructions, launch.counts};
  }

 private:
  const std::shared_ptr<const Assembly> assembly_;  // owns the kernel
  const fakecuda::Kernel& kernel_;
};

struct Log {
  char* text = nullptr;
  void** size = nullptr;  // holds the capacity, then what was written
};

// Options of the compiler; false for one that the fake does not know.
bool ReadOptions(unsigned int count, const int* options, void** values, Log* info, Log* error) {
  for (unsigned int i = 0; i < count; ++i) {
    switch (options[i]) {
      case fakecuda::kJitInfoLog:
        info->text = static_cast<char*>(values[i]);
        break;
      case fakecuda::kJitInfoLogSize:
        info->size = &values[i];
        break;
      case fakecuda::kJitErrorLog:
        error->text = static_cast<char*>(values[i]);
        break;
      case fakecuda::kJitErrorLogSize:
        error->size = &values[i];
        break;
      case fakecuda::kJitMaxRegisters:
      case fakecuda::kJitWallTime:
      case fakecuda::kJitOptimizationLevel:
      case fakecuda::kJitTargetFromContext:
      case fakecuda::kJitGenerateDebugInfo:
      case fakecuda::kJitLogVerbose:
      case fakecuda::kJitGenerateLineInfo:
      case fakecuda::kJitCacheMode:
        break;
      default:
        return false;
    }
  }
  return true;
}

void Write(const Log& log, const std::string& text) {
  if (log.text == nullptr || log.size == nullptr) return;
  const auto capacity = reinterpret_cast<uintptr_t>(*log.size);
  if (capacity == 0) return;
  const size_t length = std::min<size_t>(text.size(), capacity - 1);
  std::memcpy(log.text, text.data(), length);
  log.text[length] = 0;
  *log.size = reinterpret_cast<void*>(length + 1);
}

// Whether a text, rather than an ELF file or something else.
bool LooksLikePtx(const char* image) {
  for (size_t i = 0; image[i] != 0; ++i) {
    const auto c = static_cast<unsigned char>(image[i]);
    if (c < 9 || c > 126) return false;
  }
  return std::strstr(image, ".version") != nullptr;
}

// The bytes of the ELF file, as far as its headers say; 0 for another one.
size_t ElfBytes(const char* image) {
  constexpr char kMagic[] = "\177ELF\2\1\1";
  if (std::strncmp(image, kMagic, sizeof(kMagic) - 1) != 0) return 0;
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof(header));
  return header.e_machine == 190 ? header.e_shoff + header.e_shnum * sizeof(Elf64_Shdr) : 0;
}

// What fake_ptxas has put where the code would be.
std::string TextOf(std::string_view cubin) {
  telegrad::fakes::PtxCodeHead head;
  const std::string_view magic(reinterpret_cast<const char*>(&head.kMagic), sizeof(head.magic));
  const size_t at = cubin.find(magic);
  if (at == cubin.npos || cubin.size() - at < sizeof(head)) return "";
  std::memcpy(&head, cubin.data() + at, sizeof(head));
  return std::string(cubin.substr(at + sizeof(head) + head.name_bytes, head.text_bytes));
}

// A cubin is for GPUs of one major capability, and of its minor one or later.
bool IsFor(const std::string& text, int64_t capability) {
  const size_t at = text.find(".target sm_");
  if (at == text.npos) return false;
  const int64_t code = std::atoi(text.c_str() + at + std::strlen(".target sm_"));
  const size_t end = text.find_first_not_of("0123456789", at + std::strlen(".target sm_"));
  const bool exactly = end != text.npos && text[end] == 'a';
  return exactly ? code == capability : code / 10 == capability / 10 && code <= capability;
}

Result Compile(Call& call, const char* text, int ptx_version, Assembly* assembly,
               fakecuda::DevicePointer* globals) {
  Driver& driver = call.driver();
  const int64_t capability = driver.knobs.capability;
  *assembly = fakecuda::ReadModule(text, {.major = static_cast<int>(capability / 10),
                                          .minor = static_cast<int>(capability % 10),
                                          .ptx_version = ptx_version});
  if (assembly->error != fakecuda::AssembleError::kNone) {
    return static_cast<Result>(assembly->error);
  }
  const uint64_t bytes = assembly->module.global_bytes;
  if (assembly->module.shared_bytes > fakecuda::kStaticSharedLimit) {
    assembly->log = "too much shared data: at most 49152 bytes are declared";
    return fakecuda::CUDA_ERROR_INVALID_PTX;
  }
  if (bytes > 0) {
    *globals = fakecuda::AllocateDevice(driver, call.context().handle, bytes, true);
    if (*globals == 0) return fakecuda::CUDA_ERROR_OUT_OF_MEMORY;
    uint8_t* const host = driver.allocations.at(*globals).region.host;
    std::memset(host, 0, bytes);
    for (const auto& variable : assembly->module.variables) {
      if (variable.space == fakecuda::Space::kShared || variable.initial.empty()) continue;
      std::memcpy(host + variable.offset, variable.initial.data(), variable.initial.size());
    }
  }
  fakecuda::MakeKernels(*globals, assembly);
  if (assembly->error == fakecuda::AssembleError::kNone) return fakecuda::CUDA_SUCCESS;
  if (bytes > 0) fakecuda::FreeDevice(driver, *globals);
  return static_cast<Result>(assembly->error);
}

}  // namespace

FAKE_CUDA_API int cuModuleLoadDataEx(Handle* module, const void* image, unsigned int count,
                                     int* options, void** values) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  Log info;
  Log error;
  if (module == nullptr || image == nullptr ||
      (count > 0 && (options == nullptr || values == nullptr)) ||
      !ReadOptions(count, options, values, &info, &error)) {
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  Driver& driver = call.driver();
  const auto* text = static_cast<const char*>(image);
  std::string code;
  auto ptx_version = static_cast<int>(driver.knobs.ptx_version);
  const bool is_cubin = ElfBytes(text) > 0;
  if (is_cubin) {
    code = TextOf({text, ElfBytes(text)});
    if (code.empty()) return fakecuda::CUDA_ERROR_INVALID_IMAGE;
    if (driver.knobs.cubin_error != 0) return static_cast<int>(driver.knobs.cubin_error);
    if (!IsFor(code, driver.knobs.capability)) return fakecuda::CUDA_ERROR_NO_BINARY_FOR_GPU;
    text = code.c_str();
    ptx_version = 1000;  // the assembler has read it
  }
  if (!LooksLikePtx(text)) return fakecuda::CUDA_ERROR_INVALID_IMAGE;
  if (driver.knobs.jit_error != 0 && !is_cubin) {
    Write(error, "ptxas fatal   : an error that the test asked for");
    return static_cast<int>(driver.knobs.jit_error);
  }
  auto assembly = std::make_shared<Assembly>();
  fakecuda::DevicePointer globals = 0;
  const Result result = Compile(call, text, ptx_version, assembly.get(), &globals);
  if (result != fakecuda::CUDA_SUCCESS) {
    Write(error, "ptxas application ptx input, " + assembly->log);
    driver.Problem("PTX: " + assembly->log);
    return result;
  }
  fakecuda::DevicePointer own = 0;
  if (!fakecuda::TakeCode(driver, call.context().handle, &own)) {
    if (globals != 0) fakecuda::FreeDevice(driver, globals);
    return fakecuda::CUDA_ERROR_OUT_OF_MEMORY;
  }
  Write(info, "");
  Write(error, "");
  *module = driver.NewHandle();
  fakecuda::LoadedModule& loaded = driver.modules[*module];
  loaded.context = call.context().handle;
  loaded.globals = globals;
  loaded.code = own;
  loaded.most_shared = fakecuda::kStaticSharedLimit;
  for (const fakecuda::Kernel& kernel : assembly->kernels) {
    loaded.kernels.push_back(std::make_shared<PtxKernel>(assembly, kernel));
  }
  ++driver.counters.modules_loaded;
  if (!is_cubin) ++driver.counters.modules_translated;
  ++driver.counters.live_modules;
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuModuleUnload(Handle module) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  ++driver.counters.unloads;
  driver.done.wait(call.lock(), [&] { return driver.knobs.hold_unload == 0; });
  const auto it = driver.modules.find(module);
  if (it == driver.modules.end()) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  for (const fakecuda::DevicePointer memory : {it->second.globals, it->second.code}) {
    if (memory != 0) fakecuda::FreeDevice(driver, memory);
  }
  std::erase_if(driver.functions, [&](const auto& f) { return f.second.module == module; });
  driver.modules.erase(it);
  --driver.counters.live_modules;
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuModuleGetFunction(Handle* function, Handle module, const char* name) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  const auto it = driver.modules.find(module);
  if (it == driver.modules.end()) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  if (function == nullptr || name == nullptr) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  for (const auto& kernel : it->second.kernels) {
    if (kernel->name != name) continue;
    for (const auto& [handle, loaded] : driver.functions) {
      if (loaded.module == module && loaded.kernel == kernel) {
        *function = handle;
        return fakecuda::CUDA_SUCCESS;
      }
    }
    *function = driver.NewHandle();
    driver.functions[*function] = {.module = module,
                                   .context = it->second.context,
                                   .kernel = kernel,
                                   .dynamic_shared = it->second.most_shared - kernel->shared_bytes};
    return fakecuda::CUDA_SUCCESS;
  }
  return fakecuda::CUDA_ERROR_NOT_FOUND;
}

FAKE_CUDA_API int cuFuncGetAttribute(int* value, int attribute, Handle function) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  const auto it = call.driver().functions.find(function);
  if (it == call.driver().functions.end()) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  if (value == nullptr) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  const fakecuda::DeviceKernel& kernel = *it->second.kernel;
  switch (attribute) {
    case fakecuda::kMaxThreadsPerBlock:
      *value = static_cast<int>(kernel.maximal_threads);
      break;
    case fakecuda::kSharedSizeBytes:
      *value = static_cast<int>(kernel.shared_bytes);
      break;
    case fakecuda::kLocalSizeBytes:
      *value = static_cast<int>(kernel.local_bytes);
      break;
    case fakecuda::kNumRegs:
      *value = kernel.registers;
      break;
    case fakecuda::kPtxVersion:
    case fakecuda::kBinaryVersion:
      *value = static_cast<int>(call.driver().knobs.capability);
      break;
    case fakecuda::kMaxDynamicSharedSizeBytes:
      *value = static_cast<int>(it->second.dynamic_shared);
      break;
    case fakecuda::kConstSizeBytes:
    case fakecuda::kCacheModeCa:
      *value = 0;
      break;
    case fakecuda::kPreferredCarveout:
      *value = -1;
      break;
    default:
      return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuFuncSetAttribute(Handle function, int attribute, int value) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  const auto it = call.driver().functions.find(function);
  if (it == call.driver().functions.end()) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  LoadedFunction& loaded = it->second;
  if (attribute == fakecuda::kPreferredCarveout) {
    return value >= -1 && value <= 100 ? fakecuda::CUDA_SUCCESS
                                       : fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t limit = fakecuda::SharedLimit(call.driver().knobs) - loaded.kernel->shared_bytes;
  if (attribute != fakecuda::kMaxDynamicSharedSizeBytes || value < 0 ||
      static_cast<uint64_t>(value) > limit) {
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  loaded.dynamic_shared = static_cast<uint64_t>(value);
  return fakecuda::CUDA_SUCCESS;
}
