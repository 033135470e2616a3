// Symbolic sizes and positions, and assignment in place, for several values of the variable,
// against what each element is by definition; on the reference interpreter and on the CPU device.
#include <gtest/gtest.h>

#include <functional>

#include "engine/base/strings.h"
#include "engine/frontend/autograd/gradient.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/index.h"
#include "tests/frontend/messages.h"
#include "tests/frontend/run_plan.h"

namespace telegrad::testing {
namespace {

constexpr std::nullopt_t kOpen = std::nullopt;
constexpr int64_t kRows = 6, kColumns = 5, kMost = 6;

// The matrix x [6, 5] that all cases read: x[i][j] = 10 i + j + 1; 0 elsewhere.
double X(int64_t i, int64_t j) {
  const bool inside = i >= 0 && i < kRows && j >= 0 && j < kColumns;
  return inside ? static_cast<double>(10 * i + j + 1) : 0;
}

struct SymbolicCase {
  std::string_view name;
  Tensor (*make)(const Tensor& x, const Tensor& n);  // n in [0, 6]
  Shape (*shape)(int64_t n);
  double (*at)(const Shape& index, int64_t n);
};

#define SHAPE(...) [](int64_t n) { return (void)n, Shape{__VA_ARGS__}; }
#define AT(value) [](const Shape& i, int64_t n) -> double { return (void)i, (void)n, value; }

const SymbolicCase kCases[] = {
    {"narrow by position", [](const Tensor& x, const Tensor& n) { return x.Narrow(0, n, 2); },
     SHAPE(2, 5), AT(X(n + i[0], i[1]))},
    {"narrow to size", [](const Tensor& x, const Tensor& n) { return x.Narrow(0, 0, n); },
     SHAPE(n, 5), AT(X(i[0], i[1]))},
    {"position", [](const Tensor& x, const Tensor& n) { return x.At({n, Slice(1, kOpen)}); },
     SHAPE(4), AT(X(n, i[0] + 1))},
    {"window", [](const Tensor& x, const Tensor& n) { return x.At({Slice(Dim(n), Dim(n + 2))}); },
     SHAPE(2, 5), AT(X(n + i[0], i[1]))},
    {"rest", [](const Tensor& x, const Tensor& n) { return x.At({Slice(Dim(n), kOpen, 1)}); },
     SHAPE(6 - n, 5), AT(X(n + i[0], i[1]))},
    {"rest, backwards",
     [](const Tensor& x, const Tensor& n) { return x.At({Slice(kOpen, Dim(n), -1)}); },
     SHAPE(std::max<int64_t>(5 - n, 0), 5), AT(X(5 - i[0], i[1]))},
    {"slices of a symbolic axis",
     [](const Tensor& x, const Tensor& n) { return x.Narrow(0, 0, n).At({Slice(1, -1)}); },
     SHAPE(std::max<int64_t>(n - 2, 0), 5), AT(X(i[0] + 1, i[1]))},
    {"steps of a symbolic axis",
     [](const Tensor& x, const Tensor& n) {
       return x.Narrow(0, 0, n).At({Slice(kOpen, kOpen, -2), Slice(0, 2)});
     },
     SHAPE((n + 1) / 2, 2), AT(X(n - 1 - 2 * i[0], i[1]))},
    {"reshape", [](const Tensor& x, const Tensor& n) { return x.Narrow(0, 0, n).Flatten(); },
     SHAPE(5 * n), AT(X(i[0] / 5, i[0] % 5))},
    {"unflatten and permute",
     [](const Tensor& x, const Tensor& n) {
       return x.Narrow(0, 0, n).Unsqueeze(0).Rearrange("b n c -> c (b n)");
     },
     SHAPE(5, n), AT(X(i[1], i[0]))},
    {"expand", [](const Tensor& x, const Tensor& n) { return x.At({Slice(1, 2)}).Expand({n, 5}); },
     SHAPE(n, 5), AT(X(1, i[1]))},
    {"repeat", [](const Tensor& x, const Tensor& n) { return x.Narrow(0, 0, n).Repeat({2, 1}); },
     SHAPE(2 * n, 5), AT(X(i[0] % n, i[1]))},
    {"pad", [](const Tensor& x, const Tensor& n) { return x.Narrow(0, 0, n).Pad({1, 2, 0, 0}, 7); },
     SHAPE(n + 3, 5), AT(i[0] >= 1 && i[0] <= n ? X(i[0] - 1, i[1]) : 7)},
    {"concat",
     [](const Tensor& x, const Tensor& n) {
       const Tensor parts[] = {x.Narrow(0, 0, n), x.Narrow(0, 1, 2), x.Narrow(0, 0, n)};
       return Concat(parts, 0);
     },
     SHAPE(2 * n + 2, 5),
     AT(X(i[0] < n       ? i[0]
          : i[0] < n + 2 ? i[0] - n + 1
                         : i[0] - n - 2,
          i[1]))},
    {"broadcast",
     [](const Tensor& x, const Tensor& n) {
       const Tensor part = x.Narrow(0, 0, n);
       return part + part.Sum({0}, true);
     },
     SHAPE(n, 5), AT(X(i[0], i[1]) + 5.0 * n * (n - 1) + n * (i[1] + 1.0))},
    {"tril",
     [](const Tensor& x, const Tensor& n) {
       return x.Narrow(0, 0, n).At({Slice(), Slice(0, 1)}).Expand({n, n}).Tril();
     },
     SHAPE(n, n), AT(i[1] <= i[0] ? X(i[0], 0) : 0)},
    {"index_select",
     [](const Tensor& x, const Tensor& n) {
       const Tensor last = x.builder()->Literal(DType::kInt64, {2}, std::vector<double>{-1, 0});
       return x.Narrow(0, 0, n).IndexSelect(0, last);
     },
     SHAPE(2, 5), AT(n == 0 ? 0 : X(i[0] == 0 ? n - 1 : 0, i[1]))},
    {"take_along",
     [](const Tensor& x, const Tensor& n) {
       const Tensor down = n - 1 - x.builder()->Iota(DType::kInt64, n);
       return x.Narrow(0, 0, n).TakeAlong(0, down.Unsqueeze(1).Expand({n, 5}));
     },
     SHAPE(n, 5), AT(X(n - 1 - i[0], i[1]))},
    {"rows by symbolic positions",
     [](const Tensor& x, const Tensor& n) {
       const Tensor row = x.builder()->Iota(DType::kInt64, n);
       return x.At({row, row.FloorMod(5)});
     },
     SHAPE(n), AT(X(i[0], i[0] % 5))},
    {"scatter into a symbolic axis",
     [](const Tensor& x, const Tensor& n) {
       const Tensor part = x.Narrow(0, 0, n);
       return part.Set({x.builder()->Iota(DType::kInt64, 2)}, 0.5);
     },
     SHAPE(n, 5), AT(i[0] < 2 ? 0.5 : X(i[0], i[1]))},
    {"set at a position", [](const Tensor& x, const Tensor& n) { return x.Set({n}, 0.5); },
     SHAPE(6, 5), AT(i[0] == n ? 0.5 : X(i[0], i[1]))},
    {"set a window",
     [](const Tensor& x, const Tensor& n) {
       return x.Set({Slice(Dim(n), Dim(n + 2)), Slice(kOpen, kOpen, 2)}, x.At({0, Slice(0, 3)}));
     },
     SHAPE(6, 5),
     AT((i[0] == n || i[0] == n + 1) && i[1] % 2 == 0 ? X(0, i[1] / 2) : X(i[0], i[1]))},
    {"set a rest",
     [](const Tensor& x, const Tensor& n) { return x.Set({Slice(Dim(n), kOpen)}, 0.5); },
     SHAPE(6, 5), AT(i[0] >= n ? 0.5 : X(i[0], i[1]))},
};

#undef SHAPE
#undef AT

HostTensor Matrix() {
  std::vector<float> values;
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    values.push_back(static_cast<float>(X(i / kColumns, i % kColumns)));
  }
  return HostTensor::Of<float>({kRows, kColumns}, std::span<const float>(values));
}

// Row-major within `shape`: f(index, flat).
void ForEach(const Shape& shape, const std::function<void(const Shape&, int64_t)>& f) {
  Shape index(shape.size(), 0);
  for (int64_t flat = 0; flat < NumElements(shape); ++flat) {
    f(index, flat);
    for (size_t i = shape.size(); i-- > 0 && ++index[i] == shape[i];) index[i] = 0;
  }
}

TEST(SymbolicTest, Values) {
  const auto cpu = CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {kRows, kColumns}, "x");
  const Tensor n = b.Variable("n", 0, kMost);
  for (const SymbolicCase& c : kCases) {
    b.Output(c.make(x, n), c.name);
    ASSERT_TRUE(b.status().ok()) << c.name << ": " << b.status();
  }
  const absl::StatusOr<Plan> plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (CpuRunner* device : {static_cast<CpuRunner*>(nullptr), cpu->get()}) {
    for (const int64_t size : {0, 1, 2, 5, 6}) {
      const absl::StatusOr<Named> got =
          RunPlan(*plan, {{"x", Matrix()}}, device, nullptr, {{"n", size}});
      ASSERT_TRUE(got.ok()) << got.status();
      for (const SymbolicCase& c : kCases) {
        const HostTensor& out = got->at(std::string(c.name));
        const Shape shape = c.shape(size);
        std::vector<double> want(static_cast<size_t>(NumElements(out.shape)), 0.0);
        ForEach(out.shape, [&](const Shape& index, int64_t flat) {
          bool there = true;
          for (size_t i = 0; i < index.size(); ++i) there &= index[i] < shape[i];
          if (there) want[static_cast<size_t>(flat)] = c.at(index, size);
        });
        EXPECT_EQ(out.AsDoubles(), want)
            << c.name << ", n = " << size << (device == nullptr ? ", reference" : ", CPU");
      }
    }
  }
}

