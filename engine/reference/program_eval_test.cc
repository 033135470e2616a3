// The interpreter of programs: loops, gates, registers, vectors, narrow types, slices of the
// thread range, and the errors that it reports.
#include "engine/reference/program_eval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "engine/ir/text.h"

namespace telegrad::reference {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
std::span<uint8_t> BytesOfValues(std::vector<T>& values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(T)};
}

absl::Status RunText(std::string_view text, std::vector<std::span<uint8_t>> buffers, int64_t begin,
                     int64_t end) {
  const absl::StatusOr<Program> program = ParseProgram(text);
  if (!program.ok()) return program.status();
  return Run(*program, buffers, begin, end);
}

constexpr std::string_view kAdd = R"(
program add iterations=10 flops=10 bytes=120 arguments=[f32 10 read, f32 10 read, f32 10 write]
%0 = const i64 10
%1 = param f32 [10] slot=0
%2 = param f32 [10] slot=1
%3 = param f32 [10] slot=2
%4 = range i64 %0 id=0 type=thread
%5 = index f32 %1 %4
%6 = load f32 %5
%7 = index f32 %2 %4
%8 = load f32 %7
%9 = add f32 %6 %8
%10 = index f32 %3 %4
%11 = store %10 %9
%12 = end %4
)";

TEST(ProgramEval, TheThreadRangeRunsItsSlice) {
  std::vector<float> a{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, b(10, 100), c(10, -1);
  ASSERT_TRUE(RunText(kAdd, {BytesOfValues(a), BytesOfValues(b), BytesOfValues(c)}, 2, 5).ok());
  EXPECT_THAT(c, ElementsAre(-1, -1, 102, 103, 104, -1, -1, -1, -1, -1));
  ASSERT_TRUE(RunText(kAdd, {BytesOfValues(a), BytesOfValues(b), BytesOfValues(c)}, 0, 10).ok());
  EXPECT_THAT(c, ElementsAre(100, 101, 102, 103, 104, 105, 106, 107, 108, 109));
  ASSERT_TRUE(RunText(kAdd, {BytesOfValues(a), BytesOfValues(b), BytesOfValues(c)}, 3, 3).ok());
}

TEST(ProgramEval, RefusesWrongBuffersAndSlices) {
  std::vector<float> a(10), b(10), c(10), small(9);
  const auto code = [&](std::vector<std::span<uint8_t>> buffers, int64_t begin, int64_t end) {
    return RunText(kAdd, std::move(buffers), begin, end).code();
  };
  EXPECT_EQ(code({BytesOfValues(a), BytesOfValues(b)}, 0, 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({BytesOfValues(a), BytesOfValues(b), BytesOfValues(small)}, 0, 1),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({BytesOfValues(a), BytesOfValues(b), BytesOfValues(c)}, -1, 1),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({BytesOfValues(a), BytesOfValues(b), BytesOfValues(c)}, 0, 11),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({BytesOfValues(a), BytesOfValues(b), BytesOfValues(c)}, 2, 1),
            absl::StatusCode::kInvalidArgument);
}

// 10 elements in vectors of 4: the gate masks the lanes of the last vector.
constexpr std::string_view kGated = R"(
program gated iterations=3 flops=10 bytes=80 arguments=[i32 10 read, i32 10 write]
%0 = const i64 3
%1 = const i64 4
%2 = const i64 10
%3 = const i32 7
%4 = iota i64 [4]
%5 = param i32 [10] slot=0
%6 = param i32 [10] slot=1
%7 = range i64 %0 id=0 type=thread
%8 = mul i64 %7 %1
%9 = add i64 [4] %8 %4
%10 = cmplt bool [4] %9 %2
%11 = index i32 [4] %5 %9 %10
%12 = load i32 [4] %11
%13 = add i32 [4] %12 %3
%14 = index i32 [4] %6 %9 %10
%15 = store %14 %13
%16 = end %7
)";

TEST(ProgramEval, GatesMaskLanes) {
  std::vector<int32_t> in{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, out(10, -1);
  const absl::Status status = RunText(kGated, {BytesOfValues(in), BytesOfValues(out)}, 0, 3);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(out, ElementsAre(7, 8, 9, 10, 11, 12, 13, 14, 15, 16));
}

TEST(ProgramEval, WithoutItsGateTheSameProgramIsWrong) {
  std::string text(kGated);
  text.replace(text.find("%11 = index i32 [4] %5 %9 %10"), 29, "%11 = index i32 [4] %5 %9");
  std::vector<int32_t> in(10), out(10);
  const absl::Status read = RunText(text, {BytesOfValues(in), BytesOfValues(out)}, 0, 3);
  EXPECT_EQ(read.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(read.message()),
              HasSubstr("node 12 (load): lane 2 reads element 10 of argument 0, which has 10"));

  text = kGated;
  text.replace(text.find("%14 = index i32 [4] %6 %9 %10"), 29, "%14 = index i32 [4] %6 %9");
  const absl::Status write = RunText(text, {BytesOfValues(in), BytesOfValues(out)}, 0, 3);
  EXPECT_EQ(write.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(write.message()), HasSubstr("node 15 (store): lane 2 writes element 10"));
}

// c[i, :] = sum over k of a[i, k] * b[k, :] with a vector accumulator in registers.
constexpr std::string_view kMatmul = R"(
program matmul iterations=3 flops=96 bytes=176 arguments=[f32 12 read, f32 16 read, f32 12 write]
%0 = const i64 3
%1 = const i64 4
%2 = const f32 0
%3 = iota i64 [4]
%4 = param f32 [12] slot=0
%5 = param f32 [16] slot=1
%6 = param f32 [12] slot=2
%7 = buffer f32 [4] space=register slot=0
%8 = index f32 [4] %7 %3
%9 = range i64 %0 id=0 type=thread
%10 = store %8 %2
%11 = mul i64 %9 %1
%12 = range i64 %1 id=1 type=reduce
%13 = add i64 %11 %12
%14 = index f32 %4 %13
%15 = load f32 %14
%16 = mul i64 %12 %1
%17 = add i64 [4] %16 %3
%18 = index f32 [4] %5 %17
%19 = load f32 [4] %18
%20 = after f32 [4] %7 %10 %12
%21 = index f32 [4] %20 %3
%22 = load f32 [4] %21
%23 = mulacc f32 [4] %15 %19 %22
%24 = store %8 %23
%25 = end %12
%26 = after f32 [4] %7 %25
%27 = index f32 [4] %26 %3
%28 = load f32 [4] %27
%29 = add i64 [4] %11 %3
%30 = index f32 [4] %6 %29
%31 = store %30 %28
%32 = end %9
)";

TEST(ProgramEval, NestedLoopsWithARegisterAccumulator) {
  std::vector<float> a(12), b(16), c(12);
  for (int i = 0; i < 12; ++i) a[i] = static_cast<float>(i - 5);
  for (int i = 0; i < 16; ++i) b[i] = static_cast<float>(i * i % 7);
  const absl::Status status =
      RunText(kMatmul, {BytesOfValues(a), BytesOfValues(b), BytesOfValues(c)}, 0, 3);
  ASSERT_TRUE(status.ok()) << status;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 4; ++j) {
      float sum = 0;
      for (int k = 0; k < 4; ++k) sum += a[4 * i + k] * b[4 * k + j];
      EXPECT_EQ(c[4 * i + j], sum) << i << ", " << j;
    }
  }
}

