// The methods of the copy engine, and for launches the queue meta data and constant bank 0 with
// the words that the compiler expects there.
#include "devices/nv/work.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "devices/nv/abi_580.h"
#include "devices/nv/methods.h"
#include "devices/nv/qmd.h"

namespace telegrad::nv {
namespace {

constexpr size_t kBankOffset = 512;  // behind the queue meta data
// Words of constant bank 0 that the driver fills: the sizes of a workgroup and of the grid, the
// windows, and where a stack ends. The compiler reads them by these offsets.
constexpr size_t kThreadsAt = 0x00, kGroupsAt = 0x0C, kWindowsAt = 0x18, kStackAt = 0x28;
constexpr uint64_t kStackTop = 0xfffdc0;

constexpr uint64_t kMostCopied = uint64_t{1} << 30;  // by one transfer; LINE_LENGTH_IN has 32 bits

size_t BankBytes(const CubinKernel& kernel) {
  return (kernel.parameter_base + kernel.parameter_bytes + 255) / 256 * 256;
}

void Store(const Block& at, size_t offset, uint32_t value) {
  std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(at.host + offset))
      .store(value, std::memory_order_relaxed);
}
void Store64(const Block& at, size_t offset, uint64_t value) {
  Store(at, offset, Low(value));
  Store(at, offset + 4, High(value));
}

Qmd LaunchData(const GridLaunch& launch, uint64_t bank) {
  const CubinKernel& kernel = launch.function->kernel;
  const uint64_t image = launch.function->image;
  Qmd qmd = QmdOf({
      .program = image + kernel.code,
      .constants = bank,
      .constant_bytes = static_cast<uint32_t>(BankBytes(kernel)),
      .registers = kernel.registers,
      .barriers = kernel.barriers,
      .shared_bytes = (kernel.shared_bytes + launch.shared_bytes + 127) / 128 * 128,
      .stack_bytes = (kernel.stack_bytes + 15) / 16 * 16,
      .grid = launch.grid,
      .group = launch.group,
  });
  if (kernel.constants4_bytes > 0) {
    const uint64_t bank4 = (image + kernel.constants4) >> 6;
    qmd.Set(QmdField::kConstantBuffer4Valid, 1);
    qmd.Set(QmdField::kConstantBuffer4Invalidate, 1);
    qmd.Set(QmdField::kConstantBuffer4Low6, Low(bank4));
    qmd.Set(QmdField::kConstantBuffer4High6, High(bank4));
    qmd.Set(QmdField::kConstantBuffer4Size4,
            static_cast<uint32_t>((kernel.constants4_bytes + 15) >> 4));
  }
  return qmd;
}

// The copy engine's end of a step: its transfers are flushed to memory first.
void EndCopy(PushBuffer& push, const Step& step) {
  push.Push(kSubCopy, kSetSemaphoreA,
            {High(step.address), Low(step.address), Low(step.value), High(step.value)});
  push.Push(kSubCopy, kLaunchDma, {kDmaFlush | kDmaReleaseTimestamp | kDmaPayload64});
  push.Acquire(step.address, step.value);
}

}  // namespace

size_t LaunchDataBytes(const CubinKernel& kernel) { return kBankOffset + BankBytes(kernel); }

void WriteLaunchData(const Block& at, const GridLaunch& launch) {
  const Qmd qmd = LaunchData(launch, at.address + kBankOffset);
  for (size_t i = 0; i < qmd.words().size(); ++i) Store(at, 4 * i, qmd.words()[i]);
  const CubinKernel& kernel = launch.function->kernel;
  for (size_t i = 0; i < BankBytes(kernel); i += 4) Store(at, kBankOffset + i, 0);
  Store64(at, kBankOffset + kWindowsAt, kSharedWindow);
  Store64(at, kBankOffset + kWindowsAt + 8, kLocalWindow);
  Store64(at, kBankOffset + kStackAt, kStackTop);
  for (size_t i = 0; i < 3; ++i) {
    Store(at, kBankOffset + kThreadsAt + 4 * i, launch.group[i]);
    Store(at, kBankOffset + kGroupsAt + 4 * i, launch.grid[i]);
  }
  PatchLaunchData(at, launch);
}

void PatchLaunchData(const Block& at, const GridLaunch& launch) {
  const size_t base = kBankOffset + launch.function->kernel.parameter_base;
  for (size_t i = 0; i < launch.words.size(); ++i) Store64(at, base + 8 * i, launch.words[i]);
}

void PushLaunch(PushBuffer& push, uint64_t data, const Step& step) {
  push.Push(kSubCompute, kInvalidateCaches, {kInvalidateAll});
  push.Push(kSubCompute, kSendPcasA, {Low(data >> 8)});
  push.Push(kSubCompute, kSendSignalingPcas2B, {kPcasPrefetchSchedule});
  push.Release(step.address, step.value);
  push.Acquire(step.address, step.value);
}

void PushCopy(PushBuffer& push, uint64_t to, uint64_t from, uint64_t bytes, const Step& step) {
  for (uint64_t at = 0; at < bytes; at += kMostCopied) {
    const uint64_t in = from + at, out = to + at;
    push.Push(kSubCopy, kOffsetInUpper, {High(in), Low(in), High(out), Low(out)});
    push.Push(kSubCopy, kLineLengthIn, {Low(std::min(bytes - at, kMostCopied))});
    push.Push(kSubCopy, kLaunchDma, {kDmaNonPipelined | kDmaPitch});
  }
  EndCopy(push, step);
}

// A constant instead of what is read: whole words, then the bytes that are left.
void PushFill(PushBuffer& push, uint64_t to, uint8_t value, uint64_t bytes, const Step& step) {
  push.Push(kSubCopy, kSetRemapConstA, {value * 0x01010101u});
  const uint64_t words = to % 4 == 0 ? bytes / 4 : 0;
  const auto fill = [&](uint64_t begin, uint64_t elements, uint64_t size, uint32_t components) {
    if (elements == 0) return;
    push.Push(kSubCopy, kSetRemapComponents, {kRemapXConstA | components});
    for (uint64_t at = 0; at < elements; at += kMostCopied) {
      const uint64_t out = begin + at * size;
      push.Push(kSubCopy, kOffsetInUpper, {High(out), Low(out), High(out), Low(out)});
      push.Push(kSubCopy, kLineLengthIn, {Low(std::min(elements - at, kMostCopied))});
      push.Push(kSubCopy, kLaunchDma, {kDmaNonPipelined | kDmaPitch | kDmaRemap});
    }
  };
  fill(to, words, 4, kRemapFourBytes);
  fill(to + 4 * words, bytes - 4 * words, 1, 0);
  EndCopy(push, step);
}

void PushSetup(PushBuffer& push) {
  push.Push(kSubCompute, kSetObject, {kHopperCompute});
  push.Push(kSubCopy, kSetObject, {kHopperCopy});
  push.Push(kSubCompute, kSetLocalWindow, {High(kLocalWindow), Low(kLocalWindow)});
  push.Push(kSubCompute, kSetSharedWindow, {High(kSharedWindow), Low(kSharedWindow)});
}

void PushStacks(PushBuffer& push, uint64_t address, uint64_t bytes_per_tpc) {
  push.Push(kSubCompute, kSetLocalMemory, {High(address), Low(address)});
  push.Push(kSubCompute, kSetLocalMemorySize,
            {High(bytes_per_tpc), Low(bytes_per_tpc), kAllProcessors});
}

}  // namespace telegrad::nv
