// What this processor is. Virtual machines mask names, so the name only tunes; the features are
// what CPUID says, one by one.
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_join.h"
#include "engine/base/strings.h"
#include "engine/compile/compiler.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/Host.h"

namespace telegrad {

Target HostTarget(int threads) {
  Target target;
  target.arch = "x86-64";
  target.cpu = llvm::sys::getHostCPUName().str();
  std::vector<std::string> features;
  const auto detected = llvm::sys::getHostCPUFeatures();
  for (const auto& feature : detected) {
    // LLVM 19's avx10.1 groups imply what the single features already say, and clash with them.
    if (!feature.second || feature.first().starts_with("avx10.1")) continue;
    features.push_back(
        StrCat("+", std::string_view(feature.first().data(), feature.first().size())));
  }
  std::ranges::sort(features);
  target.features = absl::StrJoin(features, ",");
  if (detected.lookup("avx512f")) {
    target.vector_bytes = 64;
    target.vector_registers = 32;
  } else {
    target.vector_bytes = detected.lookup("avx2") ? 32 : 16;
    target.vector_registers = 16;
  }
  // bf16's instruction flushes subnormals and is no CAST.
  if (detected.lookup("f16c")) target.converts = {DType::kFloat16};
  target.threads =
      threads >= 1 ? threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (const int64_t bytes = sysconf(_SC_LEVEL2_CACHE_SIZE); bytes > 0) target.cache_bytes = bytes;
  // What takes so much of the shared cache is gone from there before it is read again.
  constexpr int64_t kShare = 4, kLeast = int64_t{16} << 20;
  target.stream_bytes = std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE) / kShare, kLeast);
  return target;
}

}  // namespace telegrad
