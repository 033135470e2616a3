// Gradients of attention: no value of queries times keys is in memory, and the results are those of
// loops over doubles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "engine/base/strings.h"
#include "engine/frontend/autograd/gradient.h"
#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/attention_cases.h"
#include "tests/conformance/run_graph.h"
#include "tests/models/models.h"

namespace telegrad::testing {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();
constexpr std::string_view kSeenNames[] = {"full", "causal", "window", "alibi"};

std::string Described(const AttentionShape& s) {
  return StrCat(kSeenNames[static_cast<size_t>(s.seen)], " [", s.batch, ", ", s.heads, "/",
                s.groups, ", ", s.queries, " x ", s.keys, ", ", s.channels, "]");
}

// "q", "k", "v", "dy", and room for "y", "dq", "dk" and "dv".
Slots StepOperands(const AttentionShape& s, std::mt19937& random) {
  const int64_t q = s.batch * s.heads * s.queries * s.channels;
  const int64_t k = s.batch * s.groups * s.keys * s.channels;
  const auto room = [](int64_t n) { return std::vector<uint8_t>(static_cast<size_t>(n) * 4); };
  return {Floats(q, random), Floats(k, random), Floats(k, random), Floats(q, random),
          room(q),           room(q),           room(k),           room(k)};
}

float FloatAt(const std::vector<uint8_t>& bytes, int64_t i) {
  float x;
  std::memcpy(&x, bytes.data() + 4 * i, 4);
  return x;
}

// What is added to a score; -inf where the query does not see the key.
double BiasOf(const AttentionShape& s, int64_t head, int64_t query, int64_t key) {
  const int64_t back = query - key;
  if (s.seen == Seen::kAll) return 0;
  if (back < 0 || (s.seen == Seen::kWindow && back >= s.window)) return kNone;
  if (s.seen != Seen::kAlibi) return 0;
  const double n = static_cast<double>(s.heads);
  return -std::exp2(static_cast<double>(head + 1) * -8.0 / n) * static_cast<double>(back);
}

// The outputs by the formulas: y = P v, dv = P^T dy, ds = P (dy v^T - row sum of dy y), dq = ds k
// c, dk = ds^T q c.
std::vector<std::vector<double>> StepInDoubles(const AttentionShape& s, const Slots& operands) {
  const int64_t n = s.channels, rows = s.batch * s.heads;
  std::vector<std::vector<double>> out;
  for (size_t slot = 4; slot < 8; ++slot) out.emplace_back(operands[slot].size() / 4, 0.0);
  const double scale = 1 / std::sqrt(static_cast<double>(n));
  const auto at = [&](size_t slot, int64_t row, int64_t c) {
    return static_cast<double>(FloatAt(operands[slot], row * n + c));
  };
  const auto dot = [&](size_t a, int64_t i, size_t b, int64_t j) {
    double sum = 0;
    for (int64_t c = 0; c < n; ++c) sum += at(a, i, c) * at(b, j, c);
    return sum;
  };
  std::vector<double> p(static_cast<size_t>(s.keys)), dp(p.size());
  for (int64_t head = 0; head < rows; ++head) {
    for (int64_t query = 0; query < s.queries; ++query) {
      const int64_t i = head * s.queries + query, first = head / (s.heads / s.groups) * s.keys;
      double most = kNone, sum = 0, subtract = 0;
      for (int64_t key = 0; key < s.keys; ++key) {
        const double bias = BiasOf(s, head % s.heads, query, key);
        p[key] = bias == kNone ? kNone : dot(0, i, 1, first + key) * scale + bias;
        most = std::max(most, p[key]);
      }
      for (double& x : p) sum += x = std::exp(x - most);
      for (int64_t key = 0; key < s.keys; ++key) {
        p[key] /= sum;
        dp[key] = p[key] == 0 ? 0 : dot(3, i, 2, first + key);
        subtract += p[key] * dp[key];
      }
      for (int64_t key = 0; key < s.keys; ++key) {
        if (p[key] == 0) continue;
        const double ds = p[key] * (dp[key] - subtract) * scale;
        for (int64_t c = 0; c < n; ++c) {
          out[0][i * n + c] += p[key] * at(2, first + key, c);
          out[1][i * n + c] += ds * at(1, first + key, c);
          out[2][(first + key) * n + c] += ds * at(0, i, c);
          out[3][(first + key) * n + c] += p[key] * at(3, i, c);
        }
      }
    }
  }
  return out;
}

void ExpectOutputs(const std::vector<std::vector<double>>& want, const Slots& got) {
  for (size_t out = 0; out < want.size(); ++out) {
    double most = 0, error = 0;
    for (size_t i = 0; i < want[out].size(); ++i) {
      most = std::max(most, std::abs(want[out][i]));
      const double off = std::abs(want[out][i] - FloatAt(got[4 + out], static_cast<int64_t>(i)));
      error = off <= error ? error : off;  // also no number
    }
    EXPECT_LE(error, 2e-5 * most) << out;
  }
}

void ExpectStep(const AttentionShape& s, CpuRunner* runner) {
  SCOPED_TRACE(Described(s));
  const absl::StatusOr<Plan> plan = AttentionStep(s);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::mt19937 random(11);
  const Slots operands = StepOperands(s, random);
  const std::vector<std::vector<double>> want = StepInDoubles(s, operands);
  Slots got = operands;
  const absl::Status status = runner->Run(Root(plan), {}, &got);
  ASSERT_TRUE(status.ok()) << status;
  ExpectOutputs(want, got);
}

Target InFixedOrder(Target target) {
  target.deterministic = true;
  return target;
}

class AttentionStepTest : public AttentionTest {};

// The mask is the least f32, added or chosen. Where each row shows its first key, loops end if
// operands are bounded; the weights of rows that show none are those of all keys.
TEST_F(AttentionStepTest, AgreesWhereAFiniteNumberHides) {
  constexpr double kLeast = -3.4028234663852886e38;
  constexpr int64_t kLength = 128, kChannels = 16;
  const AttentionShape s{
      .heads = 2, .groups = 2, .queries = kLength, .keys = kLength, .channels = kChannels};
  const Shape shape{1, s.heads, kLength, kChannels};
  for (const int64_t offset : {0, -3}) {
    for (const bool chosen : {false, true}) {
      Builder b;
      const Tensor q = b.Param(DType::kFloat32, shape, "q"),
                   k = b.Param(DType::kFloat32, shape, "k"),
                   v = b.Param(DType::kFloat32, shape, "v"),
                   seed = b.Param(DType::kFloat32, shape, "dy");
      const Tensor at = b.Iota(DType::kInt32, kLength);
      const Tensor shown = at.Le(at.Unsqueeze(-1) + offset);
      const Tensor scores = q.MatMul(k.Transpose(-1, -2)) * 0.25;
      const Tensor none = b.Full(DType::kFloat32, {}, 0.0);
      const Tensor masked =
          chosen ? shown.Where(scores, kLeast) : scores + shown.Where(none, kLeast);
      const Tensor y = masked.Softmax(-1).MatMul(v);
      const std::vector<Tensor> gradients =
          Gradients(std::vector{y}, std::vector{seed}, std::vector{q, k, v});
      b.Output(y, "y");
      for (size_t i = 0; i < 3; ++i) b.Output(gradients[i], std::vector{"dq", "dk", "dv"}[i]);
      const absl::StatusOr<Plan> plan = b.Finish();
      ASSERT_TRUE(plan.ok()) << plan.status();
      for (const float odd : {0.5F, 3e7F, 1e20F}) {
        SCOPED_TRACE(StrCat("offset ", offset, chosen ? ", chosen" : ", added", ", with ", odd));
        std::mt19937 random(29);
        Slots got = StepOperands(s, random);
        std::memcpy(got[1].data() + 4 * (100 * kChannels + 3), &odd, 4);
        Slots want = got;
        Budget budget;
        ASSERT_TRUE(reference::Evaluate(Root(plan), want, &budget).ok());
        const absl::Status status = runner_->Run(Root(plan), {}, &got);
        ASSERT_TRUE(status.ok()) << status;
        for (size_t out = 4; out < 8; ++out) {
          float most = 0;
          for (size_t i = 0; i < want[out].size() / 4; ++i) {
            const float x = FloatAt(want[out], static_cast<int64_t>(i));
            if (std::isfinite(x)) most = std::max(most, std::abs(x));
          }
          for (size_t i = 0; i < want[out].size() / 4; ++i) {
            const float x = FloatAt(want[out], static_cast<int64_t>(i));
            const float y = FloatAt(got[out], static_cast<int64_t>(i));
            const bool same = std::isfinite(x) ? std::abs(x - y) <= 1e-4F * most + 1e-6F * odd
                              : std::isnan(x)  ? std::isnan(y)
                                               : x == y;
            ASSERT_TRUE(same) << out << ": " << i << ": " << x << " expected, got " << y;
          }
        }
      }
    }
  }
}

TEST_F(AttentionStepTest, AgreesWithTheFormulasInDoubles) {
  for (const Seen seen : {Seen::kAll, Seen::kCausal, Seen::kWindow, Seen::kAlibi}) {
    for (const int64_t groups : {4, 2, 1}) {
      ExpectStep({.heads = 4,
                  .groups = groups,
                  .queries = 192,
                  .keys = 192,
                  .channels = 32,
                  .seen = seen,
                  .window = 50},
                 runner_);
    }
  }
  ExpectStep({.batch = 2, .heads = 2, .groups = 2, .queries = 160, .keys = 101, .channels = 16},
             runner_);
  ExpectStep({.heads = 1, .groups = 1, .queries = 520, .keys = 520, .seen = Seen::kCausal},
             runner_);
}

TEST_F(AttentionStepTest, AgreesInAFixedOrder) {
  auto runner = CpuRunner::Open({}, InFixedOrder(HostTarget(2)));
  ASSERT_TRUE(runner.ok()) << runner.status();
  for (const Seen seen : {Seen::kAll, Seen::kCausal, Seen::kWindow, Seen::kAlibi}) {
    for (const int64_t groups : {4, 2}) {
      ExpectStep({.heads = 4,
                  .groups = groups,
                  .queries = 192,
                  .keys = 192,
                  .channels = 32,
                  .seen = seen,
                  .window = 50},
                 runner->get());
    }
  }
}

// The rows of y have a factor that the sum over keys does not have, and that is 0.
TEST_F(AttentionStepTest, AgreesWhereARowOfTheResultIsHidden) {
  constexpr int64_t kRows = 64, kChannels = 16;
  Builder b;
  const Tensor weights = b.Param(DType::kFloat32, {kRows, kRows}, "weights");
  const Tensor v = b.Param(DType::kFloat32, {kRows, kChannels}, "v");
  const Tensor dy = b.Param(DType::kFloat32, {kRows, kChannels}, "dy");
  const Tensor factors = b.Param(DType::kFloat32, {kRows, 1}, "factors");
  b.Output((weights * factors).MatMul(v), "y");
  b.Output((weights * dy.MatMul(v.Transpose(-1, -2))).Sum({-1}), "sums");
  const absl::StatusOr<Plan> plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::mt19937 random(13);
  Slots operands = {Floats(kRows * kRows, random),
                    Floats(kRows * kChannels, random),
                    Floats(kRows * kChannels, random),
                    Floats(kRows, random),
                    std::vector<uint8_t>(4 * kRows * kChannels),
                    std::vector<uint8_t>(4 * kRows)};
  std::fill_n(operands[3].begin(), 4 * kRows / 2, uint8_t{0});
  ExpectEvaluated(Root(plan), operands, 5);
}

// The sum by which y is divided is of exponentials less the maxima of other rows, so it may be 0.
TEST_F(AttentionStepTest, AgreesWhereMaximaAreOfOtherRows) {
  constexpr int64_t kRows = 64, kChannels = 16;
  Builder b;
  const Tensor weights = b.Param(DType::kFloat32, {kRows, kRows}, "weights");
  const Tensor v = b.Param(DType::kFloat32, {kRows, kChannels}, "v");
  const Tensor dy = b.Param(DType::kFloat32, {kRows, kChannels}, "dy");
  const Tensor scores = b.Param(DType::kFloat32, {kRows, kRows}, "scores");
  const Tensor maxima = scores.Max({1}, /*keepdim=*/true).Reshape({1, kRows});
  const Tensor divisor = (scores - maxima).Exp2().Sum({1}, /*keepdim=*/true);
  b.Output((weights / divisor).MatMul(v), "y");
  b.Output((weights * dy.MatMul(v.Transpose(-1, -2))).Sum({-1}), "sums");
  const absl::StatusOr<Plan> plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::mt19937 random(13);
  Slots operands = {Floats(kRows * kRows, random),
                    Floats(kRows * kChannels, random),
                    Floats(kRows * kChannels, random),
                    Floats(kRows * kRows, random),
                    std::vector<uint8_t>(4 * kRows * kChannels),
                    std::vector<uint8_t>(4 * kRows)};
  // Each row's maximum is 1000 but that of the first, whose others are far less.
  const auto put = [&](int64_t row, int64_t key, float x) {
    std::memcpy(operands[3].data() + 4 * (row * kRows + key), &x, 4);
  };
  for (int64_t key = 0; key < kRows; ++key) put(0, key, key == 1 ? 0.0F : -1000.0F);
  for (int64_t row = 1; row < kRows; ++row) put(row, row, 1000.0F);
  ExpectEvaluated(Root(plan), operands, 5);
}

// The largest temporary of the schedule, in bytes.
int64_t LargestTemporary(const absl::StatusOr<Plan>& plan, const Target& target) {
  EXPECT_TRUE(plan.ok()) << plan.status();
  Budget budget;
  const absl::StatusOr<Schedule> schedule =
      ScheduleGraph(Root(plan), &budget, ScheduleOptions::For(target));
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  int64_t most = 0;
  for (const Temporary& temporary : schedule->temporaries) most = std::max(most, temporary.bytes);
  return most;
}

TEST_F(AttentionStepTest, HasNoTemporaryOfQueriesTimesKeys) {
  for (const int64_t length : {128, 256, 512, 1000, 1024, 2048, 4096}) {
    for (const Seen seen : {Seen::kAll, Seen::kCausal, Seen::kWindow, Seen::kAlibi}) {
      for (const int64_t groups : {8, 2}) {
        const AttentionShape s{
            .heads = 8, .groups = groups, .queries = length, .keys = length, .seen = seen};
        // Numbers of each row: the maximum, the sum, and what is subtracted.
        EXPECT_LE(LargestTemporary(AttentionStep(s), Cpu(64)), s.heads * length * 4)
            << Described(s);
        EXPECT_LE(LargestTemporary(AttentionStep(s), InFixedOrder(Cpu(64))), s.heads * length * 4)
            << Described(s) << ", the order of sums is fixed";
      }
    }
  }
}

// How a client may spell it: what the scores are sums of is computed, or they are 16-bit floats.
enum class Spelling { kOne, kProducts, kScaledQueries, kWideScores, kProjected };
constexpr Spelling kSpellings[] = {Spelling::kOne, Spelling::kProducts, Spelling::kScaledQueries,
                                   Spelling::kWideScores, Spelling::kProjected};

absl::StatusOr<Plan> SpelledStep(Spelling spelling, DType dtype, int64_t heads, int64_t length,
                                 bool causal) {
  constexpr int64_t kChannels = 64;
  Builder b;
  std::vector<Tensor> of;
  for (const char* name : {"q", "k", "v", "dy"}) {
    of.push_back(b.Param(dtype, {heads, length, kChannels}, name));
  }
  Tensor q = of[0], k = of[1], v = of[2], y;
  if (spelling == Spelling::kProjected) {
    const Tensor weight = b.Param(dtype, {kChannels, kChannels}, "w");
    for (Tensor* x : {&q, &k, &v}) *x = x->MatMul(weight);
  }
  if (spelling == Spelling::kScaledQueries) q = q * 0.125;
  if (spelling == Spelling::kOne) {
    y = q.ScaledDotProductAttention(k, v, {}, causal);
  } else {
    Tensor scores = q.MatMul(k.Transpose(-1, -2));
    if (spelling == Spelling::kWideScores) scores = scores.Cast(DType::kFloat32);
    if (spelling != Spelling::kScaledQueries) scores = scores * 0.125;
    const Tensor at = b.Iota(DType::kInt32, length);
    if (causal) scores = at.Le(at.Unsqueeze(-1)).Where(scores, kNone);
    y = scores.Softmax().Cast(dtype).MatMul(v);
  }
  const std::vector<Tensor> gradients =
      Gradients(std::vector{y}, std::vector{of[3]}, std::span(of).first(3));
  b.Output(y, "y");
  for (size_t i = 0; i < gradients.size(); ++i) b.Output(gradients[i], StrCat("d", i));
  return b.Finish();
}

// Nor where operands and results are 16-bit floats, or an operand is stored by a kernel that could
// share loops with the one of the scores.
TEST_F(AttentionStepTest, HasNoTemporaryOfScoresHoweverSpelled) {
  for (const Spelling spelling : kSpellings) {
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
      for (const auto& [heads, length] : {std::pair(1, 256), std::pair(1, 1024), {12, 1024}}) {
        for (const bool causal : {false, true}) {
          for (const Target& target : {Cpu(64), Cpu(32), InFixedOrder(Cpu(64))}) {
            const auto plan = SpelledStep(spelling, dtype, heads, length, causal);
            ASSERT_TRUE(plan.ok()) << plan.status();
            EXPECT_LE(LargestTemporary(plan, target), heads * length * 64 * 4)
                << static_cast<int>(spelling) << ' ' << Name(dtype) << ' ' << heads << ' ' << length
                << ' ' << causal << ' ' << target.deterministic;
          }
        }
      }
    }
  }
}

