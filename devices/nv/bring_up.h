// The steps of the probe: one function each, in the order of the bring-up, and what they hand on to
// each other. Each returns a few words on what it found.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/nv/probe.h"
#include "devices/nv/pushbuffer.h"
#include "devices/nv/rm_client.h"

namespace telegrad::nv {

class BringUp {
 public:
  using Found = absl::StatusOr<std::string>;

  BringUp(hcq::SysOps& system, const ProbeOptions& options) : rm_(system), options_(options) {}

  // Objects of the resource manager (bring_up_objects.cc).
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

  RmClient& rm() { return rm_; }
  bool refused() const { return refused_; }
  bool no_card() const { return no_card_; }

 private:
  // Memory that both sides see, at an address of its own on each.
  struct Region {
    Handle handle = 0;
    std::byte* host = nullptr;
    uint64_t address = 0;  // the GPU's

    template <typename T>
    void Store(size_t offset, T value) const {
      *reinterpret_cast<volatile T*>(host + offset) = value;
    }
    template <typename T>
    T Load(size_t offset) const {
      return *reinterpret_cast<const volatile T*>(host + offset);
    }
    void StoreWords(size_t offset, const uint32_t* words, size_t count) const {
      for (size_t i = 0; i < count; ++i) Store(offset + i * 4, words[i]);
    }
  };
  struct Channel {
    std::string_view name;
    uint32_t engine_class;  // of the object that it feeds
    size_t ring, userd;     // offsets into the video memory
    uint64_t resources;     // where the driver may map its own memory for the channel
    Handle handle = 0;
    uint32_t token = 0, put = 0;
  };

  absl::Status MapExternal(const Region& region, size_t bytes);
  void Submit(Channel& channel, const PushBuffer& push);
  // Until a semaphore holds `value`, or the deadline.
  absl::Status WaitFor(size_t semaphore, uint64_t value);

  RmClient rm_;
  ProbeOptions options_;
  bool refused_ = false, no_card_ = false;
  int uvm_ = -1, device_fd_ = -1;
  uint32_t gpu_id_ = 0, minor_ = 0, device_instance_ = 0;
  Handle device_ = 0, subdevice_ = 0, va_space_ = 0, group_ = 0, context_share_ = 0;
  Uuid uuid_{};
  volatile uint32_t* doorbell_ = nullptr;
  Region video_, shared_, notifier_;
  size_t pushed_ = 0;  // bytes of the pushbuffer that are taken
  std::array<Channel, 2> channels_;
};

}  // namespace telegrad::nv
