#include "engine/types/target.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <thread>

namespace telegrad {

std::string Target::Key() const {
  return arch + "|" + cpu + "|" + features + "|" + std::to_string(vector_bytes) + "|" +
         std::to_string(vector_registers) + "|" + std::to_string(threads) + "|" +
         std::to_string(cache_bytes) + "|" + std::to_string(stream_bytes) + "|" +
         std::to_string(computes.bits()) + "|" + std::to_string(converts.bits());
}

std::optional<Target> Target::FromKey(std::string_view whole) {
  std::string_view key = whole;
  std::array<std::string_view, 10> parts;
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
  good &= target.vector_bytes >= 1 && target.vector_registers >= 1 && target.threads >= 1;
  if (!good || target.Key() != whole) return std::nullopt;
  return target;
}

Target HostShape(int threads) {
  Target target;
  target.arch = "x86-64";
  if (__builtin_cpu_supports("avx512f") != 0) {
    target.vector_bytes = 64;
    target.vector_registers = 32;
  } else {
    target.vector_bytes = __builtin_cpu_supports("avx2") != 0 ? 32 : 16;
    target.vector_registers = 16;
  }
  // bf16's instruction flushes subnormals and is no CAST.
  if (__builtin_cpu_supports("f16c") != 0) target.converts = {DType::kFloat16};
  target.threads =
      threads >= 1 ? threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (const int64_t bytes = sysconf(_SC_LEVEL2_CACHE_SIZE); bytes > 0) target.cache_bytes = bytes;
  // What takes so much of the shared cache is gone from there before it is read again.
  constexpr int64_t kShare = 4, kLeast = int64_t{16} << 20;
  target.stream_bytes = std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE) / kShare, kLeast);
  return target;
}

}  // namespace telegrad
