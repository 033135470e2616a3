// Describes the GPU for the stream device. Each generation has a driver of its own, and so a client
// of the kernel driver of its own.
#include "devices/nv/nv_device.h"

#include <utility>

#include "devices/nv/nv_driver.h"
#include "devices/stream/generation.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

using stream::Context;
using stream::StreamDevice;
using stream::StreamGeneration;

constexpr int64_t kGroupLocalBytes = 227 << 10;  // at most (CUDA C++ Programming Guide)
// What a Hopper does at its usual: a processor at 1.7 GHz, and the memory of an H100 (NVIDIA H100
// datasheet), each at 70%.
constexpr double kUsualHz = 0.7 * 1.7e9, kMemoryRate = 0.7 * 3.35e12;

absl::StatusOr<stream::Description> DescribeNv(const nv::GpuFacts& facts,
                                               const NvOptions& options) {
  stream::Description out;
  auto target = NvidiaTarget(9, 0, facts.processors, kGroupLocalBytes);
  if (!target) return FailedPrecondition("it has no processors");
  out.target = *std::move(target);
  out.target.features = *options.assembler;
  out.rates.flops = NvidiaOperationsPerCycle(9, 0) * (kUsualHz * facts.processors);
  out.rates.bytes = kMemoryRate;
  out.resident_threads = int64_t{facts.warps_per_processor} * 32 * facts.processors;
  out.memory_limit =
      stream::MemoryLimit(options.memory_limit, static_cast<size_t>(facts.free_bytes),
                          static_cast<size_t>(facts.memory_bytes));
  return out;
}

absl::StatusOr<std::unique_ptr<StreamDevice>> OpenNv(int gpu, const std::string& name,
                                                     uint64_t generation,
                                                     const NvOptions& options) {
  nv::NvDriverOptions made;
  made.system = options.system != nullptr ? options.system : &hcq::SystemOps();
  made.gpu = gpu;
  made.limits = options.limits;
  made.limits.hang_ns = absl::ToInt64Nanoseconds(options.hang_limit);
  const auto driver = std::make_shared<nv::NvDriver>(made, name);
  TG_ASSIGN_OR_RETURN(auto context, Context::Open(driver, gpu, name, generation));
  TG_ASSIGN_OR_RETURN(stream::Description description, DescribeNv(driver->gpu().facts(), options));
  return StreamDevice::Make(std::move(context), std::move(description),
                            {.queue_capacity = options.queue_capacity,
                             .wait_limit = options.wait_limit,
                             .hang_limit = options.hang_limit,
                             .pinned = options.pinned_memory});
}

}  // namespace

std::vector<std::unique_ptr<Device>> OpenNvs(const NvOptions& options,
                                             std::vector<std::string>* notes) {
  std::vector<std::unique_ptr<Device>> out;
  const auto note = [&](const std::string& text) {
    if (notes != nullptr) notes->push_back(text);
  };
  if (options.devices == 0) return out;
  if (!options.assembler.ok()) {
    note(StrCat("NV: no assembler for its code: ", ToStd(options.assembler.status().message()),
                " (--ptxas)"));
    return out;
  }
  options.only.Show(options.devices);
  for (int i = 0; i < options.devices; ++i) {
    if (!options.only.Has(i)) continue;
    const std::string name = StrCat("NV:", i);
    auto first = OpenNv(i, name, options.only.generation, options);
    if (!first.ok()) {
      note(StrCat(name, " is left out: ", ToStd(first.status().message())));
      continue;
    }
    out.push_back(
        MakeGenerationsDevice(std::make_unique<StreamGeneration>(*std::move(first)),
                              [=](uint64_t number) -> absl::StatusOr<std::unique_ptr<Generation>> {
                                TG_ASSIGN_OR_RETURN(auto next, OpenNv(i, name, number, options));
                                return std::make_unique<StreamGeneration>(std::move(next));
                              }));
  }
  return out;
}

}  // namespace telegrad
