// Properties of the text in OpenCL C. What the text computes is tested in tests/opencl, where it
// can run.
#include "engine/render/c_kernel.h"

#include "engine/base/strings.h"
#include "engine/ir/text.h"
#include "engine/render/render.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Target Loader() {
  Target target = OpenClTarget(8);
  target.local_bytes = 4096;
  return target;
}

Program CParsed(std::string_view text) {
  const auto program = ParseProgram(text);
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

// x[i] += y[i] for 3 x 5 workgroups of 2 x 16 threads, each with the body.
std::string CText(std::string_view body) {
  return StrCat("program k iterations=15 flops=0 bytes=0 ",
                "arguments=[f32 4096 read write, f32 4096 read]\n"
                "%0 = const i64 3\n%1 = range i64 %0 id=0 type=group\n"
                "%2 = const i64 5\n%3 = range i64 %2 id=1 type=group\n"
                "%4 = const i64 2\n%5 = range i64 %4 id=2 type=local\n"
                "%6 = const i64 16\n%7 = range i64 %6 id=3 type=local\n"
                "%8 = param f32 [4096] slot=0\n%9 = param f32 [4096] slot=1\n",
                body, "%90 = end %7\n%91 = end %5\n%92 = end %3\n%93 = end %1\n");
}

std::string CRendered(std::string_view body) {
  const auto text = Render(CParsed(CText(body)), Loader());
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? *text : "";
}

std::string CError(std::string_view body, const Target& target = Loader()) {
  return std::string(Render(CParsed(CText(body)), target).status().message());
}

TEST(OpenClC, TheFrameOfAKernel) {
  const std::string text = CRendered(
      "%10 = buffer f32 [33] space=local slot=0\n%11 = buffer i32 [3] space=register slot=1\n"
      "%12 = index f32 %10 %7\n%13 = const f32 1\n%14 = store %12 %13\n");
  EXPECT_THAT(text, HasSubstr("#pragma OPENCL FP_CONTRACT OFF\n"));
  EXPECT_THAT(text, HasSubstr("__kernel __attribute__((reqd_work_group_size(16, 2, 1))) void k("
                              "__global float* restrict p0, ulong o0, "
                              "__global const float* restrict p1, ulong o1, ulong begin) {"));
  EXPECT_THAT(text, HasSubstr("__global const float* a1 = p1 + o1 / 4;"));
  EXPECT_THAT(text, HasSubstr("__local float v10[33];"));
  EXPECT_THAT(text, HasSubstr("uint v11[3] __attribute__((aligned(128))) = {0};"));
  EXPECT_THAT(text, HasSubstr("const ulong group = begin + get_group_id(0);"));
  EXPECT_THAT(text, HasSubstr("if (group < 15ul) {"));
  EXPECT_THAT(text, HasSubstr("const ulong v1 = (ulong)((uint)group / 5u);"));
  EXPECT_THAT(text, HasSubstr("const ulong v3 = (ulong)((uint)group % 5u);"));
  EXPECT_THAT(text, HasSubstr("const ulong v7 = (ulong)get_local_id(0);"));
  EXPECT_THAT(text, HasSubstr("const ulong v5 = (ulong)get_local_id(1);"));
  EXPECT_THAT(text, HasSubstr("] = as_float(1065353216u);"));
  EXPECT_EQ(text, CRendered("%10 = buffer f32 [33] space=local slot=0\n"
                            "%11 = buffer i32 [3] space=register slot=1\n"
                            "%12 = index f32 %10 %7\n%13 = const f32 1\n%14 = store %12 %13\n"));
}

TEST(OpenClC, WholeVectorsAreOneAccess) {
  const std::string text = CRendered(
      "%10 = iota i64 [4]\n%11 = const i64 4\n%12 = mul i64 %7 %11\n%13 = add i64 [4] %12 %10\n"
      "%14 = index f32 [4] %9 %13\n%15 = load f32 [4] %14\n%18 = mul f32 [4] %15 %15\n"
      "%16 = index f32 [4] %8 %13\n%17 = store %16 %18\n");
  EXPECT_THAT(text, HasSubstr("float4 v15 = vload4(0, a1 + "));
  EXPECT_THAT(text, HasSubstr(" = v15 * v15;"));
  EXPECT_THAT(text, HasSubstr(", 0, a0 + "));
}

// So that a compiler keeps an accumulator in one register.
TEST(OpenClC, AlignedVectorsOfAThreadsOwnAreObjects) {
  const auto store_at = [](int first) {
    return CRendered(
        StrCat("%10 = buffer f32 [24] space=register slot=0\n%11 = iota i64 [8]\n"
               "%12 = const i64 ",
               first,
               "\n%13 = add i64 [8] %11 %12\n"
               "%14 = index f32 [8] %10 %13\n%15 = load f32 [8] %14\n"
               "%16 = store %14 %15\n"));
  };
  const std::string aligned = store_at(16), not_aligned = store_at(4);
  EXPECT_THAT(aligned, HasSubstr("float v10[24] __attribute__((aligned(128))) = {0};"));
  EXPECT_THAT(aligned, HasSubstr("float8 v14 = *(float8*)(v10 + "));
  EXPECT_THAT(aligned, HasSubstr(" *(float8*)(v10 + "));
  EXPECT_THAT(not_aligned, AllOf(HasSubstr("vload8(0, v10 + "), HasSubstr(", 0, v10 + ")));
  EXPECT_THAT(not_aligned, ::testing::Not(HasSubstr("(float8*)")));
}

TEST(OpenClC, GatesAreBranches) {
  const std::string text = CRendered(
      "%10 = const i64 3\n%11 = cmplt bool %7 %10\n%12 = index f32 %8 %7 %11\n"
      "%13 = load f32 %12\n%14 = store %12 %13\n");
  EXPECT_THAT(text, HasSubstr("float v12 = as_float(0u);"));
  EXPECT_THAT(text, AllOf(HasSubstr("if (t"), HasSubstr(") v12 = a0[t")));
}

// Signed integers are computed in unsigned types, which wrap.
TEST(OpenClC, NothingIsUndefined) {
  const std::string text = CRendered(
      "%10 = index f32 %9 %7\n%11 = load f32 %10\n%12 = cast i32 %11\n%13 = add i32 %12 %12\n"
      "%14 = floordiv i32 %13 %12\n%15 = shl i32 %14 %12\n%16 = cast f32 %15\n"
      "%17 = index f32 %8 %7\n%18 = store %17 %16\n");
  EXPECT_THAT(text, Not(HasSubstr(" int t")));
  EXPECT_THAT(text, HasSubstr(" ? 1u : "));  // a divisor of 0 or -1
  EXPECT_THAT(text, HasSubstr(" < 32u"));    // the shift's amount
  EXPECT_THAT(text, HasSubstr(" != v11"));   // NaN to integer
  EXPECT_THAT(text, HasSubstr("(float)(as_int(t"));
}

TEST(OpenClC, BarriersOfEachScope) {
  const std::string body =
      "%10 = index f32 %8 %7\n%11 = const f32 1\n%12 = store %10 %11\n%13 = barrier %12 scope=";
  EXPECT_THAT(CRendered(body + "thread\n"), Not(HasSubstr("barrier(")));
  EXPECT_THAT(CRendered(body + "warp\n"), Not(HasSubstr("barrier(")));
  EXPECT_THAT(CRendered(body + "workgroup\n"),
              HasSubstr("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"));
  EXPECT_THAT(CError(body + "warpgroup\n"), HasSubstr("opencl-c has no barrier of a warpgroup"));
}

TEST(OpenClC, WhatTheTargetDoesNotHave) {
  EXPECT_EQ(CError("%10 = mbarrier i64 [1] slot=0 arrivals=1\n"),
            "kernel k: opencl-c has no mbarrier");
  EXPECT_EQ(CError("%10 = iota i64 [5]\n"), "kernel k: opencl-c has no vectors of 5 lanes");
  EXPECT_THAT(CError("%10 = buffer f32 [1025] space=local slot=0\n"),
              HasSubstr("more local memory than the target's 4096"));
  EXPECT_THAT(CError("%10 = buffer f32 [4097] space=register slot=0\n"),
              HasSubstr("the BUFFERs of a thread take more than 16384 bytes"));
  Target small = Loader();
  small.group_threads = 31;
  EXPECT_THAT(CError("", small), HasSubstr("a workgroup has 32 threads, the target at most 31"));
  Target single = Loader();
  single.computes = {DType::kFloat32, DType::kInt64};
  const std::string wide = "%10 = index f32 %8 %7\n%11 = load f32 %10\n%12 = cast f64 %11\n";
  EXPECT_EQ(CError(wide, single), "kernel k: opencl-c has no arithmetic for cast from f32 to f64");
}

// A client names nothing that reaches the driver's compiler, and an identifier is all that it
// could.
TEST(OpenClC, ANameIsAnIdentifier) {
  Program program = CParsed(CText(""));
  program.name = "k(); } void evil";
  EXPECT_THAT(std::string(Render(program, Loader()).status().message()),
              HasSubstr("the name is not an identifier"));
}

}  // namespace
}  // namespace telegrad
