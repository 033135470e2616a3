// Every op of the table with at least one good and one bad use. A case is a line of text after a
// preamble; of a good one the parser checks that the inferred type and shape are those of the line.
#include "engine/ir/infer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "engine/base/strings.h"
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
%15 = var i64 id=0 min=0 max=8 multiple=1
%16 = shrink f32 [8] %7 %15 pairs=[0, -2]
%17 = param f32 [2, 3] slot=8 device=1
%18 = mstack f32 [2, 3] %0 %17
%19 = tuple %0 %3
%30 = param u4 [6] slot=9
%31 = param u64 slot=10
%32 = buffer f16 [4096] space=local slot=0
%33 = index f16 %32 %8
%34 = mbarrier i64 [2] slot=0 arrivals=4
%35 = index i64 %34 %8
%36 = copy_async %33 %33 rows=2 columns=8 to_stride=8 from_stride=8
%37 = buffer f16 [8] space=register slot=1
%38 = iota i64 [8]
%39 = index f16 [8] %37 %38
%40 = load f16 [8] %39
%41 = buffer f32 [32] space=register slot=2
%42 = index f32 %41 %8
%43 = iota i64 [4]
%44 = index f16 [4] %37 %43
%45 = load f16 [4] %44
%46 = index f32 [4] %41 %43
%47 = load f32 [4] %46
%48 = arg f32 slot=1
%49 = tuple %48
%50 = tuple %18
%51 = copy f32 [2, 3] %0 devices=[0, 1, 2]
%52 = const i64 12
%53 = const i64 1
%54 = add i64 %15 %53
%55 = mul i64 %15 %52
%56 = add i64 %55 %52
%57 = param f32 [8, 12] slot=11
%58 = pad f32 [9, 12] %57 %54 pairs=[0, -2, 0, 12]
%59 = mul i64 %54 %54
)";

struct Case {
  std::string_view line;   // after "%99 = "
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
    {"param f32 [281474976710657] slot=0", "more than the limit"},
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
    {"pad f32 [3, 6] %0 pairs=[1, 3, 1, 6]", ""},
    {"pad f32 [3, 6] %0 pairs=[-1, 3, 1, 6]", "negative"},
    {"pad f32 [3, 6] %0 pairs=[2, 3, 1, 6]", "does not fit at offset 2 of size 3"},
    {"shrink f32 [1, 3] %0 pairs=[1, 9223372036854775807, 0, 3]", "over the limit of"},
    {"pad f32 [3, 6] %0 pairs=[1, 0]", "argument words"},
    {"pad f32 [3, 6] %0 pairs=[9223372036854775807, 3, 0, 6]", "over the limit of"},
    {"shrink f32 [1, 0] %0 pairs=[1, 1, 3, 0]", ""},
    {"shrink f32 [1, 3] %0 pairs=[1, 2, 0, 3]", "has no part at offset 1 of size 2"},
    {"shrink f32 [1, 3] %0 pairs=[1, -1, 0, 3]", "negative"},

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
    {"bitcast i64 [2, 3] %0", "the last axis has 3 elements of 32 bits"},
    {"bitcast i64 %3", "changes the width"},
    {"bitcast u8 [2, 12] %0", ""},
    {"bitcast i64 [4] %7", ""},
    {"bitcast u8 [3] %30", ""},
    {"bitcast i64 [4] %16", "changes the width"},

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
    {"where u4 [6] %5 %30 %30", ""},
    {"cast f32 [6] %30", ""},
    {"add u4 [6] %30 %30", "has element type u4, expected an integer or float type"},
    {"cmplt bool [6] %30 %30", "expected a type that is not for storage only"},
    {"add f32 [2, 3] %0 %17", "source 1 is on devices [1]"},
    {"mulacc f32 [2, 3] %0 %3 %3", ""},
    {"dot4 i32 [2, 3] %1 %4 %4", ""},
    {"dot4 f32 %3 %3 %3", "expected i32"},
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

