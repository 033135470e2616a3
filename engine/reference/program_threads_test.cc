// What programs for many threads, and operations in the background, add to the interpreter, one
// thing at a time. Whole programs and planted mistakes are in tests/programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/strings.h"
#include "engine/ir/text.h"
#include "engine/reference/program_eval.h"

namespace telegrad::reference {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
std::span<uint8_t> BytesOf(std::vector<T>& values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(T)};
}

absl::Status RunText(std::string_view text, std::vector<std::span<uint8_t>> buffers,
                     const RunOptions& options = {}) {
  const absl::StatusOr<Program> program = ParseProgram(text);
  if (!program.ok()) return program.status();
  return Run(*program, buffers, 0, program->iterations, options);
}

TEST(ProgramThreads, VariablesAreCheckedAndClamped) {
  constexpr std::string_view kText = R"(
program variables iterations=1 flops=0 bytes=0 arguments=[i64 1 read, i64 2 write]
%0 = var i64 id=1 min=-4 max=8 multiple=4
%1 = param i64 [1] slot=0
%2 = const i64 0
%3 = index i64 %1 %2
%4 = load i64 %3
%5 = var i64 %4 id=0 min=-4 max=8 multiple=4
%6 = param i64 [2] slot=1
%7 = index i64 %6 %2
%8 = store %7 %0
%9 = const i64 1
%10 = index i64 %6 %9
%11 = store %10 %5
)";
  std::vector<int64_t> in{0}, out(2);
  const auto run = [&](std::vector<int64_t> variables, int64_t scalar) {
    in[0] = scalar;
    return RunText(kText, {BytesOf(in), BytesOf(out)}, {.variables = variables});
  };
  EXPECT_EQ(run({0, 4}, 6), absl::OkStatus());
  EXPECT_THAT(out, ElementsAre(4, 4));
  EXPECT_EQ(run({0, -4}, -1), absl::OkStatus());
  EXPECT_THAT(out, ElementsAre(-4, -4));
  EXPECT_EQ(run({0, 8}, INT64_MAX), absl::OkStatus());
  EXPECT_THAT(out, ElementsAre(8, 8));
  EXPECT_EQ(run({0, 8}, INT64_MIN), absl::OkStatus());
  EXPECT_THAT(out, ElementsAre(8, -4));
  EXPECT_THAT(std::string(run({0}, 0).message()), HasSubstr("variable 1 has no value, got 1"));
  for (int64_t bad : {-8, 12, 2}) {
    const absl::Status status = run({0, bad}, 0);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(StrCat("node 0 (var): variable 1 is ", bad,
                                 ", expected a multiple of 4 in [-4, 8]")));
  }
}

constexpr std::string_view kCopies = R"(
program copies iterations=1 flops=0 bytes=0 arguments=[i32 8 read, bool 2 read, i32 8 write]
%0 = param i32 [8] slot=0
%1 = param bool [2] slot=1
%2 = param i32 [8] slot=2
%3 = buffer i32 [8] space=local slot=0
%4 = const i64 0
%5 = const i64 1
%6 = iota i64 [8]
%7 = index bool %1 %4
%8 = load bool %7
%9 = index bool %1 %5
%10 = load bool %9
%11 = const i32 7
%12 = index i32 [8] %3 %6
%13 = store %12 %11
%14 = index i32 %3 %4 %8
%15 = index i32 %0 %4 %10
%16 = copy_async %14 %15 rows=2 columns=3 to_stride=4 from_stride=6
%17 = wait %16 n=0
%18 = after i32 [8] %3 %17
%19 = index i32 [8] %18 %6
%20 = load i32 [8] %19
%21 = index i32 [8] %2 %6
%22 = store %21 %20
)";

TEST(ProgramThreads, CopiesFillWithZerosAndHaveGates) {
  std::vector<int32_t> in{1, 2, 3, 4, 5, 6, 8, 9}, out(8);
  std::vector<uint8_t> gates{1, 1};
  for (bool at_issue : {false, true}) {
    const auto run = [&](bool to, bool from) {
      gates = {to, from};
      return RunText(kCopies, {BytesOf(in), BytesOf(gates), BytesOf(out)},
                     {.sources_at_issue = at_issue});
    };
    EXPECT_EQ(run(true, true), absl::OkStatus());
    EXPECT_THAT(out, ElementsAre(1, 2, 3, 7, 8, 9, 0, 7));
    EXPECT_EQ(run(true, false), absl::OkStatus());
    EXPECT_THAT(out, ElementsAre(0, 0, 0, 7, 0, 0, 0, 7));
    EXPECT_EQ(run(false, true), absl::OkStatus());
    EXPECT_THAT(out, ElementsAre(7, 7, 7, 7, 7, 7, 7, 7));
  }
}

// The text with one part of it replaced.
std::string With(std::string_view text, std::string_view from, std::string_view to) {
  std::string out(text);
  const size_t at = out.find(from);
  EXPECT_NE(at, std::string::npos) << std::string(from);
  return out.replace(at, from.size(), to);
}

TEST(ProgramThreads, WhatIsUnderWayIsLeftAlone) {
  std::vector<int32_t> in(8), out(8);
  std::vector<uint8_t> gates{1, 1};
  const auto message = [&](std::string_view from, std::string_view to) {
    const absl::Status status =
        RunText(With(kCopies, from, to), {BytesOf(in), BytesOf(gates), BytesOf(out)});
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    return std::string(status.message());
  };
  EXPECT_THAT(message("%17 = wait %16 n=0", "%17 = wait %16 n=1"),
              HasSubstr("node 20 (load): lane 0 reads element 0 of buffer 0, which the copy_async "
                        "of thread 0, still under way, writes at node 16"));
  EXPECT_THAT(
      message("%17 = wait", "%30 = const i32 9\n%31 = store %12 %30\n%17 = wait"),
      HasSubstr("node 18 (store): lane 0 writes element 0 of buffer 0, which the copy_async "
                "of thread 0, still under way, writes at node 16"));
  EXPECT_THAT(message("rows=2 columns=3 to_stride=4", "rows=2 columns=5 to_stride=5"),
              HasSubstr("writes element 9 of buffer 0, which has 8"));
  // Nothing is left under way at the end.
  const std::string_view phases =
      "%40 = mbarrier i64 [1] slot=1 arrivals=1\n"
      "%41 = index i64 %40 %4\n";
  EXPECT_THAT(message("%17 = wait",
                      "%30 = buffer i32 [8] space=local slot=2\n%31 = index i32 %30 %4\n"
                      "%32 = copy_async %31 %15 rows=1 columns=1 to_stride=1 from_stride=1\n"
                      "%17 = wait"),
              HasSubstr("node 19 (copy_async): is still under way at the end, expected a wait"));
  EXPECT_THAT(
      message("%17 = wait", StrCat(phases,
                                   "%30 = buffer i32 [8] space=local slot=2\n"
                                   "%31 = index i32 %30 %4\n%32 = copy_async %31 %15 %41 rows=1 "
                                   "columns=1 to_stride=1 from_stride=1\n%17 = wait")),
      HasSubstr("node 21 (copy_async): may still be under way at the end, expected a wait "
                "for its phase of mbarrier 1[0]"));
  EXPECT_THAT(message("%17 = wait", StrCat(phases, "%30 = arrive %41 n=8\n%17 = wait")),
              HasSubstr("mbarrier 1[0] expects 8 more bytes in its phase 0"));
}

}  // namespace
}  // namespace telegrad::reference
