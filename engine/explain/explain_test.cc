// Explanations against the schedule and against arithmetic.
#include "engine/explain/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_split.h"
#include "engine/base/strings.h"
#include "engine/frontend/nn/models.h"
#include "engine/frontend/tensor/builder.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Explanation Explain(const Plan& plan) {
  Budget budget;
  auto out = ExplainGraph(plan.graph.root(), {}, HostShape(1), &budget);
  EXPECT_TRUE(out.ok()) << out.status();
  return out.ok() ? *std::move(out) : Explanation{};
}

std::vector<std::string> Names(const Plan& plan) {
  std::vector<std::string> names;
  for (const Slot& slot : plan.slots) names.push_back(slot.name);
  return names;
}

size_t LinesThatBegin(const std::string& text, std::string_view prefix) {
  size_t n = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    n += ToStd(line).starts_with(prefix);
  }
  return n;
}

TEST(Explain, MatrixProduct) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {48, 32}, "x");
  const Tensor y = b.Param(DType::kFloat32, {32, 64}, "y");
  b.Output(x.MatMul(y), "z");
  const Plan plan = *b.Finish();
  const Explanation e = Explain(plan);
  ASSERT_EQ(e.kernels.size(), 1u);
  const ExplainedKernel& kernel = e.kernels[0];
  EXPECT_EQ(kernel.flops, 2.0 * 48 * 32 * 64);
  EXPECT_EQ(kernel.bytes, 4.0 * (48 * 32 + 32 * 64 + 48 * 64));
  EXPECT_EQ(kernel.loops, (Shape{48, 64}));
  EXPECT_EQ(kernel.reduces, (Shape{32}));
  EXPECT_EQ(e.slot_bytes, kernel.bytes);
  EXPECT_EQ(e.arena_bytes, 0);
  EXPECT_FALSE(kernel.reasons.empty());
  const std::string text = ToText(e, Names(plan));
  EXPECT_THAT(text, HasSubstr("kernel 0 " + kernel.name +
                              " loops [48, 64] reduces [32] "
                              "writes z:f32[3072] reads x:f32[1536] y:f32[2048] "
                              "flops 196608 bytes 26624 intensity 7.385 because: "));
  EXPECT_THAT(text, HasSubstr("total: 1 launches of 1 different kernels"));
}

// A table counts as far as it is read.
TEST(Explain, GatherOfAFewRows) {
  Builder b;
  const Tensor table = b.Param(DType::kFloat32, {1 << 20, 256}, "table");
  const Tensor rows = b.Param(DType::kInt32, {10}, "rows");
  b.Output(table.Gather(rows), "out");
  const Explanation e = Explain(*b.Finish());
  ASSERT_EQ(e.kernels.size(), 1u);
  EXPECT_EQ(e.kernels[0].bytes, 4.0 * (10 * 256 + 10 + 10 * 256));
  EXPECT_EQ(e.slot_bytes, 4 * ((1 << 20) * 256 + 10 + 10 * 256));
}

// Temporaries that are alive at the same time lie apart, inside the arena, and those of a kernel
// are alive.
TEST(Explain, MemoryPlanOfATrainingStep) {
  const Plan plan = *DigitsCnn{}.TrainStep(16);
  const Explanation e = Explain(plan);
  Budget budget;
  const auto schedule = ScheduleGraph(plan.graph.root(), &budget);
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(e.kernels.size(), schedule->kernels.size());
  std::set<std::string> names;
  for (const ExplainedKernel& kernel : e.kernels) names.insert(kernel.name);
  EXPECT_EQ(e.different_kernels, static_cast<int64_t>(names.size()));
  ASSERT_GT(e.temporaries.size(), 2u);
  int64_t sum = 0;
  for (const Temporary& a : e.temporaries) {
    sum += a.bytes;
    EXPECT_LE(0, a.first);
    EXPECT_LE(a.first, a.last);
    EXPECT_LE(a.offset + a.bytes, e.arena_bytes);
    for (const Temporary& b : e.temporaries) {
      if (&a == &b || a.last < b.first || b.last < a.first) continue;
      EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset);
    }
  }
  for (size_t k = 0; k < e.kernels.size(); ++k) {
    for (const BufferRef& ref : e.kernels[k].buffers) {
      if (ref.kind == BufferRef::Kind::kSlot) continue;
      EXPECT_LE(e.temporaries[ref.index].first, static_cast<int64_t>(k));
      EXPECT_GE(e.temporaries[ref.index].last, static_cast<int64_t>(k));
    }
  }
  EXPECT_EQ(e.unshared_bytes, sum);
  EXPECT_LE(e.peak_bytes, e.arena_bytes);
  // No more than all of them side by side, each rounded up to its alignment.
  EXPECT_LE(e.arena_bytes, e.unshared_bytes + 256 * static_cast<int64_t>(e.temporaries.size()));
  const std::string text = ToText(e, Names(plan));
  EXPECT_EQ(LinesThatBegin(text, "kernel "), e.kernels.size());
  EXPECT_EQ(LinesThatBegin(text, "temporary "), e.temporaries.size());
}

