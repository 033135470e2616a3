// Variables, symbolic sizes, function bodies and values on several devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "engine/reference/tensor_eval_test.h"

namespace telegrad::reference {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// --- variables and symbolic sizes ---

constexpr std::string_view kSumOfPart = R"(
  %0 = param i32 [6] slot=0
  %1 = var i64 id=0 min=0 max=4 multiple=2
  %2 = shrink i32 [4] %0 %1 pairs=[1, -2]
  %3 = reduce i32 [1] %2 kind=add axes=[0]
  %4 = param i32 [1] slot=1
  %5 = store %4 %3
  %6 = sink %5
)";

TEST(TensorEvalSymbolic, SizesAreTheRunsOwn) {
  for (const auto& [size, sum] : std::map<int64_t, int>{{0, 0}, {2, 20 + 30}, {4, 140}}) {
    std::vector<Bytes> slots{ToBytes<int32_t>({10, 20, 30, 40, 50, 60}), Bytes(4)};
    const absl::Status status = Eval(kSumOfPart, slots, {{0, size}});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(FromBytes<int32_t>(slots[1]), ElementsAre(sum));
  }
}

TEST(TensorEvalSymbolic, VariablesAreChecked) {
  std::vector<Bytes> slots{Bytes(24), Bytes(4)};
  const auto message = [&](const Variables& variables) {
    const absl::Status status = Eval(kSumOfPart, slots, variables);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(message({}), "var: variable 0 has no value");
  EXPECT_EQ(message({{0, 6}}), "var: variable 0 is 6, expected a multiple of 2 in [0, 4]");
  EXPECT_EQ(message({{0, 3}}), "var: variable 0 is 3, expected a multiple of 2 in [0, 4]");
  EXPECT_EQ(message({{0, -2}}), "var: variable 0 is -2, expected a multiple of 2 in [0, 4]");
}

TEST(TensorEvalSymbolic, ADeviceVariableIsClampedAndRoundedDown) {
  for (const auto& [given, used] :
       std::map<int32_t, int64_t>{{INT32_MIN, -6}, {-5, -6}, {-1, -3}, {5, 3}, {7, 6}, {900, 9}}) {
    std::vector<Bytes> slots{ToBytes<int32_t>({given}), Bytes(8)};
    const absl::Status status = Eval(R"(
      %0 = param i32 slot=0
      %1 = var i64 %0 id=3 min=-6 max=9 multiple=3
      %2 = param i64 slot=1
      %3 = store %2 %1
      %4 = sink %3
    )",
                                     slots);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(FromBytes<int64_t>(slots[1]), ElementsAre(used)) << given;
  }
}

// A cache of four rows, written at a variable place and read up to it.
TEST(TensorEvalSymbolic, ACacheIsWrittenAndReadAtAVariable) {
  constexpr std::string_view kText = R"(
    %0 = param i32 [4, 2] slot=0
    %1 = var i64 id=0 min=0 max=4 multiple=1
    %2 = shrink i32 [1, 2] %0 %1 pairs=[-2, 1, 0, 2]
    %3 = param i32 [1, 2] slot=1
    %4 = store %2 %3
    %5 = after i32 [4, 2] %0 %4
    %6 = const i64 1
    %7 = add i64 %1 %6
    %8 = shrink i32 [5, 2] %5 %7 pairs=[0, -2, 0, 2]
    %9 = reduce i32 [1, 2] %8 kind=add axes=[0]
    %10 = param i32 [1, 2] slot=2
    %11 = store %10 %9
    %12 = sink %11 %4
  )";
  const auto run = [&](int64_t at) {
    std::vector<Bytes> slots{ToBytes<int32_t>({1, 2, 3, 4, 5, 6, 7, 8}), ToBytes<int32_t>({50, 60}),
                             Bytes(8)};
    const absl::Status status = Eval(kText, slots, {{0, at}});
    EXPECT_TRUE(status.ok()) << status;
    std::vector<int32_t> out = FromBytes<int32_t>(slots[0]);
    for (int32_t x : FromBytes<int32_t>(slots[2])) out.push_back(x);
    return out;
  };
  EXPECT_THAT(run(0), ElementsAre(50, 60, 3, 4, 5, 6, 7, 8, 50, 60));
  EXPECT_THAT(run(2), ElementsAre(1, 2, 3, 4, 50, 60, 7, 8, 54, 66));
  // Beyond the end nothing is written and zeros are read.
  EXPECT_THAT(run(4), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 16, 20));
}

TEST(TensorEvalSymbolic, PadExpandReshapeAndIota) {
  std::vector<Bytes> slots{Bytes(10 * 8)};
  const absl::Status status = Eval(R"(
    %0 = var i64 id=0 min=1 max=3 multiple=1
    %1 = iota i64 [3] %0 dims=[-1]
    %2 = reshape i64 [3, 1] %1 %0 dims=[-2, 1]
    %3 = expand i64 [3, 3] %2 %0 dims=[-2, -2]
    %4 = mul i64 %0 %0
    %5 = reshape i64 [9] %3 %4 dims=[-2]
    %6 = pad i64 [10] %5 pairs=[1, 10]
    %7 = param i64 [10] slot=0
    %8 = store %7 %6
    %9 = sink %8
  )",
                                   slots, {{0, 2}});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(FromBytes<int64_t>(slots[0]), ElementsAre(0, 0, 0, 1, 1, 0, 0, 0, 0, 0));
}

