// Optimizers, learning rates and clipping against PyTorch's values in f64, and tinygrad's in f32
// where PyTorch has no such optimizer (tests/frontend/optim_vectors.py).
#include "engine/frontend/nn/optim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/base/strings.h"
#include "engine/frontend/io/tensor_file.h"
#include "tests/frontend/run_plan.h"

namespace telegrad::testing {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr int64_t kSteps = 10;
using Tensors = std::vector<Tensor>;

const Named& Data() {
  static const auto* const data = [] {
    const auto file = OpenTensorFile("tests/data/frontend/optim.safetensors");
    EXPECT_TRUE(file.ok()) << file.status();
    return new Named(*(*file)->LoadAll());
  }();
  return *data;
}

// The elements of step `step` of a tensor [steps, ...], or of all of it.
std::vector<double> Part(const HostTensor& all, int64_t step) {
  const std::vector<double> values = all.AsDoubles();
  const auto size = static_cast<int64_t>(values.size()) / all.shape[0];
  return {values.begin() + step * size, values.begin() + (step + 1) * size};
}

HostTensor Host(DType dtype, const Shape& shape, const std::vector<double>& values) {
  if (dtype == DType::kFloat64) return HostTensor::Of<double>(shape, values);
  const std::vector<float> narrow(values.begin(), values.end());
  return HostTensor::Of<float>(shape, narrow);
}

struct Row {
  std::string_view name;
  void (*apply)(Builder* b, const Tensors& params, const Tensors& grads);
  bool tinygrad = false;  // the values are f32
};

using B = Builder*;
using T = const Tensors&;
const Row kRows[] = {
    {"sgd", [](B b, T p, T g) { optim::Sgd(b, p, g, {.lr = 0.1}); }},
    {"sgd_momentum", [](B b, T p, T g) { optim::Sgd(b, p, g, {.lr = 0.05, .momentum = 0.9}); }},
    {"sgd_nesterov",
     [](B b, T p, T g) {
       optim::Sgd(b, p, g, {.lr = 0.05, .momentum = 0.8, .nesterov = true, .weight_decay = 0.1});
     }},
    {"sgd_decay", [](B b, T p, T g) { optim::Sgd(b, p, g, {.lr = 0.1, .weight_decay = 0.01}); }},
    {"adam", [](B b, T p, T g) { optim::Adam(b, p, g); }},
    {"adam_decay",
     [](B b, T p, T g) {
       optim::Adam(b, p, g,
                   {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1});
     }},
    {"adamw", [](B b, T p, T g) { optim::AdamW(b, p, g); }},
    {"adamw_decay",
     [](B b, T p, T g) {
       optim::AdamW(b, p, g, {.lr = 0.02, .beta1 = 0.95, .beta2 = 0.98, .weight_decay = 0.3});
     }},
    {"lars", [](B b, T p, T g) { optim::Lars(b, p, g, {.lr = 0.1}); }, true},
    {"lars_nesterov",
     [](B b, T p, T g) {
       optim::Lars(b, p, g,
                   {.lr = 0.2,
                    .momentum = 0.8,
                    .nesterov = true,
                    .weight_decay = 0.01,
                    .trust = 0.1,
                    .classic = false});
     },
     true},
    {"lars_plain",
     [](B b, T p, T g) {
       optim::Lars(b, p, g, {.lr = 0.2, .momentum = 0, .weight_decay = 0, .trust = 0.02});
     },
     true},
    {"lamb", [](B b, T p, T g) { optim::Lamb(b, p, g); }, true},
    {"lamb_decay",
     [](B b, T p, T g) {
       optim::Lamb(b, p, g,
                   {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-5, .weight_decay = 0.1});
     },
     true},
    {"muon", [](B b, T p, T g) { optim::Muon(b, p, g, {.lr = 0.02}); }, true},
    {"muon_plain",
     [](B b, T p, T g) {
       optim::Muon(b, p, g, {.lr = 0.05, .momentum = 0, .nesterov = false, .weight_decay = 0});
     },
     true},
    {"muon_heavy",
     [](B b, T p, T g) {
       optim::Muon(b, p, g,
                   {.lr = 0.05,
                    .momentum = 0.8,
                    .nesterov = false,
                    .weight_decay = 0.3,
                    .steps = 3,
                    .coefficients = {2.0, -1.5, 0.5}});
     },
     true},
};

// Which of the parameters the case has.
std::vector<int> Kept(std::string_view name) {
  std::vector<int> kept;
  for (int i = 0; i < 3; ++i) {
    if (Data().contains(StrCat(name, "/", i))) kept.push_back(i);
  }
  return kept;
}

Plan StepOf(const Row& row, DType dtype) {
  Builder b;
  Tensors params, grads;
  for (int i : Kept(row.name)) {
    const Shape& shape = Data().at(StrCat("params/", i)).shape;
    params.push_back(b.Trainable(dtype, shape, StrCat("p", i), Init::Constant(0)));
    grads.push_back(b.Param(dtype, shape, StrCat("g", i)));
  }
  row.apply(&b, params, grads);
  const auto plan = b.Finish();
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *plan;
}

// Ten runs of one plan.
void Follow(const Row& row, DType dtype, CpuRunner* cpu, double tolerance) {
  const Plan plan = StepOf(row, dtype);
  const std::vector<int> kept = Kept(row.name);
  ASSERT_FALSE(kept.empty()) << row.name;
  Named state;
  for (int i : kept) {
    const HostTensor& p = Data().at(StrCat("params/", i));
    state[StrCat("p", i)] = Host(dtype, p.shape, p.AsDoubles());
  }
  for (int64_t step = 0; step < kSteps; ++step) {
    Named inputs;
    for (int i : kept) {
      inputs[StrCat("g", i)] =
          Host(dtype, state.at(StrCat("p", i)).shape, Part(Data().at(StrCat("grads/", i)), step));
    }
    const auto ran = RunPlan(plan, inputs, cpu, &state);
    ASSERT_TRUE(ran.ok()) << ran.status();
    for (int i : kept) {
      const std::vector<double> want = Part(Data().at(StrCat(row.name, "/", i)), step);
      EXPECT_THAT(state.at(StrCat("p", i)).AsDoubles(), Pointwise(DoubleNear(tolerance), want))
          << row.name << ", step " << step << ", parameter " << i;
    }
  }
}

TEST(Optim, TenStepsInF64AreThoseOfPyTorch) {
  for (const Row& row : kRows) {
    if (!row.tinygrad) Follow(row, DType::kFloat64, nullptr, 1e-13);
  }
}

// Values up to about 4; the sums of Muon's products round the most.
TEST(Optim, TenStepsInF32) {
  const auto cpu = CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  for (const Row& row : kRows) {
    const double tolerance = row.name.starts_with("muon") ? 1e-5 : 3e-6;
    Follow(row, DType::kFloat32, nullptr, tolerance);
    Follow(row, DType::kFloat32, cpu->get(), tolerance);
  }
}

TEST(Optim, EveryCaseOfTheDataIsTested) {
  for (const auto& [name, value] : Data()) {
    const std::string prefix = name.substr(0, name.find('/'));
    const bool known = prefix == "params" || prefix == "grads" || prefix == "rate" ||
                       prefix == "clip" ||
                       std::ranges::find(kRows, prefix, &Row::name) != std::end(kRows);
    EXPECT_TRUE(known) << name;
  }
}

// Parameters in bf16 are updated in f32, and so is their state.
TEST(Optim, NarrowParametersHaveWideState) {
  Builder b;
  const Tensor p = b.Trainable(DType::kBFloat16, {1}, "p", Init::Constant(1));
  const Tensor g = b.Full(DType::kBFloat16, {1}, 1.0);
  optim::Sgd(&b, {&p, 1}, {&g, 1}, {.lr = 0.5, .momentum = 0.001});
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->slots.at(plan->Find("sgd.v.p")).dtype, DType::kFloat32);
  Named state;
  for (int step = 0; step < 2; ++step) ASSERT_TRUE(RunPlan(*plan, {}, nullptr, &state).ok());
  EXPECT_NEAR(state.at("sgd.v.p").AsDoubles()[0], 1.001, 1e-7);
  EXPECT_NEAR(state.at("p").AsDoubles()[0], 1 - 0.5 - 0.5005, 1e-3);
}

