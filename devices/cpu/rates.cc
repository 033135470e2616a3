// The rate of multiply-adds in independent chains, by the widest vectors that there are. Whatever
// else the machine does at the time only makes a turn longer, so the best of several counts.
#include "devices/cpu/rates.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "engine/types/target.h"

namespace telegrad {
namespace {

constexpr int kTurns = 16;
constexpr int64_t kSteps = 4000;  // some tens of microseconds
constexpr int kChains = 10;
// What kernels reach of it: the best of them nearly all, many that wait for memory far less.
constexpr double kUsual = 0.6;

template <typename Float, int kBytes>
using Vector __attribute__((vector_size(kBytes))) = Float;

// Not a loop over an array: that may stay in memory.
#define TG_CHAINS(name, bytes, isa)                                               \
  template <typename Float>                                                       \
  __attribute__((target(isa), noinline)) Float name(Float start, int64_t steps) { \
    using V = Vector<Float, bytes>;                                               \
    const V by = V{} + Float{0.999F}, add = V{} + start;                          \
    V a = add, b = a + 1, c = a + 2, d = a + 3, e = a + 4, f = a + 5, g = a + 6;  \
    V h = a + 7, i = a + 8, j = a + 9;                                            \
    for (int64_t k = 0; k < steps; ++k) {                                         \
      a = a * by + add, b = b * by + add, c = c * by + add, d = d * by + add;     \
      e = e * by + add, f = f * by + add, g = g * by + add, h = h * by + add;     \
      i = i * by + add, j = j * by + add;                                         \
    }                                                                             \
    const V sum = a + b + c + d + e + f + g + h + i + j;                          \
    return sum[0] + sum[1];                                                       \
  }

#if defined(__x86_64__)
TG_CHAINS(Chains512, 64, "avx512f")
TG_CHAINS(Chains256, 32, "avx2,fma")
TG_CHAINS(Chains128, 16, "sse2")
#endif
#undef TG_CHAINS

template <typename Float>
struct Chains {
  Float (*run)(Float start, int64_t steps);
  int bytes;
};

// Of a thread, in a second; 0: this processor is not measured.
template <typename Float>
double MeasureFlops() {
#if defined(__x86_64__)
  using Found = Chains<Float>;
  const Found chains = __builtin_cpu_supports("avx512f") != 0 ? Found{Chains512<Float>, 64}
                       : __builtin_cpu_supports("fma") != 0   ? Found{Chains256<Float>, 32}
                                                              : Found{Chains128<Float>, 16};
  using Clock = std::chrono::steady_clock;
  volatile Float start = 0.5F, sink = 0;
  double least = 1;
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto begin = Clock::now();
    sink = sink + chains.run(start, kSteps);
    least = std::min(least, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  const double lanes = chains.bytes / sizeof(Float);
  return kUsual * 2 * kChains * kSteps * lanes / std::max(least, 1e-9);
#else
  return 0;
#endif
}

Rates MeasureThread() {
  using enum Arithmetic;
  Rates out{.flops = {{kVectorF64, MeasureFlops<double>()}, {kVectorF32, MeasureFlops<float>()}},
            .bytes = kCpuThreadBytes};
  if (out.launch_flops() == 0) out.flops[kVectorF32] = kCpuThreadFlops;
  return out;
}

}  // namespace

const Rates& ThreadRates() {
  static const Rates rates = MeasureThread();
  return rates;
}

}  // namespace telegrad
