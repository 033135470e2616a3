// Memory, channels, and the first work on them: a semaphore, a copy and a kernel. What the channels
// read lies in video memory, what the host waits for and compares in its own.
#include "absl/strings/str_format.h"
#include "devices/nv/bring_up.h"
#include "devices/nv/methods.h"
#include "devices/nv/qmd.h"
#include "devices/nv/store_42.h"
#include "devices/nv/work.h"
#include "engine/base/status.h"

namespace telegrad::nv {
namespace {

// The video memory: rings with the channels' control blocks behind them, pushbuffer, program, QMD,
// constant bank, and what the copy reads.
constexpr size_t kVideoBytes = 2 << 20;
constexpr uint32_t kRingEntries = 1024;
constexpr size_t kComputeRing = 0x00000, kComputeUserd = kComputeRing + kRingEntries * 8;
constexpr size_t kCopyRing = 0x10000, kCopyUserd = kCopyRing + kRingEntries * 8;
constexpr size_t kPush = 0x20000, kPushBytes = 0x10000;
constexpr size_t kProgram = 0x30000;  // a page behind it is there to be prefetched
static_assert(kPush + kPushBytes <= kProgram);
constexpr size_t kQmd = 0x40000, kConstants = 0x41000, kCopySource = 0x50000;
constexpr size_t kConstantBytes = 0x240;
static_assert(kStore42ParamBase + kStore42ParamBytes <= kConstantBytes);

// The host's memory: semaphores, what the kernel writes, what the copy writes.
constexpr size_t kSharedBytes = 2 << 20;
constexpr size_t kComputeSemaphore = 0x000, kCopySemaphore = 0x100, kKernelSemaphore = 0x200;
constexpr size_t kKernelOutput = 0x1000, kCopyTarget = 0x10000;
constexpr size_t kCopyBytes = 0x10000;

// Addresses on the GPU: nothing else is in this address space. All below the 40 bits that entries
// and QMDs hold, except the windows, through which a kernel sees its shared and local memory and
// which must be clear of everything.
constexpr uint64_t kVideoAddress = 0x10'0000'0000, kSharedAddress = 0x10'1000'0000;
constexpr uint64_t kComputeResources = 0x11'0000'0000, kCopyResources = 0x11'1000'0000;
static_assert(kVideoAddress + kVideoBytes < kPushAddressLimit);

uint32_t CopyWord(size_t i) { return static_cast<uint32_t>(i * 2654435761u + 1); }

}  // namespace

BringUp::Found BringUp::MakeVideoMemory() {
  TG_ASSIGN_OR_RETURN(video_, MakeVideo(rm_, *this, kVideoBytes, /*mapped=*/true));
  video_.address = kVideoAddress;
  // Rings and control blocks start at zero; a page of the GPU's is not zeroed for us.
  for (size_t i = 0; i < kCopySource; i += 4) video_.Store<uint32_t>(i, 0);
  return StrCat(kVideoBytes >> 20, " MiB, mapped");
}

BringUp::Found BringUp::MakeHostMemory() {
  TG_ASSIGN_OR_RETURN(shared_, MakePinned(rm_, *this, kSharedBytes));
  shared_.address = kSharedAddress;
  return StrCat(kSharedBytes >> 20, " MiB, pinned");
}

BringUp::Found BringUp::MakeNotifier() {
  TG_ASSIGN_OR_RETURN(notifier_, nv::MakeNotifier(rm_, *this, kNotifierBytes));
  return "";
}

BringUp::Found BringUp::MapInRm() {
  MemoryVirtualParams params{};
  params.limit = 0x1ffffffffffff;
  TG_ASSIGN_OR_RETURN(const Handle dma, rm_.Alloc(device_, kMemoryVirtual, params));
  TG_RETURN_IF_ERROR(rm_.MapDma(device_, dma, video_.handle, video_.address, kVideoBytes));
  TG_RETURN_IF_ERROR(rm_.MapDma(device_, dma, shared_.handle, shared_.address, kSharedBytes));
  return "";
}

BringUp::Found BringUp::MapInUvm() {
  TG_RETURN_IF_ERROR(MapExternal(rm_, *this, video_));
  TG_RETURN_IF_ERROR(MapExternal(rm_, *this, shared_));
  return absl::StrFormat("at %#x and %#x", video_.address, shared_.address);
}

BringUp::Found BringUp::MakeChannels() {
  channels_ = {
      Channel{"compute", kHopperCompute, kComputeRing, kComputeUserd, kComputeResources},
      Channel{"copy", kHopperCopy, kCopyRing, kCopyUserd, kCopyResources},
  };
  for (Channel& channel : channels_) {
    TG_ASSIGN_OR_RETURN(channel.handle, MakeChannel(rm_, *this, video_, notifier_, channel.ring,
                                                    channel.userd, kRingEntries));
  }
  return StrCat("one for compute, one for copies, ", kRingEntries, " entries each");
}

BringUp::Found BringUp::MakeEngines() {
  for (const Channel& channel : channels_) {
    TG_RETURN_IF_ERROR(rm_.Alloc(channel.handle, channel.engine_class).status());
  }
  return "";
}

BringUp::Found BringUp::GetTokens() {
  for (Channel& channel : channels_) {
    TokenParams params{.token = ~0u};
    TG_RETURN_IF_ERROR(rm_.Control(channel.handle, kGetToken, params));
    channel.token = params.token;
  }
  return absl::StrFormat("%#x and %#x", channels_[0].token, channels_[1].token);
}

BringUp::Found BringUp::RegisterChannels() {
  for (const Channel& channel : channels_) {
    TG_RETURN_IF_ERROR(
        RegisterChannel(rm_, *this, channel.handle, channel.resources, kResourceBytes));
  }
  return "";
}

BringUp::Found BringUp::Schedule() {
  ScheduleParams params{};
  params.enable = 1;
  TG_RETURN_IF_ERROR(rm_.Control(group_, kScheduleGroup, params));
  return "";
}

void BringUp::Submit(Channel& channel, const PushBuffer& push) {
  // The probe's few pushes never wrap, neither here nor in the ring.
  const size_t at = kPush + pushed_;
  video_.StoreWords(at, push.words().data(), push.words().size());
  pushed_ += (push.words().size() * 4 + 255) / 256 * 256;
  video_.Store<uint64_t>(channel.ring + channel.put * 8,
                         RingEntry(video_.address + at, push.words().size()));
  ++channel.put;
  rm_.system().OrderStores();
  video_.Store<uint32_t>(channel.userd + kUserdGpPut, channel.put);
  rm_.system().StoreDoorbell(doorbell_, channel.token);
}

absl::Status BringUp::WaitFor(size_t semaphore, uint64_t value) {
  const int64_t start = rm_.system().Ns();
  while (shared_.Load<uint64_t>(semaphore) != value) {
    if (rm_.system().Ns() - start >= options_.timeout_ns) {
      const uint64_t found = shared_.Load<uint64_t>(semaphore);
      if (found == value) break;
      const std::string what =
          StrCat("the semaphore holds ", found, " where ", value, " is waited for, after ",
                 options_.timeout_ns / 1'000'000, " ms; the channel's error notifier ");
      const uint16_t status = notifier_.Load<uint16_t>(offsetof(Notification, status));
      if (status == 0) return absl::DeadlineExceededError(StrCat(what, "is silent"));
      return absl::DeadlineExceededError(
          StrCat(what, "says Xid ", notifier_.Load<uint32_t>(offsetof(Notification, info32))));
    }
    rm_.system().Pause();
  }
  return absl::OkStatus();
}

BringUp::Found BringUp::ReleaseSemaphore() {
  PushBuffer push;
  push.Push(kSubCompute, kSetObject, {kHopperCompute});
  push.Push(kSubCompute, kSetLocalWindow, {High(kLocalWindow), Low(kLocalWindow)});
  push.Push(kSubCompute, kSetSharedWindow, {High(kSharedWindow), Low(kSharedWindow)});
  push.Release(shared_.address + kComputeSemaphore, 1);
  Submit(channels_[0], push);
  TG_RETURN_IF_ERROR(WaitFor(kComputeSemaphore, 1));
  return absl::StrFormat("GPU time %d ns", shared_.Load<uint64_t>(kComputeSemaphore + 8));
}

BringUp::Found BringUp::Copy() {
  for (size_t i = 0; i < kCopyBytes / 4; ++i) {
    video_.Store<uint32_t>(kCopySource + i * 4, CopyWord(i));
  }
  const uint64_t from = video_.address + kCopySource, to = shared_.address + kCopyTarget;
  const uint64_t semaphore = shared_.address + kCopySemaphore;
  PushBuffer push;
  push.Push(kSubCopy, kSetObject, {kHopperCopy});
  push.Push(kSubCopy, kOffsetInUpper, {High(from), Low(from), High(to), Low(to)});
  push.Push(kSubCopy, kLineLengthIn, {kCopyBytes});
  push.Push(kSubCopy, kLaunchDma, {kDmaNonPipelined | kDmaPitch});
  push.Push(kSubCopy, kSetSemaphoreA, {High(semaphore), Low(semaphore), 1});
  push.Push(kSubCopy, kLaunchDma, {kDmaFlush | kDmaReleaseTimestamp});
  Submit(channels_[1], push);
  TG_RETURN_IF_ERROR(WaitFor(kCopySemaphore, 1));
  for (size_t i = 0; i < kCopyBytes / 4; ++i) {
    const uint32_t word = shared_.Load<uint32_t>(kCopyTarget + i * 4);
    if (word != CopyWord(i)) {
      return absl::DataLossError(
          absl::StrFormat("word %d of the copy is %#x where %#x was copied", i, word, CopyWord(i)));
    }
  }
  return StrCat(kCopyBytes, " bytes from video memory to the host's");
}

BringUp::Found BringUp::RunKernel() {
  video_.StoreWords(kProgram, kStore42Code, std::size(kStore42Code));
  // The constant bank 0 of a kernel: the driver's words, then the parameters. This kernel loads the
  // stack's address and a descriptor word, which must be 0, and its one parameter.
  constexpr size_t kWindows = 0x18, kStack = 0x28;
  constexpr uint64_t kStackTop = 0xfffdc0;
  video_.Store<uint64_t>(kConstants + kWindows, kSharedWindow);
  video_.Store<uint64_t>(kConstants + kWindows + 8, kLocalWindow);
  video_.Store<uint64_t>(kConstants + kStack, kStackTop);
  video_.Store<uint64_t>(kConstants + kStore42ParamBase, shared_.address + kKernelOutput);

  Qmd qmd = QmdOf({.program = video_.address + kProgram,
                   .constants = video_.address + kConstants,
                   .constant_bytes = kConstantBytes,
                   .registers = kStore42Registers,
                   .shared_bytes = 1024});
  const uint64_t semaphore = shared_.address + kKernelSemaphore;
  const std::pair<QmdField, uint32_t> release[] = {
      {QmdField::kRelease0Enable, 1},
      {QmdField::kRelease0StructureSize, 0},  // four words: value and time
      {QmdField::kRelease0MembarType, kReleaseMembarSystem},
      {QmdField::kRelease0Payload64, 1},
      {QmdField::kRelease0AddressLow, Low(semaphore)},
      {QmdField::kRelease0AddressHigh, High(semaphore)},
      {QmdField::kRelease0PayloadLow, 1},
  };
  for (const auto& [field, value] : release) qmd.Set(field, value);
  video_.StoreWords(kQmd, qmd.words().data(), qmd.words().size());

  PushBuffer push;
  push.Push(kSubCompute, kInvalidateCaches, {kInvalidateAll});
  push.Push(kSubCompute, kSendPcasA, {Low((video_.address + kQmd) >> 8)});
  push.Push(kSubCompute, kSendSignalingPcas2B, {kPcasPrefetchSchedule});
  Submit(channels_[0], push);
  TG_RETURN_IF_ERROR(WaitFor(kKernelSemaphore, 1));
  const uint32_t written = shared_.Load<uint32_t>(kKernelOutput);
  if (written != kStore42Value) {
    return absl::DataLossError(
        StrCat("the kernel ended, and left ", written, " where it writes ", kStore42Value));
  }
  return StrCat("wrote ", written);
}

}  // namespace telegrad::nv
