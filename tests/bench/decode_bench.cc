// A decoder generates a text on the CPU, a token at a time, with caches that grow: what is
// compiled, and what a token takes.
//
// Usage: decode_bench [LAYERS [HEADS [CHANNELS [TOKENS]]]]
// Prints the time of the first 1,000 tokens with what was compiled for them, and then, in
// microseconds, the median of tokens around some positions: in a second text, and where one
// position is run again and again.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "devices/cpu/cpu_device.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/execution/executable_cache.h"
#include "engine/frontend/tensor/host_tensor.h"
#include "engine/ir/content_hash.h"
#include "tests/bench/timing.h"
#include "tests/models/models.h"

namespace telegrad {
namespace {

constexpr int64_t kTokens = 1000;
constexpr int64_t kPositions[] = {8, 100, 500, 900};

class Decoder {
 public:
  absl::Status Open(const testing::DecoderShape& shape) {
    TG_ASSIGN_OR_RETURN(plan_, testing::DecodeStep(shape));
    hash_ = ContentHash(plan_.graph.root());
    CpuOptions options;
    options.target = HostTarget(0);
    TG_ASSIGN_OR_RETURN(device_, OpenCpu(options));
    for (const Slot& slot : plan_.slots) {
      const int64_t bytes = BytesOf(slot.dtype, NumElements(slot.shape));
      TG_ASSIGN_OR_RETURN(auto memory, device_->Alloc(std::max<int64_t>(bytes, 1)));
      if (slot.role == SlotRole::kState) {
        TG_ASSIGN_OR_RETURN(const HostTensor value, InitialValue(slot));
        std::memcpy(memory->host(), value.bytes.data(), value.bytes.size());
      }
      bindings_.push_back({std::move(memory), 0, bytes, NewContent()});
    }
    return absl::OkStatus();
  }

  // Seconds.
  absl::StatusOr<double> Step(int64_t position) {
    const double begin = bench::Seconds();
    const std::vector<VarValue> values{{plan_.variables[0].id, position}};
    std::shared_ptr<const Executable> executable = cache_.Find(hash_, *device_, values);
    if (executable == nullptr) {
      Budget budget;
      TG_ASSIGN_OR_RETURN(auto made, cache_.Get(hash_, plan_.graph, *device_, &budget, values));
      executable = std::move(made.executable);
    }
    TG_ASSIGN_OR_RETURN(const TimelinePoint end, executable->Submit(bindings_, {}));
    TG_RETURN_IF_ERROR(end.Wait());
    return bench::Seconds() - begin;
  }

  ExecutableCache::Stats stats() const { return cache_.stats(); }

 private:
  Plan plan_;
  Digest hash_;
  std::unique_ptr<Device> device_;
  std::vector<BufferView> bindings_;
  ExecutableCache cache_{ExecutableCache::Limits{}};
};

absl::Status Main(const testing::DecoderShape& shape) {
  Decoder decoder;
  TG_RETURN_IF_ERROR(decoder.Open(shape));
  double first = 0;
  for (int64_t i = 0; i < kTokens; ++i) {
    TG_ASSIGN_OR_RETURN(const double seconds, decoder.Step(i));
    first += seconds;
  }
  const ExecutableCache::Stats stats = decoder.stats();
  std::printf("%ld tokens: %.2f s, %lu forms, %lu kernels compiled\n", static_cast<long>(kTokens),
              first, static_cast<unsigned long>(stats.misses),
              static_cast<unsigned long>(stats.kernels_compiled));
  std::vector<double> all;
  for (int64_t i = 0; i < kTokens; ++i) {
    TG_ASSIGN_OR_RETURN(all.emplace_back(), decoder.Step(i));
  }
  for (const int64_t position : kPositions) {
    const auto from = all.begin() + position - 8;
    std::vector<double> again;
    for (int i = 0; i < 200; ++i) {
      TG_ASSIGN_OR_RETURN(again.emplace_back(), decoder.Step(position));
    }
    std::printf("position %ld: %.0f us, again and again %.0f us\n", static_cast<long>(position),
                bench::Median({from, from + 17}) * 1e6, bench::Median(again) * 1e6);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) {
  telegrad::testing::DecoderShape shape;
  if (argc > 1) shape.layers = std::atoi(argv[1]);
  if (argc > 2) shape.heads = std::atoi(argv[2]);
  if (argc > 3) shape.channels = std::atoi(argv[3]);
  if (argc > 4) shape.tokens = std::atoi(argv[4]);
  const absl::Status status = telegrad::Main(shape);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
