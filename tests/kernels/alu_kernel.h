// Elementwise ops on columns of edge values and random ones, as scalars and as vectors, on each
// target, against what a test says in plain C++.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <type_traits>

#include "engine/base/strings.h"
#include "tests/kernels/kernel_fixture.h"

namespace telegrad {

template <typename T>
constexpr DType kDType = DType::kVoid;
template <>
constexpr DType kDType<bool> = DType::kBool;
template <>
constexpr DType kDType<int8_t> = DType::kInt8;
template <>
constexpr DType kDType<int16_t> = DType::kInt16;
template <>
constexpr DType kDType<int32_t> = DType::kInt32;
template <>
constexpr DType kDType<int64_t> = DType::kInt64;
template <>
constexpr DType kDType<uint8_t> = DType::kUInt8;
template <>
constexpr DType kDType<uint16_t> = DType::kUInt16;
template <>
constexpr DType kDType<uint32_t> = DType::kUInt32;
template <>
constexpr DType kDType<uint64_t> = DType::kUInt64;
template <>
constexpr DType kDType<float> = DType::kFloat32;
template <>
constexpr DType kDType<double> = DType::kFloat64;

// std::vector<bool> is no array.
template <typename T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

inline constexpr int64_t kLanes = 8;

template <typename T>
std::vector<Stored<T>> EdgeValues() {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_same_v<T, bool>) {
    return {0, 1};
  } else if constexpr (std::is_floating_point_v<T>) {
    return {T(0),
            T(-0.0),
            T(1),
            T(-1),
            T(0.5),
            T(-0.5),
            T(2.5),
            T(-2.5),
            T(1e-3),
            T(300.7),
            T(-129.9),
            T(65536.5),
            T(3e9),
            T(-3e9),
            T(1e19),
            T(-1e19),
            Limits::max(),
            Limits::lowest(),
            Limits::min(),
            Limits::denorm_min(),
            Limits::infinity(),
            -Limits::infinity(),
            Limits::quiet_NaN(),
            T(9223372036854775808.0)};
  } else {
    return {T(0),
            T(1),
            T(2),
            T(3),
            T(5),
            T(7),
            T(8),
            T(31),
            T(63),
            T(64),
            T(100),
            T(-1),
            T(-2),
            T(-3),
            T(-7),
            Limits::max(),
            Limits::min(),
            T(Limits::max() - 1),
            T(Limits::min() + 1)};
  }
}

template <typename T>
Stored<T> RandomValue(std::mt19937_64& random) {
  if constexpr (std::is_same_v<T, bool>) {
    return random() & 1;
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::ldexp(static_cast<T>(static_cast<int64_t>(random())),
                      -40 - static_cast<int>(random() % 40));
  } else {
    return static_cast<T>(random() >> (random() % 64));
  }
}

template <typename T>
bool SameValue(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return a == b && std::signbit(a) == std::signbit(b);
  } else {
    return a == b;
  }
}

// Ops on columns of values, all in one kernel: most of what a kernel costs here is its compilation.
class AluKernel {
 public:
  explicit AluKernel(size_t size) : size_(static_cast<int64_t>(size)) {}

  // A source for the ops, by number.
  template <typename T>
  int Column(const std::vector<Stored<T>>& values) {
    EXPECT_EQ(static_cast<int64_t>(values.size()), size_);
    columns_.push_back({kDType<T>, Upload(values),
                        [values](int64_t k) { return testing::PrintToString(+values[k]); }});
    return static_cast<int>(columns_.size()) - 1;
  }

  template <typename To>
  void Add(Op op, std::vector<int> sources, const std::vector<Stored<To>>& expected) {
    cases_.push_back(
        {op, kDType<To>, std::move(sources),
         [size = size_] { return Upload(std::vector<Stored<To>>(size, Stored<To>(77))); },
         [expected](const Memory& memory) { return Compare<To>(memory, expected); }});
  }

