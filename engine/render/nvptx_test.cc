// What the text for NVIDIA must say; what its PTX is and computes is tested in tests/nvptx.
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

Target Gpu() { return *NvidiaTarget(8, 0, 108, 4096); }

Program Parsed(std::string_view text) {
  const auto program = ParseProgram(text);
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

// x[i] += y[i] for 3 x 5 workgroups of 2 x 16 threads, each with the body.
std::string Text(std::string_view body, int warp = 1) {
  return StrCat("program k iterations=15 flops=0 bytes=0 ",
                warp == 1 ? "" : StrCat("warp=", warp, " "),
                "arguments=[f32 4096 read write, f32 4096 read]\n"
                "%0 = const i64 3\n%1 = range i64 %0 id=0 type=group\n"
                "%2 = const i64 5\n%3 = range i64 %2 id=1 type=group\n"
                "%4 = const i64 2\n%5 = range i64 %4 id=2 type=local\n"
                "%6 = const i64 16\n%7 = range i64 %6 id=3 type=",
                warp == 1 ? "local" : "warp",
                "\n%8 = param f32 [4096] slot=0\n%9 = param f32 [4096] slot=1\n", body,
                "%90 = end %7\n%91 = end %5\n%92 = end %3\n%93 = end %1\n");
}

std::string Rendered(std::string_view body, int warp = 1) {
  const auto text = RenderLlvm(Parsed(Text(body, warp)), Gpu());
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? *text : "";
}

absl::Status Error(std::string_view body, int warp = 1) {
  return RenderLlvm(Parsed(Text(body, warp)), Gpu()).status();
}

TEST(Nvptx, AKernelSaysWhatItsLaunchNeeds) {
  const std::string text = Rendered(
      "%10 = buffer f32 [33] space=local slot=0\n%11 = buffer i8 [3] space=local slot=1\n"
      "%12 = index f32 %10 %7\n%13 = const f32 1\n%14 = store %12 %13\n");
  EXPECT_THAT(text, HasSubstr("define ptx_kernel void @k(ptr addrspace(1) noalias align 16 %a0, "
                              "ptr addrspace(1) noalias readonly align 16 %a1, i64 %begin)"));
  EXPECT_THAT(text,
              HasSubstr("\"telegrad-group-threads\"=\"32\" \"telegrad-local-bytes\"=\"160\""));
  EXPECT_THAT(text, HasSubstr("!\"reqntidx\", i32 32"));
  EXPECT_THAT(text, HasSubstr("@k_local = external addrspace(3) global [0 x i8], align 16"));
  EXPECT_THAT(text, HasSubstr("store float 0x3FF0000000000000, ptr addrspace(3)"));
}

TEST(Nvptx, WorkgroupsBeyondTheRangesDoNothing) {
  const std::string text = Rendered("");
  EXPECT_THAT(text, HasSubstr("icmp ult i64 %t3, 15\n"));
  EXPECT_THAT(text, HasSubstr("label %work, label %leave"));
  EXPECT_THAT(text, AllOf(HasSubstr("udiv i32"), HasSubstr("urem i32"), Not(HasSubstr("div i64"))));
}

// The end of a group range may be read from memory: the launch is as large as it can get.
TEST(Nvptx, GroupRangesMayEndEarlier) {
  const auto text = RenderLlvm(
      Parsed("program k iterations=8 flops=0 bytes=0 arguments=[i32 1 read, f32 8 write]\n"
             "%0 = param i32 [1] slot=0\n%1 = const i64 0\n%2 = index i32 %0 %1\n"
             "%3 = load i32 %2\n%4 = cast i64 %3\n%5 = const i64 8\n%6 = const i64 7\n"
             "%7 = and i64 %4 %6\n%8 = range i64 %7 id=0 type=group\n"
             "%9 = param f32 [8] slot=1\n%10 = const f32 1\n%11 = index f32 %9 %8\n"
             "%12 = store %11 %10\n%13 = end %8\n"),
      Gpu());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("icmp slt i64"));
  EXPECT_THAT(*text, HasSubstr(".inside, label %leave"));
}

constexpr char kFloat4[] =
    "%10 = iota i64 [4]\n%11 = const i64 4\n%12 = mul i64 %7 %11\n%13 = add i64 [4] %12 %10\n"
    "%14 = index f32 [4] %9 %13\n%15 = load f32 [4] %14\n"
    "%16 = index f32 [4] %8 %13\n%17 = store %16 %15\n";

TEST(Nvptx, WholeVectorsAreOneAccess) {
  const std::string text = Rendered(kFloat4);
  EXPECT_THAT(text, HasSubstr("load <4 x float>, ptr addrspace(1) %v14, align 16, "
                              "!invariant.load !1"));
  EXPECT_THAT(text, HasSubstr("store <4 x float> %t"));
}

TEST(Nvptx, WhatIsNotAlignedIsReadInPieces) {
  const std::string text = Rendered(
      "%10 = iota i64 [8]\n%11 = const i64 4\n%12 = mul i64 %7 %11\n%18 = const i64 2\n"
      "%19 = add i64 %12 %18\n%13 = add i64 [8] %19 %10\n"
      "%14 = index f32 [8] %8 %13\n%15 = load f32 [8] %14\n%17 = store %14 %15\n");
  EXPECT_THAT(text, HasSubstr("load <2 x float>, ptr addrspace(1) %v15, align 8\n"));
  EXPECT_THAT(text, HasSubstr("load <4 x float>, ptr addrspace(1) %t"));
  EXPECT_THAT(text, Not(HasSubstr("load <8 x float>")));
  EXPECT_THAT(text, Not(HasSubstr("invariant")));
}

