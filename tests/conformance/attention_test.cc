// Attention of random shapes: one launch whose scores stay in the private memory of the thread that
// computes them, with the results of the tensor evaluator, whatever a mask shows of the keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "engine/base/strings.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/lowering/lower.h"
#include "engine/reference/tensor_eval.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/attention_cases.h"
#include "tests/conformance/run_graph.h"
#include "tests/conformance/run_lowered.h"
#include "tests/models/models.h"

namespace telegrad::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int64_t kFewBytes = 96 << 10;  // of a thread's rows, a block of each
constexpr std::string_view kNames[] = {"full", "causal", "window", "alibi"};

std::string Print(const AttentionShape& s) {
  return StrCat(kNames[static_cast<size_t>(s.seen)], " [", s.batch, ", ", s.heads, "/", s.groups,
                ", ", s.queries, " x ", s.keys, ", ", s.channels, "] window ", s.window);
}

void Put(std::vector<uint8_t>* bytes, int64_t at, float x) {
  std::memcpy(bytes->data() + 4 * at, &x, 4);
}

// "q", "k", "v" and room for "y".
Slots Operands(const AttentionShape& s, std::mt19937& random) {
  const int64_t q = s.batch * s.heads * s.queries * s.channels;
  const int64_t k = s.batch * s.groups * s.keys * s.channels;
  return {Floats(q, random), Floats(k, random), Floats(k, random),
          std::vector<uint8_t>(static_cast<size_t>(q) * 4)};
}

// The arguments that Operands fills.
std::array<Tensor, 3> Inputs(Builder& b, const AttentionShape& s) {
  return {b.Param(DType::kFloat32, {s.batch, s.heads, s.queries, s.channels}, "q"),
          b.Param(DType::kFloat32, {s.batch, s.groups, s.keys, s.channels}, "k"),
          b.Param(DType::kFloat32, {s.batch, s.groups, s.keys, s.channels}, "v")};
}

AttentionShape RandomShape(std::mt19937& random, int64_t most) {
  const auto pick = [&](std::initializer_list<int64_t> of) {
    return of.begin()[random() % of.size()];
  };
  AttentionShape s;
  s.batch = pick({1, 1, 2});
  s.groups = pick({1, 2, 3});
  s.heads = s.groups * pick({1, 1, 2, 4});
  s.seen = static_cast<Seen>(random() % 4);
  s.queries = pick({1, 5, 16, 33, 64, 96, 101, 128, 200});
  s.keys = pick({1, 7, 16, 48, 64, 96, 100, 128, 197, 250});
  s.queries = std::min(s.queries, most);
  s.keys = std::min(s.keys, most);
  if (random() % 2 == 0) s.keys = s.queries;
  s.channels = pick({16, 24, 32, 64});
  s.window = pick({1, 8, 40, 64});
  return s;
}

void Check(const AttentionShape& s, const Slots& operands, CpuRunner* runner) {
  SCOPED_TRACE(Print(s));
  const absl::StatusOr<Plan> plan = Attention(s);
  ASSERT_TRUE(plan.ok()) << plan.status();
  Budget budget;
  Slots want = operands;
  ASSERT_TRUE(reference::Evaluate(Root(plan), want, &budget).ok());
  for (const int vector_bytes : {0, 32, 64}) {
    Slots got = operands;
    if (vector_bytes == 0) {
      const absl::Status status = runner->Run(Root(plan), {}, &got);
      ASSERT_TRUE(status.ok()) << status;
    } else {
      if (s.batch * s.heads * s.queries * s.keys * s.channels > 1'000'000) continue;  // slow
      const absl::Status status = RunLowered(Root(plan), Cpu(vector_bytes), {}, &got);
      ASSERT_TRUE(status.ok()) << status;
    }
    EXPECT_EQ(Difference(DType::kFloat32, false, want[3], got[3]), "") << vector_bytes;
  }
}

TEST_F(AttentionTest, AgreesWithTheEvaluator) {
  std::mt19937 random(1);
  for (int i = 0; i < 14; ++i) {
    const AttentionShape s = RandomShape(random, 250);
    Check(s, Operands(s, random), runner_);
    if (HasFatalFailure()) return;
  }
}

