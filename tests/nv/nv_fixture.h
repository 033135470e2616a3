// Devices on the fake kernel driver, and cubins for them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "devices/nv/nv_device.h"
#include "engine/base/status.h"
#include "engine/compile/ptxas.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/devices/fixture.h"
#include "tests/fakes/nv/fake_driver.h"

namespace telegrad {

// Adds 1 to the byte at buffer0[begin + workgroup], each workgroup with one thread.
inline constexpr char kNextSm90[] = R"(.version 8.0
.target sm_90a
.address_size 64

.visible .entry next(.param .u64 buffer0, .param .u64 begin)
.reqntid 1, 1, 1
{
  .reg .u64 %rd<6>;
  .reg .u32 %r<2>;
  .reg .u16 %rs<3>;
  ld.param.u64 %rd1, [buffer0];
  ld.param.u64 %rd2, [begin];
  mov.u32 %r1, %ctaid.x;
  cvt.u64.u32 %rd3, %r1;
  add.u64 %rd4, %rd2, %rd3;
  add.u64 %rd5, %rd1, %rd4;
  ld.global.u8 %rs1, [%rd5];
  add.u16 %rs2, %rs1, 1;
  st.global.u8 [%rd5], %rs2;
  ret;
}
)";

inline const std::string& FakeAssembler() {
  static const std::string features = [] {
    const auto found = FindPtxas(FAKE_PTXAS);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? CubinFeatures(*found) : "";
  }();
  return features;
}

// Of a kernel of one buffer.
inline absl::StatusOr<ProgramImage> CubinOf(const std::string& ptx, const std::string& name) {
  TG_ASSIGN_OR_RETURN(std::string cubin, AssemblePtx(FAKE_PTXAS, ptx, "sm_90a", name));
  return ProgramImage{
      .name = name, .binary = std::move(cubin), .signature = {.parameters = KernelParameters(1)}};
}
inline absl::StatusOr<ProgramImage> NextCubin() {
  static const absl::StatusOr<ProgramImage> image = CubinOf(kNextSm90, "next");
  return image;
}

// Rings so short that every test wraps them.
inline NvOptions FakeNvOptions(hcq::SysOps& system) {
  return {
      .devices = 1,
      .assembler = FakeAssembler(),
      .system = &system,
      .limits = {
          .ring_entries = 16, .words_bytes = 4096, .data_bytes = 16384, .video_chunk = 2 << 20}};
}

// A device with the kernel driver that it runs on.
class FakeNv final {
 public:
  static constexpr int64_t kLimit = 10'000'000;

  explicit FakeNv(std::function<void(NvOptions&)> change = nullptr) {
    driver_.Start();
    options_ = FakeNvOptions(driver_);
    options_.memory_limit = kLimit;
    if (change) change(options_);
    auto devices = OpenNvs(options_, &notes_);
    if (!devices.empty()) device_ = std::move(devices[0]);
  }

  fakes::FakeDriver& driver() { return driver_; }
  Device& device() { return *device_; }
  const std::vector<std::string>& notes() const { return notes_; }
  bool has_device() const { return device_ != nullptr; }
  void CloseDevice() { device_ = nullptr; }

 private:
  fakes::FakeDriver driver_;
  NvOptions options_;
  std::vector<std::string> notes_;
  std::unique_ptr<Device> device_;
};

}  // namespace telegrad
