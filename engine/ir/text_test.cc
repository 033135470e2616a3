// The text form of graphs and programs: printing and parsing are inverse, and errors name the
// line and what was expected.
#include "engine/ir/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "engine/base/strings.h"
#include "engine/ir/scalar.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

TEST(Text, PrintsThePostOrder) {
  Graph g;
  const UOp a = g.Param(1, DType::kFloat32, Shape{2, 3});
  g.Param(0, DType::kFloat32, Shape{7});  // not needed
  const UOp half = g.ConstFloat(DType::kFloat32, 0.5);
  const UOp sum = g.Make(Op::kReduce, DType::kVoid, {g.Make(Op::kMul, {a, half})},
                         {static_cast<int64_t>(ReduceKind::kAdd), 0, 1});
  const UOp out = g.Param(2, DType::kFloat32, Shape{1, 1});
  const UOp root = g.Make(Op::kSink, {g.Make(Op::kStore, {out, sum})});
  EXPECT_EQ(Print(root), R"(%0 = param f32 [1, 1] slot=2
%1 = param f32 [2, 3] slot=1
%2 = const f32 0.5
%3 = mul f32 [2, 3] %1 %2
%4 = reduce f32 [1, 1] %3 kind=add axes=[0, 1]
%5 = store %0 %4
%6 = sink %5
)");
}

// Every argument kind, at all levels; canonical text parses to itself and to the same ids.
constexpr std::string_view kEverything = R"(%0 = param f32 [8] slot=1
%1 = param f32 [2, 3] slot=0
%2 = permute f32 [3, 2] %1 axes=[1, 0]
%3 = pad f32 [4, 2] %2 pairs=[1, 4, 0, 2]
%4 = shrink f32 [2, 2] %3 pairs=[0, 2, 0, 2]
%5 = flip f32 [2, 2] %4 axes=[]
%6 = reshape f32 [4] %5
%7 = reduce f32 [1] %6 kind=mul axes=[0]
%8 = expand f32 [8] %7
%9 = iota u16 [8]
%10 = cast u64 [8] %9
%11 = const u64 18446744073709551615
%12 = add u64 [8] %10 %11
%13 = gather f32 [8] %8 %12
%14 = buffer f32 [16] space=local slot=3
%15 = const i64 -9223372036854775808
%16 = range i64 %15 id=7 type=unroll
%17 = const bool false
%18 = index f32 %14 %16 %17
%19 = load f32 %18
%20 = add f32 [8] %13 %19
%21 = store %0 %20
%22 = end %21 %16
%23 = sink %22
)";

TEST(Text, EverythingRoundTrips) {
  Graph g;
  const absl::StatusOr<UOp> root = Parse(kEverything, &g);
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(Print(*root), kEverything);
  const uint32_t size = g.size();
  const absl::StatusOr<UOp> again = Parse(Print(*root), &g);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *root);
  EXPECT_EQ(g.size(), size);
}

TEST(Text, ConstantsRoundTripExactly) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  Graph g;
  const auto check = [&](UOp u) {
    const absl::StatusOr<UOp> back = Parse(Print(u), &g);
    ASSERT_TRUE(back.ok()) << back.status() << Print(u);
    ASSERT_EQ(*back, u) << Print(u);
  };
  constexpr double kEdges[] = {0.0,
                               -0.0,
                               0.1,
                               1e300,
                               1e-300,
                               5e-324,
                               1e-45,
                               3.4028234663852886e38,
                               std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN()};
  for (double edge : kEdges) {
    check(g.ConstFloat(DType::kFloat32, edge));
    check(g.ConstFloat(DType::kFloat64, edge));
  }
  for (int round = 0; round < 20'000; ++round) {
    const uint64_t bits = random();
    check(g.ConstFloat(DType::kFloat64, std::bit_cast<double>(bits)));
    const float narrow = std::bit_cast<float>(static_cast<uint32_t>(bits));
    check(g.ConstFloat(DType::kFloat32, static_cast<double>(narrow)));
    const DType dtype = AllDTypes()[1 + bits % (AllDTypes().size() - 1)].dtype;
    if (!IsFloat(dtype)) check(g.Const(dtype, static_cast<int64_t>(random())));
  }
}

TEST(Text, LabelsCommentsAndBlanksAreFree) {
  Graph g;
  const absl::StatusOr<UOp> root = Parse(R"(
# a comment
%7 = param i32 [] slot=0   # a scalar may say so

   %3=neg i32 %7
)",
                                         &g);
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(Print(*root), "%0 = param i32 slot=0\n%1 = neg i32 %0\n");
}