// What a mask hides is not computed, unless a value that it hides is no finite number: 0 times
// that is none either.
TEST_F(AttentionTest, AgreesWhereOperandsAreNotFinite) {
  std::mt19937 random(2);
  for (int i = 0; i < 10; ++i) {
    AttentionShape s = RandomShape(random, 128);
    s.batch = 1;
    s.keys = s.queries = std::max<int64_t>(s.queries, 64);
    Slots operands = Operands(s, random);
    for (int n = 0; n < 3; ++n) {
      std::vector<uint8_t>& bytes = operands[random() % 3];
      const float odd[] = {kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), 1e30f};
      Put(&bytes, static_cast<int64_t>(random() % (bytes.size() / 4)), odd[random() % 4]);
    }
    Check(s, operands, runner_);
    if (HasFatalFailure()) return;
  }
}

// docs/numerics.md: where a mask chooses, a hidden key is hidden whatever it is; where it is added,
// no number stays none. The keys of the group are 64, of which one has a channel that is no number.
TEST_F(AttentionTest, AKeyThatIsNoNumberIsHiddenByAChoice) {
  constexpr int64_t kLength = 64, kKey = 40, kWindow = 8;
  for (const Seen seen : {Seen::kCausal, Seen::kWindow, Seen::kAlibi}) {
    AttentionShape s{.heads = 2, .groups = 2, .channels = 16, .seen = seen, .window = kWindow};
    s.queries = s.keys = kLength;
    SCOPED_TRACE(Print(s));
    const absl::StatusOr<Plan> plan = Attention(s);
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::mt19937 random(21);
    Slots clean = Operands(s, random), odd = clean;
    Put(&odd[1], kKey * s.channels + 3, std::numeric_limits<float>::quiet_NaN());
    for (Slots* slots : {&clean, &odd}) {
      const absl::Status status = runner_->Run(Root(plan), {}, slots);
      ASSERT_TRUE(status.ok()) << status;
    }
    for (int64_t i = 0; i < 2 * kLength * s.channels; ++i) {
      float want, got;
      std::memcpy(&want, clean[3].data() + 4 * i, 4);
      std::memcpy(&got, odd[3].data() + 4 * i, 4);
      const int64_t query = i / s.channels % kLength, back = query - kKey;
      const bool visible = back >= 0 && (seen == Seen::kCausal || back < kWindow);
      const bool reaches = i < kLength * s.channels && (seen == Seen::kAlibi || visible);
      ASSERT_TRUE(reaches ? std::isnan(got) : std::abs(want - got) <= 1e-6F)
          << query << ' ' << want << ' ' << got;
    }
  }
}

// The last block has positions beyond the last key, which few queries see, or which are before
// some.
TEST_F(AttentionTest, AgreesWhereTheLastKeyIsNotFinite) {
  for (const int64_t queries : {101, 128}) {
    AttentionShape s{.heads = 4, .groups = 4, .channels = 32, .seen = Seen::kCausal};
    s.queries = queries;
    s.keys = 101;
    std::mt19937 random(9);
    Slots operands = Operands(s, random);
    Put(&operands[2], (s.keys - 1) * s.channels + 3, kInf);
    Put(&operands[1], ((2 * s.keys) - 1) * s.channels, kInf);
    Check(s, operands, runner_);
  }
}

// What each query sees, in f64: y[b, h, i, c] as the formula says, where `seen` holds.
std::vector<double> InDoubles(const AttentionShape& s, const Slots& operands,
                              const std::function<bool(int64_t, int64_t)>& seen) {
  const auto at = [&](int slot, int64_t i) {
    float x;
    std::memcpy(&x, operands[static_cast<size_t>(slot)].data() + 4 * i, 4);
    return static_cast<double>(x);
  };
  std::vector<double> y;
  for (int64_t row = 0; row < s.batch * s.heads * s.queries; ++row) {
    const int64_t head = row / s.queries, query = row % s.queries;
    const int64_t first = head / (s.heads / s.groups) * s.keys;  // of the group's keys
    std::vector<double> weights;
    double most = -kInf, sum = 0;
    for (int64_t key = 0; key < s.keys; ++key) {
      double score = 0;
      for (int64_t c = 0; c < s.channels; ++c) {
        score += at(0, row * s.channels + c) * at(1, (first + key) * s.channels + c);
      }
      score /= std::sqrt(static_cast<double>(s.channels));
      weights.push_back(seen(query, key) ? score : -kInf);
      most = std::max(most, weights.back());
    }
    for (double& weight : weights) sum += weight = std::exp(weight - most);
    for (int64_t c = 0; c < s.channels; ++c) {
      double value = 0;
      for (int64_t key = 0; key < s.keys; ++key) {
        value += weights[static_cast<size_t>(key)] * at(2, (first + key) * s.channels + c);
      }
      y.push_back(value / sum);
    }
  }
  return y;
}