// And has the results of the graph as it is.
TEST_F(AttentionStepTest, AgreesHoweverSpelled) {
  constexpr int64_t kHeads = 2, kLength = 64;
  for (const Spelling spelling : kSpellings) {
    const auto plan = SpelledStep(spelling, DType::kFloat16, kHeads, kLength, true);
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::mt19937 random(17);
    std::normal_distribution<float> normal;
    Slots operands;
    for (const Slot& slot : plan->slots) {
      std::vector<uint8_t>& bytes =
          operands.emplace_back(2 * static_cast<size_t>(NumElements(slot.shape)));
      for (size_t i = 0; i < bytes.size(); i += 2) {
        const auto x = static_cast<_Float16>(normal(random) * 0.25F);
        std::memcpy(bytes.data() + i, &x, 2);
      }
    }
    Slots want = operands, got = operands;
    Budget budget;
    ASSERT_TRUE(reference::Evaluate(Root(plan), want, &budget).ok());
    const absl::Status status = runner_->Run(Root(plan), {}, &got);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t slot = operands.size() - 4; slot < operands.size(); ++slot) {
      double most = 0, error = 0;
      for (size_t i = 0; i < want[slot].size(); i += 2) {
        _Float16 x, y;
        std::memcpy(&x, want[slot].data() + i, 2);
        std::memcpy(&y, got[slot].data() + i, 2);
        most = std::max(most, std::abs(static_cast<double>(x)));
        const double off = std::abs(static_cast<double>(x) - static_cast<double>(y));
        error = off <= error ? error : off;  // also no number
      }
      EXPECT_LE(error, 0x1p-9 * most) << static_cast<int>(spelling) << ' ' << slot;
      EXPECT_GT(most, 0) << static_cast<int>(spelling) << ' ' << slot;
    }
  }
}

