// The table of steps, what each needs, and the walk over it.
#include "devices/nv/probe.h"

#include <initializer_list>

#include "absl/strings/str_format.h"
#include "devices/nv/bring_up.h"
#include "engine/base/status.h"

namespace telegrad::nv {
namespace {

enum class Id : uint8_t {
  kControl,
  kUvmFile,
  kRoot,
  kVersion,
  kCard,
  kDeviceFile,
  kIdInfo,
  kDevice,
  kSubdevice,
  kClasses,
  kDoorbell,
  kVaSpace,
  kUvm,
  kUvmGpu,
  kUvmVaSpace,
  kGroup,
  kContext,
  kVideo,
  kHost,
  kNotifier,
  kDma,
  kMapped,
  kChannels,
  kEngines,
  kTokens,
  kUvmChannels,
  kScheduled,
  kSemaphore,
  kCopy,
  kKernel,
};

constexpr uint64_t Needs(std::initializer_list<Id> ids) {
  uint64_t needs = 0;
  for (const Id id : ids) needs |= uint64_t{1} << static_cast<int>(id);
  return needs;
}

struct StepRow {
  Id id;
  std::string_view name;
  uint64_t needs;
  BringUp::Found (BringUp::*run)();
};

constexpr StepRow kSteps[] = {
    {Id::kControl, "open /dev/nvidiactl", 0, &BringUp::OpenControl},
    {Id::kUvmFile, "open /dev/nvidia-uvm", 0, &BringUp::OpenUvm},
    {Id::kRoot, "root client", Needs({Id::kControl}), &BringUp::MakeRoot},
    {Id::kVersion, "driver version", Needs({Id::kRoot}), &BringUp::CheckVersion},
    {Id::kCard, "cards", Needs({Id::kVersion}), &BringUp::ChooseCard},
    {Id::kDeviceFile, "open the GPU's file", Needs({Id::kCard}), &BringUp::OpenDevice},
    {Id::kIdInfo, "GPU id", Needs({Id::kDeviceFile}), &BringUp::GetIdInfo},
    {Id::kDevice, "device", Needs({Id::kIdInfo}), &BringUp::MakeDevice},
    {Id::kSubdevice, "subdevice", Needs({Id::kDevice}), &BringUp::MakeSubdevice},
    {Id::kClasses, "class list", Needs({Id::kDevice}), &BringUp::CheckClasses},
    {Id::kDoorbell, "doorbell mapping", Needs({Id::kSubdevice, Id::kClasses}),
     &BringUp::MapDoorbell},
    {Id::kVaSpace, "address space", Needs({Id::kDevice}), &BringUp::MakeVaSpace},
    {Id::kUvm, "initialize UVM", Needs({Id::kUvmFile, Id::kVersion}), &BringUp::InitializeUvm},
    {Id::kUvmGpu, "register the GPU with UVM", Needs({Id::kUvm, Id::kSubdevice}),
     &BringUp::RegisterGpu},
    {Id::kUvmVaSpace, "register the address space with UVM", Needs({Id::kUvmGpu, Id::kVaSpace}),
     &BringUp::RegisterVaSpace},
    {Id::kGroup, "channel group", Needs({Id::kUvmVaSpace}), &BringUp::MakeChannelGroup},
    {Id::kContext, "context share", Needs({Id::kGroup, Id::kVaSpace}), &BringUp::MakeContextShare},
    {Id::kVideo, "video memory", Needs({Id::kDevice}), &BringUp::MakeVideoMemory},
    {Id::kHost, "the host's memory", Needs({Id::kDevice}), &BringUp::MakeHostMemory},
    {Id::kNotifier, "error notifier", Needs({Id::kDevice}), &BringUp::MakeNotifier},
    {Id::kDma, "map memory in RM", Needs({Id::kVideo, Id::kHost}), &BringUp::MapInRm},
    {Id::kMapped, "map memory in UVM", Needs({Id::kVideo, Id::kHost, Id::kUvmVaSpace}),
     &BringUp::MapInUvm},
    {Id::kChannels, "channels", Needs({Id::kContext, Id::kMapped, Id::kNotifier, Id::kClasses}),
     &BringUp::MakeChannels},
    {Id::kEngines, "compute and copy objects", Needs({Id::kChannels}), &BringUp::MakeEngines},
    {Id::kTokens, "work submit tokens", Needs({Id::kChannels}), &BringUp::GetTokens},
    {Id::kUvmChannels, "register the channels with UVM", Needs({Id::kEngines}),
     &BringUp::RegisterChannels},
    {Id::kScheduled, "schedule", Needs({Id::kUvmChannels}), &BringUp::Schedule},
    {Id::kSemaphore, "doorbell and semaphore release",
     Needs({Id::kScheduled, Id::kTokens, Id::kDoorbell}), &BringUp::ReleaseSemaphore},
    {Id::kCopy, "copy", Needs({Id::kScheduled, Id::kTokens, Id::kDoorbell}), &BringUp::Copy},
    {Id::kKernel, "kernel by QMD", Needs({Id::kSemaphore}), &BringUp::RunKernel},
};

constexpr bool InOrder() {
  for (size_t i = 0; i < std::size(kSteps); ++i) {
    if (static_cast<size_t>(kSteps[i].id) != i || kSteps[i].needs >> i != 0) return false;
  }
  return true;
}
static_assert(InOrder(), "a step's place in the table is its id, and it needs steps before it");

}  // namespace

ProbeReport RunProbe(hcq::SysOps& system, const ProbeOptions& options,
                     const std::function<void(const StepReport&)>& on_step) {
  ProbeReport report;
  BringUp bring_up(system, options);
  int cause[std::size(kSteps)] = {};  // of a step that is not done: the number of that which failed
  for (size_t i = 0; i < std::size(kSteps); ++i) {
    const StepRow& step = kSteps[i];
    StepReport line{static_cast<int>(i) + 1, step.name, StepResult::kOk, ""};
    for (size_t needed = 0; needed < i && cause[i] == 0; ++needed) {
      if (step.needs >> needed & 1) cause[i] = cause[needed];
    }
    if (cause[i] != 0) {
      line.result = StepResult::kSkipped;
      line.detail = StrCat("because of step ", cause[i]);
    } else if (BringUp::Found found = (bring_up.*step.run)(); found.ok()) {
      line.detail = *std::move(found);
    } else {
      cause[i] = line.number;
      line.result = StepResult::kFailed;
      line.detail = std::string(found.status().message());
      if (step.id == Id::kControl && absl::IsNotFound(found.status())) {
        report.no_device = "no NVIDIA kernel driver: /dev/nvidiactl is not there";
      } else if (bring_up.no_card()) {
        report.no_device = "no NVIDIA GPU: the driver is there and has none";
      }
    }
    if (!report.no_device.empty()) break;
    report.steps.push_back(line);
    if (on_step) on_step(line);
  }
  report.refused = bring_up.refused();
  report.left = bring_up.rm().Release();
  return report;
}

std::string StepLine(const StepReport& step) {
  constexpr const char* kWords[] = {"ok", "FAILED", "skipped"};
  return absl::StrFormat("[%2d/%d] %-8s %s%s%s", step.number, std::size(kSteps),
                         kWords[static_cast<int>(step.result)], std::string(step.name),
                         step.detail.empty() ? "" : ": ", step.detail);
}

ProbeExit ExitCode(const ProbeReport& report) {
  if (!report.left.empty()) return kProbeLeft;
  if (report.refused) return kProbeRefused;
  if (!report.no_device.empty()) return kProbeDone;
  for (const StepReport& step : report.steps) {
    if (step.result == StepResult::kFailed) return kProbeFailed;
  }
  return kProbeDone;
}

}  // namespace telegrad::nv
