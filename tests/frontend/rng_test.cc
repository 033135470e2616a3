// Random numbers against those of a released tinygrad (tests/frontend/rng_vectors.py), call by
// call, on the reference evaluator and on the CPU device.
#include "engine/frontend/ops/rng.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "engine/base/strings.h"
#include "engine/frontend/io/tensor_file.h"
#include "engine/ir/content_hash.h"
#include "tests/frontend/run_plan.h"

namespace telegrad::testing {
namespace {

using ::testing::HasSubstr;

struct Call {
  std::string name;  // of the vector
  std::string method;
  DType dtype;
  Shape shape;
  std::vector<double> args;
};

// "seed.order/repetition.index/method/type/shape/arguments", see the generating script.
struct Stream {
  uint64_t seed;
  uint32_t order;
  std::vector<Call> repetitions[2];
};

double Number(std::string_view text) {
  double value = NAN;
  EXPECT_TRUE(absl::SimpleAtod(ToAbsl(text), &value)) << text;
  return value;
}

std::map<std::string, Stream> Streams(const Named& vectors) {
  std::map<std::string, Stream> out;
  for (const auto& [name, value] : vectors) {
    const std::vector<std::string> part = absl::StrSplit(name, '/');
    const std::vector<std::string> seed = absl::StrSplit(part.at(0), '.');
    Stream& stream = out[part[0]];
    stream.seed = static_cast<uint64_t>(Number(seed.at(0)));
    stream.order = static_cast<uint32_t>(Number(seed.at(1)));
    Call call{name, part.at(2), DTypeFromText(part.at(3)).value(), {}, {}};
    for (const std::string& dim : std::vector<std::string>(absl::StrSplit(part.at(4), 'x'))) {
      if (!dim.empty()) call.shape.push_back(static_cast<int64_t>(Number(dim)));
    }
    for (const std::string& arg : std::vector<std::string>(absl::StrSplit(part.at(5), ','))) {
      if (!arg.empty()) call.args.push_back(Number(arg));
    }
    stream.repetitions[part.at(1)[0] - '0'].push_back(std::move(call));
  }
  return out;
}

// 1, 2, 3, ... in that shape.
Tensor Counting(Builder* b, DType dtype, const Shape& shape) {
  return (b->Iota(DType::kInt32, NumElements(shape)) + 1).Reshape(shape).Cast(dtype);
}

using Method = std::function<Tensor(Builder*, Rng*, const Call&)>;

const std::map<std::string, Method>& Methods() {
  static const auto* const methods = new std::map<std::string, Method>{
      {"bits", [](Builder*, Rng* r, const Call& c) { return r->RandomBits(c.shape[0]); }},
      {"rand", [](Builder*, Rng* r, const Call& c) { return r->Rand(c.shape, c.dtype); }},
      {"rand_other", [](Builder*, Rng* r, const Call& c) { return r->Rand(c.shape, c.dtype); }},
      {"rand_like",
       [](Builder* b, Rng* r, const Call& c) { return r->RandLike(b->Full(c.dtype, c.shape, 0)); }},
      {"randn", [](Builder*, Rng* r, const Call& c) { return r->Randn(c.shape, c.dtype); }},
      {"randn_like", [](Builder* b, Rng* r,
                        const Call& c) { return r->RandnLike(b->Full(c.dtype, c.shape, 0)); }},
      {"randint",
       [](Builder*, Rng* r, const Call& c) {
         return r->RandInt(c.shape, static_cast<int64_t>(c.args[0]),
                           static_cast<int64_t>(c.args[1]), c.dtype);
       }},
      {"normal", [](Builder*, Rng* r,
                    const Call& c) { return r->Normal(c.shape, c.args[0], c.args[1], c.dtype); }},
      {"uniform", [](Builder*, Rng* r,
                     const Call& c) { return r->Uniform(c.shape, c.args[0], c.args[1], c.dtype); }},
      {"scaled_uniform",
       [](Builder*, Rng* r, const Call& c) { return r->ScaledUniform(c.shape, c.dtype); }},
      {"glorot_uniform",
       [](Builder*, Rng* r, const Call& c) { return r->GlorotUniform(c.shape, c.dtype); }},
      {"kaiming_uniform",
       [](Builder*, Rng* r, const Call& c) {
         return r->KaimingUniform(c.shape, c.args[0], c.dtype);
       }},
      {"kaiming_normal",
       [](Builder*, Rng* r, const Call& c) {
         return r->KaimingNormal(c.shape, c.args[0], c.dtype);
       }},
      {"randperm",
       [](Builder*, Rng* r, const Call& c) { return r->RandPerm(c.shape[0], c.dtype); }},
      {"multinomial",
       [](Builder* b, Rng* r, const Call& c) {
         return r->Multinomial(Counting(b, DType::kFloat32, c.shape),
                               static_cast<int64_t>(c.args[0]), c.args[1] != 0);
       }},
      {"multinomial_int",
       [](Builder* b, Rng* r, const Call& c) {
         return r->Multinomial(Counting(b, DType::kInt32, c.shape), static_cast<int64_t>(c.args[0]),
                               c.args[1] != 0);
       }},
      {"dropout",
       [](Builder* b, Rng* r, const Call& c) {
         return r->Dropout(Counting(b, c.dtype, c.shape), c.args[0]);
       }},
  };
  return *methods;
}

// The numbers of Box and Muller: within 4 ulp of f32, scaled as the method does, and one rounding
// to the type.
bool IsNormal(const Call& call) {
  return call.method.find("randn") == 0 || call.method.find("normal") != std::string::npos;
}

std::string Compare(const Call& call, const HostTensor& want, const HostTensor& got) {
  if (got.dtype != call.dtype) return "another element type";
  if (want.bytes == got.bytes) return "";
  if (!IsNormal(call)) return want.shape == got.shape ? "other bits" : "another shape";
  if (want.bytes.size() != got.bytes.size()) return "another shape";
  const std::vector<double> x = HostTensor{call.dtype, got.shape, want.bytes}.AsDoubles();
  const std::vector<double> y = got.AsDoubles();
  const double offset = call.method == "normal" ? std::abs(call.args[0]) : 0;
  const double ulp = std::ldexp(1, -std::min(23, Info(call.dtype).mantissa_bits));
  for (size_t i = 0; i < x.size(); ++i) {
    const double bound = (std::abs(x[i]) + offset) * (4 * 0x1p-23 + (ulp > 0x1p-23 ? ulp : 0));
    if (!(std::abs(x[i] - y[i]) <= bound)) {
      return StrCat("element ", i, ": ", x[i], " expected, got ", y[i]);
    }
  }
  return "";
}

TEST(Rng, GivesTheNumbersOfTinygrad) {
  const auto file = OpenTensorFile("tests/data/frontend/rng.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto vectors = (*file)->LoadAll();
  ASSERT_TRUE(vectors.ok()) << vectors.status();
  const auto cpu = CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  int compared = 0;
  for (const auto& [key, stream] : Streams(*vectors)) {
    ASSERT_EQ(stream.repetitions[0].size(), stream.repetitions[1].size());
    Builder b;
    Rng rng(&b, {.seed = stream.seed, .device_order = stream.order});
    for (size_t i = 0; i < stream.repetitions[0].size(); ++i) {
      const Call& call = stream.repetitions[0][i];
      ASSERT_TRUE(Methods().contains(call.method)) << call.name;
      b.Output(Methods().at(call.method)(&b, &rng, call), StrCat(i));
    }
    const auto plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << plan.status();
    Named reference_state, cpu_state;
    for (const std::vector<Call>& repetition : stream.repetitions) {
      const auto on_reference = RunPlan(*plan, {}, nullptr, &reference_state);
      const auto on_cpu = RunPlan(*plan, {}, cpu->get(), &cpu_state);
      ASSERT_TRUE(on_reference.ok()) << on_reference.status();
      ASSERT_TRUE(on_cpu.ok()) << on_cpu.status();
      for (size_t i = 0; i < repetition.size(); ++i) {
        const Call& call = repetition[i];
        const HostTensor& want = vectors->at(call.name);
        EXPECT_EQ(Compare(call, want, on_reference->at(StrCat(i))), "") << call.name;
        EXPECT_EQ(Compare(call, want, on_cpu->at(StrCat(i))), "") << call.name << " on the CPU";
        ++compared;
      }
    }
    EXPECT_EQ(reference_state, cpu_state);
  }
  EXPECT_EQ(compared, static_cast<int>(vectors->size()));
}

// One plan that draws `n` numbers.
Plan Draw(const Rng::Options& options, int64_t n) {
  Builder b;
  Rng rng(&b, options);
  b.Output(rng.Rand({n}), "x");
  const auto plan = b.Finish();
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *plan;
}

HostTensor Numbers(const Plan& plan, const std::string& output, Named* state) {
  const auto out = RunPlan(plan, {}, nullptr, state);
  EXPECT_TRUE(out.ok()) << out.status();
  return out->at(output);
}

TEST(Rng, ARunGoesOnWhereTheLastOneEnded) {
  const Plan plan = Draw({.seed = 3}, 8);
  Named state;
  const HostTensor first = Numbers(plan, "x", &state);
  EXPECT_EQ(state.at("rng.counter").Values<uint64_t>()[0], 8u);
  // The state is all there is to it: loaded again, it gives the same numbers again.
  Named resumed = {{"rng.counter", state.at("rng.counter")}};
  const HostTensor second = Numbers(plan, "x", &state);
  EXPECT_NE(first, second);
  EXPECT_EQ(Numbers(plan, "x", &resumed), second);
}

TEST(Rng, GraphsOfAllSeedsAreOneGraph) {
  const Plan a = Draw({.seed = 3}, 8), b = Draw({.seed = 4}, 8);
  EXPECT_EQ(ContentHash(a.graph.root()), ContentHash(b.graph.root()));
  Named three = {{"rng.seed", HostTensor::Of<uint32_t>({}, {3})}};
  EXPECT_EQ(Numbers(a, "x", nullptr), Numbers(b, "x", &three));
}

// The counter is a 64-bit number: a draw across the carry of its halves is unlike the one that a
// lost carry would give.
TEST(Rng, CarriesInTheCounter) {
  const Plan plan = Draw({.seed = 3}, 4);
  const auto draw = [&](uint64_t counter) {
    Named state = {{"rng.counter", HostTensor::Of<uint64_t>({}, {counter})}};
    const HostTensor x = Numbers(plan, "x", &state);
    EXPECT_EQ(state.at("rng.counter").Values<uint64_t>()[0], counter + 4);
    return x;
  };
  EXPECT_NE(draw(0), draw(uint64_t{1} << 32));
  EXPECT_NE(draw(0xfffffffe), draw(0xfffffffe + (uint64_t{1} << 32)));
}

TEST(Rng, ManualSeedBeginsAFreshStream) {
  Builder b;
  Rng rng(&b, {.seed = 3});
  b.Output(rng.Rand({8}), "a");
  rng.ManualSeed(5);
  b.Output(rng.Rand({8}), "b");
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(Numbers(*plan, "a", nullptr), Numbers(Draw({.seed = 3}, 8), "x", nullptr));
  EXPECT_EQ(Numbers(*plan, "b", nullptr), Numbers(Draw({.seed = 5}, 8), "x", nullptr));
}

TEST(Rng, NumbersHaveTheirDistributions) {
  constexpr int64_t kN = 20000;
  Builder b;
  Rng rng(&b, {.seed = 9});
  b.Output(rng.Rand({kN}), "uniform");
  b.Output(rng.Randn({kN}), "normal");
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto moments = [&](const std::string& name) {
    const std::vector<double> x = Numbers(*plan, name, nullptr).AsDoubles();
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / kN;
    double square = 0;
    for (double v : x) square += (v - mean) * (v - mean) / kN;
    return std::pair(mean, square);
  };
  // Five standard deviations of each.
  const auto [uniform_mean, uniform_variance] = moments("uniform");
  EXPECT_NEAR(uniform_mean, 0.5, 5 * std::sqrt(1.0 / 12 / kN));
  EXPECT_NEAR(uniform_variance, 1.0 / 12, 5 * std::sqrt(1.0 / 180 / kN));
  const auto [normal_mean, normal_variance] = moments("normal");
  EXPECT_NEAR(normal_mean, 0, 5 * std::sqrt(1.0 / kN));
  EXPECT_NEAR(normal_variance, 1, 5 * std::sqrt(2.0 / kN));
}

TEST(Rng, SaysWhatIsWrong) {
  const auto message = [](auto call) {
    Builder b;
    Rng rng(&b);
    call(&b, &rng);
    return std::string(ToStd(b.status().message()));
  };
  EXPECT_THAT(message([](Builder*, Rng* r) { r->Rand({2}, DType::kInt32); }),
              HasSubstr("rand: element type i32"));
  EXPECT_THAT(message([](Builder*, Rng* r) { r->Rand({2, -1}); }),
              HasSubstr("rand: shape [2, -1]"));
  EXPECT_THAT(message([](Builder*, Rng* r) { r->Randn({2}, DType::kFloat4E2M1); }),
              HasSubstr("randn: element type f4e2m1"));
  EXPECT_THAT(message([](Builder*, Rng* r) { r->RandInt({2}, 5, 5); }),
              HasSubstr("randint: [5, 5) of i32"));
  EXPECT_THAT(message([](Builder*, Rng* r) { r->RandInt({2}, INT64_MIN, INT64_MAX); }),
              HasSubstr("randint: "));
  EXPECT_THAT(message([](Builder*, Rng* r) { r->Uniform({2}, 1, 1); }),
              HasSubstr("uniform: [1, 1)"));
  EXPECT_THAT(message([](Builder*, Rng* r) { r->Normal({2}, 0, -1); }),
              HasSubstr("normal: standard deviation -1"));
  EXPECT_THAT(message([](Builder*, Rng* r) { r->GlorotUniform({}); }),
              HasSubstr("glorot_uniform: shape [] has no fan"));
  EXPECT_THAT(message([](Builder*, Rng* r) { r->RandomBits(-1); }), HasSubstr("random_bits: -1"));
  EXPECT_THAT(message([](Builder*, Rng* r) { r->RandPerm(4, DType::kFloat32); }),
              HasSubstr("randperm: element type f32"));
  EXPECT_THAT(
      message([](Builder* b, Rng* r) { r->Multinomial(b->Full(DType::kFloat32, {3}, 1), 4); }),
      HasSubstr("multinomial: 4 samples of weights [3]"));
  EXPECT_THAT(
      message([](Builder* b, Rng* r) { r->Dropout(b->Full(DType::kFloat32, {3}, 1), 1.5); }),
      HasSubstr("dropout: probability 1.5"));
}

}  // namespace
}  // namespace telegrad::testing
