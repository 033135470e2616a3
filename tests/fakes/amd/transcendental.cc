// Instructions that approximate. The ISA documents bound their errors and no more: 1 ulp for f16
// and f32, 2^29 ulp for f64. Their results here are the exact ones cut towards zero, f64 to 24
// bits: within the bound, and different from the rounded result half of the time, so that code
// which takes them for rounded ones does not pass. Those of f32 neither read nor give denormals.
#include <cmath>
#include <limits>
#include <numbers>

#include "tests/fakes/amd/float_value.h"
#include "tests/fakes/amd/lanes.h"

namespace fakeamd {
namespace {

// x, of more precision, as a float cut towards zero; a denormal becomes 0.
float Cut(double x) {
  if (std::isnan(x)) return std::numeric_limits<float>::quiet_NaN();
  auto result = static_cast<float>(x);
  if (std::isinf(x)) return result;
  if (std::abs(double{result}) > std::abs(x)) result = std::nextafter(result, 0.0f);
  return Flushed(result);
}

double Cut24(double x) {
  if (!std::isfinite(x)) return x;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(x) & ~((uint64_t{1} << 29) - 1));
}

Half CutHalf(double x) {
  if (std::isnan(x)) return Half{0x7e00};
  Half result = ToHalf(x);
  if (std::isfinite(x) && std::abs(double{ToFloat(result)}) > std::abs(x)) --result.bits;
  return result;
}

double Sine(double turns) { return std::sin(2 * std::numbers::pi * (turns - std::floor(turns))); }
double Cosine(double turns) { return std::cos(2 * std::numbers::pi * (turns - std::floor(turns))); }

constexpr Row kTranscendentalRows[] = {
    LaneRow<[](float a) { return a != a ? Quieted(a) : Cut(1 / double{Flushed(a)}); }>(
        "v_rcp_f32|v_rcp_iflag_f32"),
    LaneRow<[](float a) { return a != a ? Quieted(a) : Cut(1 / std::sqrt(double{Flushed(a)})); }>(
        "v_rsq_f32"),
    LaneRow<[](float a) { return a != a ? Quieted(a) : Cut(std::sqrt(double{Flushed(a)})); }>(
        "v_sqrt_f32"),
    LaneRow<[](float a) { return a != a ? Quieted(a) : Cut(std::exp2(double{Flushed(a)})); }>(
        "v_exp_f32"),
    LaneRow<[](float a) { return a != a ? Quieted(a) : Cut(std::log2(double{Flushed(a)})); }>(
        "v_log_f32"),
    LaneRow<[](float a) { return a != a ? Quieted(a) : Cut(Sine(a)); }>("v_sin_f32"),
    LaneRow<[](float a) { return a != a ? Quieted(a) : Cut(Cosine(a)); }>("v_cos_f32"),
    LaneRow<[](Half a) { return CutHalf(1 / double{ToFloat(a)}); }>("v_rcp_f16"),
    LaneRow<[](Half a) { return CutHalf(1 / std::sqrt(double{ToFloat(a)})); }>("v_rsq_f16"),
    LaneRow<[](Half a) { return CutHalf(std::sqrt(double{ToFloat(a)})); }>("v_sqrt_f16"),
    LaneRow<[](Half a) { return CutHalf(std::exp2(double{ToFloat(a)})); }>("v_exp_f16"),
    LaneRow<[](Half a) { return CutHalf(std::log2(double{ToFloat(a)})); }>("v_log_f16"),
    LaneRow<[](Half a) { return CutHalf(Sine(ToFloat(a))); }>("v_sin_f16"),
    LaneRow<[](Half a) { return CutHalf(Cosine(ToFloat(a))); }>("v_cos_f16"),
    LaneRow<[](double a) { return a != a ? Quieted(a) : Cut24(1 / a); }>("v_rcp_f64"),
    LaneRow<[](double a) { return a != a ? Quieted(a) : Cut24(1 / std::sqrt(a)); }>("v_rsq_f64"),
    LaneRow<[](double a) { return a != a ? Quieted(a) : Cut24(std::sqrt(a)); }>("v_sqrt_f64"),
};

}  // namespace

std::span<const Row> TranscendentalRows() { return kTranscendentalRows; }

}  // namespace fakeamd
