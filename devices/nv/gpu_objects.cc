// The calls of the resource manager that make each object, and the checks of what they return.
#include "devices/nv/gpu_objects.h"

#include <cstring>
#include <set>

#include "absl/strings/str_format.h"
#include "engine/base/status.h"

namespace telegrad::nv {
namespace {

std::string Named(std::string_view name, uint32_t value) {
  return StrCat(name, " ", absl::StrFormat("%#x", value));
}

// A string in a field of the driver's, which may fill it.
template <size_t n>
std::string Text(const char (&field)[n]) {
  return std::string(field, strnlen(field, n));
}

}  // namespace

GpuObjects::Found GpuObjects::OpenControl() {
  TG_RETURN_IF_ERROR(rm_.OpenControl());
  return "";
}

GpuObjects::Found GpuObjects::OpenUvm() {
  TG_ASSIGN_OR_RETURN(uvm_, rm_.Open("/dev/nvidia-uvm"));
  return "";
}

GpuObjects::Found GpuObjects::MakeRoot() {
  TG_RETURN_IF_ERROR(rm_.MakeRoot());
  return Named("handle", rm_.root());
}

GpuObjects::Found GpuObjects::CheckVersion() {
  BuildVersion version{};
  TG_RETURN_IF_ERROR(rm_.Control(rm_.root(), kGetBuildVersion, version));
  const std::string driver = Text(version.driver);
  const size_t digits = driver.find_first_not_of("0123456789");
  const std::string branch = driver.substr(0, digits);
  if (branch != StrCat(kDriverBranch)) {
    const std::string what =
        StrCat("driver ", driver, ", and the structs known here are those of ", kDriverBranch);
    if (other_branch_ != OtherBranch::kForce) {
      refused_ = true;
      return FailedPrecondition(
          what, ": refused", other_branch_ == OtherBranch::kOfferForce ? " (--force goes on)" : "");
    }
    return StrCat(what, "; going on by --force");
  }
  return StrCat("driver ", driver);
}

GpuObjects::Found GpuObjects::ChooseCard() {
  TG_ASSIGN_OR_RETURN(const std::vector<CardInfo> cards, rm_.Cards());
  no_card_ = cards.empty();
  if (no_card_) return NotFound("the driver has no GPU");
  if (number_ < 0 || number_ >= static_cast<int>(cards.size())) {
    return InvalidArgument("there is no GPU ", number_, ": the driver has ", cards.size());
  }
  const CardInfo& card = cards[number_];
  gpu_id_ = card.gpu_id;
  minor_ = card.minor;
  return absl::StrFormat("%04x:%02x:%02x.%x, device %04x:%04x, minor %d", card.domain, card.bus,
                         card.slot, card.function, card.vendor_id, card.device_id, card.minor);
}

GpuObjects::Found GpuObjects::OpenDevice() {
  TG_ASSIGN_OR_RETURN(device_fd_, rm_.OpenDevice(minor_));
  return StrCat("/dev/nvidia", minor_);
}

GpuObjects::Found GpuObjects::GetIdInfo() {
  IdInfo info{};
  info.gpu_id = gpu_id_;
  TG_RETURN_IF_ERROR(rm_.Control(rm_.root(), kGetIdInfo, info));
  device_instance_ = info.device_instance;
  return StrCat("device instance ", device_instance_);
}

GpuObjects::Found GpuObjects::MakeDevice() {
  DeviceParams params{};
  params.device = device_instance_;
  params.client_share = rm_.root();
  TG_ASSIGN_OR_RETURN(device_, rm_.Alloc(rm_.root(), kDevice, params));
  return Named("handle", device_);
}

GpuObjects::Found GpuObjects::MakeSubdevice() {
  TG_ASSIGN_OR_RETURN(subdevice_, rm_.Alloc(device_, kSubdevice, SubdeviceParams{}));
  NameParams name{};
  TG_RETURN_IF_ERROR(rm_.Control(subdevice_, kGetName, name));
  return Text(name.name);
}

GpuObjects::Found GpuObjects::CheckClasses() {
  ClassList list{};
  TG_RETURN_IF_ERROR(rm_.Control(device_, kGetClassList, list));
  const uint32_t count = std::min<uint32_t>(list.count, std::size(list.classes));
  const std::set<uint32_t> classes(list.classes, list.classes + count);
  for (const uint32_t needed : {kHopperUsermode, kHopperGpfifo, kHopperCompute, kHopperCopy}) {
    if (!classes.count(needed)) {
      return FailedPrecondition("the GPU has no class ", absl::StrFormat("%#x", needed),
                                ": not a Hopper (H100, H200)");
    }
  }
  return StrCat(count, " classes, Hopper's are there");
}

GpuObjects::Found GpuObjects::MapDoorbell() {
  TG_ASSIGN_OR_RETURN(const Handle usermode,
                      rm_.Alloc(subdevice_, kHopperUsermode, UsermodeParams{}));
  TG_ASSIGN_OR_RETURN(const int fd, rm_.OpenDevice(minor_));
  TG_ASSIGN_OR_RETURN(std::byte* const page, rm_.MapObject(device_, usermode, fd, kUsermodeBytes));
  doorbell_ = reinterpret_cast<volatile uint32_t*>(page + kUsermodeDoorbell);
  return Named("doorbell at", kUsermodeDoorbell);
}

GpuObjects::Found GpuObjects::MakeVaSpace() {
  VaSpaceParams params{};
  params.va_base = 0x1000;
  params.va_bytes = 0x1fffffb000000;
  params.flags = kVaSpacePageFaulting | kVaSpaceExternallyOwned;
  TG_ASSIGN_OR_RETURN(va_space_, rm_.Alloc(device_, kVaSpace, params));
  return Named("handle", va_space_);
}

GpuObjects::Found GpuObjects::InitializeUvm() {
  UvmInitializeParams params{};
  TG_RETURN_IF_ERROR(rm_.Uvm(uvm_, "UVM_INITIALIZE", kUvmInitialize, params));
  // The second file ties the address space to this process; the driver may do without.
  TG_ASSIGN_OR_RETURN(const int second, rm_.Open("/dev/nvidia-uvm"));
  UvmMmInitializeParams mm{.uvm_fd = uvm_, .status = 0};
  const absl::Status tied = rm_.Uvm(second, "UVM_MM_INITIALIZE", kUvmMmInitialize, mm);
  return tied.ok() ? "" : StrCat("goes on without ", ToStd(tied.message()));
}

GpuObjects::Found GpuObjects::RegisterGpu() {
  GidParams gid{};
  gid.flags = kGidBinary;
  gid.length = uuid_.size();
  TG_RETURN_IF_ERROR(rm_.Control(subdevice_, kGetGid, gid));
  std::memcpy(uuid_.data(), gid.data, uuid_.size());
  UvmRegisterGpuParams params{};
  params.gpu = uuid_;
  params.rm_fd = -1;
  TG_RETURN_IF_ERROR(rm_.Uvm(uvm_, "UVM_REGISTER_GPU", kUvmRegisterGpu, params));
  rm_.OnRelease("GPU registered with UVM", [this] {
    UvmUnregisterGpuParams undo{.gpu = uuid_, .status = 0};
    return rm_.Uvm(uvm_, "UVM_UNREGISTER_GPU", kUvmUnregisterGpu, undo);
  });
  std::string text = "GPU-";
  for (const uint8_t byte : uuid_) absl::StrAppendFormat(&text, "%02x", byte);
  return text;
}

GpuObjects::Found GpuObjects::RegisterVaSpace() {
  UvmRegisterVaSpaceParams params{};
  params.gpu = uuid_;
  params.rm_fd = rm_.control();
  params.client = rm_.root();
  params.va_space = va_space_;
  constexpr std::string_view kCall = "UVM_REGISTER_GPU_VASPACE";
  TG_RETURN_IF_ERROR(rm_.Uvm(uvm_, kCall, kUvmRegisterGpuVaSpace, params));
  rm_.OnRelease("address space registered with UVM", [this] {
    UvmUnregisterGpuParams undo{.gpu = uuid_, .status = 0};
    return rm_.Uvm(uvm_, "UVM_UNREGISTER_GPU_VASPACE", kUvmUnregisterGpuVaSpace, undo);
  });
  return "";
}

GpuObjects::Found GpuObjects::MakeChannelGroup() {
  ChannelGroupParams params{};
  params.engine = kEngineGraphics;
  TG_ASSIGN_OR_RETURN(group_, rm_.Alloc(device_, kChannelGroup, params));
  return Named("handle", group_);
}

GpuObjects::Found GpuObjects::MakeContextShare() {
  ContextShareParams params{};
  params.va_space = va_space_;
  params.flags = kSubcontextAsync;
  TG_ASSIGN_OR_RETURN(context_share_, rm_.Alloc(group_, kContextShare, params));
  return Named("handle", context_share_);
}

}  // namespace telegrad::nv
