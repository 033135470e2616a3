// Objects that a loader has to refuse, and what it says about one that it takes.
#include <gmock/gmock.h>

#include "tests/fakes/amd/testing/elementwise.h"

namespace fakeamd {
namespace {

using testing::HasSubstr;

Bytes Good(const std::string& processor) {
  std::string error;
  const Bytes elf = CompileIr(KernelIr("test", "ptr addrspace(1) %out, i32 %n",
                                       "  store i32 %n, ptr addrspace(1) %out\n  ret void", 128),
                              processor, &error);
  EXPECT_EQ(error, "");
  return elf;
}

TEST(AmdLoadTest, SaysWhatTheKernelIs) {
  for (const std::string& processor : Processors()) {
    const CodeObject object = LoadCodeObject(Good(processor), processor);
    ASSERT_EQ(object.error, "");
    EXPECT_THAT(object.target, HasSubstr(processor));
    ASSERT_EQ(object.kernels.size(), 1u);
    const Kernel& kernel = object.kernels[0];
    EXPECT_EQ(kernel.name, "test");
    EXPECT_EQ(kernel.kernarg_bytes, 12u);
    EXPECT_EQ(kernel.wavefront, processor.starts_with("gfx9") ? 64u : 32u);
    EXPECT_EQ(kernel.max_threads, 128u);
    ASSERT_EQ(kernel.arguments.size(), 2u);
    EXPECT_EQ(kernel.arguments[0].kind, "global_buffer");
    EXPECT_EQ(kernel.arguments[1].offset, 8u);
  }
}

TEST(AmdLoadTest, RefusesOtherProcessors) {
  EXPECT_THAT(LoadCodeObject(Good("gfx942"), "gfx90a").error, HasSubstr("another processor"));
  EXPECT_THAT(LoadCodeObject(Good("gfx942"), "gfx803").error,
              HasSubstr("no interpreter for gfx803"));
}

TEST(AmdLoadTest, SurvivesObjectsThatAreCutOrChanged) {
  const Bytes elf = Good("gfx1100");
  for (size_t size = 0; size < elf.size(); size += 61) {
    EXPECT_NE(
        LoadCodeObject(Bytes(elf.begin(), elf.begin() + static_cast<ptrdiff_t>(size)), "gfx1100")
            .error,
        "");
  }
  std::mt19937 random(12);
  for (int k = 0; k < 300; ++k) {
    Bytes changed = elf;
    changed[random() % changed.size()] = static_cast<uint8_t>(random());
    LoadCodeObject(changed, "gfx1100");  // whatever it says, it ends
  }
}

TEST(AmdLoadTest, LaunchesThatDoNotFit) {
  const CodeObject object = LoadCodeObject(Good("gfx942"), "gfx942");
  ASSERT_EQ(object.error, "");
  const MemoryView memory;
  const Bytes arguments(12);
  Launch launch = {.object = &object,
                   .kernel = &object.kernels[0],
                   .block = {256, 1, 1},
                   .kernarg = arguments,
                   .memory = &memory,
                   .budget = 100};
  EXPECT_THAT(fakeamd::Run(launch, nullptr).message, HasSubstr("threads in a workgroup"));
  launch.block = {128, 1, 1};
  launch.kernarg = launch.kernarg.first(8);
  EXPECT_THAT(fakeamd::Run(launch, nullptr).message, HasSubstr("12 bytes of arguments, not 8"));
  launch.kernarg = arguments;
  launch.dynamic_group_bytes = 65 << 10;
  EXPECT_THAT(fakeamd::Run(launch, nullptr).message, HasSubstr("64 KiB"));
}

}  // namespace
}  // namespace fakeamd