    {"var i64 id=1 min=-4 max=8 multiple=4", ""},
    {"var i64 %4 id=1 min=0 max=8 multiple=1", ""},
    {"var i64 id=1 min=8 max=4 multiple=1", "expected min <= max"},
    {"var i64 id=1 min=1 max=4 multiple=4", "a multiple of 4"},
    {"var i64 id=1 min=0 max=4 multiple=0", "multiple 0 is outside of [1, "},
    {"var i64 %1 id=1 min=0 max=4 multiple=1", "expected a scalar integer"},
    {"arg f32 [2] slot=3", ""},
    {"arg f32 [2] slot=-1", "slot -1"},
    {"cat f32 [5, 3] %0 %6 axes=[0]", "expected [2, 3] but for axis 0"},
    {"cat f32 [4, 3] %0 %0 axes=[0]", ""},
    {"cat f32 [2, 9] %0 %0 %0 axes=[1]", ""},
    {"cat f32 [4, 3] %0 %1 axes=[0]", "source 1 has element type i32"},
    {"cat f32 [16] %16 %16 axes=[0]", "symbolic size"},
    {"cat f32 [4, 3] %0 %0 axes=[]", "expected one"},
    {"sin f32 %3", ""},
    {"sin i32 %4", "expected a float type"},
    {"cdiv i32 %4 %4", ""},
    {"cdiv f32 %3 %3", "expected an integer type"},
    {"cmod i32 %4 %4", ""},
    {"cmod f32 %3 %3", "expected an integer type"},
    {"pow f32 [2, 3] %0 %3", ""},
    {"pow i32 %4 %4", "expected a float type"},
    {"threefry u64 %31 %31", ""},
    {"threefry i32 %4 %4", "expected u64"},
    {"scatter f32 [8] %7 %12 %3 kind=add", "the rows have shape []"},
    {"scatter f32 [1, 3] %13 %1 %0 kind=set", "the rows have shape [2, 3]"},
    {"scatter u4 [6] %30 %4 %30 kind=set", "the rows have shape [6]"},
    {"scatter f32 [2, 3] %0 %4 %16 kind=max", "the rows have shape [8] with symbolic sizes"},
    {"scatter bool [5] %14 %4 %5 kind=set", ""},
    {"scatter bool [5] %14 %4 %5 kind=add", "expected an integer or float type for add"},

    {"iota i64 [8] %15 dims=[-1]", ""},
    {"iota i64 [8] %4 dims=[-1]", "expected a scalar i64"},
    {"reshape f32 [2, 4] %7 %15 dims=[2, -2]", "changes the number of elements"},
    {"reshape f32 [8, 1] %16 %15 dims=[-2, 1]", ""},
    {"reshape f32 [8] %7 %15", "source 1 is none"},
    {"reshape f32 [108] %58 %56 dims=[-2]", ""},  // (n + 1) 12 = 12 n + 12
    {"reshape f32 [96] %58 %55 dims=[-2]", "changes the number of elements"},
    {"reshape f32 [81] %58 %59 dims=[-2]", "changes the number of elements"},
    {"neg f32 [8] %16", ""},
    {"add f32 [8] %16 %7", "source 1 has shape [8], expected [8] with symbolic sizes"},
    {"expand f32 [8, 3] %13 %15 dims=[-2, 3]", ""},
    {"pad f32 [9] %16 pairs=[1, 9]", ""},
    {"shrink f32 [2] %7 %15 pairs=[-2, 2]", ""},
    {"shrink f32 [2] %7 pairs=[-2, 2]", "names no source"},
    {"shrink f32 [2] %7 %8 pairs=[-2, 2]", ""},

    {"tuple %0 %3", ""},
    {"tuple %11", "has no value"},
    {"call %19", ""},
    {"call %0 %0", "expected a tuple"},
    {"gettuple f32 [2, 3] %19 n=0", ""},
    {"gettuple f32 %19 n=2", "names value 2 of 2"},
    {"gettuple f32 %3 n=0", "expected a tuple, call or loop"},
    {"loop %49 %15 %3", ""},
    {"loop %49 %31 %3", "the trip count may be more than the limit"},
    {"loop %49 %15 %0", "value 0 of the body is f32 [], expected f32 [2, 3]"},
    {"loop %50 %15 %18", ""},
    {"loop %50 %15 %51", "value 0 of the body is on 2 devices, expected 3 as is carried"},
    {"loop %50 %15 %17", "value 0 of the body is on 2 devices, expected 1 as is carried"},
    {"loop %49 %15 %3 %3", "the body gives 1 values, expected 2"},

    {"copy f32 [2, 3] %0 devices=[0, 1]", ""},
    {"copy f32 [2, 3] %0 devices=[]", "names no device"},
    {"copy f32 [2, 3] %0 devices=[256]", "devices has 256"},
    {"copy f32 [2, 3] %18 devices=[0]", "is on 2 devices"},
    {"mstack f32 [2, 3] %0 %17", ""},
    {"mstack f32 [2, 3] %0 %6", "source 1 is f32 [3, 2], expected f32 [2, 3]"},
    {"mstack f32 %3", "source 0 is on 0 devices"},
    {"mselect f32 [2, 3] %18 n=1", ""},
    {"mselect f32 [2, 3] %18 n=2", "names instance 2 of 2"},
    {"allreduce f32 [2, 3] %18 kind=add", ""},
    {"allreduce bool %5 kind=add", "expected an integer or float type"},
    {"unshard f32 [2, 6] %18 axes=[1]", ""},
    {"unshard f32 [2, 6] %18 axes=[0, 1]", "expected one"},