// --- functions ---

TEST(TensorEvalFunctions, ABodyHasArgumentsOfItsOwn) {
  std::vector<Bytes> slots{ToBytes<int32_t>({7, 8}), ToBytes<int32_t>({1, 2}), Bytes(8)};
  const absl::Status status = Eval(R"(
    %0 = arg i32 [2] slot=0
    %1 = arg i32 [2] slot=1
    %2 = sub i32 [2] %0 %1
    %3 = tuple %2 %0
    %4 = param i32 [2] slot=0
    %5 = param i32 [2] slot=1
    %6 = call %3 %4 %5
    %7 = call %3 %5 %4
    %8 = gettuple i32 [2] %6 n=0
    %9 = gettuple i32 [2] %7 n=0
    %10 = mul i32 [2] %8 %9
    %11 = gettuple i32 [2] %7 n=1
    %12 = add i32 [2] %10 %11
    %13 = param i32 [2] slot=2
    %14 = store %13 %12
    %15 = sink %14
  )",
                                   slots);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(FromBytes<int32_t>(slots[2]), ElementsAre(-36 + 1, -36 + 2));
}

// Fibonacci numbers: (a, b) -> (b, a + b), and the sum of the iterations on the side.
constexpr std::string_view kFibonacci = R"(
  %0 = arg i64 slot=0
  %1 = arg i64 slot=1
  %2 = arg i64 slot=2
  %3 = arg i64 slot=3
  %4 = add i64 %1 %2
  %5 = add i64 %3 %0
  %6 = tuple %2 %4 %5
  %7 = var i64 id=0 min=-5 max=100 multiple=1
  %8 = const i64 0
  %9 = const i64 1
  %10 = loop %6 %7 %8 %9 %8
  %11 = gettuple i64 %10 n=0
  %12 = gettuple i64 %10 n=2
  %13 = param i64 slot=0
  %14 = store %13 %11
  %15 = param i64 slot=1
  %16 = store %15 %12
  %17 = sink %14 %16
)";

