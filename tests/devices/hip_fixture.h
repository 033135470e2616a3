// GPUs of the fake HIP library (tests/fakes/hip), and code for them.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "devices/hip/hip_device.h"
#include "engine/base/status.h"
#include "engine/base/strings.h"
#include "engine/compile/compiler.h"
#include "tests/devices/fixture.h"

namespace telegrad {

// The controls of tests/fakes/hip/fake_hip.h, from the library that the driver opens.
class FakeHip {
 public:
  FakeHip() : library_(dlopen(TELEGRAD_FAKE_HIP, RTLD_NOW)) {
    EXPECT_NE(library_, nullptr) << dlerror();
    Call<void>("fakeHipReset");
  }
  ~FakeHip() { Call<void>("fakeHipReset"); }
  FakeHip(const FakeHip&) = delete;
  FakeHip& operator=(const FakeHip&) = delete;

  void Set(const char* knob, int64_t value) {
    EXPECT_EQ((Call<int>("fakeHipSet", knob, value)), 0) << knob;
  }
  int64_t Get(const char* knob) { return Call<int64_t>("fakeHipGet", knob); }
  int64_t Count(const char* counter) {
    const auto count = Call<int64_t>("fakeHipCount", counter);
    EXPECT_GE(count, 0) << counter;
    return count;
  }
  void Release() { Call<void>("fakeHipRelease"); }
  std::string Problems() {
    std::string text(Call<size_t>("fakeHipProblems", static_cast<char*>(nullptr), size_t{0}), 0);
    Call<size_t>("fakeHipProblems", text.data(), text.size() + 1);
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

// Adds 1 to the byte at buffer0[begin + workgroup], each workgroup with one thread. A thread has
// `stack` bytes of its own, if any.
inline std::string NextAmdIr(int stack = 0) {
  std::string use;
  if (stack > 0) {
    use = StrCat("  %s = alloca [", stack, " x i8], addrspace(5)\n",
                 "  %e = getelementptr i8, ptr addrspace(5) %s, i64 %begin\n",
                 "  store volatile i8 1, ptr addrspace(5) %e\n");
  }
  return StrCat("define amdgpu_kernel void @next(ptr addrspace(1) %a, i64 %begin) #0 {\n", use,
                "  %g = call i32 @llvm.amdgcn.workgroup.id.x()\n  %w = zext i32 %g to i64\n"
                "  %i = add i64 %begin, %w\n  %p = getelementptr i8, ptr addrspace(1) %a, i64 %i\n"
                "  %x = load i8, ptr addrspace(1) %p\n  %y = add i8 %x, 1\n"
                "  store i8 %y, ptr addrspace(1) %p\n  ret void\n}\n"
                "declare i32 @llvm.amdgcn.workgroup.id.x()\n"
                "attributes #0 = { \"amdgpu-flat-work-group-size\"=\"1,1\" "
                "\"amdgpu-implicitarg-num-bytes\"=\"0\" \"amdgpu-no-dispatch-ptr\" "
                "\"telegrad-parameters\"=\"buffer,begin\" }\n");
}

inline absl::StatusOr<ProgramImage> NextHip(const std::string& processor = "gfx942",
                                            int stack = 0) {
  return Compile(NextAmdIr(stack), "next", AmdTarget(*FindAmdProcessor(processor), 1));
}

inline HipOptions FakeHipOptions() { return {.library = TELEGRAD_FAKE_HIP}; }

// The one GPU of the fake library, as that processor (0x942) and with so much memory; null, with a
// failure, where it cannot be opened.
inline std::unique_ptr<Device> OpenFakeHip(FakeHip& fake, int processor, int64_t gib = 1) {
  fake.Set("processor", processor);
  fake.Set("memory", gib << 30);
  HipOptions options = FakeHipOptions();
  options.devices = 1;
  std::vector<std::string> notes;
  auto devices = OpenHips(options, &notes);
  EXPECT_EQ(devices.size(), 1u) << ::testing::PrintToString(notes);
  return devices.empty() ? nullptr : std::move(devices[0]);
}

inline Command NextHipCommand(std::shared_ptr<LoadedProgram> program, int32_t binding = 0,
                              int64_t offset = 0) {
  Command next;
  next.launch.program = std::move(program);
  next.launch.arguments = {{binding, offset}};
  next.launch.name = "next";
  return next;
}

}  // namespace telegrad