TEST(Nvptx, BarriersOfEachScope) {
  const std::string body =
      "%10 = index f32 %8 %7\n%11 = const f32 1\n%12 = store %10 %11\n%13 = barrier %12 scope=";
  EXPECT_THAT(Rendered(body + "thread\n"), Not(HasSubstr("bar")));
  // 32 threads: the workgroup is one warp of the hardware.
  EXPECT_THAT(Rendered(body + "workgroup\n"), HasSubstr("llvm.nvvm.bar.warp.sync(i32 -1)"));
  EXPECT_THAT(Rendered(body + "warp\n", 16),
              AllOf(HasSubstr("and i32 %t0, 16"), HasSubstr("shl i32 65535, %")));
  EXPECT_THAT(Rendered("%20 = role first=1 count=1\n" + body + "workgroup\n%21 = end %20\n", 16),
              HasSubstr("llvm.nvvm.bar.warp.sync(i32 -65536)"));
}

TEST(Nvptx, RolesOfWholeWarpsHaveNumberedBarriers) {
  const std::string text = *RenderLlvm(
      Parsed("program k iterations=1 flops=0 bytes=0 warp=32 arguments=[]\n%0 = const i64 4\n"
             "%1 = range i64 %0 id=0 type=local\n%2 = const i64 32\n"
             "%3 = range i64 %2 id=1 type=warp\n%4 = role first=0 count=3\n"
             "%5 = barrier scope=workgroup\n%6 = end %4\n%7 = role %6 first=3 count=1\n"
             "%8 = barrier %6 scope=workgroup\n%9 = end %7\n%10 = barrier %9 scope=workgroup\n"
             "%11 = end %3\n%12 = end %1\n"),
      Gpu());
  EXPECT_THAT(text, HasSubstr("llvm.nvvm.barrier(i32 1, i32 96)"));
  EXPECT_THAT(text, HasSubstr("llvm.nvvm.bar.warp.sync(i32 -1)"));
  EXPECT_THAT(text, HasSubstr("llvm.nvvm.barrier0()"));
}

TEST(Nvptx, ShufflesMoveWordsWithinTheWarp) {
  const std::string text = Rendered(
      "%10 = index f32 %8 %7\n%11 = load f32 %10\n%12 = cast f64 %11\n"
      "%13 = shuffle f64 %12 %5\n%14 = cast f32 %13\n%15 = store %10 %14\n",
      16);
  size_t calls = 0;
  for (size_t at = 0; (at = text.find("call i32 @llvm.nvvm.shfl.sync.idx", at)) != text.npos;
       ++at) {
    ++calls;
  }
  EXPECT_EQ(calls, 2u);
  EXPECT_THAT(text, HasSubstr(StrCat("i32 ", 16 << 8 | 31, ")")));
  EXPECT_THAT(text, Not(HasSubstr("icmp ult i64 %v")));
}

TEST(Nvptx, MatricesAreLoadedFromAlignedRows) {
  const auto with = [](int step) {
    return StrCat("%10 = buffer f16 [512] space=local slot=0\n%11 = const i64 ", step,
                  "\n%12 = mul i64 %7 %11\n%13 = index f16 %10 %12\n"
                  "%14 = load_matrix f16 [8] %13 count=4 transposed=1\n");
  };
  const auto rendered = [&](int step) {
    return RenderLlvm(Parsed(StrCat("program k iterations=1 flops=0 bytes=0 warp=32 arguments=[]\n"
                                    "%6 = const i64 32\n%7 = range i64 %6 id=0 type=warp\n",
                                    with(step), "%15 = end %7\n")),
                      Gpu());
  };
  ASSERT_TRUE(rendered(8).ok()) << rendered(8).status();
  EXPECT_THAT(*rendered(8),
              HasSubstr("call { i32, i32, i32, i32 } "
                        "@llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3(ptr addrspace(3) "));
  EXPECT_THAT(std::string(rendered(4).status().message()),
              HasSubstr("loads rows of 16 bytes from where 8 are aligned"));
}

TEST(Nvptx, WhatTheTargetDoesNotHave) {
  const auto error = Error("%10 = mbarrier i64 [1] slot=0 arrivals=1\n");
  EXPECT_EQ(error.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(error.message(), "kernel k: sm_80 has no mbarrier");
  const auto thread =
      RenderLlvm(Parsed("program k iterations=2 flops=0 bytes=0 arguments=[]\n%0 = const i64 2\n"
                        "%1 = range i64 %0 id=0 type=thread\n%2 = end %1\n"),
                 Gpu());
  EXPECT_EQ(thread.status().message(), "kernel k: sm_80 has no range of type thread");
}

TEST(Nvptx, LimitsOfTheTarget) {
  const auto error = Error("%10 = buffer f32 [1025] space=local slot=0\n");
  EXPECT_EQ(error.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(error.message()), HasSubstr("more local memory than the target's 4096"));
  EXPECT_THAT(std::string(Error("%10 = buffer f32 [4097] space=register slot=0\n").message()),
              HasSubstr("the BUFFERs take more than 16384 bytes"));
  Target small = Gpu();
  small.group_threads = 31;
  EXPECT_THAT(std::string(RenderLlvm(Parsed(Text("")), small).status().message()),
              HasSubstr("a workgroup has 32 threads, the target at most 31"));
}

}  // namespace
}  // namespace telegrad