// The line of a kernel of which threads might have raced stands below that of its moves; the others
// are as before.
TEST(Explain, AKernelThatIsLoweredAgain) {
  const Plan plan = *DigitsCnn{}.Eval(2);
  Explanation e = Explain(plan);
  ASSERT_GT(e.kernels.size(), 1u);
  const std::string before = ToText(e, Names(plan));
  EXPECT_EQ(LinesThatBegin(before, "refused "), 0u);
  e.kernels[1].refused = "node 7 (store) of argument 0: threads \"may\" race";
  const std::string text = ToText(e, Names(plan));
  const std::string line = StrCat(
      "refused 1 and lowered again with less that is parallel: ", e.kernels[1].refused, "\n");
  const size_t at = text.find(line);
  ASSERT_NE(at, text.npos) << text;
  EXPECT_EQ(text.substr(0, at) + text.substr(at + line.size()), before);
  EXPECT_LT(text.find("kernel 1 "), at);
  EXPECT_LT(at, text.find("kernel 2 "));
  EXPECT_THAT(ToJson(e, Names(plan)),
              HasSubstr("\"refused\":\"node 7 (store) of argument 0: threads \\\"may\\\" race\""));
  EXPECT_THAT(ToHtml(e, Names(plan), "digits", 2), HasSubstr("node 7 (store) of argument 0"));
}

TEST(Explain, OverBudgetIsRefused) {
  const Plan plan = *DigitsCnn{}.TrainStep(16);
  Budget budget(Budget::Limits{.kernels = 3});
  EXPECT_EQ(ExplainGraph(plan.graph.root(), {}, HostShape(1), &budget).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// A page is sent to others: it has no scripts, loads nothing, and names of a model are not markup.
TEST(Explain, PageStandsAlone) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {48, 32}, "<script>x</script>&\"");
  const Tensor y = b.Param(DType::kFloat32, {32, 64}, "y");
  b.Output(x.MatMul(y).MatMul(b.Param(DType::kFloat32, {64, 8}, "w")), "z");
  const Plan plan = *b.Finish();
  const Explanation e = Explain(plan);
  const std::string page = ToHtml(e, Names(plan), "a<b>.onnx", 2);
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;x&lt;/script&gt;&amp;&quot;"));
  EXPECT_THAT(page, HasSubstr("<h1>a&lt;b&gt;.onnx</h1>"));
  for (const char* outside : {"<script", "http", "src=", "href=", "url(", "@import"}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
  const auto count = [&](std::string_view what) {
    size_t n = 0;
    for (size_t at = page.find(what); at != std::string::npos; at = page.find(what, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("<tr><td"), e.kernels.size());
  // A bar for each launch, a box for each temporary.
  EXPECT_EQ(count("<rect "), e.kernels.size() + e.temporaries.size());
  EXPECT_GE(e.temporaries.size(), 1u);
  for (const char* element :
       {"div", "table", "tr", "td", "svg", "p", "span", "code", "rect", "text"}) {
    EXPECT_EQ(count(StrCat("<", element, " ")) + count(StrCat("<", element, ">")),
              count(StrCat("</", element, ">")))
        << element;
  }
}

}  // namespace
}  // namespace telegrad