// The largest difference from what is wanted, infinite where one of both is no number.
double Error(const std::vector<double>& want, const std::vector<uint8_t>& got) {
  double most = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    float x;
    std::memcpy(&x, got.data() + 4 * i, 4);
    if (std::isnan(x) && std::isnan(want[i])) continue;
    const double error = std::abs(x - want[i]);
    most = error <= most ? most : std::isnan(error) ? kInf : error;
  }
  return most;
}

TEST_F(AttentionTest, AgreesWithTheFormulaInDoubles) {
  std::mt19937 random(4);
  for (int i = 0; i < 8; ++i) {
    AttentionShape s = RandomShape(random, 250);
    s.seen = i % 2 == 0 ? Seen::kAll : Seen::kCausal;
    SCOPED_TRACE(Print(s));
    const absl::StatusOr<Plan> plan = Attention(s);
    ASSERT_TRUE(plan.ok()) << plan.status();
    Slots operands = Operands(s, random);
    const std::vector<double> want = InDoubles(
        s, operands, [&](int64_t query, int64_t key) { return i % 2 == 0 || key <= query; });
    const absl::Status status = runner_->Run(Root(plan), {}, &operands);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_LT(Error(want, operands[3]), 2e-5);
  }
}

// A mask that is data, with rows that hide every key: their maxima are -inf until the end, or until
// the last blocks. The exponential of -inf + inf is no number, in one loop as in three.
TEST_F(AttentionTest, AgreesWhereRowsAreHidden) {
  const AttentionShape s{.heads = 2, .groups = 2, .queries = 128, .keys = 256, .channels = 32};
  const auto seen = [](int64_t query, int64_t key) {
    if (query % 8 == 3) return false;       // never
    if (query % 8 == 5) return key >= 250;  // in the last block
    if (query % 8 == 6) return key == 7;    // in the first block
    return (query * 31 + key * 17) % 5 != 0;
  };
  Builder b;
  const auto [q, k, v] = Inputs(b, s);
  const Tensor mask = b.Param(DType::kInt32, {s.queries, s.keys}, "mask");
  const Tensor scores = q.MatMul(k.Transpose(-1, -2)) / std::sqrt(static_cast<double>(s.channels));
  b.Output(mask.Ne(0).Where(scores, -kInf).Softmax().MatMul(v), "y");
  const absl::StatusOr<Plan> plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::mt19937 random(5);
  Slots operands = Operands(s, random);
  std::vector<int32_t> shown;
  for (int64_t query = 0; query < s.queries; ++query) {
    for (int64_t key = 0; key < s.keys; ++key) shown.push_back(seen(query, key) ? 1 : 0);
  }
  std::vector<uint8_t> bytes(shown.size() * 4);
  std::memcpy(bytes.data(), shown.data(), bytes.size());
  operands.insert(operands.begin() + 3, std::move(bytes));
  EXPECT_EQ(CostOf(Root(plan), Cpu(64)).kept, CostOf(Root(Attention(s)), Cpu(64)).kept);
  Slots want = operands;
  Budget budget;
  ASSERT_TRUE(reference::Evaluate(Root(plan), want, &budget).ok());
  const absl::Status status = runner_->Run(Root(plan), {}, &operands);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Difference(DType::kFloat32, false, want[4], operands[4]), "");
  EXPECT_LT(Error(InDoubles(s, operands, seen), operands[4]), 2e-5);
}

// What is subtracted is another number where the maximum is below it, or the maximum, which is -inf
// in rows that are hidden; the weights are scaled twice; the sum is not all that they are divided
// by; the scores are made from what is stored; and blocks do not divide a row: a value that two of
// them have is infinite.
TEST_F(AttentionTest, AgreesWithOtherShifts) {
  const AttentionShape s{.heads = 2, .groups = 2, .queries = 128, .keys = 197, .channels = 32};
  for (const bool clipped : {false, true}) {
    SCOPED_TRACE(clipped);
    Builder b;
    const auto [q, k, v] = Inputs(b, s);
    const Tensor scores = q.MatMul(k.Transpose(-1, -2)).Contiguous();
    const Tensor hides = b.Iota(DType::kInt32, s.queries).Unsqueeze(-1).FloorMod(5).Eq(3);
    const Tensor seen = hides.Where(-kInf, (scores * 0.02).Tanh() * 4.0);
    const Tensor most = seen.Max({-1}, true);
    const Tensor shift = clipped ? most.Gt(1.0).Where(most, 1.0) : most;
    const Tensor weights = ((seen - shift) * 1.5).Exp2();
    b.Output((weights * 0.5 / (weights.Sum({-1}, true) + 1.0)).MatMul(v), "y");
    const absl::StatusOr<Plan> plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_LT(CostOf(Root(plan), Cpu(64)).kept, kFewBytes);
    std::mt19937 random(7);
    Slots operands = Operands(s, random);
    Put(&operands[2], 158 * s.channels + 5, kInf);
    ExpectEvaluated(Root(plan), operands, 3);
  }
}

