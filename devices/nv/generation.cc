// Describes the GPU for the stream device, and loads programs and encodes commands again when
// they are first used in this generation.
#include "devices/nv/generation.h"

#include <utility>

#include "devices/nv/channel.h"
#include "engine/base/status.h"

namespace telegrad::nv {
namespace {

constexpr int64_t kLocalBytes = 227 << 10;  // of a workgroup at most (CUDA C++ Programming Guide)
// What a Hopper does at its usual: f32 multiply-adds on 128 lanes of a processor at 1.7 GHz, and
// the memory of an H100 (NVIDIA H100 datasheet), each at 70%.
constexpr double kFlopsOfProcessor = 0.7 * 256 * 1.7e9, kMemoryRate = 0.7 * 3.35e12;

absl::StatusOr<stream::Description> Describe(const GpuFacts& facts, const NvOptions& options) {
  stream::Description out;
  auto target = NvidiaTarget(9, 0, facts.processors, kLocalBytes);
  if (!target) return FailedPrecondition("it has no processors");
  out.target = *std::move(target);
  out.target.features = *options.assembler;
  out.rates.flops = kFlopsOfProcessor * facts.processors;
  out.rates.bytes = kMemoryRate;
  out.resident_threads = int64_t{facts.warps_per_processor} * 32 * facts.processors;
  out.memory_limit =
      stream::MemoryLimit(options.memory_limit, static_cast<size_t>(facts.free_bytes),
                          static_cast<size_t>(facts.memory_bytes));
  return out;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Generation>> Generation::Open(uint64_t number, int gpu,
                                                             const std::string& name,
                                                             const NvOptions& options) {
  NvDriverOptions driver;
  driver.system = options.system != nullptr ? options.system : &hcq::SystemOps();
  driver.gpu = gpu;
  driver.limits = options.limits;
  driver.limits.hang_ns = absl::ToInt64Nanoseconds(options.hang_limit);
  std::shared_ptr<Generation> out(new Generation(number));
  out->driver_ = std::make_shared<NvDriver>(driver, name);
  TG_ASSIGN_OR_RETURN(out->context_, stream::Context::Open(out->driver_, gpu, name));
  TG_ASSIGN_OR_RETURN(stream::Description description,
                      Describe(out->driver_->gpu().facts(), options));
  TG_ASSIGN_OR_RETURN(out->device_,
                      stream::StreamDevice::Make(out->context_, std::move(description),
                                                 {.queue_capacity = options.queue_capacity,
                                                  .wait_limit = options.wait_limit,
                                                  .hang_limit = options.hang_limit}));
  return out;
}

std::vector<std::string> Generation::Close() {
  driver_->gpu().Lose(absl::UnavailableError(StrCat(context_->name(), " is replaced")));
  device_ = nullptr;
  return driver_->Close();
}

absl::StatusOr<std::shared_ptr<LoadedProgram>> Program::In(Generation& generation) {
  const MutexLock lock(mutex_);
  if (number_ != generation.number()) {
    TG_ASSIGN_OR_RETURN(loaded_, generation.device().Load(image_));
    number_ = generation.number();
  }
  return loaded_;
}

absl::StatusOr<std::shared_ptr<const CommandBuffer>> Commands::In(Generation& generation) const {
  const MutexLock lock(mutex_);
  if (number_ == generation.number()) return encoded_;
  std::vector<Command> commands = commands_;
  for (size_t i = 0; i < commands.size(); ++i) {
    if (commands[i].kind != CommandKind::kLaunch || commands[i].launch.program == nullptr) continue;
    auto* const program = dynamic_cast<Program*>(commands[i].launch.program.get());
    if (program == nullptr || program->device() != device_) {
      return InvalidArgument("command ", i, ": the program was not loaded on ",
                             generation.context().name());
    }
    TG_ASSIGN_OR_RETURN(commands[i].launch.program, program->In(generation));
  }
  TG_ASSIGN_OR_RETURN(encoded_, generation.device().Encode(std::move(commands)));
  number_ = generation.number();
  return encoded_;
}

}  // namespace telegrad::nv
