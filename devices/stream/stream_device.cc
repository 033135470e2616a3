// Makes context, memory and the queues of a GPU, and leaves a reserve of its memory to the
// driver.
#include "devices/stream/stream_device.h"

#include <algorithm>
#include <utility>

#include "devices/stream/command_buffer.h"
#include "devices/stream/program.h"
#include "engine/base/status.h"

namespace telegrad::stream {
namespace {

constexpr int64_t kReserve = int64_t{1} << 30;
constexpr int64_t kReservedPart = 10;  // at most a tenth

}  // namespace

int64_t MemoryLimit(int64_t wanted, size_t free, size_t total) {
  if (wanted > 0) return std::min(wanted, static_cast<int64_t>(total));
  const auto most = static_cast<int64_t>(free);
  return most - std::min(kReserve, most / kReservedPart);
}

StreamDevice::StreamDevice(std::shared_ptr<Context> context, Description description,
                           std::shared_ptr<Memories> memories, std::shared_ptr<PinnedPool> pinned,
                           std::vector<std::unique_ptr<StreamQueue>> queues)
    : context_(std::move(context)),
      description_(std::move(description)),
      memories_(std::move(memories)),
      pinned_(std::move(pinned)),
      unloader_(context_),
      owned_(std::move(queues)) {
  for (const auto& queue : owned_) queues_.push_back(queue.get());
}

absl::StatusOr<std::unique_ptr<StreamDevice>> StreamDevice::Make(std::shared_ptr<Context> context,
                                                                 Description description,
                                                                 const Limits& limits) {
  TG_ASSIGN_OR_RETURN(auto memories, Memories::Create(context, description.memory_limit,
                                                      description.virtual_memory));
  std::vector<std::unique_ptr<StreamQueue>> queues;
  const auto add = [&](const std::string& own_name, QueueCapability takes) {
    auto queue = StreamQueue::Create(context, {.name = StrCat(context->name(), " ", own_name),
                                               .takes = takes,
                                               .index = queues.size(),
                                               .words = description.words,
                                               .capacity = limits.queue_capacity,
                                               .wait_limit = limits.wait_limit,
                                               .hang_limit = limits.hang_limit});
    if (queue.ok()) queues.push_back(*std::move(queue));
    return queue.status();
  };
  TG_RETURN_IF_ERROR(add("compute", kComputesAndCopies));
  for (int i = 0; i < description.copy_queues; ++i) {
    TG_RETURN_IF_ERROR(add(i == 0 ? "copy" : StrCat("copy ", i + 1), kCopiesOnly));
  }
  for (const auto& queue : queues) {
    for (const auto& sibling : queues) {
      if (sibling != queue) queue->AddSibling(*sibling);
    }
  }
  auto pinned = std::make_shared<PinnedPool>(context, limits.pinned);
  return std::make_unique<StreamDevice>(std::move(context), std::move(description),
                                        std::move(memories), std::move(pinned), std::move(queues));
}

// Of the GPUs of other drivers it reaches none.
PeerAccess StreamDevice::AccessTo(const Device& other) const {
  const auto* gpu = dynamic_cast<const StreamDevice*>(&other);
  if (gpu == nullptr || gpu == this) return Device::AccessTo(other);
  const auto place = [](const Context& context) {
    return PeerPlace{context.driver().peers(), context.device()};
  };
  return place(*context_).AccessTo(place(*gpu->context_));
}

absl::StatusOr<std::shared_ptr<Memory>> StreamDevice::Alloc(int64_t size) {
  return memories_->Alloc(MemoryKind::kDevice, size);
}

absl::StatusOr<std::shared_ptr<Memory>> StreamDevice::AllocOf(MemoryKind kind, int64_t size) {
  if (kind == MemoryKind::kImported || !Makes(kind)) {
    return Unimplemented(name(), " makes no memory of kind ", NameOf(kind));
  }
  return kind == MemoryKind::kPinnedHost ? memories_->AllocPinned(size)
                                         : memories_->Alloc(kind, size);
}

std::shared_ptr<Memory> StreamDevice::LendPinned(int64_t size) {
  return Makes(MemoryKind::kPinnedHost) ? pinned_->Take(size) : nullptr;
}

absl::StatusOr<std::shared_ptr<Memory>> StreamDevice::LockHost(std::shared_ptr<void> pages,
                                                               int64_t size) {
  if (!Makes(MemoryKind::kPinnedHost)) return Unimplemented(name(), " locks no memory of the host");
  return PinnedMemory::LockAt(context_, std::move(pages), size);
}

absl::StatusOr<std::shared_ptr<Memory>> StreamDevice::ImportHandle(std::string_view handle,
                                                                   int64_t size) {
  return memories_->Import(handle, size);
}

// Where the driver has no memory for the code, what is kept of ours may be what it lacks.
absl::StatusOr<std::shared_ptr<LoadedProgram>> StreamDevice::Load(const ProgramImage& image) {
  TG_RETURN_IF_ERROR(context_->health());
  const int64_t bytes = context_->driver().CodeBytes(image);
  TG_ASSIGN_OR_RETURN(const auto code, memories_->HoldCode(bytes));
  const auto load = [&] {
    return StreamProgram::Load(context_, image, description_.target.local_bytes, code,
                               unloader_.unloads());
  };
  auto loaded = load();
  if (absl::IsResourceExhausted(loaded.status())) {
    TG_RETURN_IF_ERROR(memories_->GiveBackKept());
    loaded = load();
  }
  if (absl::IsResourceExhausted(loaded.status())) {
    return memories_->OthersTookIt(loaded.status(), bytes);
  }
  TG_ASSIGN_OR_RETURN(auto program, std::move(loaded));
  TG_RETURN_IF_ERROR(memories_->HoldStacks(program->stack_bytes(), description_.resident_threads));
  return program;
}

absl::StatusOr<std::shared_ptr<const CommandBuffer>> StreamDevice::Encode(
    std::vector<Command> commands) {
  return StreamCommandBuffer::Encode(std::move(commands), context_, description_.rates);
}

}  // namespace telegrad::stream