// Hidden scores are a finite number, whose maximum another number takes the place of: the shift of
// the first blocks is far above that of the last ones, by more than an exponential can tell.
TEST_F(AttentionTest, AgreesWhereTheShiftFallsWhileTheMaximumRises) {
  const AttentionShape s{.heads = 2, .groups = 2, .queries = 128, .keys = 197, .channels = 32};
  Builder b;
  const auto [q, k, v] = Inputs(b, s);
  const Tensor scores = (q.MatMul(k.Transpose(-1, -2)) * 0.02).Tanh() - 200.0;
  const Tensor seen = b.Iota(DType::kInt32, s.keys).Lt(120).Where(-1e9, scores);
  const Tensor most = seen.Max({-1}, true);
  const Tensor weights = (seen - most.Gt(-1e8).Where(most, 0.0)).Exp();
  b.Output((weights / weights.Sum({-1}, true)).MatMul(v), "y");
  const absl::StatusOr<Plan> plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_LT(CostOf(Root(plan), Cpu(64)).kept, kFewBytes);
  std::mt19937 random(11);
  const Slots operands = Operands(s, random);
  ExpectEvaluated(Root(plan), operands, 3);
}

// Causal masks as exporters write them: a number is added to the scores, or chosen in their place.
enum class CausalForm { kAdded, kTimes, kChosen };
constexpr std::string_view kForms[] = {"added", "times", "chosen"};
struct FiniteMask {
  CausalForm form = CausalForm::kAdded;
  double hidden = 0;
  int64_t offset = 0;  // key <= query + offset is shown
  bool ends = false;   // loops over keys end where it hides the rest
};
Tensor MaskedScores(Builder& b, const Tensor& scores, int64_t length, const FiniteMask& m) {
  const Tensor at = b.Iota(DType::kInt32, length);
  const Tensor shown = at.Le(at.Unsqueeze(-1) + m.offset);
  switch (m.form) {
    case CausalForm::kAdded:
      return scores + shown.Where(b.Full(DType::kFloat32, {}, 0.0), m.hidden);
    case CausalForm::kTimes:
      return scores + (shown.Cast(DType::kFloat32) * -1.0 + 1.0) * m.hidden;
    case CausalForm::kChosen:
      return shown.Where(scores, m.hidden);
  }
  return {};
}

