// The loss of a case is the sum of its float outputs, each element times a weight of its own; the
// loss of the second order is the sum of the gradients, times weights again. Both gradients are
// compared with central differences of the losses, in f64 on the reference interpreter, and the
// first with PyTorch's where the data has it.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/strings.h"
#include "engine/frontend/autograd/gradient.h"
#include "engine/frontend/tensor/host_random.h"
#include "tests/frontend/case_data.h"
#include "tests/frontend/cases.h"
#include "tests/frontend/run_plan.h"

namespace telegrad::testing {
namespace {

constexpr uint64_t kSeed = 20261121;
constexpr double kStep = 1e-5;
constexpr size_t kMostElements = 6;  // of each input are moved

HostTensor Doubles(ShapeView shape, std::span<const double> values) {
  return HostTensor::Of<double>(Shape(shape.begin(), shape.end()), values);
}

// Distinct numbers in [low, high), in random order.
std::vector<double> Draw(int64_t n, double low, double high, uint64_t seed) {
  std::vector<double> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) {
    const double jitter = 0.25 + 0.5 * UnitFraction(seed, i);
    out[i] = low + (high - low) * (static_cast<double>(i) + jitter) / static_cast<double>(n);
  }
  for (size_t i = out.size(); i > 1; --i) {
    std::swap(out[i - 1], out[RandomBelow(seed + 1, i, i)]);
  }
  return out;
}

// sum over all elements of t * weights, which do not repeat.
Tensor Weighted(Builder& b, const Tensor& t, uint64_t seed) {
  const std::vector<double> w = Draw(t.size(), 0.5, 1.5, seed);
  const Tensor weights = b.Literal(DType::kFloat64, Shape(t.shape().begin(), t.shape().end()), w);
  return (t * weights).Sum();
}

struct Losses {
  Plan plan;
  Named inputs;
};

// The outputs "loss", "loss2", and for each float input k "grad<k>" and "second<k>".
absl::StatusOr<Losses> Differentiate(const Case& c, std::span<const HostTensor> given) {
  Builder b;
  Losses out;
  Inputs in;
  std::vector<Tensor> wrt;
  std::vector<size_t> number;
  for (size_t i = 0; i < given.size(); ++i) {
    HostTensor value = given[i];
    if (IsFloat(value.dtype)) {
      const int64_t n = NumElements(value.shape);
      value = Doubles(value.shape, Draw(n, c.low, c.high, kSeed + 10 * i));
    }
    in.push_back(b.Param(value.dtype, value.shape, StrCat("in", i)));
    if (IsFloat(given[i].dtype)) {
      wrt.push_back(in.back());
      number.push_back(i);
    }
    out.inputs[StrCat("in", i)] = value;
  }
  const std::vector<Tensor> results = c.run(b, in);
  Tensor loss = b.Const(DType::kFloat64, 0.0), loss2 = loss;
  for (size_t i = 0; i < results.size(); ++i) {
    if (IsFloat(results[i].dtype())) loss = loss + Weighted(b, results[i], kSeed + 1000 + i);
  }
  const std::vector<Tensor> grads = Gradients(loss, wrt);
  if (!b.status().ok()) return b.status();
  for (size_t i = 0; i < grads.size(); ++i) {
    loss2 = loss2 + Weighted(b, grads[i], kSeed + 2000 + i);
  }
  const std::vector<Tensor> seconds = Gradients(loss2, wrt);
  if (!b.status().ok()) return b.status();
  b.Output(loss, "loss");
  b.Output(loss2, "loss2");
  for (size_t i = 0; i < grads.size(); ++i) {
    b.Output(grads[i], StrCat("grad", number[i]));
    b.Output(seconds[i], StrCat("second", number[i]));
  }
  absl::StatusOr<Plan> plan = b.Finish();
  if (!plan.ok()) return plan.status();
  out.plan = *std::move(plan);
  return out;
}

}  // namespace

