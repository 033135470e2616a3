// The pass runner: order, times, dumps, counters, disabled passes, passes that make several
// pieces, and errors that name their pass.
#include "engine/rewrite/pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/status.h"
#include "engine/rewrite/rule.h"
#include "engine/rewrite/rule_counts.h"

namespace telegrad {
namespace {

using namespace pattern;  // NOLINT: the names of rows
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr Rule kRows[] = {rule(-(-x), x)};
constexpr RuleTable kTable{"test", kRows};
constexpr const RuleTable* kTables[] = {&kTable};

UOp Negate(PassContext& c, UOp root) { return c.graph()->Make(Op::kNeg, {root}); }
UOp Root(PassContext& c, UOp root) { return c.graph()->Make(Op::kSqrt, {root}); }
UOp Logic(PassContext& c, UOp root) { return c.graph()->Make(Op::kAnd, {root}); }
UOp Nothing(PassContext&, UOp) { return {}; }

absl::StatusOr<std::vector<Piece>> Halves(PassContext& c, const Piece& piece) {
  c.Count("halves", 2);
  std::vector<Piece> halves(2);
  for (Piece& half : halves) {
    half.graph = std::make_shared<Graph>();
    half.root = CopyLive(piece.root, half.graph.get());
  }
  return halves;
}

absl::StatusOr<Program> Line(PassContext&, const Piece& piece) {
  Program program;
  program.name = piece.name;
  program.graph = piece.graph;
  program.order = PostOrder(piece.root);
  return program;
}

absl::Status Short(PassContext&, const Program& program) {
  return program.order.size() < 3 ? absl::OkStatus() : Internal("too long");
}

constexpr PassRow kNegate{"negate", "", kTensorLevel, kTensorLevel, {}, GraphPass{Negate}};
constexpr PassRow kRoot{"root", "", kTensorLevel, kTensorLevel, {}, GraphPass{Root}};
constexpr PassRow kLogic{"logic", "", kTensorLevel, kTensorLevel, {}, GraphPass{Logic}};
constexpr PassRow kNothing{"nothing", "", kTensorLevel, kTensorLevel, {}, GraphPass{Nothing}};
constexpr PassRow kSweep{"sweep", "", kTensorLevel, kTensorLevel, kTables, Sweep{}};
constexpr PassRow kHalves{"halves", "", kTensorLevel, kKernelLevel, {}, SplitPass{Halves}};
constexpr PassRow kLine{"line", "", kTensorLevel, kProgramLevel, {}, LinearPass{Line}};
constexpr PassRow kShort{"short", "", kProgramLevel, kProgramLevel, {}, CheckPass{Short}};

class PassTest : public ::testing::Test {
 protected:
  absl::StatusOr<Piece> Run(std::initializer_list<PassRow> rows, const PassOptions& options = {}) {
    return RunPasses(std::span(rows.begin(), rows.size()), context_, piece_, options);
  }

  Budget budget_;
  Target target_;
  Piece piece_{"it", "", std::make_shared<Graph>(), {}, {}, {}, {}, kTensorLevel};
  PassContext context_{piece_.graph.get(), target_, &budget_};
  Graph& graph_ = *piece_.graph;
  UOp param_ = piece_.root = graph_.Param(0, DType::kFloat32, Shape{4});
};

TEST_F(PassTest, RunsInOrderTimesAndDumps) {
  std::vector<PassTime> times;
  std::vector<std::string> dumped;
  PassOptions options;
  options.times = &times;
  options.dump = [&](const PassRow& row, const Piece& piece) {
    dumped.push_back(StrCat(row.name, ":", Name(piece.root.op())));
  };
  const auto out = Run({kNegate, kRoot}, options);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->root, graph_.Make(Op::kSqrt, {graph_.Make(Op::kNeg, {param_})}));
  EXPECT_THAT(dumped, ElementsAre("negate:neg", "root:sqrt"));
  EXPECT_EQ(times.size(), 2u);
}

TEST_F(PassTest, SweepsItsTablesAndTellsTheObserver) {
  RuleCounts counts;
  context_.Observe(&counts);
  const auto out = Run({kNegate, kNegate, kSweep});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->root, param_);
  EXPECT_EQ(counts.Of(kRows[0]).hits, 1);
  EXPECT_EQ(&context_.rewriter(kTables), &context_.rewriter(kTables));
}

TEST_F(PassTest, SplitsAndCounts) {
  const auto out = RunPass(kHalves, context_, piece_, {});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->size(), 2u);
  EXPECT_THAT(context_.counters(), ElementsAre(Pair("halves", 2)));
  EXPECT_THAT(std::string(Run({kHalves}).status().message()), HasSubstr("halves: split"));
}

TEST_F(PassTest, GraphsBecomeProgramsAndStayPrograms) {
  const auto out = Run({kNegate, kLine, kShort});
  ASSERT_TRUE(out.ok()) << out.status();
  ASSERT_NE(out->program, nullptr);
  EXPECT_EQ(out->program->order.size(), 2u);
  EXPECT_EQ(Run({kNegate, kRoot, kLine, kShort}).status().message(), "short: too long");
  EXPECT_EQ(Run({kShort}).status().message(),
            "short: works on programs of the level program, got a graph of the level tensor");
  EXPECT_EQ(Run({kLine, kNegate}).status().message(),
            "negate: works on graphs of the level tensor, got a program of the level program");
}

TEST_F(PassTest, SkipsDisabledPasses) {
  const std::vector<std::string> disabled{"negate"};
  PassOptions options;
  options.disabled = disabled;
  const auto out = Run({kNegate, kRoot}, options);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->root, graph_.Make(Op::kSqrt, {param_}));
}

TEST_F(PassTest, ErrorsNameThePass) {
  PassOptions options;
  options.verify = [](const Piece& piece) {
    return piece.root.is(Op::kNeg) ? Internal("no negation") : absl::OkStatus();
  };
  EXPECT_EQ(Run({kNegate}, options).status().message(), "negate: no negation");
  options.verify = [](const Piece& piece) { return Verify(piece); };
  EXPECT_THAT(std::string(Run({kNegate}, options).status().message()),
              HasSubstr("negate: node 1 (neg): is the root, expected sink"));
  EXPECT_EQ(Run({kNothing}).status().message(), "nothing: returned no node and no error");
  EXPECT_THAT(std::string(Run({kLogic}).status().message()), HasSubstr("logic: "));
  budget_.Cancel();
  EXPECT_EQ(Run({kNegate}).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace telegrad