TEST(Text, ErrorsNameLineAndExpectation) {
  const auto message = [](std::string_view line) {
    Graph g;
    const absl::Status status =
        Parse(StrCat("%0 = param f32 [2] slot=0\n\n", line, "\n"), &g).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << std::string(line);
    return std::string(status.message());
  };
  EXPECT_EQ(message("%1 = frobnicate f32"),
            "line 3: expected the name of an op, got 'frobnicate f32'");
  EXPECT_EQ(message("neg f32 %0"), "line 3: expected '%', got 'neg f32 %0'");
  EXPECT_EQ(message("%x = neg f32 %0"), "line 3: expected a label, got 'x = neg f32 %0'");
  EXPECT_EQ(message("%1 neg f32 %0"), "line 3: expected '=', got 'neg f32 %0'");
  EXPECT_EQ(message("%1 = neg f99 %0"), "line 3: expected an element type, got 'f99 %0'");
  EXPECT_EQ(message("%1 = neg f32 [2] %5"), "line 3: %5 is not defined above this line");
  EXPECT_EQ(message("%0 = const f32 1"), "line 3: %0 is defined twice");
  EXPECT_EQ(message("%1 = neg f32 [2] %0 %"), "line 3: expected a label, got the end of the line");
  EXPECT_EQ(message("%1 = neg f32 [2] %0 axes=[1]"),
            "line 3: expected the end of the line, got 'axes=[1]'");
  EXPECT_EQ(message("%1 = neg f32 [3] %0"), "line 3: expected f32 [2], got f32 [3]");
  EXPECT_EQ(message("%1 = neg i32 [2] %0"), "line 3: expected f32 [2], got i32 [2]");
  EXPECT_EQ(message("%1 = neg f32 [2"), "line 3: expected ']', got the end of the line");
  EXPECT_EQ(message("%1 = neg f32 [2,] %0"), "line 3: expected an integer, got '] %0'");
  EXPECT_EQ(message("%1 = const f32 1.5x"), "line 3: expected a number, got '1.5x'");
  EXPECT_EQ(message("%1 = const f32 1e999"), "line 3: expected a number, got '1e999'");
  EXPECT_EQ(message("%1 = const i32 99999999999999999999"),
            "line 3: expected an integer of type i32, got '99999999999999999999'");
  EXPECT_EQ(message("%1 = const bool 1"), "line 3: expected true or false, got '1'");
  EXPECT_EQ(message("%1 = reduce f32 [1] %0 kind=min axes=[0]"),
            "line 3: expected one of add, mul, max, got 'min axes=[0]'");
  EXPECT_THAT(message("%1 = const i8 200"), HasSubstr("line 3: const: "));
  Graph g;
  EXPECT_EQ(Parse("# nothing\n", &g).status().message(), "line 2: expected a node");
}

TEST(Text, ParsingNeverDoesWorseThanAnError) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(StrCat("seed ", seed));
  std::mt19937 random(seed);
  int parsed = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text(kEverything);
    for (int n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text.erase(at, 1 + random() % 4);
      } else {
        text[at] = kEverything[random() % kEverything.size()];
      }
    }
    Graph g;
    const absl::StatusOr<UOp> root = Parse(text, &g);
    if (!root.ok()) continue;
    ++parsed;
    Graph h;
    const absl::StatusOr<UOp> back = Parse(Print(*root), &h);
    ASSERT_TRUE(back.ok()) << back.status() << Print(*root);
    ASSERT_EQ(Print(*back), Print(*root));
  }
  EXPECT_GT(parsed, 0);
}

constexpr std::string_view kProgram =
    R"(program copy iterations=16 flops=0 bytes=128.5 arguments=[f32 16 read, f32 16 write, i8 3 read write, u8 0]
%0 = const i64 16
%1 = range i64 %0 id=0 type=thread
%2 = param f32 [16] slot=0
%3 = param f32 [16] slot=1
%4 = index f32 %2 %1
%5 = load f32 %4
%6 = index f32 %3 %1
%7 = store %6 %5
%8 = end %1
)";

TEST(Text, ProgramsRoundTrip) {
  const absl::StatusOr<Program> program = ParseProgram(kProgram);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(Print(*program), kProgram);
  EXPECT_EQ(program->iterations, 16);
  EXPECT_EQ(program->bytes, 128.5);
  ASSERT_EQ(program->arguments.size(), 4u);
  EXPECT_TRUE(program->arguments[2].read && program->arguments[2].written);
  EXPECT_FALSE(program->arguments[3].read || program->arguments[3].written);
}

TEST(Text, ProgramErrors) {
  const auto message = [](std::string_view text) {
    return std::string(ParseProgram(text).status().message());
  };
  EXPECT_EQ(message(""), "line 1: expected 'program'");
  EXPECT_EQ(message("%0 = const i64 1"), "line 1: expected 'program', got '%0 = const i64 1'");
  EXPECT_EQ(message("program p iterations=x"), "line 1: expected an integer, got 'x'");
  EXPECT_EQ(message("program p iterations=1 flops=0 bytes=0 arguments=[f32]"),
            "line 1: expected a number of elements, got ']'");
}

}  // namespace
}  // namespace telegrad
