// Random index expressions, built through the rules and plainly, compared at every point of their
// ranges. Also: the rules end well within a small budget, and what they have built is final for a
// fresh rewriter.
#include <gtest/gtest.h>

#include <random>

#include "engine/base/strings.h"
#include "engine/rewrite/rewriter.h"
#include "engine/rewrite/rule_counts.h"
#include "engine/rules/algebra.h"
#include "engine/rules/divmod.h"
#include "engine/rules/linear.h"

namespace telegrad {
namespace {

// Values for all points at once would be large; one point is evaluated over all nodes of both
// roots.
int64_t Evaluate(const Graph& g, const std::vector<uint32_t>& order, std::vector<int64_t>* values) {
  std::vector<int64_t>& v = *values;
  for (uint32_t id : order) {
    const auto src = g.src(id);
    const auto at = [&](int i) { return v[src[i]]; };
    switch (g.op(id)) {
      case Op::kConst:
        v[id] = g.at(id).const_word();
        break;
      case Op::kRange:
        break;
      case Op::kNeg:
        v[id] = -at(0);
        break;
      case Op::kAdd:
        v[id] = at(0) + at(1);
        break;
      case Op::kSub:
        v[id] = at(0) - at(1);
        break;
      case Op::kMul:
        v[id] = at(0) * at(1);
        break;
      case Op::kFloorDiv:
        v[id] = at(1) == 0 ? 0 : static_cast<int64_t>(std::floor(double(at(0)) / double(at(1))));
        break;
      case Op::kFloorMod:
        v[id] =
            at(1) == 0
                ? 0
                : at(0) - at(1) * static_cast<int64_t>(std::floor(double(at(0)) / double(at(1))));
        break;
      case Op::kMax:
        v[id] = std::max(at(0), at(1));
        break;
      case Op::kCmpLt:
        v[id] = at(0) < at(1);
        break;
      case Op::kCmpEq:
        v[id] = at(0) == at(1);
        break;
      case Op::kCmpNe:
        v[id] = at(0) != at(1);
        break;
      case Op::kAnd:
        v[id] = at(0) & at(1);
        break;
      case Op::kOr:
        v[id] = at(0) | at(1);
        break;
      case Op::kXor:
        v[id] = at(0) ^ at(1);
        break;
      case Op::kWhere:
        v[id] = at(0) ? at(1) : at(2);
        break;
      default:
        ADD_FAILURE() << "unexpected " << Name(g.op(id));
    }
  }
  return v[order.back()];
}

class IndexRandomTest : public ::testing::TestWithParam<int> {
 protected:
  struct Pair {
    UOp plain, ruled;
  };

  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % n); }

  Pair Make(Op op, std::initializer_list<Pair> src) {
    std::vector<UOp> plain, ruled;
    for (const Pair& s : src) {
      plain.push_back(s.plain);
      ruled.push_back(s.ruled);
    }
    return {graph_->Make(op, DType::kVoid, plain), rules_->Make(op, DType::kVoid, ruled)};
  }
  Pair Const(int64_t k) { return {graph_->Index(k), graph_->Index(k)}; }

  // Divisors and factors that meet often: products of range sizes.
  int64_t Factor() {
    int64_t k = 1;
    for (int64_t n = 1 + Below(3); n > 0; --n) k *= sizes_[Below(sizes_.size())];
    return Below(4) == 0 ? 1 + Below(12) : k;
  }

  Pair Index(int depth) {
    if (depth == 0) return Below(8) == 0 ? Const(Below(20) - 5) : leaves_[Below(leaves_.size())];
    switch (Below(10)) {
      case 0:
      case 1:
      case 2:
        return Make(Op::kAdd, {Index(depth - 1), Index(depth - 1)});
      case 3:
        return Make(Op::kSub, {Index(depth - 1), Index(depth - 1)});
      case 4:
      case 5:
        return Make(Op::kMul, {Index(depth - 1), Const(Below(6) == 0 ? -Factor() : Factor())});
      case 6:
      case 7:
        return Make(Op::kFloorDiv, {Index(depth - 1), Const(Factor())});
      case 8:
        return Below(10) == 0   ? Make(Op::kMax, {Index(depth - 1), Index(depth - 1)})
               : Below(10) == 0 ? Make(Op::kMul, {Index(depth - 1), Index(depth - 1)})
                                : Make(Op::kFloorMod, {Index(depth - 1), Const(Factor())});
      default:
        return Make(Op::kFloorMod, {Index(depth - 1), Const(Factor())});
    }
  }

