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

template <int kBytes>
using Vector __attribute__((vector_size(kBytes))) = float;

// Not a loop over an array: that may stay in memory.
#define TG_CHAINS(name, bytes, isa)                                               \
  __attribute__((target(isa), noinline)) float name(float start, int64_t steps) { \
    using V = Vector<bytes>;                                                      \
    const V by = V{} + 0.999F, add = V{} + start;                                 \
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

struct Chains {
  float (*run)(float start, int64_t steps);
  int lanes;
};

double MeasureFlops() {
#if defined(__x86_64__)
  const Chains chains = __builtin_cpu_supports("avx512f") != 0 ? Chains{Chains512, 16}
                        : __builtin_cpu_supports("fma") != 0   ? Chains{Chains256, 8}
                                                               : Chains{Chains128, 4};
  using Clock = std::chrono::steady_clock;
  volatile float start = 0.5F, sink = 0;
  double least = 1;
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto begin = Clock::now();
    sink = sink + chains.run(start, kSteps);
    least = std::min(least, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return kUsual * 2 * kChains * kSteps * chains.lanes / std::max(least, 1e-9);
#else
  return kCpuThreadFlops;
#endif
}

}  // namespace

const Rates& ThreadRates() {
  static const Rates rates{.flops = MeasureFlops(), .bytes = kCpuThreadBytes};
  return rates;
}

}  // namespace telegrad
