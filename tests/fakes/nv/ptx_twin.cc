// Reads name and PTX behind the head of the code, assembles them once, checks that the launch
// has the memory and the threads that the kernel needs, and runs it in the PTX interpreter.
#include "tests/fakes/nv/ptx_twin.h"

#include <algorithm>
#include <cstring>

namespace telegrad::fakes {
namespace {

constexpr uint64_t kBudget = 2'000'000'000;  // thread-instructions of a launch

}  // namespace

std::string PtxTwins::Run(const Grid& grid, const fakecuda::MemoryView& memory) {
  PtxCodeHead head;
  std::memcpy(&head, grid.code, sizeof(head));
  const char* const name_at = reinterpret_cast<const char*>(grid.code) + sizeof(head);
  const std::string name(name_at, head.name_bytes);
  const std::string text(name_at + head.name_bytes, head.text_bytes);
  auto& loaded = loaded_[name + "@" + std::to_string(grid.globals) + "\n" + text];
  if (loaded == nullptr) {
    auto made = std::make_unique<Loaded>();
    made->assembly = fakecuda::ReadModule(text, {});
    if (made->assembly.error == fakecuda::AssembleError::kNone) {
      fakecuda::MakeKernels(grid.globals, &made->assembly);
    }
    if (made->assembly.error != fakecuda::AssembleError::kNone) return made->assembly.log;
    const auto it = std::ranges::find(made->assembly.kernels, name, &fakecuda::Kernel::name);
    if (it == made->assembly.kernels.end()) return "the code has no kernel " + name;
    made->kernel = &*it;
    loaded = std::move(made);
  }
  const fakecuda::Kernel& kernel = *loaded->kernel;
  if (grid.shared_bytes < kernel.shared_bytes) return "too little shared memory for " + name;
  if (grid.stack_bytes < kernel.local_bytes) return "too little local memory for " + name;
  if (head.parameter_base + kernel.parameter_bytes > grid.bank0_bytes) {
    return "the constant bank is too small for the parameters of " + name;
  }
  const auto& required = kernel.required_threads;
  if (required[0] != 0 && required != grid.shape.block) return "other threads than " + name + "'s";
  fakecuda::Launch launch;
  launch.kernel = &kernel;
  launch.shape = grid.shape;
  launch.shape.dynamic_shared = grid.shared_bytes - kernel.shared_bytes;
  launch.parameters = reinterpret_cast<const uint8_t*>(grid.bank0) + head.parameter_base;
  launch.memory = &memory;
  launch.budget = kBudget;
  const fakecuda::Fault fault = fakecuda::Run(launch);
  if (fault.code == fakecuda::FaultCode::kNone) return "";
  const bool unmapped = fault.code == fakecuda::FaultCode::kIllegalAddress;
  return (unmapped ? "not mapped: " : "") + fault.message;
}

}  // namespace telegrad::fakes
