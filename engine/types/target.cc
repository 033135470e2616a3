#include "engine/types/target.h"

#include <cpuid.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <thread>

namespace telegrad {

namespace {

struct TargetRow {
  std::string_view arch;
  ParallelLevels levels;
  int vector_bytes, vector_registers, vector_lanes, align, group_threads, warp;
  int64_t local_bytes;
  bool stages;
  int async_bytes;
  int64_t cache_bytes;
  MatrixUnit matrix;
  DTypeSet converts;
  bool exp2;
  TilePadding padding;
  bool reorders;
  int index_bits;
  CostRow costs;
};

using enum ParallelLevel;

#define TARGET_LIST(...) {__VA_ARGS__}
constexpr TargetRow kTargets[] = {
#define TARGET(kind, arch, levels, vector_bytes, registers, lanes, align, threads, warp, local,    \
               stages, async, cache, matrix, converts, exp2, padding, reorders, index_bits, costs) \
  {arch,                                                                                           \
   ParallelLevels TARGET_LIST levels,                                                              \
   vector_bytes,                                                                                   \
   registers,                                                                                      \
   lanes,                                                                                          \
   align,                                                                                          \
   threads,                                                                                        \
   warp,                                                                                           \
   local,                                                                                          \
   stages,                                                                                         \
   async,                                                                                          \
   cache,                                                                                          \
   MatrixUnit::matrix,                                                                             \
   DTypeSet TARGET_LIST converts,                                                                  \
   exp2,                                                                                           \
   TilePadding::padding,                                                                           \
   reorders,                                                                                       \
   index_bits,                                                                                     \
   CostRow::costs},
#include "engine/types/targets.def"
#undef TARGET
};
#undef TARGET_LIST

}  // namespace

Target TargetOf(TargetKind kind) {
  const TargetRow& row = kTargets[static_cast<size_t>(kind)];
  Target target;
  target.arch = row.arch;
  target.levels = row.levels;
  target.vector_bytes = row.vector_bytes;
  target.vector_registers = row.vector_registers;
  target.vector_lanes = row.vector_lanes;
  target.align = row.align;
  target.group_threads = row.group_threads;
  target.warp = row.warp;
  target.local_bytes = row.local_bytes;
  target.stages = row.stages;
  target.async_bytes = row.async_bytes;
  target.cache_bytes = row.cache_bytes;
  target.matrix = row.matrix;
  target.converts = row.converts;
  target.exp2 = row.exp2;
  target.padding = row.padding;
  target.reorders = row.reorders;
  target.index_bits = row.index_bits;
  target.costs = row.costs;
  return target;
}

std::string Target::Key() const {
  return arch + "|" + cpu + "|" + features + "|" + std::to_string(vector_bytes) + "|" +
         std::to_string(vector_registers) + "|" + std::to_string(threads) + "|" +
         std::to_string(cache_bytes) + "|" + std::to_string(stream_bytes) + "|" +
         std::to_string(computes.bits()) + "|" + std::to_string(converts.bits()) + "|" +
         std::to_string(warp) + "|" + std::to_string(group_threads) + "|" +
         std::to_string(local_bytes) + "|" + std::to_string(stages ? 1 : 0) + "|" +
         std::to_string(vector_lanes) + "|" + std::to_string(align) + "|" +
         std::to_string(unit_cycles) + "|" + std::to_string(static_cast<int>(matrix)) + "|" +
         std::to_string(vector_rate) + "|" + std::to_string(winograd ? 1 : 0) + "|" +
         std::to_string(deterministic ? 1 : 0) + "|" + std::to_string(async_bytes) + "|" +
         std::to_string(levels.bits()) + "|" + std::to_string(static_cast<int>(padding)) + "|" +
         std::to_string(reorders ? 1 : 0) + "|" + std::to_string(index_bits) + "|" +
         std::to_string(static_cast<int>(costs)) + "|" + std::to_string(dots ? 1 : 0) + "|" +
         std::to_string(exp2 ? 1 : 0) + "|" + std::to_string(first_level_bytes);
}

