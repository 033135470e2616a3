// Builds one plan of all variants of a case, runs it, and compares the outputs with the data.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "engine/base/strings.h"
#include "tests/frontend/case_data.h"
#include "tests/frontend/cases.h"
#include "tests/frontend/run_plan.h"

namespace telegrad::testing {
namespace {

std::string Label(std::string_view kind, size_t variant, size_t number) {
  return StrCat(variant, "/", kind, number);
}

void Compare(const Case& c, size_t variant, size_t number, std::string_view where,
             const HostTensor& got, const HostTensor& want) {
  SCOPED_TRACE(StrCat(c.name, "/", variant, "/out", number, " on the ", where));
  ASSERT_EQ(Name(got.dtype), Name(want.dtype));
  ASSERT_EQ(got.shape, want.shape);
  if (!IsFloat(want.dtype) && got.bytes == want.bytes) return;
  const std::vector<double> a = got.AsDoubles(), b = want.AsDoubles();
  double largest = 0;
  for (double x : b) {
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  }
  const double unit = std::ldexp(1.0, -Info(want.dtype).mantissa_bits);
  const double least = std::ldexp(1.0, 1 - Info(want.dtype).bias) * unit;  // of subnormals
  for (size_t i = 0; i < b.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    const double scale = c.scale == Case::kLargest ? largest : std::abs(b[i]);
    const bool close = a[i] == b[i] || (IsFloat(want.dtype) && std::isfinite(b[i]) &&
                                        std::abs(a[i] - b[i]) <= c.units * (scale * unit + least));
    ASSERT_TRUE(close) << "element " << i << ": " << a[i] << ", expected " << b[i];
  }
}

void CheckCase(const Case& c, const std::vector<Variant>& variants, CpuRunner* cpu) {
  Builder b;
  Named inputs;
  std::vector<std::vector<std::string>> outputs(variants.size());
  for (size_t v = 0; v < variants.size(); ++v) {
    SCOPED_TRACE(StrCat(c.name, "/", v));
    Inputs in;
    for (size_t i = 0; i < variants[v].in.size(); ++i) {
      const HostTensor& value = variants[v].in[i];
      in.push_back(b.Param(value.dtype, value.shape, Label("in", v, i)));
      inputs[Label("in", v, i)] = value;
    }
    const std::vector<Tensor> out = c.run(b, in);
    ASSERT_TRUE(b.status().ok()) << b.status();
    ASSERT_EQ(out.size(), variants[v].out.size());
    for (size_t i = 0; i < out.size(); ++i) {
      b.Output(out[i], Label("out", v, i));
      ASSERT_TRUE(b.status().ok()) << b.status();
    }
  }
  const absl::StatusOr<Plan> plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (CpuRunner* device : {static_cast<CpuRunner*>(nullptr), cpu}) {
    const std::string_view where = device == nullptr ? "reference interpreter" : "CPU device";
    const absl::StatusOr<Named> got = RunPlan(*plan, inputs, device);
    ASSERT_TRUE(got.ok()) << c.name << " on the " << where << ": " << got.status();
    for (size_t v = 0; v < variants.size(); ++v) {
      for (size_t i = 0; i < variants[v].out.size(); ++i) {
        Compare(c, v, i, where, got->at(Label("out", v, i)), variants[v].out[i]);
      }
    }
  }
}

}  // namespace

void CheckValues(std::string_view section, std::span<const Case> cases) {
  const absl::StatusOr<CaseData> data = ReadCaseData(section);
  ASSERT_TRUE(data.ok()) << data.status();
  const auto cpu = CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  std::set<std::string_view> names;
  for (const Case& c : cases) {
    ASSERT_TRUE(names.insert(c.name).second) << c.name << " is there twice";
    const auto it = data->find(c.name);
    if (it == data->end()) {
      ADD_FAILURE() << "there is no data for " << c.name;
      continue;
    }
    CheckCase(c, it->second, cpu->get());
  }
  for (const auto& [name, variants] : *data) {
    EXPECT_TRUE(names.contains(name)) << "data without a case: " << name;
  }
}

}  // namespace telegrad::testing