// A finite number hides only what is above it by more than an exponential can tell. Loops end where
// that is certain: if each row shows a key, and operands are bounded, which a run tests. Otherwise
// all keys count: with rows that show none, the mean of all values.
TEST_F(AttentionTest, AgreesWhereAFiniteNumberHides) {
  constexpr double kLeast = -3.4028234663852886e38;  // of f32
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const FiniteMask masks[] = {
      {CausalForm::kAdded, kLeast, 0, true},   {CausalForm::kTimes, kLeast, 0, true},
      {CausalForm::kChosen, kLeast, 0, true},  {CausalForm::kAdded, -3.3e38, 5, true},
      {CausalForm::kAdded, kLeast, -3, false}, {CausalForm::kChosen, kLeast, -1, false},
      {CausalForm::kAdded, -1e30, 0, false},   {CausalForm::kAdded, -1e4, 0, false},
      {CausalForm::kChosen, -1e9, 0, false},   {CausalForm::kAdded, -kInf, 0, true},
  };
  for (const int64_t length : {128, 101}) {
    const AttentionShape s{
        .heads = 2, .groups = 2, .queries = length, .keys = length, .channels = 16};
    for (const FiniteMask& m : masks) {
      SCOPED_TRACE(StrCat(kForms[static_cast<size_t>(m.form)], " ", m.hidden, ", offset ", m.offset,
                          ", ", length, " keys"));
      Builder b;
      const auto [q, k, v] = Inputs(b, s);
      const Tensor scores = q.MatMul(k.Transpose(-1, -2)) * 0.25;
      b.Output(MaskedScores(b, scores, length, m).Softmax(-1).MatMul(v), "y");
      const absl::StatusOr<Plan> plan = b.Finish();
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(CostOf(Root(plan), Cpu(64)).bounded > 0, m.ends);
      std::mt19937 random(23);
      const Slots plain = Operands(s, random);
      ExpectEvaluated(Root(plan), plain, 3);
      // An operand and what it is at a place: scores below -1e9, infinite ones, and no numbers.
      const std::tuple<size_t, int64_t, float> odd[] = {
          {0, 5 * 16 + 3, 1e12F},        {0, 40 * 16, -3e37F},   {1, 60 * 16 + 1, -1e38F},
          {1, (length - 1) * 16, 2e38F}, {1, 70 * 16 + 2, kNaN}, {2, 80 * 16 + 7, kInf},
          {2, (length - 1) * 16, kNaN},  {0, 7 * 16, kInf}};
      for (const auto& [slot, at, value] : odd) {
        if (!m.ends) break;
        SCOPED_TRACE(StrCat("operand ", slot, " has ", value));
        Slots operands = plain;
        Put(&operands[slot], at, value);
        ExpectEvaluated(Root(plan), operands, 3);
      }
      // All scores of the first 8 queries are about -8e9, and none is rounded.
      Slots low = plain;
      for (int64_t i = 0; i < length * 16; ++i) {
        Put(&low[0], i, i < 8 * 16 ? -0x1p20F : static_cast<float>(i % 5) - 2);
        Put(&low[1], i, 0x1p11F + static_cast<float>(i % 7));
      }
      ExpectEvaluated(Root(plan), low, 3);
      // Three loops over all keys, in place of one over blocks.
      Target fixed = Cpu(64);
      fixed.deterministic = true;
      Slots want = low, got = low;
      Budget budget;
      ASSERT_TRUE(reference::Evaluate(Root(plan), want, &budget).ok());
      const absl::Status status = RunLowered(Root(plan), fixed, {}, &got);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(Difference(DType::kFloat32, false, want[3], got[3]), "");
    }
  }
}

// Scores beyond the largest f32 although every operand is small, sums that data may make 0, and
// many operands: loops end only where what is computed of bounded operands is bounded.
TEST_F(AttentionTest, AgreesWhereSmallOperandsMakeLargeScores) {
  constexpr double kLeast = -3.4028234663852886e38;  // of f32
  const AttentionShape s{.heads = 2, .groups = 2, .queries = 64, .keys = 64, .channels = 16};
  const auto powers = [](const Tensor& x, double by, int times) {
    Tensor y = x;
    for (int i = 0; i < times; ++i) y = y * by;
    return y;
  };
  using Form = std::function<Tensor(Builder&, const Tensor& scores, const Tensor& p)>;
  const std::pair<const char*, Form> forms[] = {
      {"products", [&](Builder&, const Tensor& x,
                       const Tensor& p) { return powers(x, 1.6e7, 2) * powers(p, 1.6e7, 4); }},
      {"chosen constants",
       [](Builder& b, const Tensor& x, const Tensor& p) {
         const Tensor f = p.Lt(0.0).Where(b.Full(DType::kFloat32, {}, 1e38), 2e38);
         return x * f * f;
       }},
      {"small factors",
       [&](Builder&, const Tensor& x, const Tensor&) { return powers(x, 1.9, 160); }},
      {"sums", [](Builder&, const Tensor& x, const Tensor&) {
         Tensor y = x;
         for (int i = 0; i < 140; ++i) y = y + y;
         return y;
       }}};
  for (const auto& [name, form] : forms) {
    for (const double hidden : {kLeast, -static_cast<double>(kInf)}) {
      for (const bool added : {false, true}) {
        SCOPED_TRACE(StrCat(name, ", ", hidden, added ? " added" : " chosen"));
        Builder b;
        const auto [q, k, v] = Inputs(b, s);
        const Tensor p = b.Param(DType::kFloat32, {1}, "p");
        const Tensor scores = form(b, q.MatMul(k.Transpose(-1, -2)), p);
        const FiniteMask m{added ? CausalForm::kAdded : CausalForm::kChosen, hidden};
        b.Output(MaskedScores(b, scores, s.keys, m).Softmax(-1).MatMul(v), "y");
        const absl::StatusOr<Plan> plan = b.Finish();
        ASSERT_TRUE(plan.ok()) << plan.status();
        std::mt19937 random(29);
        for (const float sign : {-1.0F, 1.0F}) {
          Slots operands = Operands(s, random);
          for (int64_t i = 0; i < s.heads * s.queries * s.channels; ++i) {
            Put(&operands[0], i, 1.0F);
            Put(&operands[1], i, sign);
          }
          operands.insert(operands.begin() + 3, std::vector<uint8_t>(sizeof(float)));
          Put(&operands[3], 0, 1.0F);
          ExpectEvaluated(Root(plan), operands, 4);
        }
      }
    }
  }
}