  Pair Condition(int depth) {
    if (depth > 0 && Below(3) == 0) {
      const Pair c =
          Make(Below(3) == 0 ? Op::kOr : Op::kAnd, {Condition(depth - 1), Condition(depth - 1)});
      return Below(3) == 0 ? Make(Op::kXor, {c, {graph_->True(), graph_->True()}}) : c;
    }
    static constexpr Op kCompare[] = {Op::kCmpLt, Op::kCmpLt, Op::kCmpEq, Op::kCmpNe};
    const Op op = kCompare[Below(4)];
    const Pair x = Index(depth), y = Below(3) > 0 ? Const(Below(30) - 6) : Index(depth);
    const Pair c = Below(2) == 0 ? Make(op, {x, y}) : Make(op, {y, x});
    return Below(5) == 0 ? Make(Op::kXor, {c, {graph_->True(), graph_->True()}}) : c;
  }

  void Start() {
    Budget::Limits limits;
    limits.rewrites = 60'000;
    graph_ = std::make_unique<Graph>();
    budget_ = std::make_unique<Budget>(limits);
    rules_ = std::make_unique<Rewriter>(
        graph_.get(), std::initializer_list<const RuleTable*>{&kAlgebra, &kDivMod}, budget_.get());
    counts_ = {};
    rules_->Observe(&counts_);
    sizes_.clear();
    leaves_.clear();
    for (int i = 0; i < 4; ++i) {
      sizes_.push_back(1 + Below(6));
      const UOp range = rules_->Make(Op::kRange, DType::kVoid, {graph_->Index(sizes_.back())},
                                     {i, static_cast<int64_t>(AxisType::kLoop)});
      leaves_.push_back({range, range});
    }
  }

  void Compare(const Pair& e) {
    ASSERT_TRUE(graph_->status().ok()) << graph_->status() << "\n" << counts_.Report(false);
    ASSERT_TRUE(e.ruled.valid());
    const std::vector<uint32_t> plain = PostOrder(e.plain), ruled = PostOrder(e.ruled);
    std::vector<int64_t> v(graph_->size());
    int64_t points = 1;
    for (int64_t n : sizes_) points *= n;
    for (int64_t p = 0; p < points; ++p) {
      int64_t rest = p;
      for (size_t i = 0; i < sizes_.size(); ++i) {
        v[leaves_[i].plain.id()] = rest % sizes_[i];
        rest /= sizes_[i];
      }
      const int64_t a = Evaluate(*graph_, plain, &v), b = Evaluate(*graph_, ruled, &v);
      ASSERT_EQ(a, b) << "at point " << p << "\n" << counts_.Report(false);
      ASSERT_GE(b, e.ruled.vmin());
      ASSERT_LE(b, e.ruled.vmax());
    }
  }

  std::mt19937_64 random_;
  std::unique_ptr<Graph> graph_;
  std::unique_ptr<Budget> budget_;
  RuleCounts counts_;
  std::unique_ptr<Rewriter> rules_;
  std::vector<int64_t> sizes_;
  std::vector<Pair> leaves_;
};

TEST_P(IndexRandomTest, KeepsEveryValueAndEnds) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(StrCat("seed ", seed));
  random_.seed(seed);
  int64_t most = 0;
  int changed = 0, total = 0;
  for (int i = 0; i < 1500; ++i) {
    Start();
    const Pair e = i % 3 == 0 ? Condition(GetParam() - 1) : Index(GetParam());
    Compare(e);
    if (HasFatalFailure()) return;
    most = std::max(most, budget_->rewrites_spent());
    Budget budget;
    Rewriter again(graph_.get(), {&kAlgebra, &kDivMod}, &budget);
    ++total;
    changed += again.Rewrite(e.ruled) != e.ruled;
  }
  std::cout << "most rewrites " << most << ", not final " << changed << " of " << total << "\n";
  EXPECT_LE(changed, total / 20);
}

INSTANTIATE_TEST_SUITE_P(Depth, IndexRandomTest, ::testing::Values(2, 3, 4, 5));

}  // namespace
}  // namespace telegrad
