// Describes each device by its properties, sets its memory limit (less where the device is the
// host's own processor), and connects its queues to the driver's command queues.
#include "devices/opencl/opencl_device.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "devices/api/command_list.h"
#include "devices/api/generations_device.h"
#include "devices/opencl/memory.h"
#include "devices/opencl/program.h"
#include "devices/opencl/runner.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

using opencl::CommandQueue;
using opencl::Context;
using opencl::DeviceFacts;
using opencl::Library;
using opencl::Memories;
using opencl::PlatformDevice;
using opencl::Runner;

// What is left for the driver, or, where the device is the host's processor, for everybody else.
constexpr int64_t kReservedPart = 10, kHostPart = 4;
constexpr double kUsual = 0.7;  // of its best

int64_t MemoryLimit(const DeviceFacts& facts, const OpenClOptions& options) {
  if (options.memory_limit > 0) return std::min(options.memory_limit, facts.memory_bytes);
  return facts.is_cpu ? facts.memory_bytes / kHostPart
                      : facts.memory_bytes - facts.memory_bytes / kReservedPart;
}

Rates RatesOf(const DeviceFacts& facts) {
  const auto threads = static_cast<double>(facts.target.threads);
  using enum Arithmetic;
  if (facts.is_cpu) {
    return {.flops = {{kVectorF32, kCpuThreadFlops * threads}}, .bytes = kCpuThreadBytes * threads};
  }
  return {.flops = {{kVectorF32, kUsual * facts.flops}}};
}

// One generation of it.
class OpenClDevice final : public Device {
 public:
  static absl::StatusOr<std::unique_ptr<OpenClDevice>> Make(std::shared_ptr<const Library> library,
                                                            const PlatformDevice& device,
                                                            const std::string& name,
                                                            uint64_t generation,
                                                            const OpenClOptions& options) {
    TG_ASSIGN_OR_RETURN(DeviceFacts facts, ReadFacts(*library, device));
    if (!options.inexact) TG_RETURN_IF_ERROR(facts.exact);
    TG_ASSIGN_OR_RETURN(auto context, Context::Open(std::move(library), device, name, generation,
                                                    options.hang_limit));
    TG_ASSIGN_OR_RETURN(auto memories, Memories::Create(context, MemoryLimit(facts, options),
                                                        facts.allocation_bytes));
    TG_ASSIGN_OR_RETURN(auto compute, CommandQueue::Create(context));
    TG_ASSIGN_OR_RETURN(auto copy, CommandQueue::Create(context));
    return std::make_unique<OpenClDevice>(std::move(context), std::move(facts), std::move(memories),
                                          std::move(compute), std::move(copy), options);
  }

  OpenClDevice(std::shared_ptr<Context> context, DeviceFacts facts,
               std::shared_ptr<Memories> memories, std::unique_ptr<CommandQueue> compute,
               std::unique_ptr<CommandQueue> copy, const OpenClOptions& options)
      : context_(std::move(context)),
        facts_(std::move(facts)),
        memories_(std::move(memories)),
        compute_(QueueOptions(" compute", kComputesAndCopies, options),
                 std::make_unique<Runner>(context_, std::move(compute))),
        copy_(QueueOptions(" copy", kCopiesOnly, options),
              std::make_unique<Runner>(context_, std::move(copy))) {
    context_->AddWaker(compute_.Waker());
    context_->AddWaker(copy_.Waker());
  }

  const std::shared_ptr<Context>& context() const { return context_; }
  const std::shared_ptr<Memories>& memories() const { return memories_; }

  const std::string& name() const override { return context_->name(); }
  const Target& target() const override { return facts_.target; }
  int64_t memory_limit() const override { return memories_->limit(); }
  int64_t memory_used() const override { return memories_->used(); }
  int64_t memory_footprint() const override { return memories_->used(); }
  Rates rates() const override { return RatesOf(facts_); }
  bool host_visible() const override { return false; }

  absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t size) override {
    return memories_->Alloc(size);
  }
  absl::StatusOr<std::shared_ptr<Memory>> AllocOf(MemoryKind kind, int64_t size) override {
    return kind == MemoryKind::kPinnedHost ? memories_->AllocPinned(size)
                                           : Device::AllocOf(kind, size);
  }
  bool Makes(MemoryKind kind) const override {
    return kind == MemoryKind::kDevice || kind == MemoryKind::kPinnedHost;
  }
  absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const ProgramImage& image) override {
    TG_ASSIGN_OR_RETURN(auto program, opencl::OpenClProgram::Load(context_, image));
    return program;
  }
  absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(
      std::vector<Command> commands) override {
    return CommandList::Encode(std::move(commands));
  }
  std::span<Queue* const> queues() override { return queues_; }
  absl::Status Health() const override { return context_->health(); }

 private:
  HostQueueOptions QueueOptions(std::string_view kind, QueueCapability takes,
                                const OpenClOptions& options) const {
    return {.name = StrCat(context_->name(), kind),
            .takes = takes,
            .capacity = options.queue_capacity,
            .wait_limit = options.wait_limit};
  }

  const std::shared_ptr<Context> context_;
  const DeviceFacts facts_;
  const std::shared_ptr<Memories> memories_;
  HostQueue compute_, copy_;  // last: their threads stop first
  const std::array<Queue*, 2> queues_ = {&compute_, &copy_};
};

// A device that is lost is opened again in a context of its own: what failed in the old one is
// nothing to that.
class OpenClGeneration final : public Generation {
 public:
  explicit OpenClGeneration(std::unique_ptr<OpenClDevice> device)
      : context_(device->context()), memories_(device->memories()), device_(std::move(device)) {}

  Device& device() override { return *device_; }
  absl::Status Close() override {
    TG_RETURN_IF_ERROR(Calm());
    device_ = nullptr;
    TG_RETURN_IF_ERROR(Calm());
    context_->Discard();
    memories_->Discard();
    return absl::OkStatus();
  }

 private:
  absl::Status Calm() const {
    if (!context_->stuck() || context_->HasCalmed()) return absl::OkStatus();
    return absl::UnavailableError(
        StrCat(context_->name(),
               " is still at work on something that does not end; it is free again when that has "
               "ended, or the process: restart the daemon if it does not"));
  }

  const std::shared_ptr<Context> context_;
  const std::shared_ptr<Memories> memories_;
  std::unique_ptr<OpenClDevice> device_;
};

}  // namespace

std::vector<std::unique_ptr<Device>> OpenOpenCls(const OpenClOptions& options,
                                                 std::vector<std::string>* notes) {
  const auto note = [&](std::string text) {
    if (notes != nullptr) notes->push_back(std::move(text));
  };
  std::vector<std::unique_ptr<Device>> out;
  if (options.devices == 0) return out;
  const auto library = Library::Open(options.library);
  if (!library.ok()) {
    note(StrCat("OPENCL: ", ToStd(library.status().message())));
    return out;
  }
  const auto listing = ListDevices(**library);
  if (!listing.ok()) {
    note(StrCat("OPENCL: ", ToStd(listing.status().message())));
    return out;
  }
  for (const std::string& left_out : listing->left_out) note(StrCat("OPENCL: ", left_out));
  const auto& devices = listing->devices;
  size_t count = devices.size();
  if (options.devices > 0) count = std::min(count, static_cast<size_t>(options.devices));
  options.only.Show(static_cast<int64_t>(count));
  for (size_t i = 0; i < count; ++i) {
    if (!options.only.Has(static_cast<int64_t>(i))) continue;
    const std::string name = StrCat("OPENCL:", i);
    const auto open = [library = *library, device = devices[i], name,
                       options](uint64_t number) -> absl::StatusOr<std::unique_ptr<Generation>> {
      TG_ASSIGN_OR_RETURN(auto opened, OpenClDevice::Make(library, device, name, number, options));
      return std::make_unique<OpenClGeneration>(std::move(opened));
    };
    auto device = open(options.only.generation);
    if (!device.ok()) {
      note(StrCat(name, " (", NameOf(**library, devices[i]),
                  ") is left out: ", ToStd(device.status().message())));
      continue;
    }
    out.push_back(MakeGenerationsDevice(*std::move(device), open));
  }
  return out;
}

}  // namespace telegrad