// The values lie in pages of as many keys as a block of the mask, or have a scale for each of
// these: they depend on the block and on the place in it, and not on their sum alone.
TEST_F(AttentionTest, AgreesWhereValuesAreTiledAlongTheKeys) {
  constexpr int64_t kHeads = 2, kLength = 256, kPage = 32, kChannels = 32;
  constexpr int64_t kPages = kLength / kPage;
  for (const bool scaled : {false, true}) {
    SCOPED_TRACE(scaled);
    Builder b;
    const Tensor q = b.Param(DType::kFloat32, {kHeads, kLength, kChannels}, "q");
    const Tensor k = b.Param(DType::kFloat32, {kHeads, kLength, kChannels}, "k");
    const Tensor v = b.Param(DType::kFloat32, {kPages, kHeads, kPage, kChannels}, "v");
    const Tensor scale = b.Param(DType::kFloat32, {kHeads, kPages, 1, 1}, "scale");
    const Tensor tiled =
        scaled ? v.Reshape({kHeads, kPages, kPage, kChannels}) * scale : v.Permute({1, 0, 2, 3});
    const Tensor at = b.Iota(DType::kInt32, kLength);
    const Tensor scores = at.Unsqueeze(-1).Lt(at).Where(-kInf, q.MatMul(k.Transpose(-1, -2)));
    Tensor y = scores.Softmax(-1).MatMul(tiled.Reshape({kHeads, kLength, kChannels}));
    if (!scaled) y = y * scale.Reshape({kHeads, kPages, 1}).Sum({1}, true);
    b.Output(y, "y");
    const absl::StatusOr<Plan> plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::mt19937 random(19);
    constexpr int64_t kElements = kHeads * kLength * kChannels;
    const Slots operands{Floats(kElements, random), Floats(kElements, random),
                         Floats(kElements, random), Floats(kHeads * kPages, random),
                         std::vector<uint8_t>(kElements * 4)};
    ExpectEvaluated(Root(plan), operands, 4);
  }
}

// Where the maximum is infinite and the kernel subtracts 0, weights are infinite, too.
TEST_F(AttentionTest, AgreesWhereAScoreIsInfiniteAndNothingIsSubtracted) {
  const AttentionShape s{.heads = 2, .groups = 2, .queries = 128, .keys = 192, .channels = 32};
  Builder b;
  const auto [q, k, v] = Inputs(b, s);
  const Tensor scores =
      b.Iota(DType::kInt32, s.keys).Eq(5).Where(kInf, q.MatMul(k.Transpose(-1, -2)));
  const Tensor most = scores.Max({-1}, true);
  const Tensor weights = (scores - (most - most).Eq(0.0).Where(most, 0.0)).Exp();
  b.Output(weights.MatMul(v), "y");
  const absl::StatusOr<Plan> plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::mt19937 random(23);
  ExpectEvaluated(Root(plan), Operands(s, random), 3);
}

// The last tile of rows is moved back until it is whole: what it computes again must not have been
// overwritten by what it is added to.
TEST_F(AttentionTest, AddsToAnOperandThatDies) {
  const AttentionShape s{.heads = 8, .groups = 8, .queries = 100, .keys = 200, .channels = 32};
  std::mt19937 random(3);
  Builder b;
  const auto [q, k, v] = Inputs(b, s);
  const Tensor residual = (q * 2.0).Contiguous();
  const Tensor y = (q.ScaledDotProductAttention(k, v) + residual).Contiguous();
  b.Output(y.Flip({-1}) + y, "y");
  const absl::StatusOr<Plan> plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Slots operands = Operands(s, random);
  Slots want = operands, got = operands;
  Budget budget;
  ASSERT_TRUE(reference::Evaluate(Root(plan), want, &budget).ok());
  const absl::Status status = runner_->Run(Root(plan), {}, &got);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Difference(DType::kFloat32, false, want[3], got[3]), "");
}