TEST(AssignTest, ACacheGrowsInPlace) {
  Builder b;
  const Tensor position = b.Variable("position", 0, 7);
  const Tensor keys = b.State(DType::kFloat32, {2, 8, 3}, "keys", Init::Constant(0));
  const Tensor key = b.Param(DType::kFloat32, {2, 1, 3}, "key");
  const Tensor now = b.Assign(keys.At({Slice(), Slice(Dim(position), Dim(position + 1))}), key);
  ASSERT_TRUE(b.status().ok()) << b.status();
  b.Output(now.Narrow(1, 0, position + 1).Sum({1}), "sum");
  b.Output(keys.Sum({1}), "before");  // the slot as it was
  const absl::StatusOr<Plan> plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto cpu = CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  for (CpuRunner* device : {static_cast<CpuRunner*>(nullptr), cpu->get()}) {
    Named state;
    std::vector<float> cache(48, 0);
    for (int64_t step = 0; step < 8; ++step) {
      std::vector<float> k(6);
      std::vector<double> before(6, 0), sum(6, 0);
      for (int64_t i = 0; i < 6; ++i) {
        k[i] = static_cast<float>(10 * step + i);
        for (int64_t p = 0; p < step; ++p) before[i] += cache[(i / 3 * 8 + p) * 3 + i % 3];
        sum[i] = before[i] + k[i];
        cache[(i / 3 * 8 + step) * 3 + i % 3] = k[i];
      }
      const absl::StatusOr<Named> got =
          RunPlan(*plan, {{"key", HostTensor::Of<float>({2, 1, 3}, std::span<const float>(k))}},
                  device, &state, {{"position", step}});
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(got->at("sum").AsDoubles(), sum) << step;
      EXPECT_EQ(got->at("before").AsDoubles(), before) << step;
      EXPECT_EQ(state.at("keys").Values<float>(), cache) << step;
    }
  }
}