struct RateRow {
  std::string_view name;
  optim::LearningRate rate;
};

TEST(LearningRate, FollowsPyTorchsSchedulers) {
  const RateRow rows[] = {
      {"step", optim::StepDecay(0.2, 5, 0.3)},
      {"exponential", optim::ExponentialDecay(0.2, 0.9)},
      {"cosine", optim::CosineDecay(0.2, 24, 0.01)},
      {"warm_up", optim::WarmUp(6, 0.1, optim::CosineDecay(0.2, 18))},
      {"one_cycle", optim::OneCycle(0.5, 24)},
      {"one_cycle_linear",
       optim::OneCycle(0.5, 24, {.rising = 0.5, .first = 0.1, .last = 0.1 / 100, .linear = true})},
  };
  const auto cpu = CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  for (const RateRow& row : rows) {
    // A parameter whose every step is minus the rate.
    Builder b;
    const Tensor p = b.Trainable(DType::kFloat32, {1}, "p", Init::Constant(0));
    const Tensor g = b.Full(DType::kFloat32, {1}, 1.0);
    optim::Sgd(&b, {&p, 1}, {&g, 1}, {.lr = row.rate});
    const auto plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (CpuRunner* device : {static_cast<CpuRunner*>(nullptr), cpu->get()}) {
      Named state;
      std::vector<double> got;
      const std::vector<double> want = Data().at(StrCat("rate/", row.name)).AsDoubles();
      for (size_t step = 0; step < want.size(); ++step) {
        state["p"] = HostTensor::Of<float>({1}, {0});
        ASSERT_TRUE(RunPlan(*plan, {}, device, &state).ok());
        got.push_back(-state.at("p").AsDoubles()[0]);
      }
      EXPECT_THAT(got, Pointwise(DoubleNear(1e-7), want)) << row.name;
      EXPECT_EQ(state.at("sgd.step").Values<int32_t>()[0], static_cast<int32_t>(want.size()));
    }
  }
}

