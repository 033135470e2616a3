// Plan, bind, submit. The launches are encoded once; a run only checks and passes its buffers.
// Temporaries of all executables of a device lie in one arena, because the device's queue runs one
// submission after another.
#include "engine/execution/executable.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "absl/container/flat_hash_map.h"
#include "engine/base/status.h"
#include "engine/execution/clock.h"
#include "engine/execution/kernel_cache.h"
#include "engine/schedule/schedule.h"

namespace telegrad {
namespace {

// The temporaries of a device's queue. Grows; a run in flight keeps the memory it was bound to.
class Arena {
 public:
  absl::StatusOr<std::shared_ptr<Memory>> AtLeast(Device& device, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (memory_ == nullptr || memory_->size() < bytes) {
      memory_.reset();
      TG_ASSIGN_OR_RETURN(memory_, device.Alloc(bytes));
    }
    return memory_;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Memory> memory_;
};

class PlannedExecutable : public Executable {
 public:
  std::span<const SlotUse> slots() const override { return slots_; }
  int num_launches() const override { return launches_; }
  int64_t temporary_bytes() const override { return arena_bytes_; }

  absl::StatusOr<TimelinePoint> Submit(std::span<const BufferView> bindings,
                                       std::span<const TimelinePoint> waits) const override {
    TG_RETURN_IF_ERROR(Check(bindings));
    std::vector<BufferView> bound;
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot].used && slots_[slot].bytes > 0) bound.push_back(bindings[slot]);
    }
    if (arena_bytes_ > 0) {
      TG_ASSIGN_OR_RETURN(std::shared_ptr<Memory> memory, arena_->AtLeast(*device_, arena_bytes_));
      bound.push_back({std::move(memory), 0, arena_bytes_});
    }
    total_launches_->fetch_add(static_cast<uint64_t>(launches_), std::memory_order_relaxed);
    return device_->queue().Submit(commands_, std::move(bound), waits);
  }

 private:
  friend absl::StatusOr<std::shared_ptr<const Executable>> Build(
      const FrozenGraph&, Device&, KernelCache&, std::shared_ptr<Arena>,
      std::shared_ptr<std::atomic<uint64_t>>, std::span<const VarValue>, Budget*, uint64_t*);

  absl::Status Check(std::span<const BufferView> bindings) const {
    if (bindings.size() < slots_.size()) {
      return InvalidArgument("run: ", bindings.size(), " buffers for ", slots_.size(), " slots");
    }
    for (size_t i = 0; i < slots_.size(); ++i) {
      const SlotUse& slot = slots_[i];
      if (!slot.used || slot.bytes == 0) continue;
      const BufferView& view = bindings[i];
      if (view.memory == nullptr) return InvalidArgument("run: slot ", i, " has no buffer");
      if (view.length < slot.bytes) {
        return InvalidArgument("run: the buffer of slot ", i, " has ", view.length,
                               " bytes, expected ", slot.bytes, " for ", Name(slot.dtype), " ",
                               ToString(slot.shape));
      }
      if (const int64_t align = BytesOf(slot.dtype, 1); view.offset % align != 0) {
        return InvalidArgument("run: the buffer of slot ", i, " starts at byte ", view.offset,
                               ", expected a multiple of ", align);
      }
    }
    return CheckOverlap(bindings);
  }

  // A written buffer overlaps no other: sorted by position, neighbours suffice to see it.
  absl::Status CheckOverlap(std::span<const BufferView> bindings) const {
    struct Part {
      const Memory* memory;
      int64_t begin, end;
      size_t slot;
    };
    std::vector<Part> parts;
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (!slots_[i].used || slots_[i].bytes == 0) continue;
      const int64_t begin = bindings[i].offset;
      parts.push_back({bindings[i].memory.get(), begin, begin + slots_[i].bytes, i});
    }
    std::ranges::sort(parts, [](const Part& a, const Part& b) {
      return std::tie(a.memory, a.begin) < std::tie(b.memory, b.begin);
    });
    // The part so far that reaches furthest, and the written one that does.
    const Part* furthest = nullptr;
    const Part* written = nullptr;
    for (const Part& p : parts) {
      for (const Part* before : {slots_[p.slot].written ? furthest : nullptr, written}) {
        if (before != nullptr && before->memory == p.memory && before->end > p.begin) {
          return InvalidArgument(
              "run: the buffers of slots ", before->slot, " and ", p.slot, " overlap, and slot ",
              slots_[before->slot].written ? before->slot : p.slot, " is written");
        }
      }
      const auto further = [&](const Part* best) {
        return best == nullptr || best->memory != p.memory || p.end > best->end;
      };
      if (further(furthest)) furthest = &p;
      if (slots_[p.slot].written && further(written)) written = &p;
    }
    return absl::OkStatus();
  }

  Device* device_ = nullptr;
  std::vector<SlotUse> slots_;
  std::shared_ptr<const CommandBuffer> commands_;
  std::vector<std::shared_ptr<const Kernel>> kernels_;
  std::shared_ptr<Arena> arena_;
  std::shared_ptr<std::atomic<uint64_t>> total_launches_;
  int64_t arena_bytes_ = 0;
  int launches_ = 0;
};