TEST(TensorEvalFunctions, LoopsCarryValues) {
  const auto run = [](int64_t trips) {
    std::vector<Bytes> slots{Bytes(8), Bytes(8)};
    const absl::Status status = Eval(kFibonacci, slots, {{0, trips}});
    EXPECT_TRUE(status.ok()) << status;
    return std::pair(FromBytes<int64_t>(slots[0])[0], FromBytes<int64_t>(slots[1])[0]);
  };
  EXPECT_EQ(run(0), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ(run(-5), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ(run(1), std::pair(int64_t{1}, int64_t{0}));
  EXPECT_EQ(run(10), std::pair(int64_t{55}, int64_t{45}));
  EXPECT_EQ(run(90), std::pair(int64_t{2880067194370816120}, int64_t{90 * 89 / 2}));
}

TEST(TensorEvalFunctions, LoopsPayForEveryIteration) {
  std::vector<Bytes> slots{Bytes(8), Bytes(8)};
  EXPECT_EQ(Eval(kFibonacci, slots, {{0, 100}}, {.nodes = 500}).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Eval(kFibonacci, slots, {{0, 100}}, {.nodes = 1000}).ok());
}

// Every body calls the one below it twice: 2^40 calls in 41 bodies.
TEST(TensorEvalFunctions, SharedBodiesEndInTheBudget) {
  std::string text = "%0 = arg i64 slot=0\n%1 = add i64 %0 %0\n%2 = tuple %1\n";
  int last = 2;
  for (int depth = 0; depth < 40; ++depth) {
    const int n = last + 1;
    StrAppend(&text, "%", n, " = call %", last, " %0\n");
    StrAppend(&text, "%", n + 1, " = gettuple i64 %", n, " n=0\n");
    StrAppend(&text, "%", n + 2, " = call %", last, " %", n + 1, "\n");
    StrAppend(&text, "%", n + 3, " = gettuple i64 %", n + 2, " n=0\n");
    StrAppend(&text, "%", n + 4, " = tuple %", n + 3, "\n");
    last = n + 4;
  }
  StrAppend(&text, "%900 = param i64 slot=0\n%901 = call %", last, " %900\n",
            "%902 = gettuple i64 %901 n=0\n%903 = store %900 %902\n%904 = sink %903\n");
  std::vector<Bytes> slots{ToBytes<int64_t>({1})};
  EXPECT_EQ(Eval(text, slots, {}, {.nodes = 100'000}).code(), absl::StatusCode::kResourceExhausted);
}

// 20,000 bodies, each of which calls the one below it.
TEST(TensorEvalFunctions, DeepCallsNeedNoStack) {
  std::string text = "%0 = arg i64 slot=0\n%1 = const i64 1\n%2 = add i64 %0 %1\n%3 = tuple %2\n";
  int last = 3;
  for (int depth = 0; depth < 20'000; ++depth, last += 4) {
    StrAppend(&text, "%", last + 1, " = call %", last, " %0\n%", last + 2, " = gettuple i64 %",
              last + 1, " n=0\n%", last + 3, " = add i64 %", last + 2, " %1\n%", last + 4,
              " = tuple %", last + 3, "\n");
  }
  StrAppend(&text, "%900000 = param i64 slot=0\n%900001 = call %", last, " %900000\n",
            "%900002 = gettuple i64 %900001 n=0\n%900003 = store %900000 %900002\n",
            "%900004 = sink %900003\n");
  std::vector<Bytes> slots{ToBytes<int64_t>({5})};
  const absl::Status status = Eval(text, slots);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(FromBytes<int64_t>(slots[0]), ElementsAre(20'006));
}

// --- devices ---

TEST(TensorEvalDevices, ShardsAreStackedReducedAndPutTogether) {
  std::vector<Bytes> slots{ToBytes<int32_t>({1, 2}), ToBytes<int32_t>({30, 40}), Bytes(8),
                           Bytes(16), Bytes(8)};
  const absl::Status status = Eval(R"(
    %0 = param i32 [2] slot=0
    %1 = param i32 [2] slot=1 device=1
    %2 = mstack i32 [2] %0 %1
    %3 = const i32 1
    %4 = add i32 [2] %2 %3
    %5 = allreduce i32 [2] %4 kind=add
    %6 = mselect i32 [2] %5 n=1
    %7 = param i32 [2] slot=2 device=1
    %8 = store %7 %6
    %9 = unshard i32 [4] %4 axes=[0]
    %10 = mselect i32 [4] %9 n=0
    %11 = param i32 [4] slot=3
    %12 = store %11 %10
    %13 = copy i32 [2] %1 devices=[0, 2]
    %14 = mselect i32 [2] %13 n=0
    %15 = param i32 [2] slot=4
    %16 = store %15 %14
    %17 = sink %8 %12 %16
  )",
                                   slots);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(FromBytes<int32_t>(slots[2]), ElementsAre(33, 44));
  EXPECT_THAT(FromBytes<int32_t>(slots[3]), ElementsAre(2, 3, 31, 41));
  EXPECT_THAT(FromBytes<int32_t>(slots[4]), ElementsAre(30, 40));
}

// --- memory ---

TEST(TensorEvalBudget, LiveBytesAreCountedAndGivenBack) {
  constexpr std::string_view kText = R"(
    %0 = param i64 [1000] slot=0
    %1 = neg i64 [1000] %0
    %2 = neg i64 [1000] %1
    %3 = add i64 [1000] %2 %0
    %4 = mul i64 [1000] %3 %3
    %5 = sub i64 [1000] %4 %4
    %6 = store %0 %5
    %7 = sink %6
  )";
  std::vector<Bytes> slots{Bytes(8000)};
  // No more than four of the seven tensors are alive at once.
  EXPECT_TRUE(Eval(kText, slots, {}, {.bytes = 4 * 8000}).ok());
  const absl::Status status = Eval(kText, slots, {}, {.bytes = 2 * 8000});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("bytes"));
}

TEST(TensorEvalBudget, ADeepGraphNeedsNoStack) {
  Graph g;
  const UOp param = g.Param(0, DType::kInt32, {});
  UOp x = param;
  for (int i = 0; i < 300'000; ++i) x = g.Make(Op::kAdd, {x, i % 3 == 0 ? x : param});
  const UOp sink = g.Make(Op::kSink, {g.Make(Op::kStore, {param, x})});
  ASSERT_TRUE(g.status().ok()) << g.status();
  std::vector<Bytes> slots{ToBytes<int32_t>({3})};
  Budget budget;
  const absl::Status status = Evaluate(sink, slots, &budget);
  ASSERT_TRUE(status.ok()) << status;
  uint32_t want = 3;
  for (int i = 0; i < 300'000; ++i) want += i % 3 == 0 ? want : 3;
  EXPECT_THAT(FromBytes<uint32_t>(slots[0]), ElementsAre(want));
}

TEST(TensorEvalBudget, WorkEndsAtTheDeadline) {
  std::vector<Bytes> slots{Bytes(8), Bytes(8)};
  EXPECT_EQ(Eval(R"(
    %0 = param i64 [1] slot=0
    %1 = expand i64 [100000000] %0
    %2 = reduce i64 [1] %1 kind=add axes=[0]
    %3 = param i64 [1] slot=1
    %4 = store %3 %2
    %5 = sink %4
  )",
                 slots, {}, {.time = std::chrono::milliseconds(50)})
                .code(),
            absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace telegrad::reference