TEST_F(AttentionTest, IsOneLaunchWithLittleMemory) {
  constexpr int64_t kMost = int64_t{4} << 20;  // bytes, for each of two threads
  for (const int64_t length : {128, 197, 512, 1000, 1024, 4096, 8192, 65536}) {
    for (const auto& [heads, groups] : {std::pair(12, 12), std::pair(32, 8)}) {
      for (const Seen seen : {Seen::kAll, Seen::kCausal, Seen::kWindow, Seen::kAlibi}) {
        for (const int vector_bytes : {32, 64}) {
          AttentionShape s{.heads = heads, .groups = groups, .seen = seen};
          s.queries = s.keys = length;
          SCOPED_TRACE(Print(s));
          const absl::StatusOr<Plan> plan = Attention(s);
          ASSERT_TRUE(plan.ok()) << plan.status();
          const Cost cost = CostOf(Root(plan), Cpu(vector_bytes));
          EXPECT_EQ(cost.launches, 1u);
          EXPECT_LE(cost.arena + 2 * cost.kept, 2 * kMost);
          // Loops over keys end where a mask of positions hides the rest, also one that is added.
          EXPECT_EQ(cost.bounded > 0, seen != Seen::kAll);
        }
      }
    }
  }
}

// The instructions that the interpreter executes: a triangle of scores is little more than half of
// them all, also where there are few.
TEST_F(AttentionTest, CausalComputesLittleMoreThanATriangle) {
  std::mt19937 random(17);
  for (const int vector_bytes : {32, 64}) {
    for (const int64_t length : {128, 256}) {
      int64_t steps[3] = {};  // of all, a mask that chooses, and one that is added
      for (const Seen seen : {Seen::kAll, Seen::kCausal, Seen::kAlibi}) {
        AttentionShape s{.heads = 2, .groups = 2, .seen = seen};
        s.queries = s.keys = length;
        const absl::StatusOr<Plan> plan = Attention(s);
        ASSERT_TRUE(plan.ok()) << plan.status();
        const Target target = Cpu(vector_bytes);
        Budget budget;
        const auto schedule = ScheduleGraph(Root(plan), &budget, ScheduleOptions::For(target));
        ASSERT_TRUE(schedule.ok()) << schedule.status();
        Slots slots = Operands(s, random);
        int64_t& count = steps[seen == Seen::kAll ? 0 : seen == Seen::kCausal ? 1 : 2];
        const absl::Status status = RunSchedule(*schedule, target, &slots, nullptr, &count);
        ASSERT_TRUE(status.ok()) << status;
      }
      const double share = static_cast<double>(steps[1]) / static_cast<double>(steps[0]);
      EXPECT_LE(share, 0.62) << length << " positions, vectors of " << vector_bytes << " bytes";
      const double added = static_cast<double>(steps[2]) / static_cast<double>(steps[0]);
      EXPECT_LE(added, 0.61) << length << " positions, vectors of " << vector_bytes << " bytes";
    }
  }
}

// A row of scores is computed a block at a time: what a thread keeps does not grow with its length.
TEST_F(AttentionTest, KeepsABlockOfEachRow) {
  for (const Seen seen : {Seen::kAll, Seen::kCausal, Seen::kWindow, Seen::kAlibi}) {
    std::vector<int64_t> kept;
    for (const int64_t length : {512, 1024, 4096, 32768}) {
      AttentionShape s{.heads = 8, .groups = 2, .seen = seen};
      s.queries = s.keys = length;
      const absl::StatusOr<Plan> plan = Attention(s);
      ASSERT_TRUE(plan.ok()) << plan.status();
      kept.push_back(CostOf(Root(plan), Cpu(64)).kept);
    }
    EXPECT_EQ(kept, std::vector<int64_t>(kept.size(), kept[0])) << kNames[static_cast<int>(seen)];
    EXPECT_LT(kept[0], kFewBytes);
  }
}

