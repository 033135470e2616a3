#include "tests/bench/gpu_runner.h"

#include <algorithm>
#include <cstring>

#include "devices/cpu/cpu_device.h"
#include "devices/cuda/cuda_device.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/ir/content_hash.h"
#include "tests/bench/timing.h"

namespace telegrad::bench {
namespace {

uint16_t ToBFloat16(float value) {  // of a value that is one
  uint32_t word;
  std::memcpy(&word, &value, 4);
  return static_cast<uint16_t>(word >> 16);
}

float FromBFloat16(uint16_t word) {
  const uint32_t wide = uint32_t{word} << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuRunner>> GpuRunner::Open(const std::string& library,
                                                           Repeats repeats) {
  std::unique_ptr<GpuRunner> runner(new GpuRunner(repeats));
  std::vector<std::string> notes;
  auto devices = OpenCudas({.library = library, .devices = 1}, &notes);
  if (devices.empty()) return NotFound(notes.empty() ? "no NVIDIA GPU" : notes[0]);
  runner->gpu_ = std::move(devices[0]);
  TG_ASSIGN_OR_RETURN(runner->host_, OpenCpu({.threads = 1, .target = HostTarget(1)}));
  return runner;
}

absl::StatusOr<double> GpuRunner::Time(const Submit& submit) const {
  double best = 1e30;
  for (int round = 0; round <= repeats_.rounds; ++round) {  // the first warms up
    const double start = Seconds();
    TimelinePoint last;
    for (int run = 0; run < repeats_.runs; ++run) {
      TG_ASSIGN_OR_RETURN(last, submit());
    }
    TG_RETURN_IF_ERROR(last.Wait());
    if (round > 0) best = std::min(best, (Seconds() - start) / repeats_.runs);
  }
  return best;
}

absl::StatusOr<BufferView> GpuRunner::Buffer(Device& device, int64_t bytes) const {
  TG_ASSIGN_OR_RETURN(auto memory, device.Alloc(std::max<int64_t>(bytes, 1)));
  return BufferView{std::move(memory), 0, bytes};
}

absl::StatusOr<std::shared_ptr<const CommandBuffer>> GpuRunner::CopyCommand(int64_t bytes) const {
  Command copy;
  copy.kind = Command::Kind::kCopy;
  copy.copy = {.to = {0, 0}, .from = {1, 0}, .length = bytes};
  return gpu_->Encode({copy});
}

absl::Status GpuRunner::Transfer(const BufferView& to, const BufferView& from,
                                 int64_t bytes) const {
  TG_ASSIGN_OR_RETURN(const auto commands, CopyCommand(bytes));
  TG_ASSIGN_OR_RETURN(const auto done,
                      gpu_->queue(QueueKind::kCopy).Submit(commands, {to, from}, {}));
  return done.Wait();
}

absl::StatusOr<std::shared_ptr<const Executable>> GpuRunner::Compile(
    const Plan& plan, Device& device, std::span<const VarValue> variables) {
  Budget budget({.nodes = INT64_MAX, .rewrites = INT64_MAX, .kernels = INT64_MAX});
  TG_ASSIGN_OR_RETURN(const auto made, cache_.Get(ContentHash(plan.graph.root()), plan.graph,
                                                  device, &budget, variables));
  return made.executable;
}

absl::StatusOr<std::vector<BufferView>> GpuRunner::Bind(
    const Plan& plan, Device& device, const std::function<float(int64_t)>& value) const {
  std::vector<BufferView> buffers;
  for (const Slot& slot : plan.slots) {
    const int64_t count = NumElements(slot.shape), bytes = BytesOf(slot.dtype, count);
    TG_ASSIGN_OR_RETURN(buffers.emplace_back(), Buffer(device, bytes));
    if (slot.role == SlotRole::kOutput) continue;
    BufferView staged = buffers.back();
    if (&device != host_.get()) {
      TG_ASSIGN_OR_RETURN(staged, Buffer(*host_, bytes));
    }
    auto* const at = static_cast<std::byte*>(staged.memory->host());
    if (!IsFloat(slot.dtype)) std::memset(at, 0, static_cast<size_t>(bytes));
    for (int64_t i = 0; i < count && IsFloat(slot.dtype); ++i) {
      const float number = value(i);
      if (slot.dtype == DType::kBFloat16) {
        const uint16_t word = ToBFloat16(number);
        std::memcpy(at + i * 2, &word, 2);
      } else if (slot.dtype == DType::kFloat32) {
        std::memcpy(at + i * 4, &number, 4);
      } else {
        return Internal("slot ", slot.name, " is of ", Name(slot.dtype));
      }
    }
    if (&device != host_.get()) TG_RETURN_IF_ERROR(Transfer(buffers.back(), staged, bytes));
  }
  return buffers;
}

absl::StatusOr<std::vector<float>> GpuRunner::Read(const BufferView& buffer, DType dtype,
                                                   int64_t elements) const {
  const int64_t bytes = BytesOf(dtype, elements);
  BufferView staged = buffer;
  if (buffer.memory->host() == nullptr) {
    TG_ASSIGN_OR_RETURN(staged, Buffer(*host_, bytes));
    TG_RETURN_IF_ERROR(Transfer(staged, buffer, bytes));
  }
  const auto* const at = static_cast<const std::byte*>(staged.memory->host());
  std::vector<float> values(static_cast<size_t>(elements));
  for (int64_t i = 0; i < elements; ++i) {
    float& value = values[static_cast<size_t>(i)];
    if (dtype == DType::kBFloat16) {
      uint16_t word;
      std::memcpy(&word, at + i * 2, 2);
      value = FromBFloat16(word);
    } else {
      std::memcpy(&value, at + i * 4, 4);
    }
  }
  return values;
}

}  // namespace telegrad::bench