  // As scalars and as vectors, on each target.
  void Run() const {
    ASSERT_EQ(size_ % kLanes, 0);
    for (bool vector : {false, true}) {
      const Program program = Build(vector ? kLanes : 1);
      for (const auto& [name, target] : TestTargets()) {
        std::vector<std::shared_ptr<Memory>> memories;
        for (const Case& c : cases_) memories.push_back(c.blank());
        for (const Source& column : columns_) memories.push_back(column.memory);
        ASSERT_EQ(RunOnce(program, memories, target), absl::OkStatus());
        for (size_t i = 0; i < cases_.size(); ++i) {
          const auto [at, text] = cases_[i].compare(*memories[i]);
          std::string sources;
          for (int s : cases_[i].sources) StrAppend(&sources, " ", columns_[s].print(at));
          ASSERT_EQ(text, "") << Name(cases_[i].op) << " to " << Name(cases_[i].to)
                              << (vector ? " vector" : " scalar") << " on " << name << " of"
                              << sources;
        }
      }
    }
  }

 private:
  struct Source {
    DType dtype;
    std::shared_ptr<Memory> memory;
    std::function<std::string(int64_t)> print;
  };
  struct Case {
    Op op;
    DType to;
    std::vector<int> sources;
    std::function<std::shared_ptr<Memory>()> blank;
    // The first element that is not as expected, and both; 0 and "" where all are.
    std::function<std::pair<int64_t, std::string>(const Memory&)> compare;
  };

  template <typename To>
  static std::pair<int64_t, std::string> Compare(const Memory& memory,
                                                 const std::vector<Stored<To>>& expected) {
    const auto actual = Download<Stored<To>>(memory);
    for (size_t k = 0; k < expected.size(); ++k) {
      if (SameValue(actual[k], expected[k])) continue;
      return {k, StrCat("got ", testing::PrintToString(+actual[k]), ", expected ",
                        testing::PrintToString(+expected[k]))};
    }
    return {0, ""};
  }

  Program Build(int64_t step) const {
    ProgramBuilder b("alu");
    std::vector<UOp> out, in, x;
    for (const Case& c : cases_) out.push_back(b.Argument(c.to, size_));
    for (const Source& column : columns_) in.push_back(b.Argument(column.dtype, size_));
    const UOp i = b.Open(AxisType::kThread, size_ / step);
    UOp at = i;
    if (step > 1) at = b.Do(Op::kAdd, {b.Do(Op::kMul, {i, b.Index(step)}), b.Iota(step)});
    for (UOp argument : in) x.push_back(b.Load(argument, at));
    for (size_t k = 0; k < cases_.size(); ++k) {
      std::vector<UOp> src;
      for (int s : cases_[k].sources) src.push_back(x[s]);
      b.Store(out[k], at, b.Put(b.graph().Make(cases_[k].op, cases_[k].to, src)));
    }
    b.Close(i);
    return b.Build();
  }

  const int64_t size_;
  std::vector<Source> columns_;
  std::vector<Case> cases_;
};

inline uint64_t Seed() {
  static const uint64_t seed = std::random_device{}();
  return seed;
}

// Ops of one type, on all pairs of edge values and on random ones.
template <typename T>
class TypeOps {
 public:
  TypeOps() {
    std::mt19937_64 random(Seed());
    for (auto a : EdgeValues<T>()) {
      for (auto b : EdgeValues<T>()) {
        x_.push_back(a);
        y_.push_back(b);
      }
    }
    for (int i = 0; i < 100 || x_.size() % kLanes != 0; ++i) {
      x_.push_back(RandomValue<T>(random));
      y_.push_back(RandomValue<T>(random));
    }
    kernel_.emplace(x_.size());
    kernel_->template Column<T>(x_);
    kernel_->template Column<T>(y_);
  }

  template <typename To>
  void Unary(Op op, const std::function<To(T)>& f) {
    std::vector<Stored<To>> expected;
    for (auto v : x_) expected.push_back(f(v));
    kernel_->template Add<To>(op, {0}, expected);
  }
  template <typename To>
  void Binary(Op op, const std::function<To(T, T)>& f) {
    std::vector<Stored<To>> expected;
    for (size_t i = 0; i < x_.size(); ++i) expected.push_back(f(x_[i], y_[i]));
    kernel_->template Add<To>(op, {0, 1}, expected);
  }
  void Run() const {
    SCOPED_TRACE(testing::Message() << "seed " << Seed());
    kernel_->Run();
  }

 private:
  std::vector<Stored<T>> x_, y_;
  std::optional<AluKernel> kernel_;
};

}  // namespace telegrad
