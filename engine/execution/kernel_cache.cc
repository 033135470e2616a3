#include "engine/execution/kernel_cache.h"

#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status.h"
#include "engine/compile/build_identity.h"
#include "engine/compile/ptxas.h"
#include "engine/execution/clock.h"
#include "engine/ir/content_hash.h"
#include "engine/ir/text.h"
#include "engine/render/render.h"

namespace telegrad {
namespace {

KernelServices WithCompiler(KernelServices services) {
  if (services.compiler == nullptr) services.compiler = CompileInProcess();
  return services;
}

std::string Numbers(std::span<const int32_t> numbers) {
  std::string out;
  for (const int32_t n : numbers) StrAppend(&out, out.empty() ? "" : ",", n);
  return out;
}

// `text` as comments.
std::string Commented(std::string_view text) {
  std::string out = "# ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "# ";
  }
  return out + "\n";
}

FailedKernel Failure(UOp kernel, const std::string& name, const KernelSlots& slots,
                     const std::optional<std::string>& moves, const Target& target,
                     const absl::Status& status) {
  std::string flags = StrCat("--passes=lower --emit=object '--target=", target.Key(), "'");
  if (!slots.weights.empty()) StrAppend(&flags, " --weights=", Numbers(slots.weights));
  if (!slots.results.empty()) StrAppend(&flags, " --results=", Numbers(slots.results));
  if (moves) StrAppend(&flags, " '--moves=", moves->empty() ? "none" : *moves, "'");
  return {name, status,
          StrCat("# kernel ", name, " of the build ", ExecutableBuildId(), "\n",
                 Commented(ToStd(status.message())), "# telegrad-opt ", flags, " FILE\n",
                 Print(kernel)),
          flags};
}

}  // namespace

KernelCache::KernelCache(int64_t capacity, KernelServices services)
    : services_(WithCompiler(std::move(services))),
      cache_({.max_entries = capacity, .fair = true},
             [](const Kernel& k) { return k.code_bytes; }) {}

std::string KernelCache::StoreKey(const Named& kernel, const Target& target) const {
  const std::string& build = ExecutableBuildId();
  const std::string& compiler = services_.compiler->identity();
  if (services_.store == nullptr || build.empty() || compiler.empty()) return "";
  return StrCat("kernel ", kernel.hash, "\nweights ", Numbers(kernel.slots.weights), "\nresults ",
                Numbers(kernel.slots.results), "\ntarget ", target.Key(),
                kernel.found ? StrCat("\nmoves ", *kernel.found) : "", "\nlowered by ", build,
                "\ncompiled by ", compiler, "\n");
}

absl::StatusOr<std::shared_ptr<const Kernel>> KernelCache::Load(CompiledKernel compiled,
                                                                Device& device, Budget* budget) {
  auto out = std::make_shared<Kernel>();
  TG_ASSIGN_OR_RETURN(out->program, device.Load(compiled.image));
  for (const Program::Packing& packing : compiled.packings) {
    TG_ASSIGN_OR_RETURN(auto packs, Get(packing.kernel, device, budget));
    out->packings.push_back({packing.copy, packing.source, std::move(packs)});
  }
  out->name = std::move(compiled.image.name);
  out->code_bytes = static_cast<int64_t>(compiled.image.binary.size());
  out->arguments = std::move(compiled.arguments);
  out->iterations = compiled.iterations;
  out->flops = compiled.flops;
  out->bytes = compiled.bytes;
  out->groups = std::move(compiled.groups);
  out->moves = std::move(compiled.moves);
  return out;
}

std::optional<std::string> KernelCache::FoundFor(const std::string& key) const {
  if (services_.found == nullptr || key.empty()) return std::nullopt;
  const std::optional<FoundList> list = services_.found->Get(key);
  if (!list || !list->better) return std::nullopt;
  return list->moves;
}

// A list that the kernel cannot have is forgotten: the heuristic's takes its place. A budget that
// is used up says nothing of a list, which all tenants share.
absl::StatusOr<Program> KernelCache::LowerOne(const Named& kernel, const Target& target,
                                              Budget* budget, LoweringReport* report) {
  PassOptions options{
      .weights = kernel.slots.weights, .results = kernel.slots.results, .moves = kernel.found};
  auto program = Lower(kernel.graph, target, kernel.name, budget, report, options);
  if (program.ok() || !kernel.found) return program;
  TG_RETURN_IF_ERROR(budget->CheckTime());
  if (absl::IsResourceExhausted(program.status())) return program;
  services_.found->Reject(kernel.found_key, std::string(ToStd(program.status().message())));
  options.moves = std::nullopt;
  *report = {};
  return Lower(kernel.graph, target, kernel.name, budget, report, options);
}

std::shared_ptr<const Kernel> KernelCache::LoadStored(const std::string& store_key, Device& device,
                                                      Budget* budget) {
  if (store_key.empty()) return nullptr;
  auto stored = services_.store->Get(store_key);
  if (!stored) return nullptr;
  auto loaded = Load(*std::move(stored), device, budget);
  if (loaded.ok()) return *std::move(loaded);
  if (absl::IsInvalidArgument(loaded.status())) services_.store->Reject(store_key);
  return nullptr;
}

