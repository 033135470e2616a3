// What this processor is. Virtual machines mask names, so the name only tunes; the features are
// what CPUID says, one by one.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "engine/base/strings.h"
#include "engine/compile/compiler.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/Host.h"

namespace telegrad {

Target HostTarget(int threads) {
  Target target = HostShape(threads);
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
  return target;
}

}  // namespace telegrad
