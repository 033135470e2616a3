// A generation of a device (generations_device.h) is a process.
#include "devices/hosted/hosted_opening.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "devices/api/idle_at_once.h"
#include "devices/api/trace.h"
#include "devices/hosted/driver_process.h"
#include "devices/hosted/hosted_commands.h"
#include "devices/hosted/hosted_queue.h"
#include "devices/worker/short_lives.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace telegrad {

// The process at hand, or the last, for what goes on from one to the next.
struct CurrentProcess {
  Mutex mutex;
  std::shared_ptr<DriverProcess> process TG_GUARDED_BY(mutex);  // null: there was none
  bool counted TG_GUARDED_BY(mutex) = true;                     // that it has ended
  ShortLives lives TG_GUARDED_BY(mutex);
  int64_t next_start_ns TG_GUARDED_BY(mutex) = 0;
  std::string hardware TG_GUARDED_BY(mutex);  // what the first one opened, see OneDevice

  void Count() TG_REQUIRES(mutex) {
    if (counted || process == nullptr || !process->is_over()) return;
    counted = true;
    next_start_ns = process->ended_ns() + lives.Ended(process->EndedAtOnce());
  }
};

namespace {

class HostedIdleMemory final : public IdleMemoryAtOnce {
 public:
  explicit HostedIdleMemory(std::shared_ptr<DriverProcess> process)
      : process_(std::move(process)) {}
  absl::StatusOr<int64_t> GiveBack() override { return Ask(/*all=*/false); }
  absl::StatusOr<int64_t> GiveBackAll() override { return Ask(/*all=*/true); }

 private:
  // Whoever needs the memory, or asks others, too, does not wait for a process that does not
  // answer.
  absl::StatusOr<int64_t> Ask(bool all) {
    TG_ASSIGN_OR_RETURN(const HostedAnswer answer,
                        process_->Ask(
                            HostedOrder::kGiveBack,
                            [all](ByteWriter* out) { out->Word(static_cast<uint8_t>(all)); },
                            process_->hang_limit()));
    return answer.value;
  }

  const std::shared_ptr<DriverProcess> process_;
};

class HostedSensors final : public Sensors {
 public:
  explicit HostedSensors(std::shared_ptr<CurrentProcess> current) : current_(std::move(current)) {}

 private:
  Readings Ask() override {
    Readings readings;
    std::shared_ptr<DriverProcess> process;
    {
      const MutexLock lock(current_->mutex);
      process = current_->process;
    }
    if (process == nullptr) return readings;
    const auto answer = process->Ask(HostedOrder::kSense, {}, process->hang_limit());
    if (!answer.ok() || answer->told.size() != 2 * kNumSensors) return readings;
    for (size_t i = 0; i < kNumSensors; ++i) {
      if (answer->told[2 * i] != 0) readings[static_cast<Sensor>(i)] = answer->told[2 * i + 1];
    }
    return readings;
  }

  const std::shared_ptr<CurrentProcess> current_;
};

// One generation of it.
class HostedDevice final : public Device {
 public:
  HostedDevice(std::shared_ptr<DriverProcess> process, HostedFacts facts,
               const HostedOptions& options)
      : process_(std::move(process)), facts_(std::move(facts)) {
    std::vector<HostedQueue*> queues;
    for (size_t i = 0; i < facts_.queues.size(); ++i) {
      owned_.push_back(std::make_unique<HostedQueue>(
          process_, facts_.queues[i],
          HostedQueue::Options{i, std::max(options.queue_capacity, 1), options.wait_limit}));
      queues.push_back(owned_.back().get());
      queues_.push_back(owned_.back().get());
    }
    process_->SetQueues(std::move(queues));
  }
  ~HostedDevice() override {
    for (const auto& queue : owned_) queue->Drain();
    process_->Stop();
  }