std::vector<SlotUse> CollectSlots(UOp sink) {
  std::vector<SlotUse> slots;
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = sink.graph()->at(id);
    if (!u.is(Op::kParam)) continue;
    const auto slot = static_cast<size_t>(u.arg(0));
    if (slots.size() <= slot) slots.resize(slot + 1);
    SlotUse& use = slots[slot];
    use.used = true;
    use.dtype = u.dtype();
    use.shape.assign(u.shape().begin(), u.shape().end());
    use.bytes = BytesOf(u.dtype(), NumElements(u.shape()));
  }
  return slots;
}

// Compiles the kernels of a schedule, several at a time.
absl::StatusOr<std::vector<std::shared_ptr<const Kernel>>> CompileKernels(const Schedule& schedule,
                                                                          Device& device,
                                                                          KernelCache& cache,
                                                                          Budget* all) {
  const size_t n = schedule.kernels.size();
  std::vector<std::shared_ptr<const Kernel>> kernels(n);
  std::atomic<size_t> next{0};
  std::mutex mutex;
  absl::Status status = absl::OkStatus();
  const auto work = [&] {
    for (size_t i = next++; i < n; i = next++) {
      Budget budget(all);
      auto kernel = cache.Get(schedule.kernels[i].graph, device, &budget);
      const std::lock_guard lock(mutex);
      if (!kernel.ok()) {
        if (status.ok()) status = kernel.status();
        next = n;
      } else {
        kernels[i] = *std::move(kernel);
      }
    }
  };
  const size_t helpers = std::min<size_t>(n, std::max(1u, std::thread::hardware_concurrency())) - 1;
  std::vector<std::thread> threads;
  for (size_t i = 0; n > 0 && i < helpers; ++i) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  TG_RETURN_IF_ERROR(status);
  return kernels;
}

absl::StatusOr<std::shared_ptr<const Executable>> Build(
    const FrozenGraph& graph, Device& device, KernelCache& cache, std::shared_ptr<Arena> arena,
    std::shared_ptr<std::atomic<uint64_t>> launches, std::span<const VarValue> variables,
    Budget* budget, uint64_t* schedule_ns) {
  const Stopwatch scheduling;
  TG_ASSIGN_OR_RETURN(const Schedule schedule, ScheduleGraph(graph.root(), variables, budget));
  *schedule_ns = scheduling.ns();
  auto out = std::make_shared<PlannedExecutable>();
  out->device_ = &device;
  out->arena_ = std::move(arena);
  out->total_launches_ = std::move(launches);
  out->slots_ = CollectSlots(graph.root());
  out->arena_bytes_ = schedule.arena_bytes;
  out->launches_ = static_cast<int>(schedule.kernels.size());
  if (out->arena_bytes_ > device.memory_limit()) {
    return ResourceExhausted("the graph's temporaries need ", out->arena_bytes_,
                             " bytes, over the device's limit of ", device.memory_limit());
  }
  TG_ASSIGN_OR_RETURN(out->kernels_, CompileKernels(schedule, device, cache, budget));

  std::vector<int32_t> binding(out->slots_.size(), -1);
  int32_t bindings = 0;
  for (size_t i = 0; i < out->slots_.size(); ++i) {
    if (out->slots_[i].used && out->slots_[i].bytes > 0) binding[i] = bindings++;
  }
  std::vector<Command> commands;
  for (size_t k = 0; k < schedule.kernels.size(); ++k) {
    const Kernel& kernel = *out->kernels_[k];
    Command command;
    command.launch.program = kernel.program;
    command.launch.iterations = kernel.iterations;
    command.launch.flops = kernel.flops;
    command.launch.bytes = kernel.bytes;
    for (size_t a = 0; a < kernel.arguments.size(); ++a) {
      const BufferRef ref = schedule.kernels[k].arguments[a];
      if (ref.kind == BufferRef::Kind::kSlot) {
        command.launch.arguments.push_back({binding[ref.index], 0});
        SlotUse& slot = out->slots_[ref.index];
        slot.read |= kernel.arguments[a].read;
        slot.written |= kernel.arguments[a].written;
      } else {
        command.launch.arguments.push_back({bindings, schedule.temporaries[ref.index].offset});
      }
    }
    commands.push_back(std::move(command));
  }
  TG_ASSIGN_OR_RETURN(out->commands_, device.Encode(std::move(commands)));
  return std::shared_ptr<const Executable>(std::move(out));
}