    {"role first=0 count=4", ""},
    {"role first=0 count=0", "count 0 is outside"},
    {"barrier scope=workgroup", ""},
    {"barrier %3 scope=warp", "source 0 (const) is not an effect"},
    {"mbarrier i64 [2] slot=1 arrivals=1", ""},
    {"mbarrier i64 [2] slot=1 arrivals=0", "arrivals 0 is outside"},
    {"arrive %35 n=128", ""},
    {"arrive %35 n=-1", "n -1 is outside"},
    {"wait_phase %35 %8", ""},
    {"wait_phase %35", "has 1 sources, expected 2"},
    {"copy_async %33 %33 %35 rows=2 columns=8 to_stride=8 from_stride=8", ""},
    {"copy_async %33 %33 rows=0 columns=8 to_stride=8 from_stride=8", "rows 0 is outside"},
    {"copy_async %33 %42 rows=1 columns=8 to_stride=8 from_stride=8", "expected f16"},
    {"wait %36 n=1", ""},
    {"wait %3 n=0", "is not asynchronous"},
    {"mma f32 [4] %40 %45 %47 kind=sm80_m16n8k16_f16 a_stride=0 b_stride=0", ""},
    {"mma f32 [4] %45 %45 %47 kind=sm80_m16n8k16_f16 a_stride=0 b_stride=0",
     "source 0 has shape [4], expected [8]"},
    {"mma f32 [4] %40 %45 %47 kind=sm90_m64n64k16_f16 a_stride=0 b_stride=0", "is asynchronous"},
    {"mma_async %33 %33 %42 kind=sm90_m64n64k16_f16 a_stride=16 b_stride=16", ""},
    {"mma_async %33 %33 %33 kind=sm90_m64n64k16_f16 a_stride=16 b_stride=16",
     "source 2 has element type f16, expected f32"},
    {"load_matrix f16 [8] %33 count=4 transposed=1", ""},
    {"load_matrix f16 [6] %33 count=3 transposed=0", "loads 3 matrices, expected 1, 2 or 4"},
    {"load_matrix f16 [8] %33 count=5 transposed=0", "count 5 is outside"},
    {"load_matrix f32 [8] %42 count=4 transposed=0", "expected one of 16 bits"},
    {"load_matrix f16 [8] %39 count=4 transposed=0", "has shape [8], expected one address"},
    {"shuffle f32 %3 %8", ""},
    {"shuffle f32 %3 %3", "expected a scalar integer"},
    {"end %11 %3", "is not a range"},
};

TEST(Infer, GoodAndBadUsesOfEveryOp) {
  std::set<std::string> good, bad;
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::string(c.line));
    Graph graph;
    const absl::StatusOr<UOp> u = Parse(StrCat(kPreamble, "%99 = ", c.line), &graph);
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
    EXPECT_TRUE(good.contains(std::string(row.name)))
        << "kCases has no good use of " << std::string(row.name);
    EXPECT_TRUE(bad.contains(std::string(row.name)))
        << "kCases has no bad use of " << std::string(row.name);
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
  EXPECT_THAT(message(g.Make(Op::kReduce, DType::kVoid, {x}, {3})), HasSubstr("kind"));
  EXPECT_THAT(message(g.Make(Op::kReduce, DType::kVoid, {x}, {})), HasSubstr("kind"));
  EXPECT_THAT(message(g.Make(Op::kRange, DType::kVoid, {i}, {0, 9})), HasSubstr("type 9"));
  EXPECT_THAT(message(g.Make(Op::kRange, DType::kVoid, {i}, {0})), HasSubstr("no type"));
  EXPECT_THAT(message(g.Make(Op::kBuffer, DType::kInt8, {}, {3, 0, 1})), HasSubstr("space 3"));
  EXPECT_THAT(message(g.ConstFloat(DType::kVoid, 1)), HasSubstr("void"));
  const UOp byte = g.Const(DType::kUInt8, 2);
  EXPECT_THAT(message(g.Make(Op::kBitcast, DType::kBool, {byte})), HasSubstr("expected a cast"));
  EXPECT_TRUE(g.Make(Op::kBitcast, DType::kBool, {g.True()}).valid());
}

}  // namespace
}  // namespace telegrad
