#include "devices/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <utility>

#include "devices/cuda/command_buffer.h"
#include "devices/cuda/memory.h"
#include "devices/cuda/program.h"
#include "devices/cuda/queue.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

using cuda::Context;
using cuda::CudaQueue;
using cuda::Library;
using cuda::Memories;

// What is left for the driver, which takes memory for code and stacks as it goes.
constexpr int64_t kReserve = int64_t{1} << 30;
constexpr int64_t kReservedPart = 10;  // at most a tenth
// f32 operations of a multiprocessor in a cycle: multiply and add on 128 lanes.
constexpr double kFlopsPerCycle = 256;
constexpr double kTransfersPerCycle = 2;
constexpr double kUsual = 0.7;  // of its best

struct Description {
  Target target;
  Rates rates;
  int64_t memory_limit = 0;
};

absl::StatusOr<Description> Describe(Context& context, const CudaOptions& options) {
  Description out;
  absl::Status status;
  const auto get = [&](cuda::CUdevice_attribute attribute) {
    int value = 0;
    if (status.ok()) {
      status = TG_CUDA(context, cuDeviceGetAttribute, &value, attribute, context.device());
    }
    return value;
  };
  const int major = get(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  const int minor = get(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  const int processors = get(cuda::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  const int local = get(cuda::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  const double khz = get(cuda::CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  const double memory_khz = get(cuda::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
  const double bus_bits = get(cuda::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  TG_RETURN_IF_ERROR(status);
  auto target = NvidiaTarget(major, minor, processors, local);
  if (!target) {
    return FailedPrecondition("its compute capability is ", major, ".", minor,
                              "; expected 8.0 or later");
  }
  out.target = *std::move(target);
  out.rates.flops = kUsual * processors * kFlopsPerCycle * khz * 1e3;
  out.rates.bytes = kUsual * kTransfersPerCycle * memory_khz * 1e3 * bus_bits / 8;
  size_t free = 0, total = 0;
  TG_RETURN_IF_ERROR(TG_CUDA(context, cuMemGetInfo_v2, &free, &total));
  const auto most = static_cast<int64_t>(free);
  out.memory_limit = options.memory_limit > 0
                         ? std::min(options.memory_limit, static_cast<int64_t>(total))
                         : most - std::min(kReserve, most / kReservedPart);
  return out;
}

class CudaDevice final : public Device {
 public:
  CudaDevice(std::shared_ptr<Context> context, Description description,
             std::shared_ptr<Memories> memories, std::unique_ptr<CudaQueue> compute,
             std::unique_ptr<CudaQueue> copy)
      : context_(std::move(context)),
        description_(std::move(description)),
        memories_(std::move(memories)),
        compute_(std::move(compute)),
        copy_(std::move(copy)) {}

  static absl::StatusOr<std::unique_ptr<CudaDevice>> Open(std::shared_ptr<const Library> library,
                                                          int index, const std::string& name,
                                                          const CudaOptions& options) {
    cuda::CUdevice device = 0;
    TG_RETURN_IF_ERROR(TG_CUDA(*library, cuDeviceGet, &device, index));
    int mode = 0;
    TG_RETURN_IF_ERROR(TG_CUDA(*library, cuDeviceGetAttribute, &mode,
                               cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device));
    if (mode == cuda::CU_COMPUTEMODE_PROHIBITED) {
      return FailedPrecondition("its compute mode prohibits work (nvidia-smi -c)");
    }
    TG_ASSIGN_OR_RETURN(auto context, Context::Open(std::move(library), device, name));
    TG_RETURN_IF_ERROR(context->Enter());
    TG_ASSIGN_OR_RETURN(Description description, Describe(*context, options));
    TG_ASSIGN_OR_RETURN(auto memories, Memories::Create(context, description.memory_limit));
    const auto queue = [&](const char* kind_name, QueueKind kind) {
      return CudaQueue::Create(context, {.name = StrCat(name, kind_name),
                                         .kind = kind,
                                         .capacity = options.queue_capacity,
                                         .wait_limit = options.wait_limit,
                                         .hang_limit = options.hang_limit});
    };
    TG_ASSIGN_OR_RETURN(auto compute, queue(" compute", QueueKind::kCompute));
    TG_ASSIGN_OR_RETURN(auto copy, queue(" copy", QueueKind::kCopy));
    compute->SetSibling(*copy);
    copy->SetSibling(*compute);
    return std::make_unique<CudaDevice>(std::move(context), std::move(description),
                                        std::move(memories), std::move(compute), std::move(copy));
  }

  // Lets copies between the two go straight; without, the driver takes them through the host.
  absl::Status Befriend(const CudaDevice& peer) {
    int can = 0;
    TG_RETURN_IF_ERROR(context_->Enter());
    TG_RETURN_IF_ERROR(TG_CUDA(*context_, cuDeviceCanAccessPeer, &can, context_->device(),
                               peer.context_->device()));
    if (can == 0) return absl::OkStatus();
    const cuda::CUresult enabled =
        context_->api().cuCtxEnablePeerAccess(peer.context_->handle(), 0);
    if (enabled == cuda::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return absl::OkStatus();
    return context_->Check("cuCtxEnablePeerAccess", enabled);
  }

  const std::string& name() const override { return context_->name(); }
  const Target& target() const override { return description_.target; }
  int64_t memory_limit() const override { return memories_->limit(); }
  int64_t memory_used() const override { return memories_->used(); }
  Rates rates() const override { return description_.rates; }
  int64_t memory_footprint() const override { return memories_->footprint(); }
  bool host_visible() const override { return false; }
  bool Reaches(const Device& other) const override {
    return other.host_visible() || dynamic_cast<const CudaDevice*>(&other) != nullptr;
  }

  absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t size) override {
    return memories_->Alloc(size);
  }

  absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const ProgramImage& image) override {
    TG_ASSIGN_OR_RETURN(auto program,
                        cuda::CudaProgram::Load(context_, image, description_.target.local_bytes));
    return program;
  }

  absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(
      std::vector<Command> commands) override {
    return cuda::CudaCommandBuffer::Encode(std::move(commands), context_, description_.rates);
  }

  Queue& queue(QueueKind kind) override { return kind == QueueKind::kCopy ? *copy_ : *compute_; }
  absl::Status Health() const override { return context_->health(); }

 private:
  const std::shared_ptr<Context> context_;
  const Description description_;
  const std::shared_ptr<Memories> memories_;
  const std::unique_ptr<CudaQueue> compute_, copy_;  // last: their threads stop first
};

std::string NameOf(const Library& library, int index) {
  cuda::CUdevice device = 0;
  std::array<char, 256> name{};
  if (library.api().cuDeviceGet(&device, index) != cuda::CUDA_SUCCESS ||
      library.api().cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device) !=
          cuda::CUDA_SUCCESS) {
    return "a GPU";
  }
  return name.data();
}

}  // namespace

std::vector<std::unique_ptr<Device>> OpenCudas(const CudaOptions& options,
                                               std::vector<std::string>* notes) {
  std::vector<std::unique_ptr<Device>> out;
  const auto note = [&](std::string text) {
    if (notes != nullptr) notes->push_back(std::move(text));
  };
  if (options.devices == 0) return out;
  const auto library = Library::Open(options.library);
  if (!library.ok()) {
    note(StrCat("CUDA: ", ToStd(library.status().message())));
    return out;
  }
  int count = 0;
  if (const absl::Status status = TG_CUDA(**library, cuDeviceGetCount, &count); !status.ok()) {
    note(StrCat("CUDA: ", ToStd(status.message())));
    return out;
  }
  if (count == 0) note("CUDA: the NVIDIA driver shows no GPU");
  if (options.devices > 0) count = static_cast<int>(std::min<int64_t>(count, options.devices));
  std::vector<CudaDevice*> opened;
  for (int i = 0; i < count; ++i) {
    const std::string name = StrCat("CUDA:", i);
    auto device = CudaDevice::Open(*library, i, name, options);
    if (!device.ok()) {
      note(StrCat(name, " (", NameOf(**library, i),
                  ") is left out: ", ToStd(device.status().message())));
      continue;
    }
    opened.push_back(device->get());
    out.push_back(*std::move(device));
  }
  for (CudaDevice* device : opened) {
    for (const CudaDevice* peer : opened) {
      if (peer == device) continue;
      if (const absl::Status direct = device->Befriend(*peer); !direct.ok()) {
        note(StrCat("copies between ", device->name(), " and ", peer->name(),
                    " go through the host: ", ToStd(direct.message())));
      }
    }
  }
  return out;
}

}  // namespace telegrad
