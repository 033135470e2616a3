// One process lists the devices and ends; then each device gets one of its own. A generation of a
// device (generations_device.h) is a process.
#include "devices/hosted/hosted_device.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <set>
#include <string_view>
#include <utility>

#include "devices/api/generations_device.h"
#include "devices/hosted/driver_process.h"
#include "devices/hosted/hosted_commands.h"
#include "devices/hosted/hosted_queue.h"
#include "engine/base/status.h"
#include "engine/process/child_process.h"

namespace telegrad {
namespace {

class HostedIdleMemory final : public IdleMemory {
 public:
  explicit HostedIdleMemory(std::shared_ptr<DriverProcess> process)
      : process_(std::move(process)) {}
  absl::StatusOr<int64_t> GiveBack() override {
    TG_ASSIGN_OR_RETURN(const HostedAnswer answer, process_->Ask(HostedOrder::kGiveBack));
    return answer.value;
  }

 private:
  const std::shared_ptr<DriverProcess> process_;
};

// The process at hand, or the last, for what goes on from one to the next.
struct CurrentProcess {
  Mutex mutex;
  std::shared_ptr<DriverProcess> process TG_GUARDED_BY(mutex);  // null: there was none
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
    const auto answer = process->Ask(HostedOrder::kSense);
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

// The number of a device from its name; nullopt for another driver's.
std::optional<int64_t> NumberOf(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(StrCat(prefix, ":"))) return std::nullopt;
  const std::string_view digits = name.substr(prefix.size() + 1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool all = error == std::errc() && end == digits.data() + digits.size();
  return all && number >= 0 ? std::optional(number) : std::nullopt;
}

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

// How one device is opened, each time.
class HostedOpening {
 public:
  HostedOpening(HostedOptions options, std::string name, int64_t number)
      : options_(std::move(options)), name_(std::move(name)), number_(number) {}

  absl::StatusOr<std::unique_ptr<Generation>> Open(uint64_t generation) {
    DriverProcess::Options process{.executable = options_.executable,
                                   .whose = StrCat(name_, "'s worker"),
                                   .setup = options_.setup,
                                   .environment = options_.environment,
                                   .hang_limit = options_.hang_limit,
                                   .stuck_limit = options_.stuck_limit};
    process.setup.only = number_;
    process.setup.generation = generation;
    WorkerEvent event;
    event.worker = process.whose;
    if (const auto before = Before()) event.ended = ToStd(before->Over().message());
    auto device = OpenIn(std::move(process), &event.pid);
    if (!device.ok()) event.ended = ToStd(device.status().message());
    if (options_.on_event) options_.on_event(event);
    TG_RETURN_IF_ERROR(device.status());
    return std::make_unique<HostedGeneration>(*std::move(device));
  }
  std::shared_ptr<Sensors> sensors() const {
    return senses_ ? std::make_shared<HostedSensors>(current_) : nullptr;
  }

 private:
  std::shared_ptr<DriverProcess> Before() {
    const MutexLock lock(current_->mutex);
    return current_->process;
  }

  absl::StatusOr<std::unique_ptr<HostedDevice>> OpenIn(DriverProcess::Options options, pid_t* pid) {
    TG_ASSIGN_OR_RETURN(auto process, DriverProcess::Start(std::move(options)));
    const HostedOpened& opened = process->opened();
    absl::Status status;
    if (opened.devices.size() != 1) {
      status = absl::UnavailableError(
          opened.notes.empty() ? StrCat(opened.devices.size(), " devices") : opened.notes[0]);
    } else {
      status = CheckFacts(opened.devices[0], name_);
    }
    if (!status.ok()) {
      process->Stop();
      return status;
    }
    HostedFacts facts = opened.devices[0];
    if (facts.target.features == kAskForAssembler) {
      facts.target.features = options_.assembler(facts.target.arch).value_or("");
    }
    senses_ = facts.senses;
    *pid = process->pid();
    {
      const MutexLock lock(current_->mutex);
      current_->process = process;
    }
    return std::make_unique<HostedDevice>(std::move(process), std::move(facts), options_);
  }

  const HostedOptions options_;
  const std::string name_;
  const int64_t number_;
  const std::shared_ptr<CurrentProcess> current_ = std::make_shared<CurrentProcess>();
  std::atomic<bool> senses_ = false;
};

}  // namespace

std::vector<std::unique_ptr<Device>> OpenHosted(const HostedOptions& given,
                                                std::vector<std::string>* notes) {
  const auto note = [&](std::string text) {
    if (notes != nullptr) notes->push_back(std::move(text));
  };
  std::vector<std::unique_ptr<Device>> out;
  HostedOptions options = given;
  if (options.executable.empty()) {
    auto executable = FindBeside("telegrad-device-worker", "the device worker");
    if (!executable.ok()) {
      note(StrCat(options.prefix, ": ", ToStd(executable.status().message())));
      return out;
    }
    options.executable = *std::move(executable);
  }
  std::vector<std::string> names;
  {
    const auto lister = DriverProcess::Start({.executable = options.executable,
                                              .whose = StrCat(options.prefix, "'s worker"),
                                              .setup = options.setup,
                                              .environment = options.environment});
    if (!lister.ok()) {
      note(StrCat(options.prefix, ": ", ToStd(lister.status().message())));
      return out;
    }
    for (const std::string& text : (*lister)->opened().notes) note(text);
    for (const HostedFacts& device : (*lister)->opened().devices) names.push_back(device.name);
    (*lister)->Stop();
  }
  std::set<int64_t> seen;
  for (const std::string& name : names) {
    const auto number = NumberOf(name, options.prefix);
    if (!number || !seen.insert(*number).second) {
      note(StrCat(options.prefix, ": its worker lists a device ", name));
      continue;
    }
    const auto opening = std::make_shared<HostedOpening>(options, name, *number);
    auto first = opening->Open(1);
    if (!first.ok()) {
      note(StrCat(name, " is left out: ", ToStd(first.status().message())));
      continue;
    }
    out.push_back(MakeGenerationsDevice(
        *std::move(first), [opening](uint64_t generation) { return opening->Open(generation); },
        opening->sensors()));
  }
  return out;
}

}  // namespace telegrad