absl::StatusOr<CompiledKernel> KernelCache::LowerAndCompile(const Named& kernel,
                                                            const Target& target, Budget* budget,
                                                            LoweringTime* lowered) {
  const Clock& clock = *Clock::Steady();
  const int64_t begin_ns = clock.Ns();
  CompiledKernel out;
  LoweringReport report;
  TG_ASSIGN_OR_RETURN(Program program, LowerOne(kernel, target, budget, &report));
  TG_ASSIGN_OR_RETURN(const std::string source, Render(program, target));
  TG_RETURN_IF_ERROR(budget->SpendCode(static_cast<int64_t>(source.size())));
  const int64_t end_ns = clock.Ns();
  if (lowered != nullptr) lowered->Cover({begin_ns, end_ns});
  const Stopwatch compiling;
  const std::string what = StrCat("compiling kernel ", kernel.name);
  const Budget::Doing doing(budget, what);
  TG_ASSIGN_OR_RETURN(out.image, services_.compiler->Compile(source, kernel.name, target, budget));
  out.groups = RunGroups(program);
  out.bounds = report.bounds;
  out.arguments = std::move(program.arguments);
  out.packings = std::move(program.packings);
  out.iterations = program.iterations;
  out.flops = program.flops;
  out.bytes = program.bytes;
  out.moves = std::move(program.moves);

  const MutexLock lock(mutex_);
  ++stats_.compiled;
  stats_.lower_ns += static_cast<uint64_t>(end_ns - begin_ns);
  stats_.compile_ns += compiling.ns();
  stats_.bounds += out.bounds;
  stats_.lowered_again += report.refused.empty() ? 0 : 1;
  stats_.left_to_driver += IsLeftToDriver(target, out.image.binary) ? 1 : 0;
  return out;
}

// A driver may refuse the cubins of an assembler that is newer than it.
absl::StatusOr<std::shared_ptr<const Kernel>> KernelCache::LoadPtx(const Named& kernel,
                                                                   Device& device, Budget* budget,
                                                                   LoweringTime* lowered) {
  Target target = device.target();
  target.features.clear();
  TG_ASSIGN_OR_RETURN(CompiledKernel compiled, LowerAndCompile(kernel, target, budget, lowered));
  {
    const MutexLock lock(mutex_);
    ++stats_.left_to_driver;
  }
  return Load(std::move(compiled), device, budget);
}

absl::StatusOr<std::shared_ptr<const Kernel>> KernelCache::Make(const Named& kernel, Device& device,
                                                                Budget* budget,
                                                                LoweringTime* lowered) {
  const std::string store_key = StoreKey(kernel, device.target());
  if (auto stored = LoadStored(store_key, device, budget)) return stored;
  const auto make = [&]() -> absl::StatusOr<std::shared_ptr<const Kernel>> {
    const Target& target = device.target();
    TG_ASSIGN_OR_RETURN(CompiledKernel compiled, LowerAndCompile(kernel, target, budget, lowered));
    // What an assembler fails on once, as where its disk is full, the next daemon tries again.
    const bool left = IsLeftToDriver(target, compiled.image.binary);
    auto loaded = Load(compiled, device, budget);
    if (!absl::IsInvalidArgument(loaded.status())) {
      if (!store_key.empty() && !left) services_.store->Put(store_key, compiled);
      return loaded;
    }
    if (TakesPtx(target) && !left) loaded = LoadPtx(kernel, device, budget, lowered);
    if (!absl::IsInvalidArgument(loaded.status())) return loaded;
    return Internal("kernel ", kernel.name, ": ", ToStd(loaded.status().message()));
  };
  auto made = make();
  if (absl::IsInternal(made.status()) && services_.on_failure) {
    services_.on_failure(Failure(kernel.graph.root(), kernel.name, kernel.slots, kernel.found,
                                 device.target(), made.status()));
  }
  return made;
}

absl::StatusOr<std::shared_ptr<const Kernel>> KernelCache::Get(const FrozenGraph& kernel,
                                                               Device& device, Budget* budget,
                                                               const KernelSlots& slots,
                                                               LoweringTime* lowered) {
  const std::string hash = ContentHash(kernel.root()).Hex();
  Named named{kernel, hash, "k_" + hash.substr(0, 16), slots};
  if (services_.found != nullptr) {
    named.found_key = FoundMoves::Key(hash, slots.weights, device.target().Key());
    named.found = FoundFor(named.found_key);
  }
  const std::string key =
      StrCat(hash, "|", Numbers(slots.weights), "|", Numbers(slots.results), "|", device.name(),
             "|", device.target().Key(), "|", named.found ? *named.found : "");
  const auto make = [&]() -> absl::StatusOr<std::shared_ptr<const Kernel>> {
    TG_ASSIGN_OR_RETURN(const auto made, Make(named, device, budget, lowered));
    if (services_.found == nullptr) return made;
    auto known = std::make_shared<Kernel>(*made);
    known->found_key = named.found_key;
    known->found = named.found;
    if (services_.heat != nullptr) {
      known->heat = services_.heat->Know({named.found_key,
                                          named.name,
                                          kernel,
                                          {slots.weights.begin(), slots.weights.end()},
                                          device.name(),
                                          0,
                                          nullptr,
                                          {slots.results.begin(), slots.results.end()}},
                                         budget->share());
    }
    return known;
  };
  TG_ASSIGN_OR_RETURN(auto got, cache_.Get(key, budget, make));
  return std::move(got.value);
}

KernelStats KernelCache::stats() const {
  const MutexLock lock(mutex_);
  KernelStats stats = stats_;
  stats.hits = cache_.counts().hits;
  return stats;
}

}  // namespace telegrad