TEST(ProgramEval, ReadingAnUnwrittenRegisterIsWrong) {
  std::string text(kMatmul);
  text.replace(text.find("%10 = store %8 %2"), 17, "%10 = add f32 %2 %2");
  text.replace(text.find("%20 = after f32 [4] %7 %10 %12"), 30, "%20 = after f32 [4] %7 %12");
  std::vector<float> a(12), b(16), c(12);
  const absl::Status status =
      RunText(text, {BytesOfValues(a), BytesOfValues(b), BytesOfValues(c)}, 0, 3);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has not been written"));
}

TEST(ProgramEval, VectorsFoldReshapeAndExpand) {
  constexpr std::string_view kText = R"(
program fold iterations=1 flops=0 bytes=0 arguments=[i32 4 read write]
%0 = iota i64 [4]
%1 = param i32 [4] slot=0
%2 = index i32 [4] %1 %0
%3 = load i32 [4] %2
%4 = reduce i32 [1] %3 kind=add axes=[0]
%5 = reduce i32 [1] %3 kind=max axes=[0]
%6 = reshape i32 %5
%7 = expand i32 [4] %4
%8 = mul i32 [4] %7 %6
%9 = cast i32 [4] %0
%10 = add i32 [4] %8 %9
%11 = store %2 %10
)";
  std::vector<int32_t> x{3, -1, 5, 2};
  const absl::Status status = RunText(kText, {BytesOfValues(x)}, 0, 1);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(x, ElementsAre(45, 46, 47, 48));
}