// The loops of each kernel over keys, or over queries of all heads of a group, end by the mask.
TEST_F(AttentionStepTest, LoopsEndWhereAMaskBegins) {
  for (const Seen seen : {Seen::kAll, Seen::kCausal, Seen::kWindow, Seen::kAlibi}) {
    for (const int64_t groups : {4, 2}) {
      const AttentionShape s{
          .heads = 4, .groups = groups, .queries = 512, .keys = 512, .seen = seen};
      SCOPED_TRACE(Described(s));
      const absl::StatusOr<Plan> plan = AttentionStep(s);
      ASSERT_TRUE(plan.ok()) << plan.status();
      Budget budget;
      const auto schedule = ScheduleGraph(Root(plan), &budget, ScheduleOptions::For(Cpu(64)));
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      int rows = 0;
      for (const ScheduledKernel& kernel : schedule->kernels) {
        const Graph& graph = *kernel.graph.graph;
        const std::vector<uint32_t> nodes = PostOrder(kernel.graph.root());
        const auto has = [&](Op op) {
          return std::ranges::any_of(nodes, [&](uint32_t id) { return graph.op(id) == op; });
        };
        if (!has(Op::kExp2) || !has(Op::kBuffer)) continue;
        const auto program = Lower(kernel.graph, Cpu(64), "k", &budget);
        ASSERT_TRUE(program.ok()) << program.status();
        const auto bounded = std::ranges::count_if(program->order, [&](uint32_t id) {
          const UOp u = program->graph->at(id);
          return u.is(Op::kRange) && !u.src(0).is_const();
        });
        EXPECT_EQ(bounded > 0, seen != Seen::kAll) << "kernel " << rows;
        ++rows;
      }
      EXPECT_GE(rows, 3);
    }
  }
}