struct AssignCase {
  std::string_view name;
  // Assigns to the state s [6, 5], which holds X, and gives what is read in the end.
  Tensor (*make)(Builder& b, const Tensor& s, const Tensor& n);
  double (*left)(int64_t i, int64_t j, int64_t n);  // in the slot
  double (*read)(int64_t k, int64_t n);             // element k of the result
};

const AssignCase kAssignCases[] = {
    {"two disjoint parts",
     [](Builder& b, const Tensor& s, const Tensor&) {
       b.Assign(s.At({Slice(0, 2)}), b.Const(DType::kFloat32, 1));
       return b.Assign(s.At({Slice(), 4}), b.Const(DType::kFloat32, 2)).At({1});
     },
     [](int64_t i, int64_t j, int64_t) { return j == 4  ? 2.0
                                                : i < 2 ? 1.0
                                                        : X(i, j); },
     [](int64_t k, int64_t) { return k == 4 ? 2.0 : 1.0; }},
    {"the later one stays",
     [](Builder& b, const Tensor& s, const Tensor& n) {
       b.Assign(s.At({n}), b.Const(DType::kFloat32, 1));
       b.Assign(s.At({Slice(), 0}), b.Const(DType::kFloat32, 2));
       return b.Assign(s.At({n, Slice(0, 2)}), b.Const(DType::kFloat32, 3)).At({n});
     },
     [](int64_t i, int64_t j, int64_t n) {
       return i == n && j < 2 ? 3.0 : j == 0 ? 2.0 : i == n ? 1.0 : X(i, j);
     },
     [](int64_t k, int64_t) { return k < 2 ? 3.0 : 1.0; }},
    {"what the one before left",
     [](Builder& b, const Tensor& s, const Tensor& n) {
       const Tensor once = b.Assign(s.At({n}), s.At({0}) + 1);
       const Tensor twice = b.Assign(once.At({Slice(1, 3)}), once.At({Slice(0, 2)}) * 2.0);
       return twice.At({2}) - s.At({2});  // s is as it was
     },
     [](int64_t i, int64_t j, int64_t n) {
       const auto once = [&](int64_t r) { return r == n ? X(0, j) + 1 : X(r, j); };
       return i == 1 || i == 2 ? 2 * once(i - 1) : once(i);
     },
     [](int64_t k, int64_t n) { return 2 * (n == 1 ? X(0, k) + 1 : X(1, k)) - X(2, k); }},
    {"shifted over itself",
     [](Builder& b, const Tensor& s, const Tensor&) {
       return b.Assign(s.At({Slice(1, kOpen)}), s.At({Slice(0, -1)})).At({5});
     },
     [](int64_t i, int64_t j, int64_t) { return X(i == 0 ? 0 : i - 1, j); },
     [](int64_t k, int64_t) { return X(4, k); }},
    {"steps, backwards",
     [](Builder& b, const Tensor& s, const Tensor&) {
       const Tensor count = b.Arange(0, 3, 1, DType::kFloat32);
       return b.Assign(s.At({Slice(), Slice(kOpen, kOpen, -2)}), count).At({3});
     },
     [](int64_t i, int64_t j, int64_t) { return j % 2 == 0 ? (4.0 - j) / 2 : X(i, j); },
     [](int64_t k, int64_t) { return k % 2 == 0 ? (4.0 - k) / 2 : X(3, k); }},
    {"transposed",
     [](Builder& b, const Tensor& s, const Tensor& n) {
       return b.Assign(s.T().At({1, Slice(Dim(n), kOpen)}), b.Const(DType::kFloat32, 9)).At({5});
     },
     [](int64_t i, int64_t j, int64_t n) { return j == 1 && i >= n ? 9.0 : X(i, j); },
     [](int64_t k, int64_t) { return k == 1 ? 9.0 : X(5, k); }},
    {"rows by tensors, the whole slot",
     [](Builder& b, const Tensor& s, const Tensor& n) {
       return b.Assign(s, s.Set({b.Iota(DType::kInt64, 2) + n}, 4)).At({n});
     },
     [](int64_t i, int64_t j, int64_t n) { return i == n || i == n + 1 ? 4.0 : X(i, j); },
     [](int64_t, int64_t) { return 4.0; }},
};

