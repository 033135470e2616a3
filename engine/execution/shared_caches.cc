#include "engine/execution/shared_caches.h"

namespace telegrad {

ExecutableCache::Stats SharedCaches::stats() const {
  const KernelStats compiled = kernels.stats();
  const auto relaxed = [](const auto& count) { return count.load(std::memory_order_relaxed); };
  ExecutableCache::Stats s;
  s.hits = relaxed(counters.hits);
  s.misses = relaxed(counters.misses);
  s.general_forms = relaxed(counters.general_forms);
  s.kernels_compiled = compiled.compiled;
  s.kernel_cache_hits = compiled.hits;
  s.schedule_hits = schedules.counts().hits;
  s.schedule_ns = relaxed(counters.schedule_ns);
  s.lower_ns = compiled.lower_ns;
  s.compile_ns = compiled.compile_ns;
  s.bounds = compiled.bounds;
  s.kernels_lowered_again = compiled.lowered_again;
  s.kernels_left_to_driver = compiled.left_to_driver;
  s.submissions = relaxed(runs->submissions);
  s.launches = relaxed(runs->launches);
  s.segments = relaxed(runs->segments);
  s.bytes_sent = relaxed(runs->bytes_sent);
  s.partitions = relaxed(runs->partitions);
  s.partitions_for_values = relaxed(runs->partitions_for_values);
  return s;
}

}  // namespace telegrad