std::string Key(const Digest& hash, const Device& device, std::span<const VarValue> variables) {
  std::string key = std::string(hash.view()) + device.name() + device.target().Key();
  std::vector<VarValue> sorted(variables.begin(), variables.end());
  std::ranges::sort(sorted);
  for (const VarValue& v : sorted) StrAppend(&key, " ", v.id, "=", v.value);
  return key;
}

}  // namespace

struct ExecutableCache::Impl {
  struct Entry {
    std::shared_ptr<const Executable> executable;  // null while it is being made
    std::list<std::string>::iterator age;
  };

  Impl(const Limits& l, KernelServices services)
      : limits(l), kernels(l.kernels, std::move(services)) {}

  std::shared_ptr<Arena> ArenaOf(const Device& device) {
    const std::lock_guard lock(mutex);
    std::shared_ptr<Arena>& arena = arenas[device.name()];
    if (arena == nullptr) arena = std::make_shared<Arena>();
    return arena;
  }

  void Evict() {
    auto oldest = by_age.begin();
    while (static_cast<int64_t>(entries.size()) > limits.executables && oldest != by_age.end()) {
      const auto it = entries.find(*oldest);
      if (it->second.executable == nullptr) {
        ++oldest;
        continue;
      }
      entries.erase(it);
      oldest = by_age.erase(oldest);
    }
  }

  const Limits limits;
  KernelCache kernels;
  std::shared_ptr<std::atomic<uint64_t>> launches = std::make_shared<std::atomic<uint64_t>>(0);
  mutable std::mutex mutex;
  std::condition_variable made;
  absl::flat_hash_map<std::string, Entry> entries;
  std::list<std::string> by_age;  // least recently used first
  absl::flat_hash_map<std::string, std::shared_ptr<Arena>> arenas;
  uint64_t hits = 0, misses = 0, schedule_ns = 0;
};

ExecutableCache::ExecutableCache(const Limits& limits, KernelServices services)
    : impl_(std::make_unique<Impl>(limits, std::move(services))) {}
ExecutableCache::~ExecutableCache() = default;

absl::StatusOr<ExecutableCache::Result> ExecutableCache::Get(const Digest& hash,
                                                             const FrozenGraph& graph,
                                                             Device& device, Budget* budget,
                                                             std::span<const VarValue> variables) {
  const std::string key = Key(hash, device, variables);
  {
    std::unique_lock lock(impl_->mutex);
    while (true) {
      const auto it = impl_->entries.find(key);
      if (it == impl_->entries.end()) break;
      if (it->second.executable != nullptr) {
        ++impl_->hits;
        impl_->by_age.splice(impl_->by_age.end(), impl_->by_age, it->second.age);
        return Result{it->second.executable, true, 0};
      }
      impl_->made.wait(lock);
    }
    ++impl_->misses;
    impl_->by_age.push_back(key);
    impl_->entries.emplace(key, Impl::Entry{nullptr, std::prev(impl_->by_age.end())});
  }
  const Stopwatch all;
  uint64_t schedule_ns = 0;
  auto built = Build(graph, device, impl_->kernels, impl_->ArenaOf(device), impl_->launches,
                     variables, budget, &schedule_ns);
  const std::lock_guard lock(impl_->mutex);
  impl_->schedule_ns += schedule_ns;
  const auto it = impl_->entries.find(key);
  if (built.ok()) {
    it->second.executable = *built;
    impl_->Evict();
  } else {
    impl_->by_age.erase(it->second.age);
    impl_->entries.erase(it);
  }
  impl_->made.notify_all();
  if (!built.ok()) return built.status();
  return Result{*std::move(built), false, all.ns()};
}

std::shared_ptr<const Executable> ExecutableCache::Find(const Digest& hash, const Device& device,
                                                        std::span<const VarValue> variables) {
  const std::string key = Key(hash, device, variables);
  const std::lock_guard lock(impl_->mutex);
  const auto it = impl_->entries.find(key);
  if (it == impl_->entries.end() || it->second.executable == nullptr) return nullptr;
  ++impl_->hits;
  impl_->by_age.splice(impl_->by_age.end(), impl_->by_age, it->second.age);
  return it->second.executable;
}

ExecutableCache::Stats ExecutableCache::stats() const {
  const KernelStats kernels = impl_->kernels.stats();
  const std::lock_guard lock(impl_->mutex);
  Stats s;
  s.hits = impl_->hits;
  s.misses = impl_->misses;
  s.kernels_compiled = kernels.compiled;
  s.kernel_cache_hits = kernels.hits;
  s.schedule_ns = impl_->schedule_ns;
  s.lower_ns = kernels.lower_ns;
  s.compile_ns = kernels.compile_ns;
  s.bounds = kernels.bounds;
  s.launches = impl_->launches->load(std::memory_order_relaxed);
  return s;
}

}  // namespace telegrad