TEST(AssignTest, StoresAreOrdered) {
  const auto cpu = CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  for (const AssignCase& c : kAssignCases) {
    Builder b;
    const Tensor s = b.State(DType::kFloat32, {kRows, kColumns}, "s", Init::Constant(0));
    const Tensor n = b.Variable("n", 0, kRows - 1);
    b.Output(c.make(b, s, n), "read");
    const absl::StatusOr<Plan> plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << c.name << ": " << plan.status();
    for (CpuRunner* device : {static_cast<CpuRunner*>(nullptr), cpu->get()}) {
      for (const int64_t value : {0, 1, 3, 5}) {
        SCOPED_TRACE(StrCat(c.name, ", n = ", value, device == nullptr ? ", reference" : ", CPU"));
        Named state = {{"s", Matrix()}};
        const absl::StatusOr<Named> got = RunPlan(*plan, {}, device, &state, {{"n", value}});
        ASSERT_TRUE(got.ok()) << got.status();
        std::vector<double> left, read;
        for (int64_t i = 0; i < kRows * kColumns; ++i) {
          left.push_back(c.left(i / kColumns, i % kColumns, value));
        }
        for (int64_t k = 0; k < kColumns; ++k) read.push_back(c.read(k, value));
        EXPECT_EQ(state.at("s").AsDoubles(), left);
        EXPECT_EQ(got->at("read").AsDoubles(), read);
      }
    }
  }
}