  const std::string& name() const override { return facts_.name; }
  const Target& target() const override { return facts_.target; }
  int64_t memory_limit() const override { return facts_.memory_limit; }
  int64_t memory_used() const override { return process_->used()->load(); }
  int64_t memory_footprint() const override {
    return std::max(memory_used(), process_->footprint());
  }
  Rates rates() const override { return facts_.rates; }
  std::shared_ptr<IdleMemory> idle_memory() override {
    return std::make_shared<HostedIdleMemory>(process_);
  }
  bool host_visible() const override { return false; }

  absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t size) override {
    return HostedMemory::Alloc(process_, size);
  }
  absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const ProgramImage& image) override {
    return HostedProgram::Load(process_, image);
  }
  absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(
      std::vector<Command> commands) override {
    return HostedCommands::Encode(process_, std::move(commands));
  }
  std::span<Queue* const> queues() override { return queues_; }
  absl::Status Health() const override { return process_->Over(); }

 private:
  const std::shared_ptr<DriverProcess> process_;
  const HostedFacts facts_;
  std::vector<std::unique_ptr<HostedQueue>> owned_;
  std::vector<Queue*> queues_;  // these
};

class HostedGeneration final : public Generation {
 public:
  explicit HostedGeneration(std::unique_ptr<HostedDevice> device) : device_(std::move(device)) {}
  Device& device() override { return *device_; }
  // A process can always be ended, whatever it is at.
  absl::Status Close() override {
    device_ = nullptr;
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<HostedDevice> device_;
};

absl::Status CheckFacts(const HostedFacts& facts, const std::string& name) {
  if (facts.name != name) return InvalidArgument("it opened ", facts.name, " in place of ", name);
  if (facts.queues.empty() || facts.queues.size() > kHostedQueues) {
    return InvalidArgument("it has ", facts.queues.size(), " queues");
  }
  std::set<std::string_view> names;
  for (const HostedQueueFacts& queue : facts.queues) {
    if (!queue.name.starts_with(name + " ") || !names.insert(queue.name).second) {
      return InvalidArgument("it has a queue ", queue.name);
    }
  }
  return absl::OkStatus();
}

// As it asked for, or why it is not usable.
absl::StatusOr<HostedFacts> FactsIn(const HostedOpened& opened, const std::string& name,
                                    const HostedOptions& options) {
  if (!opened.device) {
    return absl::UnavailableError(opened.notes.empty() ? "it shows no such device"
                                                       : opened.notes[0]);
  }
  TG_RETURN_IF_ERROR(CheckFacts(*opened.device, name));
  HostedFacts facts = *opened.device;
  if (facts.target.features == kAskForAssembler) {
    facts.target.features = options.assembler(facts.target.arch).value_or("");
  }
  return facts;
}

}  // namespace

HostedOpening::HostedOpening(HostedOptions options, std::string name, int64_t number,
                             std::string_view tenant)
    : options_(std::move(options)),
      name_(std::move(name)),
      number_(number),
      whose_(tenant.empty() ? StrCat(name_, "'s worker")
                            : StrCat(name_, "'s worker of tenant ", tenant)),
      current_(std::make_shared<CurrentProcess>()) {}

DriverProcess::Options HostedOpening::Process(uint64_t generation) const {
  DriverProcess::Options process{.executable = options_.executable,
                                 .whose = whose_,
                                 .setup = options_.setup,
                                 .environment = options_.environment,
                                 .own_caches = options_.by_tenant,
                                 .hang_limit = options_.hang_limit,
                                 .stuck_limit = options_.stuck_limit,
                                 .run_limit = options_.run_limit,
                                 .longest_order = options_.longest_order,
                                 .short_life = options_.short_life,
                                 .on_over = options_.on_over};
  process.setup.only = number_;
  process.setup.generation = generation;
  const MutexLock lock(current_->mutex);
  if (!current_->hardware.empty()) process.setup.hardware = current_->hardware;
  return process;
}

absl::StatusOr<HostedFacts> HostedOpening::Describe(HostedOpened* said,
                                                    int64_t* context_bytes) const {
  TG_ASSIGN_OR_RETURN(const auto process, DriverProcess::Start(Process(1)));
  *said = process->opened();
  auto facts = FactsIn(*said, name_, options_);
  if (facts.ok() && context_bytes != nullptr) *context_bytes = ContextBytes(*facts);
  process->Stop();
  return facts;
}