void CheckDifferences(const Case& c, std::span<const HostTensor> in) {
  absl::StatusOr<Losses> losses = Differentiate(c, in);
  ASSERT_TRUE(losses.ok()) << losses.status();
  const absl::StatusOr<Named> at = RunPlan(losses->plan, losses->inputs);
  ASSERT_TRUE(at.ok()) << at.status();
  for (auto& [name, value] : losses->inputs) {
    if (!IsFloat(value.dtype)) continue;
    const std::string number = name.substr(2);
    const std::vector<double> first = at->at("grad" + number).AsDoubles();
    const std::vector<double> second = at->at("second" + number).AsDoubles();
    std::vector<double> x = value.AsDoubles();
    const size_t n = x.size(), moves = std::min(n, kMostElements);
    for (size_t move = 0; move < moves; ++move) {
      const size_t i = move * n / moves;
      const double x_i = x[i];
      double difference[2][2];
      for (int side = 0; side < 2; ++side) {
        x[i] = x_i + (side == 0 ? -kStep : kStep);
        Named moved = losses->inputs;
        moved[name] = Doubles(value.shape, x);
        const absl::StatusOr<Named> there = RunPlan(losses->plan, moved);
        ASSERT_TRUE(there.ok()) << there.status();
        difference[0][side] = there->at("loss").AsDoubles()[0];
        difference[1][side] = there->at("loss2").AsDoubles()[0];
      }
      x[i] = x_i;
      for (int order = 0; order < 2; ++order) {
        const double want = (difference[order][1] - difference[order][0]) / (2 * kStep);
        const double got = order == 0 ? first[i] : second[i];
        const double size = std::max({1.0, std::abs(want), std::abs(difference[order][0])});
        EXPECT_NEAR(got, want, 2e-6 * size)
            << "order " << order + 1 << ", d loss / d " << name << "[" << i << "]";
      }
    }
  }
}

namespace {

void CheckData(const Case& c, const Variant& v, CpuRunner* cpu) {
  Builder b;
  Named inputs;
  Inputs in;
  std::vector<Tensor> wrt;
  for (size_t i = 0; i < v.in.size(); ++i) {
    inputs[StrCat("in", i)] = v.in[i];
    in.push_back(b.Param(v.in[i].dtype, v.in[i].shape, StrCat("in", i)));
    if (IsFloat(v.in[i].dtype)) wrt.push_back(in.back());
  }
  const std::vector<Tensor> results = c.run(b, in);
  Tensor loss;
  for (size_t i = 0; i < v.weights.size(); ++i) {
    inputs[StrCat("w", i)] = v.weights[i];
    const Tensor w = b.Param(v.weights[i].dtype, v.weights[i].shape, StrCat("w", i));
    const Tensor term = (results[i] * w).Sum();
    loss = loss.valid() ? loss + term : term;
  }
  const std::vector<Tensor> grads = Gradients(loss, wrt);
  ASSERT_TRUE(b.status().ok()) << b.status();
  ASSERT_EQ(grads.size(), v.grads.size());
  for (size_t i = 0; i < grads.size(); ++i) b.Output(grads[i], StrCat("grad", i));
  const absl::StatusOr<Plan> plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (CpuRunner* device : {static_cast<CpuRunner*>(nullptr), cpu}) {
    const absl::StatusOr<Named> got = RunPlan(*plan, inputs, device);
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t k = 0; k < v.grads.size(); ++k) {
      const std::vector<double> a = got->at(StrCat("grad", k)).AsDoubles();
      const std::vector<double> want = v.grads[k].AsDoubles();
      ASSERT_EQ(a.size(), want.size());
      double largest = 0;
      for (double x : want) largest = std::max(largest, std::abs(x));
      const double unit = std::ldexp(1.0, -Info(v.grads[k].dtype).mantissa_bits);
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(a[i], want[i], 64 * unit * std::max(largest, 1e-3))
            << "grad" << k << "[" << i << "]";
      }
    }
  }
}

}  // namespace

void CheckGradients(std::string_view section, std::span<const Case> cases) {
  const absl::StatusOr<CaseData> data = ReadCaseData(section);
  ASSERT_TRUE(data.ok()) << data.status();
  const auto cpu = CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  for (const Case& c : cases) {
    const auto it = data->find(c.name);
    if (!c.differentiable || it == data->end()) continue;
    SCOPED_TRACE(StrCat(c.name, ", seed ", kSeed));
    for (const Variant& v : it->second) {
      if (!v.grads.empty()) CheckData(c, v, cpu->get());
    }
    CheckDifferences(c, it->second[0].in);
  }
}

}  // namespace telegrad::testing