std::optional<Target> Target::FromKey(std::string_view whole) {
  std::string_view key = whole;
  std::array<std::string_view, 30> parts;
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t end = i + 1 < parts.size() ? key.find('|') : key.size();
    if (end == std::string_view::npos) return std::nullopt;
    parts[i] = key.substr(0, end);
    key.remove_prefix(i + 1 < parts.size() ? end + 1 : end);
  }
  bool good = true;
  const auto number = [&](size_t i, auto value) {
    const auto [end, error] =
        std::from_chars(parts[i].data(), parts[i].data() + parts[i].size(), value);
    good &= error == std::errc() && end == parts[i].data() + parts[i].size();
    return value;
  };
  Target target;
  target.arch = parts[0];
  target.cpu = parts[1];
  target.features = parts[2];
  target.vector_bytes = number(3, 0);
  target.vector_registers = number(4, 0);
  target.threads = number(5, 0);
  target.cache_bytes = number(6, int64_t{0});
  target.stream_bytes = number(7, int64_t{0});
  target.computes = DTypeSet::FromBits(number(8, uint32_t{0}));
  target.converts = DTypeSet::FromBits(number(9, uint32_t{0}));
  target.warp = number(10, 0);
  target.group_threads = number(11, 0);
  target.local_bytes = number(12, int64_t{0});
  target.stages = number(13, 0) != 0;
  target.vector_lanes = number(14, 0);
  target.align = number(15, 0);
  target.unit_cycles = number(16, int64_t{0});
  const int matrix = number(17, 0);
  target.matrix = static_cast<MatrixUnit>(matrix);
  target.vector_rate = number(18, 0);
  target.winograd = number(19, 0) != 0;
  target.deterministic = number(20, 0) != 0;
  target.async_bytes = number(21, 0);
  const auto levels = number(22, uint32_t{0});
  target.levels = ParallelLevels::FromBits(levels);
  const int padding = number(23, 0);
  target.padding = static_cast<TilePadding>(padding);
  target.reorders = number(24, 0) != 0;
  good &= levels < uint32_t{1} << kParallelLevels;
  good &= padding >= 0 && padding <= static_cast<int>(TilePadding::kGates);
  target.index_bits = number(25, 0);
  const int costs = number(26, 0);
  target.costs = static_cast<CostRow>(costs);
  good &= costs >= 0 && costs <= static_cast<int>(kLastCostRow);
  target.dots = number(27, 0) != 0;
  target.exp2 = number(28, 0) != 0;
  target.first_level_bytes = number(29, int64_t{0});
  good &= matrix >= 0 && matrix <= static_cast<int>(kLastMatrixUnit);
  good &= target.vector_lanes >= 1 && target.align >= 1 && target.unit_cycles >= 1;
  good &= target.warp >= 1 && target.group_threads >= 1 && target.local_bytes >= 0;
  good &= target.vector_bytes >= 4 && target.vector_registers >= 1 && target.threads >= 1;
  good &= target.vector_rate >= 1 && target.async_bytes >= 0;
  good &= target.first_level_bytes >= 0;
  good &= target.index_bits == 32 || target.index_bits == 64;
  if (!good || target.Key() != whole) return std::nullopt;
  return target;
}

namespace {

// Whether the processor says that its units are 256 bits wide and not 512, as AMD's do: CPUID
// Fn8000_001A, EAX, bits 2 (FP256) and 3 (FP512) of the AMD64 Architecture Programmer's Manual,
// volume 3. An instruction for 512 bits then takes a unit twice.
bool HasUnitsOf256Bits() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x8000001a, &a, &b, &c, &d) != 0 && (a >> 2 & 3) == 1;
}

// Whether vectors of all the bytes that are used have VPDPBUSD, by AVX512_VNNI or AVX-VNNI: Intel
// SDM, CPUID, leaf 7.
bool HasDots(bool wide) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (wide) return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c >> 11 & 1) != 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
}

}  // namespace

Target HostShape(int threads) {
  Target target = TargetOf(TargetKind::kX86_64);
  target.winograd = true;
  if (__builtin_cpu_supports("avx512f") != 0) {
    target.vector_bytes = 64;
    target.vector_registers = 32;
    if (HasUnitsOf256Bits()) target.vector_rate = 1;
    target.dots = HasDots(/*wide=*/true);
  } else {
    target.vector_bytes = __builtin_cpu_supports("avx2") != 0 ? 32 : 16;
    target.vector_registers = 16;
    target.dots = target.vector_bytes == 32 && HasDots(/*wide=*/false);
  }
  // bf16's instruction flushes subnormals and is no CAST.
  if (__builtin_cpu_supports("f16c") != 0) target.converts = {DType::kFloat16};
  target.threads =
      threads >= 1 ? threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (const int64_t bytes = sysconf(_SC_LEVEL2_CACHE_SIZE); bytes > 0) target.cache_bytes = bytes;
  if (const int64_t bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE); bytes > 0) {
    target.first_level_bytes = bytes;
  }
  // What takes so much of the shared cache is gone from there before it is read again.
  constexpr int64_t kShare = 4, kLeast = int64_t{16} << 20;
  target.stream_bytes = std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE) / kShare, kLeast);
  return target;
}

std::optional<Target> NvidiaTarget(int major, int minor, int multiprocessors, int64_t local_bytes) {
  if (major < 8 || multiprocessors < 1) return std::nullopt;
  Target target = TargetOf(major == 9 && minor == 0 ? TargetKind::kSm90 : TargetKind::kSm80);
  target.threads = multiprocessors;
  target.local_bytes = local_bytes;
  return target;
}

namespace {

constexpr AmdProcessor kAmdProcessors[] = {
#define AMD_PROCESSOR(name, wave, features, matrix, flops, multiprocessors) \
  {#name, wave, features, MatrixUnit::matrix, flops, multiprocessors},
#include "engine/types/amd_processors.def"
#undef AMD_PROCESSOR
};

}  // namespace

std::span<const AmdProcessor> AmdProcessors() { return kAmdProcessors; }

const AmdProcessor* FindAmdProcessor(std::string_view name) {
  const auto* const found = std::ranges::find(kAmdProcessors, name, &AmdProcessor::name);
  return found == std::end(kAmdProcessors) ? nullptr : found;
}

Target AmdTarget(const AmdProcessor& processor, int multiprocessors, int64_t local_bytes) {
  Target target = TargetOf(TargetKind::kAmd);
  target.arch = processor.name;
  target.threads = multiprocessors;
  target.warp = processor.wave;
  target.matrix = processor.matrix;
  target.local_bytes = local_bytes;
  return target;
}

Target OpenClTarget(int units) {
  Target target = TargetOf(TargetKind::kOpenCl);
  target.threads = units;
  return target;
}

Target OpenClProcessor(int units, int vector_bytes) {
  Target target = TargetOf(TargetKind::kOpenClProcessor);
  target.threads = units;
  target.vector_bytes = vector_bytes;
  if (vector_bytes >= 64) target.vector_registers = 32;
  return target;
}

}  // namespace telegrad