TEST(AssignTest, GradientsGoToWhatStays) {
  Builder b;
  const Tensor s = b.State(DType::kFloat64, {3, 4}, "s", Init::Constant(1));
  const Tensor row = b.Param(DType::kFloat64, {4}, "row");
  const Tensor block = b.Param(DType::kFloat64, {2, 2}, "block");
  b.Assign(s.At({1}), row * 3.0);
  const Tensor now = b.Assign(s.At({Slice(0, 2), Slice(1, 3)}), block);
  std::vector<double> weights(12);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<double>(i + 1);
  const Tensor loss = (now * b.Literal(DType::kFloat64, {3, 4}, weights)).Sum();
  const Tensor wrt[] = {s, row, block};
  const std::vector<Tensor> grads = Gradients(loss, wrt);
  for (size_t i = 0; i < grads.size(); ++i) b.Output(grads[i], StrCat(i));
  const absl::StatusOr<Plan> plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const absl::StatusOr<Named> got =
      RunPlan(*plan, {{"row", HostTensor::Of<double>({4}, {1, 1, 1, 1})},
                      {"block", HostTensor::Of<double>({2, 2}, {1, 1, 1, 1})}});
  ASSERT_TRUE(got.ok()) << got.status();
  const auto values = [](std::vector<double> v) { return v; };
  EXPECT_EQ(got->at("0").AsDoubles(), values({1, 0, 0, 4, 0, 0, 0, 0, 9, 10, 11, 12}));
  EXPECT_EQ(got->at("1").AsDoubles(), values({15, 0, 0, 24}));
  EXPECT_EQ(got->at("2").AsDoubles(), values({2, 3, 6, 7}));
}

// What lies beyond a slot is skipped by whichever executable runs: one for a single value of the
// variable, as the first values get, or one for several.
TEST(AssignTest, WhatLiesBeyondTheSlotIsSkipped) {
  Builder b;
  const Tensor s = b.State(DType::kFloat32, {kRows, kColumns}, "s", Init::Constant(0));
  const Tensor n = b.Variable("n", 0, kRows);
  const Tensor value = b.Iota(DType::kInt32, 3 * kColumns).Cast(DType::kFloat32) + 100;
  // Rows n to n + 3, turned over both ways.
  const Tensor target = s.Narrow(0, n, 3).Flip({0}).Transpose();
  b.Output(b.Assign(target, value.Reshape({kColumns, 3})).At({0}), "read");
  const absl::StatusOr<Plan> plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<int64_t> upwards, downwards;
  for (int64_t i = 0; i <= kRows; ++i) {
    upwards.push_back(i);
    downwards.push_back(kRows - i);
  }
  for (const auto& order : {upwards, downwards}) {
    const auto cpu = CpuRunner::Open();
    ASSERT_TRUE(cpu.ok()) << cpu.status();
    for (CpuRunner* device : {static_cast<CpuRunner*>(nullptr), cpu->get()}) {
      for (const int64_t at : order) {
        SCOPED_TRACE(StrCat("n = ", at, device == nullptr ? ", reference" : ", CPU"));
        Named state = {{"s", Matrix()}};
        const absl::StatusOr<Named> got = RunPlan(*plan, {}, device, &state, {{"n", at}});
        ASSERT_TRUE(got.ok()) << got.status();
        std::vector<double> want;
        for (int64_t i = 0; i < kRows; ++i) {
          for (int64_t j = 0; j < kColumns; ++j) {
            const bool written = i >= at && i < at + 3;
            want.push_back(written ? 100.0 + static_cast<double>(3 * j + 2 - (i - at)) : X(i, j));
          }
        }
        EXPECT_EQ(state.at("s").AsDoubles(), want);
      }
    }
  }
}