// What `telegrad explain` prints of a kernel, `telegrad-opt --moves` takes.
TEST_F(AttentionStepTest, ListsOfMovesAreTakenBack) {
  for (const int64_t queries : {16, 160, 512}) {
    const AttentionShape s{.heads = 2, .groups = 2, .queries = queries, .keys = 160, .channels = 8};
    SCOPED_TRACE(Described(s));
    const absl::StatusOr<Plan> plan = AttentionStep(s);
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (const int vector_bytes : {16, 32, 64}) {
      const Target target = Cpu(vector_bytes);
      Budget budget;
      const auto schedule = ScheduleGraph(Root(plan), &budget, ScheduleOptions::For(target));
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      for (const ScheduledKernel& kernel : schedule->kernels) {
        const auto chosen = Lower(kernel.graph, target, "k", &budget);
        ASSERT_TRUE(chosen.ok()) << chosen.status();
        const auto given =
            Lower(kernel.graph, target, "k", &budget, nullptr, {.moves = chosen->moves});
        EXPECT_TRUE(given.ok()) << given.status() << "\n" << chosen->moves;
      }
    }
  }
}

// And what a thread keeps does not grow beyond a fixed size.
TEST_F(AttentionStepTest, KeepsAFewRows) {
  for (const int64_t length : {512, 4096}) {
    const AttentionShape s{.heads = 4, .groups = 4, .queries = length, .keys = length};
    EXPECT_LE(CostOf(Root(AttentionStep(s)), Cpu(64)).kept, int64_t{4} << 20) << length;
  }
}

}  // namespace
}  // namespace telegrad::testing
