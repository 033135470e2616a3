// What the text for AMD must say; what its code is and computes is tested in tests/amdgpu. What it
// has in common with the text for NVIDIA is tested in nvptx_test.cc.
#include "engine/base/strings.h"
#include "engine/ir/text.h"
#include "engine/render/llvm.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// 15 workgroups of 4 x 16 threads, each with the body.
std::string AmdText(std::string_view body, int warp = 1) {
  return StrCat("program k iterations=15 flops=0 bytes=0 ",
                warp == 1 ? "" : StrCat("warp=", warp, " "),
                "arguments=[f32 4096 read write, f32 4096 read]\n"
                "%0 = const i64 15\n%1 = range i64 %0 id=0 type=group\n"
                "%4 = const i64 4\n%5 = range i64 %4 id=2 type=local\n"
                "%6 = const i64 16\n%7 = range i64 %6 id=3 type=",
                warp == 16 ? "warp" : "local",
                "\n%8 = param f32 [4096] slot=0\n%9 = param f32 [4096] slot=1\n", body,
                "%90 = end %7\n%91 = end %5\n%93 = end %1\n");
}

absl::StatusOr<std::string> RenderAmd(std::string_view body, int warp, std::string_view processor) {
  const auto program = ParseProgram(AmdText(body, warp));
  EXPECT_TRUE(program.ok()) << program.status();
  return RenderLlvm(*program, AmdTarget(*FindAmdProcessor(processor), 8, 4096));
}

std::string RenderedAmd(std::string_view body, int warp = 1,
                        std::string_view processor = "gfx942") {
  const auto text = RenderAmd(body, warp, processor);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? *text : "";
}

TEST(Amdgpu, AKernelSaysWhatItsLaunchNeeds) {
  const std::string text = RenderedAmd(
      "%10 = buffer f32 [33] space=local slot=0\n%11 = buffer i8 [3] space=local slot=1\n"
      "%12 = index f32 %10 %7\n%13 = const f32 1\n%14 = store %12 %13\n");
  EXPECT_THAT(text, HasSubstr("target triple = \"amdgcn-amd-amdhsa\""));
  EXPECT_THAT(text,
              HasSubstr("define amdgpu_kernel void @k(ptr addrspace(1) noalias align 16 %a0, ptr "
                        "addrspace(1) noalias readonly align 16 %a1, i64 %begin) #0 "
                        "!reqd_work_group_size !0"));
  EXPECT_THAT(text,
              HasSubstr("\"telegrad-group-threads\"=\"64\" \"telegrad-local-bytes\"=\"160\""));
  EXPECT_THAT(text, HasSubstr("\"amdgpu-flat-work-group-size\"=\"64,64\""));
  EXPECT_THAT(text, HasSubstr("\"amdgpu-implicitarg-num-bytes\"=\"0\""));
  EXPECT_THAT(text, HasSubstr("!0 = !{i32 64, i32 1, i32 1}"));
  EXPECT_THAT(text, HasSubstr("@k_local = external addrspace(3) global [0 x i8], align 16"));
  EXPECT_THAT(text, AllOf(HasSubstr("@llvm.amdgcn.workitem.id.x()"),
                          HasSubstr("@llvm.amdgcn.workgroup.id.x()")));
}

TEST(Amdgpu, RegistersAreInPrivateMemory) {
  const std::string text = RenderedAmd(
      "%10 = buffer f32 [4] space=register slot=0\n%11 = const i64 3\n%12 = index f32 %10 %11\n"
      "%13 = const f32 1\n%14 = store %12 %13\n");
  EXPECT_THAT(text, HasSubstr("alloca [4 x float], align 64, addrspace(5)"));
  EXPECT_THAT(text, HasSubstr("@llvm.memset.p5.i64(ptr addrspace(5)"));
  EXPECT_THAT(text, HasSubstr("ptr addrspace(5) %v"));
}

// The workgroup has 64 threads: a wave of gfx942, and two of gfx1100.
TEST(Amdgpu, BarriersOfEachScope) {
  const std::string body =
      "%10 = index f32 %8 %7\n%11 = const f32 1\n%12 = store %10 %11\n%13 = barrier %12 scope=";
  EXPECT_THAT(RenderedAmd(body + "thread\n"),
              AllOf(Not(HasSubstr("barrier()")), Not(HasSubstr("fence")),
                    HasSubstr("call void asm sideeffect \"\", \"~{memory}\"()\n"
                              "  call void @llvm.amdgcn.sched.barrier(i32 0)\n")));
  EXPECT_THAT(RenderedAmd(body + "workgroup\n"),
              AllOf(HasSubstr("fence syncscope(\"wavefront\") release\n"
                              "  call void @llvm.amdgcn.wave.barrier()\n"
                              "  fence syncscope(\"wavefront\") acquire\n"),
                    Not(HasSubstr("s.barrier"))));
  EXPECT_THAT(RenderedAmd(body + "workgroup\n", 1, "gfx1100"),
              HasSubstr("fence syncscope(\"workgroup\") release\n"
                        "  call void @llvm.amdgcn.s.barrier()\n"
                        "  fence syncscope(\"workgroup\") acquire\n"));
  EXPECT_THAT(RenderedAmd(body + "warp\n", 16, "gfx1100"),
              AllOf(HasSubstr("@llvm.amdgcn.wave.barrier()"), Not(HasSubstr("s.barrier"))));
}

// All waves of a workgroup have to reach its one barrier.
TEST(Amdgpu, ARoleHasNoBarrierOfItsOwn) {
  const auto text = RenderAmd(
      "%20 = role first=0 count=3\n%21 = barrier scope=workgroup\n%22 = end %20\n", 16, "gfx1100");
  EXPECT_EQ(text.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(text.status().message(),
            "kernel k: gfx1100 has no barrier of the threads 0 to 47 of 64");
  EXPECT_THAT(RenderedAmd("%20 = role first=1 count=1\n%21 = barrier scope=workgroup\n"
                          "%22 = end %20\n",
                          16, "gfx1100"),
              HasSubstr("@llvm.amdgcn.wave.barrier()"));
}

TEST(Amdgpu, ShufflesReadLanesOfTheWave) {
  const std::string body =
      "%10 = index f32 %8 %7\n%11 = load f32 %10\n%12 = cast f64 %11\n"
      "%13 = shuffle f64 %12 %5\n%14 = cast f32 %13\n%15 = store %10 %14\n";
  const std::string text = RenderedAmd(body, 16);
  size_t calls = 0;
  for (size_t at = 0; (at = text.find("call i32 @llvm.amdgcn.ds.bpermute", at)) != text.npos;
       ++at) {
    ++calls;
  }
  EXPECT_EQ(calls, 2u);
  EXPECT_THAT(text, HasSubstr("and i32 %t0, 48"));  // the first lane of the warp in the wave
  EXPECT_THAT(RenderedAmd(body, 64), Not(HasSubstr("and i32 %t0")));
  EXPECT_EQ(
      RenderAmd(body, 64, "gfx1100").status().message(),
      "kernel k: gfx1100 has no shuffle among 64 threads, only among a power of two up to 32");
}

}  // namespace
}  // namespace telegrad
