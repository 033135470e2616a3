// Every op of the table with at least one good and one bad use. A case is a line of text after a
// preamble; of a good one the parser checks that the inferred type and shape are those of the line.
#include "engine/ir/infer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "engine/ir/text.h"

namespace telegrad {
namespace {

constexpr std::string_view kPreamble = R"(
%0 = param f32 [2, 3] slot=0
%1 = param i32 [2, 3] slot=1
%2 = param bool [2, 3] slot=2
%3 = const f32 1
%4 = const i32 2
%5 = const bool true
%6 = param f32 [3, 2] slot=3
%7 = param f32 [8] slot=4
%8 = const i64 4
%9 = range i64 %8 id=0 type=loop
%10 = index f32 %7 %9
%11 = store %10 %3
%12 = param i64 [5] slot=5
%13 = param f32 [1, 3] slot=6
%14 = param bool [5] slot=7
)";

struct Case {
  std::string_view line;   // after "%20 = "
  std::string_view error;  // a part of the message; empty for a good case
};

constexpr Case kCases[] = {
    {"const f32 1.5", ""},
    {"const u8 255", ""},
    {"const u8 256", "not representable as u8"},
    {"const i8 -129", "not representable as i8"},
    {"const f32 %0 1", "has 1 sources, expected 0"},
    {"param f32 [2, 0] slot=9", ""},
    {"param f32 [2] slot=-1", "slot -1"},
    {"param f32 [2] slot=16384", "slot 16384"},
    {"param f32 [-2] slot=0", "negative"},
    {"param f32 [1099511627777] slot=0", "more than the limit"},
    {"param f32 [4294967296, 4294967296] slot=0", "more than the limit"},
    {"param f32 [0, 4294967296, 4294967296] slot=0", "more than the limit"},
    {"param f32 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1] slot=0", "rank 17"},
    {"iota i32 [4]", ""},
    {"iota f32 [4]", "expected an integer type"},
    {"iota i32 [2, 2]", "one dimension"},
    {"iota i32", "one dimension"},

    {"reshape f32 [3, 2] %0", ""},
    {"reshape f32 [6] %0", ""},
    {"reshape f32 [7] %0", "changes the number of elements"},
    {"reshape f32 [-2, -3] %0", "negative"},
    {"reshape f32 [6] %11", "has no value"},
    {"expand f32 [5, 3] %13", ""},
    {"expand f32 [5, 3] %0", "axis 0 has size 2 and cannot become 5"},
    {"expand f32 [5, 1, 3] %13", "changes the rank"},
    {"permute f32 [3, 2] %0 axes=[1, 0]", ""},
    {"permute f32 [3, 2] %0 axes=[1]", "names 1 axes of 2"},
    {"permute f32 [3, 2] %0 axes=[1, 1]", "appears twice"},
    {"permute f32 [3, 2] %0 axes=[1, 2]", "outside"},
    {"flip f32 [2, 3] %0 axes=[1]", ""},
    {"flip f32 [2, 3] %0 axes=[-1]", "outside"},
    {"pad f32 [3, 6] %0 pairs=[1, 0, 1, 2]", ""},
    {"pad f32 [3, 6] %0 pairs=[-1, 0, 1, 2]", "two sizes >= 0"},
    {"pad f32 [3, 6] %0 pairs=[1, 0]", "argument words"},
    {"pad f32 [3, 6] %0 pairs=[9223372036854775807, 1, 0, 0]", "padding"},
    {"shrink f32 [1, 0] %0 pairs=[1, 2, 3, 3]", ""},
    {"shrink f32 [1, 3] %0 pairs=[1, 3, 0, 3]", "has no part [1, 3)"},
    {"shrink f32 [1, 3] %0 pairs=[1, 0, 0, 3]", "has no part [1, 0)"},

    {"neg f32 [2, 3] %0", ""},
    {"neg bool %5", "expected an integer or float type"},
    {"exp2 f32 %3", ""},
    {"exp2 i32 %4", "expected a float type"},
    {"log2 f32 %3", ""},
    {"log2 i32 %4", "expected a float type"},
    {"sqrt f32 %3", ""},
    {"sqrt i32 %4", "expected a float type"},
    {"recip f32 %3", ""},
    {"recip i32 %4", "expected a float type"},
    {"trunc f32 %3", ""},
    {"trunc i32 %4", "expected a float type"},
    {"floor f32 %3", ""},
    {"floor i32 %4", "expected a float type"},
    {"cast u8 [2, 3] %0", ""},
    {"cast bool %4", ""},
    {"cast f32 %11", "has no value"},
    {"bitcast i32 [2, 3] %0", ""},
    {"bitcast u8 [2, 3] %2", ""},
    {"bitcast i64 [2, 3] %0", "changes the width"},

    {"add f32 [2, 3] %0 %3", ""},
    {"add i32 [2, 3] %4 %1", ""},
    {"add f32 [2, 3] %0", "has 1 sources, expected 2"},
    {"add f32 [2, 3] %0 %4", "source 1 has element type i32, expected f32"},
    {"add f32 [2, 3] %0 %6", "source 1 has shape [3, 2], expected [2, 3]"},
    {"add bool %5 %5", "expected an integer or float type"},
    {"sub f32 %3 %3", ""},
    {"sub bool %5 %5", "expected an integer or float type"},
    {"mul f32 %3 %3", ""},
    {"mul bool %5 %5", "expected an integer or float type"},
    {"fdiv f32 %3 %3", ""},
    {"fdiv i32 %4 %4", "expected a float type"},
    {"floordiv i32 %4 %4", ""},
    {"floordiv f32 %3 %3", "expected an integer type"},
    {"floormod i32 %4 %4", ""},
    {"floormod f32 %3 %3", "expected an integer type"},
    {"max f32 %3 %3", ""},
    {"max bool %5 %5", "expected an integer or float type"},
    {"cmplt bool [2, 3] %0 %3", ""},
    {"cmplt bool %5 %5", ""},
    {"cmplt bool %3 %4", "expected f32"},
    {"cmpeq bool %3 %3", ""},
    {"cmpeq bool %3 %5", "expected f32"},
    {"cmpne bool %3 %3", ""},
    {"cmpne bool %3", "has 1 sources"},
    {"and i32 %4 %4", ""},
    {"and bool %5 %5", ""},
    {"and f32 %3 %3", "expected an integer type or bool"},
    {"or bool %5 %5", ""},
    {"or f32 %3 %3", "expected an integer type or bool"},
    {"xor bool %5 %5", ""},
    {"xor f32 %3 %3", "expected an integer type or bool"},
    {"shl i32 %4 %4", ""},
    {"shl bool %5 %5", "expected an integer type"},
    {"shr i32 %4 %4", ""},
    {"shr i32 %4 %8", "expected i32"},

    {"where f32 [2, 3] %2 %0 %3", ""},
    {"where bool %5 %5 %5", ""},
    {"where f32 %4 %3 %3", "expected bool"},
    {"where f32 %5 %3 %4", "source 2 has element type i32"},
    {"where f32 [2, 3] %2 %6 %3", "source 1 has shape [3, 2]"},
    {"mulacc f32 [2, 3] %0 %3 %3", ""},
    {"mulacc f32 %3 %3", "has 2 sources, expected 3"},

    {"reduce f32 [1, 3] %0 kind=max axes=[0]", ""},
    {"reduce f32 [2, 3] %0 kind=add axes=[]", ""},
    {"reduce f32 %3 %9 kind=add axes=[]", ""},
    {"reduce f32 [1, 3] %0 kind=add axes=[2]", "outside"},
    {"reduce f32 [1, 3] %0 kind=add axes=[0, 0]", "twice"},
    {"reduce bool [1, 3] %2 kind=add axes=[0]", "expected an integer or float type"},
    {"reduce f32 %3 %4 kind=add axes=[]", "source 1 is not a range"},
    {"gather f32 [5, 3] %0 %12", ""},
    {"gather f32 [2, 3, 3] %0 %1", ""},
    {"gather f32 [2, 3, 3] %0 %6", "expected an integer type"},
    {"gather f32 %3 %4", "expected rows"},

    {"store %0 %3", ""},
    {"store %0 %0", ""},
    {"store %0 %6", "the value has shape [3, 2]"},
    {"store %0 %4", "the value has element type i32"},
    {"store %10 %0", "the value has shape [2, 3]"},
    {"store %11 %11", "source 0 has no value"},
    {"store %0 %11", "source 1 has no value"},
    {"after f32 [8] %7 %11", ""},
    {"after f32 [8] %7 %9", ""},
    {"after f32 [8] %7", "has 1 sources, expected 2 or more"},
    {"after f32 [8] %7 %3", "is not an effect"},
    {"after f32 [8] %11 %11", "expected a value"},
    {"sink %11", ""},
    {"sink", "has 0 sources"},
    {"sink %3", "is not an effect"},
    {"contiguous f32 [2, 3] %0", ""},
    {"contiguous f32 [2, 3] %0 %0", "has 2 sources, expected 1"},
    {"detach f32 [2, 3] %0", ""},
    {"detach f32 [2, 3] %11", "has no value"},

    {"range i32 %4 id=1 type=reduce", ""},
    {"range f32 %3 id=1 type=loop", "expected an integer type"},
    {"range i32 [2, 3] %1 id=1 type=loop", "expected a scalar"},
    {"index f32 [5] %7 %12", ""},
    {"index f32 [5] %7 %12 %5", ""},
    {"index f32 [5] %7 %12 %14", ""},
    {"index f32 %7 %3", "not an integer index"},
    {"index f32 %7 %8 %4", "the gate is not bool"},
    {"index f32 %7 %8 %14", "the gate has shape [5]"},
    {"load f32 %10", ""},
    {"load f32 %11", "has no value"},
    {"buffer f32 [16] space=register slot=0", ""},
    {"buffer f32 [-1] space=register slot=0", "negative"},
    {"end %9", ""},
    {"end %11 %9", ""},
    {"end %9 %9", "expected 1"},
    {"end %3", "is not an effect"},
    {"end %11 %3", "is not a range"},
};

TEST(Infer, GoodAndBadUsesOfEveryOp) {
  std::set<std::string> good, bad;
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::string(c.line));
    Graph graph;
    const absl::StatusOr<UOp> u = Parse(StrCat(kPreamble, "%20 = ", c.line), &graph);
    const std::string op(c.line.substr(0, c.line.find(' ')));
    if (c.error.empty()) {
      EXPECT_TRUE(u.ok()) << u.status();
      good.insert(op);
    } else {
      EXPECT_EQ(u.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(u.status().message()), ::testing::HasSubstr(std::string(c.error)));
      EXPECT_THAT(std::string(u.status().message()), ::testing::HasSubstr(op + ": "));
      bad.insert(op);
    }
  }
  for (const OpInfo& row : AllOps()) {
    EXPECT_TRUE(good.contains(std::string(row.name))) << "no good use of " << std::string(row.name);
    EXPECT_TRUE(bad.contains(std::string(row.name))) << "no bad use of " << std::string(row.name);
  }
}