TEST(ProgramEval, ALoopOfNoIterationsIsSkipped) {
  constexpr std::string_view kText = R"(
program none iterations=1 flops=0 bytes=0 arguments=[i32 1 read write]
%0 = const i64 0
%1 = const i64 1000
%2 = param i32 [1] slot=0
%3 = range i64 %0 id=0 type=loop
%4 = range i64 %1 id=1 type=loop
%5 = index i32 %2 %4
%6 = load i32 %5
%7 = store %5 %6
%8 = end %4
%9 = end %3
)";
  std::vector<int32_t> x{3};
  EXPECT_TRUE(RunText(kText, {BytesOfValues(x)}, 0, 1).ok());
}

// Triangular loops: an inner end that depends on the outer range.
TEST(ProgramEval, AnEndMayDependOnAnOuterRange) {
  constexpr std::string_view kText = R"(
program triangle iterations=1 flops=0 bytes=0 arguments=[i64 1 read write]
%0 = const i64 5
%1 = const i64 0
%2 = const i64 1
%3 = param i64 [1] slot=0
%4 = index i64 %3 %1
%5 = range i64 %0 id=0 type=loop
%6 = range i64 %5 id=1 type=loop
%7 = load i64 %4
%8 = add i64 %7 %2
%9 = store %4 %8
%10 = end %6
%11 = end %5
)";
  std::vector<int64_t> x{0};
  const absl::Status status = RunText(kText, {BytesOfValues(x)}, 0, 1);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(x[0], 0 + 1 + 2 + 3 + 4);
}

TEST(ProgramEval, BoolsInMemoryAreTrueUnlessZero) {
  constexpr std::string_view kText = R"(
program bools iterations=1 flops=0 bytes=0 arguments=[bool 3 read, i32 3 write]
%0 = iota i64 [3]
%1 = param bool [3] slot=0
%2 = param i32 [3] slot=1
%3 = index bool [3] %1 %0
%4 = load bool [3] %3
%5 = cast i32 [3] %4
%6 = index i32 [3] %2 %0
%7 = store %6 %5
)";
  std::vector<uint8_t> in{0, 2, 255};
  std::vector<int32_t> out(3, 9);
  ASSERT_TRUE(RunText(kText, {BytesOfValues(in), BytesOfValues(out)}, 0, 1).ok());
  EXPECT_THAT(out, ElementsAre(0, 1, 1));
}

TEST(ProgramEval, NarrowAndPackedTypes) {
  constexpr std::string_view kText = R"(
program narrow iterations=1 flops=0 bytes=0 arguments=[u4 5 read, f16 1 write, i4 5 write, i2 4 read write]
%0 = iota i64 [5]
%1 = const i64 0
%2 = param u4 [5] slot=0
%3 = param f16 [1] slot=1
%4 = param i4 [5] slot=2
%5 = param i2 [4] slot=3
%6 = index u4 [5] %2 %0
%7 = load u4 [5] %6
%8 = cast f16 [5] %7
%9 = reduce f16 [1] %8 kind=add axes=[0]
%10 = reshape f16 %9
%11 = index f16 %3 %1
%12 = store %11 %10
%13 = cast i32 [5] %7
%14 = neg i32 [5] %13
%15 = cast i4 [5] %14
%16 = index i4 [5] %4 %0
%17 = store %16 %15
%18 = const i64 2
%19 = index i2 %5 %18
%20 = const i64 3
%21 = index i2 %5 %20
%22 = load i2 %21
%23 = store %19 %22
)";
  std::vector<uint8_t> in{0x21, 0x43, 0xf5}, out{0, 0, 0xa0}, pairs{0b10'00'01'11};
  std::vector<uint16_t> sum{0};
  const absl::Status status = RunText(
      kText, {BytesOfValues(in), BytesOfValues(sum), BytesOfValues(out), BytesOfValues(pairs)}, 0,
      1);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(sum[0], 0x4b80);  // 1 + 2 + 3 + 4 + 5 = 15
  // -1 to -5, the first one lowest; what is behind the last element stays.
  EXPECT_THAT(out, ElementsAre(0xef, 0xcd, 0xab));
  EXPECT_THAT(pairs, ElementsAre(0b10'10'01'11));
}

}  // namespace
}  // namespace telegrad::reference
