// The resource manager's objects of one GPU, from the control file to the context share: one
// function each, in the order of their dependencies. The probe runs them as steps, the device
// all at once. Each returns a few words on what it found.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "devices/nv/rm_client.h"

namespace telegrad::nv {

class GpuObjects {
 public:
  using Found = absl::StatusOr<std::string>;

  // What is done with a driver of another branch.
  enum class OtherBranch : uint8_t { kRefuse, kOfferForce, kForce };

  // `number`: by the driver's order.
  GpuObjects(hcq::SysOps& system, int number, OtherBranch other_branch)
      : rm_(system), number_(number), other_branch_(other_branch) {}

  Found OpenControl();
  Found OpenUvm();
  Found MakeRoot();
  Found CheckVersion();
  Found ChooseCard();
  Found OpenDevice();
  Found GetIdInfo();
  Found MakeDevice();
  Found MakeSubdevice();
  Found CheckClasses();
  Found MapDoorbell();
  Found MakeVaSpace();
  Found InitializeUvm();
  Found RegisterGpu();
  Found RegisterVaSpace();
  Found MakeChannelGroup();
  Found MakeContextShare();

  RmClient& rm() { return rm_; }
  bool refused() const { return refused_; }
  bool no_card() const { return no_card_; }

  int uvm() const { return uvm_; }
  int device_fd() const { return device_fd_; }
  uint32_t minor() const { return minor_; }
  Handle device() const { return device_; }
  Handle subdevice() const { return subdevice_; }
  Handle group() const { return group_; }
  Handle context_share() const { return context_share_; }
  const Uuid& uuid() const { return uuid_; }
  volatile uint32_t* doorbell() const { return doorbell_; }

 protected:
  RmClient rm_;
  const int number_;
  const OtherBranch other_branch_;
  bool refused_ = false, no_card_ = false;
  int uvm_ = -1, device_fd_ = -1;
  uint32_t gpu_id_ = 0, minor_ = 0, device_instance_ = 0;
  Handle device_ = 0, subdevice_ = 0, va_space_ = 0, group_ = 0, context_share_ = 0;
  Uuid uuid_{};
  volatile uint32_t* doorbell_ = nullptr;
};

}  // namespace telegrad::nv
