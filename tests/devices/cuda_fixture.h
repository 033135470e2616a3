// GPUs of the fake driver library (tests/fakes/cuda), and PTX for them.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "devices/cuda/cuda_device.h"
#include "engine/base/status.h"
#include "engine/base/strings.h"
#include "tests/devices/fixture.h"

namespace telegrad {

// The controls of tests/fakes/cuda/fake_cuda.h, from the library that the driver opens.
class FakeCuda {
 public:
  FakeCuda() : library_(dlopen(TELEGRAD_FAKE_CUDA, RTLD_NOW)) {
    EXPECT_NE(library_, nullptr) << dlerror();
    Reset();
  }
  ~FakeCuda() { Reset(); }
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  void Reset() { Call<void>("fakeCudaReset"); }
  void Set(const char* knob, int64_t value) {
    EXPECT_EQ((Call<int>("fakeCudaSet", knob, value)), 0) << knob;
  }
  int64_t Get(const char* knob) { return Call<int64_t>("fakeCudaGet", knob); }
  int64_t Count(const char* counter) {
    const auto count = Call<int64_t>("fakeCudaCount", counter);
    EXPECT_GE(count, 0) << counter;
    return count;
  }
  void Release() { Call<void>("fakeCudaRelease"); }
  std::string Problems() {
    std::string text(Call<size_t>("fakeCudaProblems", static_cast<char*>(nullptr), size_t{0}), 0);
    Call<size_t>("fakeCudaProblems", text.data(), text.size() + 1);
    return text;
  }

 private:
  template <typename Result, typename... Args>
  Result Call(const char* name, Args... args) {
    auto* const function = reinterpret_cast<Result (*)(Args...)>(dlsym(library_, name));
    return function(args...);
  }

  void* const library_;
};

// Adds 1 to the byte at buffer0[begin + workgroup], each workgroup with one thread.
inline constexpr char kNextPtx[] = R"(.version 7.8
.target sm_80
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

inline ProgramImage NextImage() {
  return {.name = "next", .binary = kNextPtx, .signature = {.parameters = KernelParameters(1)}};
}

// What the code of a PTX program counts of the GPU's memory: its text, in steps of an allocation.
inline int64_t CodeBytes(const ProgramImage& image) {
  return (static_cast<int64_t>(image.binary.size()) + 255) / 256 * 256;
}

inline Command NextCommand(std::shared_ptr<LoadedProgram> program, int32_t binding = 0,
                           int64_t offset = 0) {
  Command next;
  next.launch.program = std::move(program);
  next.launch.arguments = {{binding, offset}};
  next.launch.name = "next";
  return next;
}

inline CudaOptions FakeOptions() { return {.library = TELEGRAD_FAKE_CUDA}; }

// The one GPU of the fake driver, with that compute capability (90 for 9.0) and so much memory;
// null, with a failure, where it cannot be opened.
inline std::unique_ptr<Device> OpenFakeCuda(FakeCuda& fake, int capability, int64_t gib = 1) {
  fake.Set("capability", capability);
  fake.Set("memory", gib << 30);
  CudaOptions options = FakeOptions();
  options.devices = 1;
  std::vector<std::string> notes;
  auto devices = OpenCudas(options, &notes);
  EXPECT_EQ(devices.size(), 1u) << ::testing::PrintToString(notes);
  return devices.empty() ? nullptr : std::move(devices[0]);
}

class Cuda : public ::testing::Test {
 protected:
  void Open(const CudaOptions& options = FakeOptions()) {
    devices_ = OpenCudas(options, &notes_);
    for (const auto& device : devices_) names_.push_back(device->name());
  }
  Device& device(size_t i = 0) { return *devices_[i]; }
  BufferView Buffer(int64_t bytes, size_t i = 0) { return Whole(*device(i).Alloc(bytes)); }
  std::shared_ptr<LoadedProgram> Next(size_t i = 0) {
    auto program = device(i).Load(NextImage());
    EXPECT_TRUE(program.ok()) << program.status();
    return program.ok() ? *program : nullptr;
  }
  std::string Read(const BufferView& view, size_t i = 0) {
    const BufferView out = HostBuffer(*host_, std::string(view.length, '?'));
    const auto copied = Copy(device(i), out, view);
    EXPECT_TRUE(copied.ok()) << copied.status();
    if (copied.ok()) {
      EXPECT_EQ(copied->Wait(), absl::OkStatus());
    }
    return Bytes(out);
  }
  TimelinePoint Write(const BufferView& view, const std::string& bytes, size_t i = 0) {
    return *Copy(device(i), view, HostBuffer(*host_, bytes));
  }
  void Fill(const BufferView& view, const std::string& bytes, size_t i = 0) {
    EXPECT_EQ(Write(view, bytes, i).Wait(), absl::OkStatus());
  }
  absl::Status Run(const std::vector<Command>& commands, std::vector<BufferView> bindings) {
    TG_ASSIGN_OR_RETURN(const auto encoded, device().Encode(commands));
    TG_ASSIGN_OR_RETURN(const TimelinePoint point,
                        device().queue().Submit(encoded, std::move(bindings), {}));
    return point.Wait();
  }

  FakeCuda fake_;
  std::unique_ptr<Device> host_ = OpenHost({.index = 7});
  std::vector<std::string> notes_, names_;
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace telegrad
