// The steps of the probe: one function each, in the order of the bring-up, and the objects that
// they pass on. Each returns a few words on what it found.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/nv/gpu_objects.h"
#include "devices/nv/probe.h"
#include "devices/nv/pushbuffer.h"
#include "devices/nv/region.h"

namespace telegrad::nv {

class BringUp : public GpuObjects {
 public:
  BringUp(hcq::SysOps& system, const ProbeOptions& options)
      : GpuObjects(system, options.gpu,
                   options.force ? OtherBranch::kForce : OtherBranch::kOfferForce),
        options_(options) {}

  // Memory, channels and work (bring_up_work.cc).
  Found MakeVideoMemory();
  Found MakeHostMemory();
  Found MakeNotifier();
  Found MapInRm();
  Found MapInUvm();
  Found MakeChannels();
  Found MakeEngines();
  Found GetTokens();
  Found RegisterChannels();
  Found Schedule();
  Found ReleaseSemaphore();
  Found Copy();
  Found RunKernel();

 private:
  struct Channel {
    std::string_view name;
    uint32_t engine_class;  // of the object that it feeds
    size_t ring, userd;     // offsets into the video memory
    uint64_t resources;     // where the driver may map its own memory for the channel
    Handle handle = 0;
    uint32_t token = 0, put = 0;
  };

  void Submit(Channel& channel, const PushBuffer& push);
  // Until a semaphore holds `value`, or the deadline.
  absl::Status WaitFor(size_t semaphore, uint64_t value);

  ProbeOptions options_;
  Region video_, shared_, notifier_;
  size_t pushed_ = 0;  // bytes of the pushbuffer that are taken
  std::array<Channel, 2> channels_;
};

}  // namespace telegrad::nv