// What text cannot say.
TEST(Infer, ArgumentsOfTheWrongForm) {
  Graph g;
  const auto message = [&](UOp u) {
    EXPECT_FALSE(u.valid());
    return std::string(g.TakeStatus().message());
  };
  using ::testing::HasSubstr;
  const UOp x = g.Const(DType::kFloat32, 1), i = g.Const(DType::kInt64, 3);
  EXPECT_THAT(message(g.Make(Op::kConst, DType::kInt8, {}, {128})), HasSubstr("representable"));
  EXPECT_THAT(message(g.Make(Op::kConst, DType::kVoid, {}, {0})), HasSubstr("void"));
  EXPECT_THAT(message(g.Make(Op::kConst, DType::kInt8, {}, {1, 2})), HasSubstr("expected 1"));
  EXPECT_THAT(message(g.Make(Op::kParam, DType::kInt8, {}, {})), HasSubstr("no slot"));
  EXPECT_THAT(message(g.Make(Op::kNeg, DType::kVoid, {x}, {1})), HasSubstr("expected 0"));
  EXPECT_THAT(message(g.Make(Op::kCast, DType::kVoid, {x})), HasSubstr("no element type"));
  EXPECT_THAT(message(g.Make(Op::kReduce, DType::kVoid, {x}, {3})), HasSubstr("known kind"));
  EXPECT_THAT(message(g.Make(Op::kReduce, DType::kVoid, {x}, {})), HasSubstr("known kind"));
  EXPECT_THAT(message(g.Make(Op::kRange, DType::kVoid, {i}, {0, 6})), HasSubstr("axis type 6"));
  EXPECT_THAT(message(g.Make(Op::kRange, DType::kVoid, {i}, {0})), HasSubstr("expected 2"));
  EXPECT_THAT(message(g.Make(Op::kBuffer, DType::kInt8, {}, {3, 0, 1})), HasSubstr("space 3"));
  EXPECT_THAT(message(g.ConstFloat(DType::kVoid, 1)), HasSubstr("void"));
  const UOp byte = g.Const(DType::kUInt8, 2);
  EXPECT_THAT(message(g.Make(Op::kBitcast, DType::kBool, {byte})), HasSubstr("expected a cast"));
  EXPECT_TRUE(g.Make(Op::kBitcast, DType::kBool, {g.True()}).valid());
}

}  // namespace
}  // namespace telegrad
