// Which kernels reduce rows of scores in blocks, and what such a kernel keeps.
#include "engine/lowering/online.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/base/budget.h"
#include "engine/ir/text.h"
#include "engine/lowering/ranges.h"
#include "engine/rules/algebra.h"
#include "engine/rules/divmod.h"

namespace telegrad {
namespace {

// y[t, r, c] = sum over k of exp2(s[r, k] - max s[r]) / sum of these * v[k, c] for two tiles of
// four rows, 64 keys and 8 columns, with s[r, k] = x[t, r, k].
constexpr std::string_view kSoftmax = R"(
%0 = buffer f32 [256] space=register slot=1
%1 = const i64 2
%2 = range i64 %1 id=0 type=loop
%3 = after f32 [256] %0 %2
%4 = const i64 4
%5 = range i64 %4 id=1 type=loop
%6 = const i64 64
%7 = range i64 %6 id=2 type=loop
%8 = mul i64 %7 %4
%9 = add i64 %5 %8
%10 = index f32 %3 %9
%11 = param f32 [512] slot=1
%12 = const i64 256
%13 = mul i64 %2 %12
%14 = mul i64 %5 %6
%15 = add i64 %13 %14
%16 = add i64 %15 %7
%17 = index f32 %11 %16
%18 = load f32 %17
%19 = store %10 %18
%20 = end %19 %5 %7
%21 = end %20 %2
%22 = buffer f32 [256] space=register slot=0
%23 = after f32 [256] %22 %2
%24 = range i64 %4 id=3 type=loop
%25 = range i64 %6 id=4 type=loop
%26 = mul i64 %25 %4
%27 = add i64 %24 %26
%28 = index f32 %23 %27
%29 = after f32 [256] %3 %20
%30 = index f32 %29 %27
%31 = load f32 %30
%32 = range i64 %6 id=5 type=reduce
%33 = mul i64 %32 %4
%34 = add i64 %24 %33
%35 = index f32 %29 %34
%36 = load f32 %35
%37 = reduce f32 %36 %32 kind=max axes=[]
%38 = sub f32 %31 %37
%39 = exp2 f32 %38
%40 = range i64 %6 id=6 type=reduce
%41 = mul i64 %40 %4
%42 = add i64 %24 %41
%43 = index f32 %29 %42
%44 = load f32 %43
%45 = sub f32 %44 %37
%46 = exp2 f32 %45
%47 = reduce f32 %46 %40 kind=add axes=[]
%48 = fdiv f32 %39 %47
%49 = store %28 %48
%50 = end %49 %24 %25
%51 = end %50 %2
%52 = param f32 [64] slot=0
%53 = const i64 32
%54 = mul i64 %2 %53
%55 = range i64 %4 id=7 type=loop
%56 = const i64 8
%57 = mul i64 %55 %56
%58 = add i64 %54 %57
%59 = range i64 %56 id=8 type=loop
%60 = add i64 %58 %59
%61 = index f32 %52 %60
%62 = after f32 [256] %23 %50
%63 = range i64 %6 id=9 type=reduce
%64 = mul i64 %63 %4
%65 = add i64 %55 %64
%66 = index f32 %62 %65
%67 = load f32 %66
%68 = param f32 [512] slot=2
%69 = mul i64 %63 %56
%70 = add i64 %69 %59
%71 = index f32 %68 %70
%72 = load f32 %71
%73 = mul f32 %67 %72
%74 = reduce f32 %73 %63 kind=add axes=[]
%75 = store %61 %74
%76 = end %75 %55 %59
%77 = end %76 %2
%78 = sink %21 %51 %77
)";

using Edits = std::vector<std::pair<std::string, std::string>>;  // lines, and what they become

class OnlineTest : public ::testing::Test {
 protected:
  UOp Read(const Edits& edits) {
    std::string text(kSoftmax);
    for (const auto& [line, to] : edits) {
      const size_t at = text.find("\n" + line + "\n");
      EXPECT_NE(at, std::string::npos) << line;
      if (at != std::string::npos) text.replace(at + 1, line.size(), to);
    }
    const absl::StatusOr<UOp> root = Parse(text, &g_);
    EXPECT_TRUE(root.ok()) << root.status();
    return root.ok() ? *root : UOp();
  }

  UOp Online(UOp sink, const Target& target = {}) {
    Rewriter b(&g_, {&kAlgebra, &kDivMod}, &budget_);
    const UOp online = SumOnline(b, sink, target);
    EXPECT_TRUE(g_.status().ok()) << g_.status();
    return online;
  }

  bool Matches(const Edits& edits) {
    const UOp sink = Read(edits);
    return sink.valid() && Online(sink) != sink;
  }

  int64_t KeptElements(UOp sink) const {
    int64_t elements = 0;
    for (uint32_t id : PostOrder(sink)) {
      if (g_.op(id) == Op::kBuffer) elements = std::max(elements, g_.at(id).elements());
    }
    return elements;
  }

