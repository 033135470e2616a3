// Layers forward and backward against PyTorch's values (tests/frontend/nn_vectors.py), from its own
// state dicts: in f64 on the reference evaluator, in f32 on the CPU device.
#include "engine/frontend/nn/nn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/base/strings.h"
#include "engine/frontend/autograd/gradient.h"
#include "engine/frontend/io/tensor_file.h"
#include "engine/frontend/nn/optim.h"
#include "engine/frontend/nn/state_dict.h"
#include "tests/frontend/run_plan.h"

namespace telegrad::testing {
namespace {

using ::testing::HasSubstr;

const Named& Data() {
  static const auto* const data = [] {
    const auto file = OpenTensorFile("tests/data/frontend/nn.safetensors");
    EXPECT_TRUE(file.ok()) << file.status();
    return new Named(*(*file)->LoadAll());
  }();
  return *data;
}

// What the data has below "<case>/<kind>/", by the rest of the name.
Named Below(std::string_view name, std::string_view kind) {
  const std::string prefix = StrCat(name, "/", kind, "/");
  Named out;
  for (auto it = Data().lower_bound(prefix); it != Data().end(); ++it) {
    if (!it->first.starts_with(prefix)) break;
    out[it->first.substr(prefix.size())] = it->second;
  }
  return out;
}

using Inputs = std::map<std::string, Tensor>;
using Outputs = std::vector<Tensor>;

// The layer is named "m"; its parameters are of `type`.
struct Row {
  std::string_view name;
  std::function<Outputs(Builder* b, DType type, const Inputs& in)> run;
};

const std::vector<Row>& Rows() {
  using B = Builder*;
  using D = DType;
  using I = const Inputs&;
  static const auto* const rows = new std::vector<Row>{
      {"linear",
       [](B b, D t, I in) { return Outputs{nn::Linear(b, "m", 5, 3, {.dtype = t})(in.at("x"))}; }},
      {"linear_plain",
       [](B b, D t, I in) {
         return Outputs{nn::Linear(b, "m", 5, 3, {.bias = false, .dtype = t})(in.at("x"))};
       }},
      {"conv1d",
       [](B b, D t, I in) {
         const Window window{.stride = {2}, .pads = {1}};
         return Outputs{nn::Conv1d(b, "m", 4, 6, 3, window, 2, {.dtype = t})(in.at("x"))};
       }},
      {"conv2d",
       [](B b, D t, I in) {
         return Outputs{nn::Conv2d(b, "m", 3, 4, 3, {.pads = {1}}, 1, {.dtype = t})(in.at("x"))};
       }},
      {"conv2d_odd",
       [](B b, D t, I in) {
         const Window window{.stride = {2, 1}, .dilation = {1, 2}, .pads = {1, 1, 0, 0}};
         return Outputs{
             nn::Conv2d(b, "m", 4, 6, {3, 2}, window, 2, {.bias = false, .dtype = t})(in.at("x"))};
       }},
      {"conv_transpose1d",
       [](B b, D t, I in) {
         const Window window{.stride = {2}, .pads = {1}};
         return Outputs{
             nn::ConvTranspose1d(b, "m", 4, 6, 3, window, 2, {1}, {.dtype = t})(in.at("x"))};
       }},
      {"conv_transpose2d",
       [](B b, D t, I in) {
         const Window window{.stride = {2, 1}, .dilation = {1, 2}, .pads = {1, 1, 0, 0}};
         return Outputs{
             nn::ConvTranspose2d(b, "m", 3, 4, {3, 2}, window, 1, {}, {.dtype = t})(in.at("x"))};
       }},
      {"batch_norm",
       [](B b, D t, I in) {
         return Outputs{nn::BatchNorm(b, "m", 3, {.dtype = t})(in.at("x"), true)};
       }},
      {"batch_norm_vectors",
       [](B b, D t, I in) {
         const nn::BatchNormOptions options{.epsilon = 1e-3, .momentum = 0.3, .dtype = t};
         return Outputs{nn::BatchNorm(b, "m", 3, options)(in.at("x"), true)};
       }},
      {"batch_norm_eval",
       [](B b, D t, I in) {
         return Outputs{nn::BatchNorm(b, "m", 3, {.dtype = t})(in.at("x"), false)};
       }},
      {"batch_norm_plain",
       [](B b, D t, I in) {
         const nn::BatchNormOptions options{.affine = false, .dtype = t};
         return Outputs{nn::BatchNorm(b, "m", 3, options)(in.at("x"), true)};
       }},
      {"layer_norm",
       [](B b, D t, I in) { return Outputs{nn::LayerNorm(b, "m", 6, {.dtype = t})(in.at("x"))}; }},
      {"layer_norm_axes",
       [](B b, D t, I in) {
         const nn::Options options{.bias = false, .dtype = t};
         return Outputs{nn::LayerNorm(b, "m", {3, 4}, options, 1e-3)(in.at("x"))};
       }},
      {"layer_norm2d",
       [](B b, D t, I in) {
         return Outputs{nn::LayerNorm2d(b, "m", 5, {.dtype = t})(in.at("x"))};
       }},
      {"group_norm",
       [](B b, D t, I in) {
         return Outputs{nn::GroupNorm(b, "m", 2, 6, {.dtype = t})(in.at("x"))};
       }},
      {"group_norm_plain",
       [](B b, D t, I in) {
         return Outputs{nn::GroupNorm(b, "m", 3, 6, {.affine = false, .dtype = t})(in.at("x"))};
       }},
      {"instance_norm",
       [](B b, D t, I in) {
         return Outputs{nn::InstanceNorm(b, "m", 3, {.dtype = t})(in.at("x"))};
       }},
      {"rms_norm",
       [](B b, D t, I in) {
         return Outputs{nn::RmsNorm(b, "m", 6, 1e-6, {.dtype = t})(in.at("x"))};
       }},
      {"embedding",
       [](B b, D t, I in) {
         return Outputs{nn::Embedding(b, "m", 7, 4, {.dtype = t})(in.at("x"))};
       }},
      {"lstm_cell",
       [](B b, D t, I in) {
         const auto [h, c] =
             nn::LstmCell(b, "m", 4, 3, {.dtype = t})(in.at("x"), in.at("h"), in.at("c"));
         return Outputs{h, c};
       }},
      {"lstm_cell_plain",
       [](B b, D t, I in) {
         const auto [h, c] = nn::LstmCell(b, "m", 4, 3, {.bias = false, .dtype = t})(
             in.at("x"), in.at("h"), in.at("c"));
         return Outputs{h, c};
       }},
      {"attention",
       [](B b, D t, I in) {
         return Outputs{nn::MultiHeadAttention(b, "m", 6, 2, {.dtype = t})(in.at("x"))};
       }},
      {"attention_causal",
       [](B b, D t, I in) {
         return Outputs{nn::MultiHeadAttention(b, "m", 6, 3, {.dtype = t})(in.at("x"), {}, true)};
       }},
      {"attention_cross",
       [](B b, D t, I in) {
         const nn::MultiHeadAttention m(b, "m", 8, 2, {.bias = false, .dtype = t});
         return Outputs{m(in.at("x"), in.at("key"), in.at("key"), in.at("mask"))};
       }},
  };
  return *rows;
}

HostTensor As(DType type, const HostTensor& value) {
  if (value.dtype != DType::kFloat64 || type == DType::kFloat64) return value;
  const std::vector<double> wide = value.AsDoubles();
  return HostTensor::Of<float>(value.shape, std::vector<float>(wide.begin(), wide.end()));
}

void ExpectNear(const HostTensor& want, const HostTensor& got, double tolerance,
                const std::string& what) {
  ASSERT_EQ(want.shape, got.shape) << what;
  const std::vector<double> x = want.AsDoubles(), y = got.AsDoubles();
  double largest = 1;
  for (double v : x) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_LE(std::abs(x[i] - y[i]), tolerance * largest)
        << what << ", element " << i << ": " << x[i] << " expected, got " << y[i];
  }
}

void Check(const Row& row, DType type, CpuRunner* cpu, double tolerance) {
  SCOPED_TRACE(row.name);
  Builder b;
  Named inputs;
  Inputs in;
  for (const auto& [name, value] : Below(row.name, "in")) {
    inputs["in." + name] = As(type, value);
    in[name] = b.Param(inputs["in." + name].dtype, value.shape, "in." + name);
  }
  const Outputs outputs = row.run(&b, type, in);
  Tensor loss;
  for (size_t i = 0; i < outputs.size(); ++i) {
    b.Output(outputs[i], StrCat("out.", i));
    const HostTensor& pull = Data().at(StrCat(row.name, "/pull/", i));
    inputs[StrCat("pull.", i)] = As(type, pull);
    const Tensor part = (outputs[i] * b.Param(type, pull.shape, StrCat("pull.", i))).Sum();
    loss = loss.valid() ? loss + part : part;
  }
  std::vector<std::string> names;
  std::vector<Tensor> wrt;
  for (const auto& [name, value] : Below(row.name, "grad")) {
    names.push_back(name);
    if (in.contains(name)) {
      wrt.push_back(in[name]);
      continue;
    }
    const auto own = std::ranges::find_if(
        b.trainable(), [&](const Tensor& t) { return b.FindSlot(t)->name == "m." + name; });
    ASSERT_NE(own, b.trainable().end()) << name;
    wrt.push_back(*own);
  }
  const std::vector<Tensor> grads = Gradients(loss, wrt);
  for (size_t i = 0; i < grads.size(); ++i) b.Output(grads[i], "grad." + names[i]);
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();

  // PyTorch's state dict is all the state there is.
  auto state = MatchState(*plan, Below(row.name, "state"), {.rename = {{"", "m."}}});
  ASSERT_TRUE(state.ok()) << state.status();
  const auto out = RunPlan(*plan, inputs, cpu, &*state);
  ASSERT_TRUE(out.ok()) << out.status();
  for (size_t i = 0; i < outputs.size(); ++i) {
    ExpectNear(Data().at(StrCat(row.name, "/out/", i)), out->at(StrCat("out.", i)), tolerance,
               StrCat("out ", i));
  }
  for (const auto& [name, value] : Below(row.name, "grad")) {
    ExpectNear(value, out->at("grad." + name), tolerance, "the gradient of " + name);
  }
  for (const auto& [name, value] : Below(row.name, "after")) {
    ExpectNear(value, state->at("m." + name), tolerance, name + " after");
  }
}

TEST(Nn, LayersInF64AreThoseOfPyTorch) {
  for (const Row& row : Rows()) Check(row, DType::kFloat64, nullptr, 1e-12);
}

TEST(Nn, LayersInF32OnTheCpu) {
  const auto cpu = CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  for (const Row& row : Rows()) Check(row, DType::kFloat32, cpu->get(), 1e-5);
}

TEST(Nn, EveryCaseOfTheDataIsTested) {
  for (const auto& [name, value] : Data()) {
    EXPECT_NE(std::ranges::find(Rows(), name.substr(0, name.find('/')), &Row::name), Rows().end())
        << name;
  }
}

// PyTorch's ranges: uniform in +-bound, the whole of it.
TEST(Nn, InitialValuesHaveTheirRanges) {
  Builder b;
  nn::Linear(&b, "linear", 16, 64);
  nn::Conv2d(&b, "conv", 8, 64, 3, {}, 2);
  nn::ConvTranspose2d(&b, "transpose", 8, 16, {3, 2}, {}, 4);
  nn::LstmCell(&b, "lstm", 4, 25);
  nn::MultiHeadAttention(&b, "attention", 24, 2);
  nn::Embedding(&b, "embedding", 100, 50);
  nn::BatchNorm(&b, "batch", 3);
  const std::map<std::string, double> bounds = {
      {"linear.weight", 1 / 4.0},
      {"linear.bias", 1 / 4.0},
      {"conv.weight", 1 / 6.0},
      {"conv.bias", 1 / 6.0},
      {"transpose.weight", 1 / std::sqrt(24)},
      {"transpose.bias", 1 / std::sqrt(24)},
      {"lstm.weight_ih", 1 / 5.0},
      {"lstm.bias_hh", 1 / 5.0},
      {"attention.in_proj_weight", 1 / 4.0},
      {"attention.out_proj.weight", 1 / std::sqrt(24)},
  };
  const auto values = [&](const std::string& name) {
    const auto slot = std::ranges::find(b.slots(), name, &Slot::name);
    EXPECT_NE(slot, b.slots().end()) << name;
    return InitialValue(*slot)->AsDoubles();
  };
  for (const auto& [name, bound] : bounds) {
    const std::vector<double> x = values(name);
    EXPECT_GE(*std::ranges::min_element(x), -bound) << name;
    EXPECT_LT(*std::ranges::min_element(x), -0.7 * bound) << name;
    EXPECT_LE(*std::ranges::max_element(x), bound) << name;
    EXPECT_GT(*std::ranges::max_element(x), 0.7 * bound) << name;
  }
  double mean = 0, square = 0;
  for (double x : values("embedding.weight")) {
    mean += x / 5000;
    square += x * x / 5000;
  }
  EXPECT_NEAR(mean, 0, 5 / std::sqrt(5000));
  EXPECT_NEAR(square, 1, 5 * std::sqrt(2.0 / 5000));
  EXPECT_THAT(values("attention.in_proj_bias"), ::testing::Each(0.0));
  EXPECT_THAT(values("batch.weight"), ::testing::Each(1.0));
  EXPECT_THAT(values("batch.running_var"), ::testing::Each(1.0));
}

// A layer used twice in one step tracks both batches, one after the other.
TEST(Nn, RunningStatisticsFollowEveryCall) {
  Builder b;
  const nn::BatchNorm norm(&b, "m", 1, {.momentum = 0.5});
  b.Output(norm(b.Full(DType::kFloat32, Shape{4, 1}, 8.0), true), "a");
  b.Output(norm(b.Full(DType::kFloat32, Shape{4, 1}, 2.0), true), "b");
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  Named state;
  ASSERT_TRUE(RunPlan(*plan, {}, nullptr, &state).ok());
  EXPECT_EQ(state.at("m.running_mean").AsDoubles()[0], 3);  // (0 + 8) / 2, then (4 + 2) / 2
  EXPECT_EQ(state.at("m.running_var").AsDoubles()[0], 0.25);
  EXPECT_EQ(state.at("m.num_batches_tracked").AsDoubles()[0], 2);
}

TEST(Nn, DropoutIsForTraining) {
  Builder b;
  Rng rng(&b, {.seed = 1});
  const nn::Dropout dropout(&rng, 0.25);
  const Tensor x = b.Full(DType::kFloat32, Shape{4000}, 3.0);
  EXPECT_EQ(dropout(x, false).uop(), x.uop());
  b.Output(dropout(x, true), "y");
  const auto out = RunPlan(*b.Finish(), {});
  ASSERT_TRUE(out.ok()) << out.status();
  const std::vector<double> y = out->at("y").AsDoubles();
  const auto zeros = std::ranges::count(y, 0.0), fours = std::ranges::count(y, 4.0);
  EXPECT_EQ(zeros + fours, 4000);
  EXPECT_NEAR(static_cast<double>(zeros), 1000, 5 * std::sqrt(4000 * 0.25 * 0.75));
}

// Layers, a random stream, clipping, a schedule and an optimizer in one plan, which is every step:
// the reference evaluator and the CPU device go the same way, and the loss falls.
TEST(Nn, OnePlanTrains) {
  constexpr int64_t kBatch = 16, kIn = 8, kClasses = 4;
  Builder b;
  Rng rng(&b, {.seed = 1});
  const Tensor x = b.Param(DType::kFloat32, {kBatch, kIn}, "x");
  const Tensor labels = b.Param(DType::kInt32, {kBatch}, "labels");
  const nn::Linear first(&b, "first", kIn, 32), last(&b, "last", 32, kClasses);
  const nn::BatchNorm norm(&b, "norm", 32);
  const nn::Dropout dropout(&rng, 0.1);
  const Tensor logits = last(dropout(norm(first(x), true).Relu(), true));
  const Tensor loss = logits.CrossEntropy(labels);
  const std::vector<Tensor> grads = optim::ClipByNorm(Gradients(loss, b.trainable()), 1.0);
  optim::AdamW(&b, b.trainable(), grads,
               {.lr = optim::WarmUp(5, 0.1, optim::CosineDecay(0.05, 60))});
  b.Output(loss, "loss");
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<float> values;
  std::vector<int32_t> classes;
  for (int i = 0; i < kBatch * kIn; ++i) values.push_back(static_cast<float>(std::sin(i * i)));
  for (int i = 0; i < kBatch; ++i) classes.push_back(i * 7 % kClasses);
  const Named inputs = {{"x", HostTensor::Of<float>({kBatch, kIn}, values)},
                        {"labels", HostTensor::Of<int32_t>({kBatch}, classes)}};
  const auto cpu = CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  Named on_reference, on_cpu;
  double start = 0, end = 0;
  for (int step = 0; step < 40; ++step) {
    const auto fast = RunPlan(*plan, inputs, cpu->get(), &on_cpu);
    ASSERT_TRUE(fast.ok()) << fast.status();
    end = fast->at("loss").AsDoubles()[0];
    if (step == 0) start = end;
    if (step >= 5) continue;
    const auto slow = RunPlan(*plan, inputs, nullptr, &on_reference);
    ASSERT_TRUE(slow.ok()) << slow.status();
    EXPECT_NEAR(end, slow->at("loss").AsDoubles()[0], 1e-4) << "step " << step;
    EXPECT_EQ(on_cpu.at("rng.counter"), on_reference.at("rng.counter"));
  }
  EXPECT_LT(end, start / 4);
}

// A text in the making, position by position and several at once, sees what causal attention over
// all of it sees.
TEST(Nn, ContinuingIsCausalAttention) {
  constexpr int64_t kLength = 7, kChannels = 6;
  const auto cpu = CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  Builder whole;
  const Tensor x = whole.Param(DType::kFloat32, {2, kLength, kChannels}, "x");
  whole.Output(nn::MultiHeadAttention(&whole, "m", kChannels, 2)(x, {}, true), "y");
  std::vector<float> values;
  for (int i = 0; i < 2 * kLength * kChannels; ++i) {
    values.push_back(static_cast<float>(std::sin(i * 1.3)));
  }
  const auto all =
      RunPlan(*whole.Finish(), {{"x", HostTensor::Of<float>({2, kLength, kChannels}, values)}});
  ASSERT_TRUE(all.ok()) << all.status();
  const std::vector<double> want = all->at("y").AsDoubles();
  // The elements of positions [begin, end) of both texts.
  const auto part = [](const auto& from, int64_t begin, int64_t end) {
    std::decay_t<decltype(from)> out;
    for (int64_t n = 0; n < 2; ++n) {
      out.insert(out.end(), from.begin() + (n * kLength + begin) * kChannels,
                 from.begin() + (n * kLength + end) * kChannels);
    }
    return out;
  };
  for (const int64_t step : {1, 3}) {
    Builder b;
    const nn::MultiHeadAttention m(&b, "m", kChannels, 2);
    const nn::KvCache cache = m.MakeCache(&b, "cache", 2, kLength);
    const Tensor next = b.Param(DType::kFloat32, {2, step, kChannels}, "x");
    b.Output(m.Continue(next, cache, b.Variable("position", 0, kLength - step)), "y");
    const auto plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (CpuRunner* device : {static_cast<CpuRunner*>(nullptr), cpu->get()}) {
      Named state;
      for (int64_t at = 0; at + step <= kLength; at += step) {
        const Named inputs = {
            {"x", HostTensor::Of<float>({2, step, kChannels}, part(values, at, at + step))}};
        const auto out = RunPlan(*plan, inputs, device, &state, {{"position", at}});
        ASSERT_TRUE(out.ok()) << out.status();
        EXPECT_THAT(out->at("y").AsDoubles(),
                    ::testing::Pointwise(::testing::DoubleNear(1e-6), part(want, at, at + step)))
            << "position " << at;
      }
    }
  }
}

TEST(Nn, SaysWhatIsWrong) {
  const auto message = [](auto call) {
    Builder b;
    call(&b, b.Param(DType::kFloat32, {2, 6, 4}, "x"));
    return std::string(ToStd(b.status().message()));
  };
  using B = Builder*;
  using X = const Tensor&;
  EXPECT_THAT(message([](B b, X x) { nn::BatchNorm(b, "m", 5)(x, true); }),
              HasSubstr("batch_norm: [2, 6, 4], expected [N, 5, ...]"));
  EXPECT_THAT(message([](B b, X x) { nn::GroupNorm(b, "m", 2, 8)(x); }),
              HasSubstr("group_norm: [2, 6, 4], expected [N, 8, ...]"));
  EXPECT_THAT(message([](B b, X) { nn::GroupNorm(b, "m", 4, 6); }),
              HasSubstr("group_norm: 6 channels in 4 groups"));
  EXPECT_THAT(message([](B b, X) { nn::MultiHeadAttention(b, "m", 6, 4); }),
              HasSubstr("multi_head_attention: 6 channels for 4 heads"));
  EXPECT_THAT(message([](B b, X x) { nn::MultiHeadAttention(b, "m", 6, 2)(x); }),
              HasSubstr("multi_head_attention: [2, 6, 4], expected [N, L, 6]"));
  EXPECT_THAT(message([](B b, X) {
                nn::Linear(b, "m", 2, 2);
                nn::Linear(b, "m", 2, 2);
              }),
              HasSubstr("there is already a slot named 'm.weight'"));
}

}  // namespace
}  // namespace telegrad::testing
