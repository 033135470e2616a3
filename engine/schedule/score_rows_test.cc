// Which stored values are scores of a softmax that weights a sum, and its weights.
#include "engine/schedule/score_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/strings.h"
#include "engine/ir/text.h"

namespace telegrad {
namespace {

// Scores %0 of 8 rows of 128, the weights %9 of a softmax of them, and the sum of values %13 that
// these weight.
constexpr std::string_view kSoftmax = R"(
%0 = contiguous f32 [8, 128] %90
%1 = reduce f32 [8, 1] %0 kind=max axes=[1]
%2 = expand f32 [8, 128] %1
%3 = sub f32 [8, 128] %0 %2
%4 = const f32 1.5
%5 = mul f32 [8, 128] %3 %4
%6 = exp2 f32 [8, 128] %5
%7 = reduce f32 [8, 1] %6 kind=add axes=[1]
%8 = expand f32 [8, 128] %7
%9 = fdiv f32 [8, 128] %6 %8
%10 = reshape f32 [8, 1, 128] %9
%11 = expand f32 [8, 16, 128] %10
%12 = reshape f32 [1, 16, 128] %91
%13 = expand f32 [8, 16, 128] %12
%14 = mul f32 [8, 16, 128] %11 %13
%15 = reduce f32 [8, 16, 1] %14 kind=add axes=[2]
%92 = param f32 [8, 16, 1] slot=2
%93 = store %92 %15
%94 = sink %93
)";

using Edits = std::vector<std::pair<std::string, std::string>>;  // lines, and what they become

// The elements of a row of the value with the label, or 0: `stored` are labels.
std::vector<int64_t> RowsOf(const Edits& edits, const std::vector<std::string>& stored) {
  std::string text =
      StrCat("%90 = param f32 [8, 128] slot=0\n%91 = param f32 [16, 128] slot=1", kSoftmax);
  for (const auto& [line, to] : edits) {
    const size_t at = text.find("\n" + line + "\n");
    EXPECT_NE(at, std::string::npos) << line;
    if (at != std::string::npos) text.replace(at + 1, line.size(), to);
  }
  Graph g;
  const absl::StatusOr<UOp> root = Parse(text, &g);
  EXPECT_TRUE(root.ok()) << root.status() << text;
  // The nodes are made in the order of the lines.
  std::vector<uint32_t> ids;
  absl::flat_hash_set<uint32_t> memory;
  for (const std::string& label : stored) {
    const std::string_view before(text.data(), text.find("\n" + label + " =") + 1);
    ids.push_back(static_cast<uint32_t>(std::ranges::count(before, '\n')));
    memory.insert(ids.back());
  }
  EXPECT_EQ(g.size(), static_cast<size_t>(std::ranges::count(text, '\n')));
  const ScoreRows rows = FindScoreRows(g, PostOrder(*root), memory);
  std::vector<int64_t> elements;
  for (const uint32_t id : ids) {
    elements.push_back(rows.contains(id) ? rows.at(id).elements : 0);
  }
  return elements;
}

const std::vector<int64_t> kBoth{128, 128}, kNeither{0, 0};

TEST(ScoreRows, AreThoseOfASoftmaxThatWeightsASum) {
  EXPECT_EQ(RowsOf({}, {"%0", "%9"}), kBoth);
  EXPECT_EQ(RowsOf({}, {"%0"}), std::vector<int64_t>{128});
  // Scores that are computed from what is stored, and a maximum that is replaced.
  EXPECT_EQ(RowsOf({{"%1 = reduce f32 [8, 1] %0 kind=max axes=[1]",
                     "%20 = mul f32 [8, 128] %0 %0\n%1 = reduce f32 [8, 1] %20 kind=max axes=[1]"},
                    {"%3 = sub f32 [8, 128] %0 %2", "%3 = sub f32 [8, 128] %20 %2"}},
                   {"%0", "%9"}),
            kBoth);
  EXPECT_EQ(RowsOf({{"%2 = expand f32 [8, 128] %1",
                     "%20 = sub f32 [8, 1] %1 %1\n%21 = const f32 0\n"
                     "%23 = cmpeq bool [8, 1] %20 %21\n%24 = where f32 [8, 1] %23 %1 %21\n"
                     "%2 = expand f32 [8, 128] %24"}},
                   {"%0", "%9"}),
            kBoth);
}

TEST(ScoreRows, AreNotThoseOfLookAlikes) {
  const std::string max = "%1 = reduce f32 [8, 1] %0 kind=max axes=[1]",
                    sum = "%7 = reduce f32 [8, 1] %6 kind=add axes=[1]", end = "%94 = sink %93";
  const std::vector<Edits> changes = {
      // The maximum of something else, or over the rows.
      {{max, "%20 = neg f32 [8, 128] %0\n%1 = reduce f32 [8, 1] %20 kind=max axes=[1]"}},
      {{max, "%1 = reduce f32 [1, 128] %0 kind=max axes=[0]"}},
      // The maximum plus something.
      {{"%2 = expand f32 [8, 128] %1", "%20 = add f32 [8, 1] %1 %1\n%2 = expand f32 [8, 128] %20"}},
      // Not an exponential.
      {{"%6 = exp2 f32 [8, 128] %5", "%6 = neg f32 [8, 128] %5"}},
      // A negative scale.
      {{"%4 = const f32 1.5", "%4 = const f32 -1.5"}},
      // The product of the exponentials.
      {{sum, "%7 = reduce f32 [8, 1] %6 kind=mul axes=[1]"}},
      // Another scale of the exponentials that are added up, and two scales of all.
      {{sum,
        "%20 = const f32 2.5\n%21 = mul f32 [8, 128] %3 %20\n%22 = exp2 f32 [8, 128] %21\n"
        "%7 = reduce f32 [8, 1] %22 kind=add axes=[1]"}},
      {{"%6 = exp2 f32 [8, 128] %5", "%20 = mul f32 [8, 128] %5 %4\n%6 = exp2 f32 [8, 128] %20"}},
      // Values that are computed from the maximum.
      {{"%14 = mul f32 [8, 16, 128] %11 %13",
        "%20 = reshape f32 [8, 1, 1] %1\n%21 = expand f32 [8, 16, 128] %20\n"
        "%22 = mul f32 [8, 16, 128] %13 %21\n%14 = mul f32 [8, 16, 128] %11 %22"}},
      // Weights that are squared.
      {{"%9 = fdiv f32 [8, 128] %6 %8", "%9 = mul f32 [8, 128] %6 %6"}},
      // The largest term.
      {{"%15 = reduce f32 [8, 16, 1] %14 kind=add axes=[2]",
        "%15 = reduce f32 [8, 16, 1] %14 kind=max axes=[2]"}},
      // No sum of values.
      {{"%92 = param f32 [8, 16, 1] slot=2", "%92 = param f32 [8, 1] slot=2"},
       {"%93 = store %92 %15", "%20 = add f32 [8, 1] %7 %1\n%93 = store %92 %20"}},
      // Weights in another order.
      {{"%10 = reshape f32 [8, 1, 128] %9",
        "%20 = flip f32 [8, 128] %9 axes=[1]\n%10 = reshape f32 [8, 1, 128] %20"}},
      // Another user of the scores, of the exponentials, and of the weights.
      {{end,
        "%20 = neg f32 [8, 128] %0\n%21 = param f32 [8, 128] slot=3\n%22 = store %21 %20\n"
        "%94 = sink %93 %22"}},
      {{end, "%21 = param f32 [8, 128] slot=3\n%22 = store %21 %6\n%94 = sink %93 %22"}},
      {{end, "%21 = param f32 [8, 128] slot=3\n%22 = store %21 %9\n%94 = sink %93 %22"}},
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    EXPECT_EQ(RowsOf(changes[i], {"%0", "%9"}), kNeither) << i;
  }
  // A maximum that is computed by another kernel, or one of the exponentials.
  EXPECT_EQ(RowsOf({}, {"%0", "%1", "%9"}), (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(RowsOf({}, {"%0", "%5", "%9"}), (std::vector<int64_t>{0, 0, 0}));
}

}  // namespace
}  // namespace telegrad