  Graph g_;
  Budget budget_;
};

TEST_F(OnlineTest, KeepsABlockOfEachRow) {
  const UOp sink = Read({});
  ASSERT_TRUE(sink.valid());
  EXPECT_EQ(KeptElements(sink), 4 * 64);
  const UOp online = Online(sink);
  ASSERT_NE(online, sink);
  EXPECT_EQ(KeptElements(online), 4 * 32);
}

// In the text an argument is loaded in one place only, in a loop over the rows and the keys.
TEST_F(OnlineTest, ComputesEachScoreAndItsExponentialOnce) {
  const UOp online = Online(Read({}));
  int scores = 0, exponentials = 0;
  for (uint32_t id : PostOrder(online)) {
    const UOp u = g_.at(id);
    scores += u.is(Op::kLoad) && Memory(u.src(0)).is(Op::kParam) && Memory(u.src(0)).slot() == 1;
    exponentials += u.is(Op::kExp2);
  }
  EXPECT_EQ(scores, 1);
  // One of a score, and of the row's rescaling. A row without any score is 0 divided by 0.
  EXPECT_EQ(exponentials, 2);
}

TEST_F(OnlineTest, KnowsOtherSpellings) {
  // Multiplied by the reciprocal of the sum; scaled; not divided.
  EXPECT_TRUE(Matches({{"%48 = fdiv f32 %39 %47", "%79 = recip f32 %47\n%48 = mul f32 %39 %79"}}));
  EXPECT_TRUE(Matches(
      {{"%39 = exp2 f32 %38", "%80 = const f32 1.5\n%79 = mul f32 %38 %80\n%39 = exp2 f32 %79"},
       {"%46 = exp2 f32 %45", "%81 = mul f32 %45 %80\n%46 = exp2 f32 %81"}}));
  EXPECT_TRUE(Matches({{"%49 = store %28 %48", "%49 = store %28 %39"}}));
  // A row without a score above -inf has a maximum of 0.
  const Edits replaced{
      {"%37 = reduce f32 %36 %32 kind=max axes=[]",
       "%79 = reduce f32 %36 %32 kind=max axes=[]\n%80 = const f32 -inf\n%81 = const f32 0\n"
       "%82 = cmpeq bool %79 %80\n%37 = where f32 %82 %81 %79"}};
  EXPECT_TRUE(Matches(replaced));
}

TEST_F(OnlineTest, RefusesLookAlikes) {
  // Other scales of the weights and of their sum.
  EXPECT_FALSE(Matches(
      {{"%46 = exp2 f32 %45", "%80 = const f32 1.5\n%79 = mul f32 %45 %80\n%46 = exp2 f32 %79"}}));
  // A shift that is not the maximum of what is shifted.
  EXPECT_FALSE(Matches({{"%37 = reduce f32 %36 %32 kind=max axes=[]",
                         "%79 = neg f32 %36\n%37 = reduce f32 %79 %32 kind=max axes=[]"}}));
  // A maximum that is replaced by another number where it is finite, too.
  EXPECT_FALSE(Matches({{"%37 = reduce f32 %36 %32 kind=max axes=[]",
                         "%79 = reduce f32 %36 %32 kind=max axes=[]\n%80 = const f32 1\n"
                         "%37 = add f32 %79 %80"}}));
  // A negative scale: the shift is the least exponent, not the largest.
  EXPECT_FALSE(Matches(
      {{"%39 = exp2 f32 %38", "%80 = const f32 -1.5\n%79 = mul f32 %38 %80\n%39 = exp2 f32 %79"},
       {"%46 = exp2 f32 %45", "%81 = mul f32 %45 %80\n%46 = exp2 f32 %81"}}));
  // The sum, and the maximum, of another row.
  EXPECT_FALSE(Matches({{"%42 = add i64 %24 %41",
                         "%79 = const i64 -1\n%80 = mul i64 %24 %79\n%81 = const i64 3\n"
                         "%82 = add i64 %80 %81\n%42 = add i64 %82 %41"}}));
  // Something else is done with a score.
  EXPECT_FALSE(Matches({{"%73 = mul f32 %67 %72",
                         "%79 = index f32 %29 %65\n%80 = load f32 %79\n%81 = mul f32 %67 %72\n"
                         "%73 = add f32 %80 %81"}}));
  // A weight is added to, multiplied by another score, or squared.
  EXPECT_FALSE(Matches({{"%48 = fdiv f32 %39 %47", "%48 = add f32 %39 %47"}}));
  EXPECT_FALSE(Matches({{"%48 = fdiv f32 %39 %47", "%48 = mul f32 %39 %31"}}));
  EXPECT_FALSE(Matches({{"%48 = fdiv f32 %39 %47", "%48 = mul f32 %39 %39"}}));
  // Each weight is divided by another number.
  EXPECT_FALSE(Matches({{"%49 = store %28 %48", "%49 = store %28 %39"},
                        {"%73 = mul f32 %67 %72",
                         "%79 = index f32 %68 %63\n%80 = load f32 %79\n%81 = fdiv f32 %67 %80\n"
                         "%73 = mul f32 %81 %72"}}));
  // The maximum is subtracted from the first keys only.
  EXPECT_FALSE(Matches({{"%38 = sub f32 %31 %37",
                         "%79 = cmplt bool %25 %4\n%80 = const f32 0\n"
                         "%81 = where f32 %79 %37 %80\n%38 = sub f32 %31 %81"},
                        {"%45 = sub f32 %44 %37",
                         "%82 = cmplt bool %40 %4\n%83 = where f32 %82 %37 %80\n"
                         "%45 = sub f32 %44 %83"}}));
  // The weights are multiplied instead of added.
  EXPECT_FALSE(Matches({{"%47 = reduce f32 %46 %40 kind=add axes=[]",
                         "%47 = reduce f32 %46 %40 kind=mul axes=[]"}}));
}

// Blocks would be other sums.
TEST_F(OnlineTest, LeavesSumsOfAFixedOrder) {
  const UOp sink = Read({});
  Target target;
  target.deterministic = true;
  EXPECT_EQ(Online(sink, target), sink);
}

}  // namespace
}  // namespace telegrad