// A process that is given no limit takes what is free when it has its context. Where this one was
// given one, that takes another beside it, to compare with.
int64_t HostedOpening::ContextBytes(const HostedFacts& facts) const {
  DriverProcess::Options options = Process(1);
  std::shared_ptr<DriverProcess> first, second;
  const auto limit = [&](std::shared_ptr<DriverProcess>* kept) -> int64_t {
    auto process = DriverProcess::Start(options);
    if (!process.ok()) return -1;  // then the device has room for no more than one
    *kept = *std::move(process);
    const auto& device = (*kept)->opened().device;
    return device ? device->memory_limit : -1;
  };
  int64_t alone = facts.memory_limit;
  if (std::exchange(options.setup.memory_limit, 0) != 0) alone = limit(&first);
  const int64_t beside = alone < 0 ? -1 : limit(&second);
  for (const auto& process : {first, second}) {
    if (process != nullptr) process->Stop();
  }
  // What others have taken meanwhile is not to keep tenants out.
  constexpr int64_t kMostPart = 8;
  return beside < 0 ? 0 : std::clamp<int64_t>(alone - beside, 0, facts.memory_limit / kMostPart);
}

absl::StatusOr<std::unique_ptr<Generation>> HostedOpening::Open(uint64_t generation,
                                                                HostedOpened* said) {
  WorkerEvent event;
  event.worker = whose_;
  DriverProcess::Options process = Process(generation);
  // The pause behind processes that ended at once, which nothing can end early: a rate, and not a
  // wait for an event. It is a second at most (short_lives.h), and the start that follows takes as
  // long; whoever opens waits for that anyway, on a thread for long work.
  std::this_thread::sleep_for(std::chrono::nanoseconds(next_start_ns() - SteadyNs()));
  {
    const MutexLock lock(current_->mutex);
    if (current_->process != nullptr) {
      event.ended = current_->process->OverWithOutput();
      event.pause = absl::Nanoseconds(current_->lives.pause_ns());
    }
    process.short_lives_before = current_->lives.in_a_row();
  }
  auto opened = OpenIn(std::move(process), said, &event.pid);
  // A machine without such a device has it left out, with the reason that its driver gave; nothing
  // has ended.
  const bool has_none = said != nullptr && said->shown >= 0 && !said->device;
  if (!opened.ok() && has_none) return opened;
  if (!opened.ok()) event.ended = ToStd(opened.status().message());
  if (options_.on_event) options_.on_event(event);
  return opened;
}

absl::StatusOr<std::unique_ptr<Generation>> HostedOpening::OpenIn(DriverProcess::Options options,
                                                                  HostedOpened* said, pid_t* pid) {
  TG_ASSIGN_OR_RETURN(auto process, DriverProcess::Start(std::move(options)));
  if (said != nullptr) *said = process->opened();
  auto facts = FactsIn(process->opened(), name_, options_);
  if (!facts.ok()) {
    process->Stop();
    return facts.status();
  }
  senses_ = facts->senses;
  *pid = process->pid();
  {
    const MutexLock lock(current_->mutex);
    current_->process = process;
    current_->counted = false;
    current_->hardware = process->opened().hardware;
  }
  return std::make_unique<HostedGeneration>(
      std::make_unique<HostedDevice>(std::move(process), *std::move(facts), options_));
}

void HostedOpening::Forget() {
  std::shared_ptr<DriverProcess> dropped;
  const MutexLock lock(current_->mutex);
  dropped.swap(current_->process);
}

int64_t HostedOpening::next_start_ns() const {
  const MutexLock lock(current_->mutex);
  current_->Count();
  return current_->next_start_ns;
}

std::shared_ptr<Sensors> HostedOpening::sensors() const {
  return senses_ ? std::make_shared<HostedSensors>(current_) : nullptr;
}

}  // namespace telegrad