// Beyond its end a schedule stays where it ended.
TEST(LearningRate, StaysAtTheEnd) {
  const auto at = [](const optim::LearningRate& rate, int32_t step) {
    Builder b;
    b.Output(rate.At(b.Const(DType::kInt32, step)), "rate");
    return RunPlan(*b.Finish(), {})->at("rate").AsDoubles()[0];
  };
  EXPECT_NEAR(at(optim::CosineDecay(0.2, 10, 0.01), 1000), 0.01, 1e-8);
  EXPECT_NEAR(at(optim::OneCycle(1, 10), 1000), 1e-4 / 25, 1e-9);
  EXPECT_NEAR(at(optim::WarmUp(4, 0, 0.5), 1000), 0.5, 1e-7);
}

TEST(Clip, IsPyTorchs) {
  for (const std::string name : {"by_norm", "by_large_norm", "by_value"}) {
    Builder b;
    Tensors grads;
    Named inputs;
    double square = 0;
    for (int i = 0; i < 3; ++i) {
      const Shape& shape = Data().at(StrCat("params/", i)).shape;
      const std::vector<double> first = Part(Data().at(StrCat("grads/", i)), 0);
      grads.push_back(b.Param(DType::kFloat64, shape, StrCat("g", i)));
      inputs[StrCat("g", i)] = Host(DType::kFloat64, shape, first);
      for (double x : first) square += x * x;
    }
    Tensor norm = b.Const(DType::kFloat64, std::sqrt(square));
    const Tensors clipped = name == "by_value"  ? optim::ClipByValue(grads, 0.4)
                            : name == "by_norm" ? optim::ClipByNorm(grads, 1.5, &norm)
                                                : optim::ClipByNorm(grads, 1e3, &norm);
    for (int i = 0; i < 3; ++i) b.Output(clipped[i], StrCat(i));
    b.Output(norm, "norm");
    const auto plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << plan.status();
    const auto out = RunPlan(*plan, inputs);
    ASSERT_TRUE(out.ok()) << out.status();
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(
          out->at(StrCat(i)).AsDoubles(),
          Pointwise(DoubleNear(1e-13), Data().at(StrCat("clip/", name, "/", i)).AsDoubles()))
          << name;
    }
    EXPECT_NEAR(out->at("norm").AsDoubles()[0], std::sqrt(square), 1e-12);
  }
}

