// TopK of long rows, which are cut into segments, against std::stable_sort: few of many and nearly
// all, ties, infinities and NaN, on the reference interpreter and on the CPU device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "engine/base/strings.h"
#include "engine/frontend/tensor/builder.h"
#include "tests/frontend/run_plan.h"

namespace telegrad::testing {
namespace {

constexpr int64_t kRows = 3;

enum class Kind { kRandom, kTies, kSpecial };

template <typename T>
std::vector<T> Make(Kind kind, int64_t n, std::mt19937_64* random) {
  std::vector<T> out(kRows * n);
  for (T& v : out) {
    const auto word = static_cast<int64_t>((*random)());
    v = static_cast<T>(kind == Kind::kTies ? word % 3 : word % 1000003);
    if (kind != Kind::kSpecial || std::is_integral_v<T>) continue;
    // Most are NaN, whose order is their places'.
    const T special[] = {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::quiet_NaN(),
                         std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity()};
    v = special[static_cast<uint64_t>(word) % 4];
  }
  return out;
}

// Whether a comes before b in ascending order: NaN is above everything.
template <typename T>
bool Before(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return !std::isnan(a);
  }
  return a < b;
}

template <typename T>
std::vector<int32_t> Want(const std::vector<T>& x, int64_t n, int64_t k, bool largest) {
  std::vector<int32_t> out;
  for (int64_t row = 0; row < kRows; ++row) {
    std::vector<int32_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int32_t i, int32_t j) {
      const T a = x[row * n + i], b = x[row * n + j];
      if (std::isnan(static_cast<double>(a)) && std::isnan(static_cast<double>(b))) return false;
      return largest ? Before(b, a) : Before(a, b);
    });
    out.insert(out.end(), order.begin(), order.begin() + k);
  }
  return out;
}

template <typename T>
void Check(int64_t n, int64_t k, Kind kind, CpuRunner* device) {
  std::mt19937_64 random(static_cast<uint64_t>(n * 1000 + k));
  const std::vector<T> x = Make<T>(kind, n, &random);
  for (const bool largest : {true, false}) {
    SCOPED_TRACE(StrCat(k, " of ", n, " ", Name(kDTypeOf<T>), ", values ", static_cast<int>(kind),
                        largest ? ", largest" : ", smallest"));
    Builder b;
    b.Output(b.Param(kDTypeOf<T>, {kRows, n}, "x").TopK(k, 1, largest).second, "at");
    const auto plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (CpuRunner* on : {static_cast<CpuRunner*>(nullptr), device}) {
      const auto got = RunPlan(*plan, {{"x", HostTensor::Of<T>({kRows, n}, x)}}, on);
      ASSERT_TRUE(got.ok()) << got.status();
      const HostTensor& at = got->at("at");
      EXPECT_EQ(at.template Values<int32_t>(), Want(x, n, k, largest)) << (on != nullptr);
    }
  }
}

TEST(TopK, OfSegments) {
  const auto device = CpuRunner::Open();
  ASSERT_TRUE(device.ok()) << device.status();
  for (const Kind kind : {Kind::kRandom, Kind::kTies, Kind::kSpecial}) {
    Check<float>(127, 3, kind, device->get());
    Check<float>(1000, 5, kind, device->get());
    Check<float>(1201, 1, kind, device->get());
    Check<float>(3001, 40, kind, device->get());
    Check<float>(2500, 1400, kind, device->get());
  }
  // Segments whose elements are too many to be sorted.
  for (const Kind kind : {Kind::kRandom, Kind::kTies, Kind::kSpecial}) {
    Check<float>(30001, 1000, kind, device->get());
  }
  Check<int32_t>(1500, 7, Kind::kRandom, device->get());
  Check<int64_t>(700, 9, Kind::kRandom, device->get());
  Check<double>(700, 9, Kind::kSpecial, device->get());
}

// All 32 bits of a key are found: the greatest and least integers, beside equal ones.
TEST(TopK, OfExtremesInLongRows) {
  constexpr int64_t kLong = 30000, kTaken = 1000;
  for (const int32_t most : {std::numeric_limits<int32_t>::max(), 0, -5}) {
    std::vector<int32_t> x(kRows * kLong, most);
    for (int64_t i = 0; i < kTaken - 3; ++i) x[i * 29] = std::numeric_limits<int32_t>::min() + 7;
    x[0] = std::numeric_limits<int32_t>::min();
    Builder b;
    b.Output(b.Param(DType::kInt32, {kRows, kLong}, "x").TopK(kTaken, 1, false).second, "at");
    const auto plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << plan.status();
    const auto got = RunPlan(*plan, {{"x", HostTensor::Of<int32_t>({kRows, kLong}, x)}}, nullptr);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->at("at").Values<int32_t>(), Want(x, kLong, kTaken, false)) << most;
  }
}

}  // namespace
}  // namespace telegrad::testing