// A size must be a scalar integer, and not negative.
TEST(SymbolicTest, NoSizeIsMadeOfSomethingElse) {
  const auto message = [](auto make) {
    Builder b;
    make(b, b.Param(DType::kFloat32, {3, 4}, "x"));
    return std::string(b.status().message());
  };
  EXPECT_NE(message([](Builder& b, Tensor x) { x.Reshape({b.Const(DType::kFloat32, 12.0)}); }), "");
  EXPECT_NE(message([](Builder&, Tensor x) { x.Narrow(0, 0, x); }), "");
  EXPECT_NE(message([](Builder& b, Tensor x) { x.Narrow(0, 0, b.Const(DType::kInt64, -2)); }), "");
  EXPECT_NE(message([](Builder& b, Tensor) { b.Iota(DType::kInt32, Dim(INT64_MAX)); }), "");
  EXPECT_NE(message([](Builder& b, Tensor) { b.Iota(DType::kInt32, Dim(INT64_MIN)); }), "");
  EXPECT_NE(message([](Builder&, Tensor x) { x.Narrow(1, INT64_MAX, INT64_MAX); }), "");
  EXPECT_NE(message([](Builder&, Tensor x) { x.Expand({INT64_MAX, 3, 4}); }), "");
}

TEST(SymbolicTest, EachMistakeHasItsMessage) {
  constexpr Mistake kMistakes[] = {
      {[](const Tensor& x) {
         const Tensor n = x.builder()->Variable("n", 0, 3);
         x.Narrow(0, 0, n).Unbind();
       },
       "unbind: axis 0 of [<=3, 4] is symbolic"},
      {[](const Tensor& x) {
         const Tensor n = x.builder()->Variable("n", 0, 3);
         x.Narrow(0, 0, n).Roll({1}, {0});
       },
       "roll: axis 0 of [<=3, 4] is symbolic"},
      {[](const Tensor& x) {
         const Tensor n = x.builder()->Variable("n", 0, 3);
         x.Narrow(0, 0, n) + x;
       },
       "add: shapes [<=3, 4] and [3, 4] do not broadcast: axis 0 has 3 and 3, of which one is "
       "symbolic and not known to be equal"},
      {[](const Tensor& x) {
         const Tensor n = x.builder()->Variable("n", 0, 3);
         x.At({Slice(Dim(n - 1), kOpen)});
       },
       "at: axis 0 has a symbolic position that may be negative"},
      {[](const Tensor& x) { x.builder()->Assign(x, x); }, "store: slot 'x' is an input"},
      {[](const Tensor& x) {
         Builder& b = *x.builder();
         const Tensor s = b.State(DType::kFloat32, {3, 4}, "s", Init::Constant(0));
         b.Assign(s.At({b.Zeros({2}, DType::kInt64)}), x.At({Slice(0, 2)}));
       },
       "store: the target (gather) is not a slot or a one-to-one view of one"},
      {[](const Tensor& x) {
         Builder& b = *x.builder();
         const Tensor s = b.State(DType::kFloat32, {3, 4}, "s", Init::Constant(0));
         b.Assign(s.At({0}), x.At({0}));
         b.Store(s, x);
       },
       "store: slot 's' is stored to already; Assign stores to it again"},
      {[](const Tensor& x) {
         Builder& b = *x.builder();
         const Tensor s = b.State(DType::kFloat32, {3, 4}, "s", Init::Constant(0));
         b.Update(s, x);
         b.Assign(s.At({0}), x.At({0}));
         b.Update(s, x);
       },
       "update: slot 's' is assigned to since"},
      {[](const Tensor& x) {
         Builder& b = *x.builder();
         const Tensor s = b.State(DType::kFloat32, {3, 4}, "s", Init::Constant(0));
         b.Assign(s.At({0}), x);
       },
       "expand: from [3, 4] to [4] loses an axis"},
  };
  CheckMessages(kMistakes);
}

}  // namespace
}  // namespace telegrad::testing
