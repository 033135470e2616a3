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
  TG_ASSIGN_OR_RETURN(std::string cubin, AssemblePtx({FAKE_PTXAS, ""}, ptx, "sm_90a", name));
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

class Nv : public ::testing::Test {
 protected:
  ~Nv() override {
    if (!nv_) return;
    program_ = nullptr;
    nv_->CloseDevice();
    if (leaks_nothing_) {
      EXPECT_THAT(nv_->driver().Live(), ::testing::IsEmpty());
    }
  }
  void Open(std::function<void(NvOptions&)> change = nullptr) {
    nv_ = std::make_unique<FakeNv>(std::move(change));
    ASSERT_TRUE(nv_->has_device()) << (nv_->notes().empty() ? "" : nv_->notes()[0]);
  }
  Device& device() { return nv_->device(); }
  fakes::FakeDriver& driver() { return nv_->driver(); }
  BufferView Buffer(int64_t bytes) {
    auto memory = device().Alloc(bytes);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return Whole(*memory);
  }
  BufferView Host(const std::string& bytes) { return HostBuffer(*host_, bytes); }
  TimelinePoint Copied(const BufferView& to, const BufferView& from,
                       std::vector<TimelinePoint> waits = {}, QueueKind kind = QueueKind::kCopy) {
    const auto point = Copy(device(), to, from, std::move(waits), kind);
    EXPECT_TRUE(point.ok()) << point.status();
    return point.ok() ? *point : TimelinePoint{};
  }
  std::string Read(const BufferView& view) {
    const BufferView out = Host(std::string(static_cast<size_t>(view.length), '?'));
    EXPECT_EQ(Copied(out, view).Wait(), absl::OkStatus());
    return Bytes(out);
  }
  Command Next(int64_t offset = 0) {
    if (program_ == nullptr) {
      auto program = device().Load(*NextCubin());
      EXPECT_TRUE(program.ok()) << program.status();
      program_ = *program;
    }
    Command next;
    next.launch = Launch::Of(program_);
    next.launch.arguments = {{0, offset}};
    return next;
  }
  absl::StatusOr<TimelinePoint> Run(const std::vector<Command>& commands,
                                    std::vector<BufferView> bindings,
                                    std::vector<TimelinePoint> waits = {}) {
    TG_ASSIGN_OR_RETURN(const auto encoded, device().Encode(commands));
    return device().queue().Submit(encoded, std::move(bindings), waits);
  }
  void ExpectNoErrors() {
    EXPECT_THAT(driver().Locked([&] { return driver().gpu.errors; }), ::testing::IsEmpty());
  }

  bool leaks_nothing_ = true;
  std::unique_ptr<Device> host_ = OpenHost({.index = 7});
  std::unique_ptr<FakeNv> nv_;
  std::shared_ptr<LoadedProgram> program_;
};

}  // namespace telegrad