// Groups: parameters of one model under different options, each group with its own state.
TEST(Optim, GroupsKeepTheirStateApart) {
  Builder b;
  const Tensor w = b.Trainable(DType::kFloat64, {2}, "w", Init::Constant(1));
  const Tensor bias = b.Trainable(DType::kFloat64, {2}, "bias", Init::Constant(1));
  const Tensor g = b.Full(DType::kFloat64, {2}, 0.0);
  optim::AdamW(&b, {&w, 1}, {&g, 1}, {.lr = 0.1, .weight_decay = 0.5});
  optim::AdamW(&b, {&bias, 1}, {&g, 1}, {.lr = 0.1, .weight_decay = 0, .name = "plain"});
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const std::string name : {"adamw.m.w", "adamw.v.w", "adamw.correction1", "plain.m.bias",
                                 "plain.v.bias", "plain.correction2"}) {
    EXPECT_GE(plan->Find(name), 0) << name;
  }
  Named state;
  ASSERT_TRUE(RunPlan(*plan, {}, nullptr, &state).ok());
  EXPECT_THAT(state.at("w").AsDoubles(), ::testing::Each(DoubleNear(1 - 0.1 * 0.5, 1e-15)));
  EXPECT_THAT(state.at("bias").AsDoubles(), ::testing::Each(1.0));
}

TEST(Optim, SaysWhatIsWrong) {
  const auto message = [](auto call) {
    Builder b;
    const Tensor p = b.Trainable(DType::kFloat32, {2, 3}, "p", Init::Constant(1));
    const Tensor v = b.Trainable(DType::kFloat32, {3}, "v", Init::Constant(1));
    const Tensor x = b.Param(DType::kFloat32, {2, 3}, "x");
    call(&b, p, v, x);
    return std::string(ToStd(b.status().message()));
  };
  using C = const Tensor&;
  EXPECT_THAT(message([](B b, C p, C, C) { optim::Sgd(b, {&p, 1}, {}); }),
              HasSubstr("sgd: 1 parameters and 0 gradients"));
  EXPECT_THAT(message([](B b, C, C, C x) { optim::Adam(b, {&x, 1}, {&x, 1}); }),
              HasSubstr("adam: parameter 0 is not a state slot"));
  EXPECT_THAT(message([](B b, C p, C v, C) { optim::AdamW(b, {&p, 1}, {&v, 1}); }),
              HasSubstr("adamw: parameter 'p' is [2, 3], its gradient [3]"));
  EXPECT_THAT(message([](B b, C, C v, C) { optim::Muon(b, {&v, 1}, {&v, 1}); }),
              HasSubstr("muon: parameter 'v' is [3], expected a matrix"));
  EXPECT_THAT(message([](B b, C p, C, C x) {
                optim::Sgd(b, {&p, 1}, {&x, 1});
                optim::Sgd(b, {&p, 1}, {&x, 1});
              }),
              HasSubstr("slot 'p' is stored to already"));
}

}  // namespace
}  // namespace telegrad::testing