// Lanes are rows of scores: the queries of a tile are copied into that order, once for all keys,
// and nothing is added up over lanes.
TEST_F(AttentionTest, AddsUpNothingOverLanes) {
  for (const Seen seen : {Seen::kAll, Seen::kCausal}) {
    for (const int64_t length : {128, 512}) {
      AttentionShape s{.heads = 12, .groups = 12, .seen = seen};
      s.queries = s.keys = length;
      s.channels = 64;
      const absl::StatusOr<Plan> plan = Attention(s);
      ASSERT_TRUE(plan.ok()) << plan.status();
      Budget budget;
      const auto schedule = ScheduleGraph(Root(plan), &budget, ScheduleOptions::For(Cpu(64)));
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      for (const ScheduledKernel& kernel : schedule->kernels) {
        const auto program = Lower(kernel.graph, Cpu(64), "k", &budget);
        ASSERT_TRUE(program.ok()) << program.status();
        const auto over_lanes = std::ranges::count_if(
            program->order, [&](uint32_t id) { return program->graph->op(id) == Op::kReduce; });
        // The values that a mask hides are, to see whether all are finite.
        EXPECT_EQ(over_lanes, seen == Seen::kAll ? 0 : 1)
            << kNames[static_cast<int>(seen)] << " " << length;
      }
    }
  }
}

// Keys and values in pages that a table names, for one query of each head and for several.
TEST_F(AttentionTest, ReadsPagesInBlocks) {
  constexpr int64_t kHeads = 8, kPages = 16, kPage = 16, kChannels = 32;
  for (const int64_t queries : {1, 128}) {
    SCOPED_TRACE(queries);
    Builder b;
    const Tensor q = b.Param(DType::kFloat32, {kHeads, queries, kChannels}, "q");
    const Tensor k = b.Param(DType::kFloat32, {kPages, kPage, kHeads, kChannels}, "k");
    const Tensor v = b.Param(DType::kFloat32, {kPages, kPage, kHeads, kChannels}, "v");
    const Tensor table = b.Param(DType::kInt32, {kPages}, "table");
    const auto gathered = [&](const Tensor& pages) {
      return pages.Gather(table).Reshape({kPages * kPage, kHeads, kChannels}).Permute({1, 0, 2});
    };
    const Tensor scores = q.MatMul(gathered(k).Transpose(-1, -2)) * 0.125;
    b.Output(scores.Softmax().MatMul(gathered(v)), "y");
    const absl::StatusOr<Plan> plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << plan.status();
    const Cost cost = CostOf(Root(plan), Cpu(64));
    EXPECT_EQ(cost.launches, 1u);
    EXPECT_EQ(cost.arena, 0);
    EXPECT_LT(cost.kept, kFewBytes);
    std::mt19937 random(8);
    const int64_t elements = kPages * kPage * kHeads * kChannels;
    Slots operands{Floats(kHeads * queries * kChannels, random), Floats(elements, random),
                   Floats(elements, random), std::vector<uint8_t>(4 * kPages),
                   std::vector<uint8_t>(static_cast<size_t>(4 * kHeads * queries * kChannels))};
    for (int64_t i = 0; i < kPages; ++i) {
      const auto page = static_cast<int32_t>(random() % kPages);
      std::memcpy(operands[3].data() + 4 * i, &page, 4);
    }
    ExpectEvaluated(Root(plan), operands, 4);
  }
}

int64_t InstructionsOf(Seen seen, int64_t length) {
  AttentionShape s{.heads = 2, .groups = 2, .seen = seen};
  s.queries = s.keys = length;
  s.channels = 16;
  s.window = 64;
  const absl::StatusOr<Plan> plan = Attention(s);
  EXPECT_TRUE(plan.ok()) << plan.status();
  std::mt19937 random(6);
  Slots slots = Operands(s, random);
  Budget budget;
  const Target target = Cpu(64);
  const auto schedule = ScheduleGraph(Root(plan), &budget, ScheduleOptions::For(target));
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  int64_t steps = 0;
  const absl::Status status = RunSchedule(*schedule, target, &slots, nullptr, &steps);
  EXPECT_TRUE(status.ok()) << status;
  return steps;
}

// Also where the last block is not whole.
TEST_F(AttentionTest, LeavesOutBlocksThatAMaskHides) {
  for (const int64_t length : {1024, 1021}) {
    const auto full = static_cast<double>(InstructionsOf(Seen::kAll, length));
    EXPECT_LT(static_cast<double>(InstructionsOf(Seen::kCausal, length)), 0.6 * full) << length;
    EXPECT_LT(static_cast<double>(InstructionsOf(Seen::kWindow, length)), 0.25 * full) << length;
  }
}

}  // namespace
}  // namespace telegrad::testing
