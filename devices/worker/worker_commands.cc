// Launches, and copies within the worker's memory, go onto the ring, as many to a record as fit;
// other copies are done here, once the worker has ended what is before them.
#include "devices/worker/worker_commands.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {
namespace {

// Of a record, that the launch takes.
size_t WordsOf(const Launch& launch) {
  size_t words = 0;
  for (const Launch::Argument& argument : launch.arguments) {
    words += argument.map() != nullptr ? kMapWords : 1;
  }
  return words;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const WorkerCommands>> WorkerCommands::Encode(
    std::shared_ptr<WorkerSlot> slot, const void* device, int threads,
    std::vector<Command> commands) {
  auto out = std::make_shared<WorkerCommands>();
  out->slot_ = std::move(slot);
  TG_RETURN_IF_ERROR(out->Fill(std::move(commands)));
  out->threads_ = threads;
  for (const Command& command : out->commands()) {
    std::shared_ptr<const WorkerProgram> program;
    if (command.kind == CommandKind::kLaunch) {
      const size_t index = out->programs_.size();
      program = std::dynamic_pointer_cast<const WorkerProgram>(command.launch.program);
      if (program == nullptr || program->device() != device) {
        return InvalidArgument("command ", index, ": the program was not loaded on this device");
      }
      if (const absl::Status status = CheckHostGrid(command.launch); !status.ok()) {
        return InvalidArgument("command ", index, ": ", ToStd(status.message()));
      }
      if (const size_t words = WordsOf(command.launch); words > kRecordArguments) {
        return InvalidArgument("command ", index, ": a launch with arguments of ", words,
                               " words, expected at most ", kRecordArguments);
      }
    }
    out->times_.Add(command);
    out->programs_.push_back(std::move(program));
  }
  return out;
}

absl::Status WorkerCommands::Check(std::span<const BufferView> bindings) const {
  TG_RETURN_IF_ERROR(CommandList::Check(bindings));
  for (size_t i = 0; i < bindings.size(); ++i) {
    if (bindings[i].memory->host() == nullptr) {
      return InvalidArgument("binding ", i, " is not memory that the CPU can address");
    }
  }
  for (const Command& command : commands()) {
    if (command.kind == CommandKind::kCopy) continue;
    for (const Launch::Argument& argument : command.launch.arguments) {
      if (!argument.is_bound()) continue;
      const int32_t binding = argument.part().binding;
      const auto* own = dynamic_cast<const WorkerMemory*>(bindings[binding].memory.get());
      if (own == nullptr || &own->arena() != &slot_->arena()) {
        return InvalidArgument("binding ", binding,
                               " is not memory of the worker that runs the launch");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status WorkerCommands::LoadInto(DeviceWorker& worker) const {
  for (const auto& program : programs_) {
    if (program != nullptr) TG_RETURN_IF_ERROR(slot_->LoadInto(worker, program));
  }
  return absl::OkStatus();
}

// One run of them.
class WorkerCommands::Running {
 public:
  Running(const WorkerCommands& list, std::span<const BufferView> bindings,
          const RunControl& control)
      : list_(list), bindings_(bindings), control_(control) {}

  absl::Status Run() {
    if (list_.needs().compute) {
      TG_ASSIGN_OR_RETURN(worker_, list_.slot_->Ready());
      // One that has ended stays at hand until the supervisor looks, perhaps after it has started
      // others. What it was given and did not end still fills its ring: nothing more fits.
      TG_RETURN_IF_ERROR(worker_->KnownOver());
      TG_RETURN_IF_ERROR(LoadAll());
    }
    absl::Status status;
    for (size_t i = 0; status.ok() && i < list_.commands().size();) {
      if (control_.cancellation != nullptr) status = control_.cancellation->Check();
      if (!status.ok()) break;
      if (!IsWorkers(i)) {
        status = AwaitAll();
        if (status.ok()) CopyHere(i++);
        continue;
      }
      RingRecord* const record = worker_->Next();
      if (record == nullptr) {
        status = AwaitOne();
      } else {
        i = Fill(record, i);
      }
    }
    if (!status.ok() && !posted_.empty() && worker_->Over().ok()) worker_->CancelAll();
    const absl::Status rest = AwaitAll();
    return status.ok() ? rest : status;
  }

 private:
  struct Posted {
    uint64_t number;
    size_t first;  // command
    size_t count;
    int64_t since;  // when it was posted
  };

  absl::Status LoadAll() {
    if (list_.loaded_in_.lock() == worker_) return absl::OkStatus();
    TG_RETURN_IF_ERROR(list_.LoadInto(*worker_));
    list_.loaded_in_ = worker_;
    return absl::OkStatus();
  }

  char* At(const BoundPart& part) const {
    const BufferView& view = bindings_[part.binding];
    return static_cast<char*>(view.memory->host()) + view.offset + part.offset;
  }

  bool IsOwn(const BoundPart& part) const {
    const auto* own = dynamic_cast<const WorkerMemory*>(bindings_[part.binding].memory.get());
    return own != nullptr && &own->arena() == &list_.slot_->arena();
  }

  bool IsWorkers(size_t i) const {
    const Command& command = list_.commands()[i];
    if (command.kind == CommandKind::kLaunch) return true;
    return worker_ != nullptr && IsOwn(command.copy.to) && IsOwn(command.copy.from);
  }

  void CopyHere(size_t i) {
    const CopyBytes& copy = list_.commands()[i].copy;
    const int64_t begin = control_.events == nullptr ? 0 : SteadyNs();
    if (copy.length > 0) std::memcpy(At(copy.to), At(copy.from), copy.length);
    if (control_.events != nullptr) AddEvent(i, begin, SteadyNs());
  }

  void AddEvent(size_t i, int64_t begin, int64_t end) {
    TraceEvent event = list_.Describe(i);
    event.begin_ns = begin;
    event.end_ns = end;
    control_.events->push_back(std::move(event));
  }

  // As many commands from `i` as the record takes; the first that it does not.
  size_t Fill(RingRecord* record, size_t i) {
    const size_t first = i;
    uint32_t steps = 0, arguments = 0;
    const uint64_t base = reinterpret_cast<uint64_t>(list_.slot_->arena().base());
    const auto add = [&](const Launch::Argument& argument) {
      const uint64_t word = argument.is_bound()
                                ? reinterpret_cast<uint64_t>(At(argument.part())) - base
                                : argument.bits(control_.scalars);
      if (argument.map() != nullptr) {
        const HostTensorMap map{word, *argument.map()};
        record->word[arguments] = RingWord::kMap;
        std::memcpy(record->argument + arguments, &map, sizeof(map));
        arguments += kMapWords;
        return;
      }
      record->word[arguments] = argument.is_buffer() ? RingWord::kPlace : RingWord::kScalar;
      record->argument[arguments++] = word;
    };
    for (; i < list_.commands().size() && steps < kRecordSteps && IsWorkers(i); ++i, ++steps) {
      const Command& command = list_.commands()[i];
      RingStep& step = record->step[steps];
      if (command.kind == CommandKind::kCopy) {
        if (arguments + 2 > kRecordArguments) break;
        step = {0, 0, command.copy.length, 0, 2};
        for (const BoundPart& part : {command.copy.to, command.copy.from}) {
          add({part.binding, part.offset});
        }
        continue;
      }
      const Launch& launch = command.launch;
      const auto words = static_cast<uint32_t>(WordsOf(launch));
      if (arguments + words > kRecordArguments) break;
      step.program = list_.programs_[i]->id();
      step.begin = launch.begin;
      step.amount = launch.grid.x;
      step.helpers =
          static_cast<uint32_t>(list_.times_.helpers(i, control_.scalars, list_.threads_));
      step.arguments = words;
      for (const Launch::Argument& argument : launch.arguments) add(argument);
    }
    record->steps = steps;
    record->traced = control_.events != nullptr ? 1 : 0;
    const int64_t since = control_.events == nullptr ? 0 : SteadyNs();
    posted_.push_back({worker_->Post(), first, steps, since});
    return i;
  }

  absl::Status AwaitAll() {
    absl::Status first;
    while (!posted_.empty()) {
      absl::Status status = AwaitOne();
      if (first.ok()) first = std::move(status);
    }
    return first;
  }

  absl::Status AwaitOne() {
    if (posted_.empty()) return Internal("the ring is full of records that are not awaited");
    const Posted record = posted_.front();
    posted_.pop_front();
    const auto outcome = worker_->Await(record.number, control_.cancellation, [&](uint32_t step) {
      if (step >= record.count) return std::string();
      return list_.Describe(record.first + step).name;
    });
    if (outcome.died) {
      posted_.clear();
      return outcome.status;
    }
    if (control_.events != nullptr) Trace(record);
    return outcome.status;
  }

  // The worker's word for when, as far as it can be true.
  void Trace(const Posted& record) {
    int64_t at = record.since;
    const int64_t now = SteadyNs();
    for (size_t i = 0; i < record.count; ++i) {
      const RingTimes said = worker_->TimesOf(record.number, static_cast<uint32_t>(i));
      const int64_t begin = std::clamp(said.begin_ns, at, now);
      at = std::clamp(said.end_ns, begin, now);
      AddEvent(record.first + i, begin, at);
    }
  }

  const WorkerCommands& list_;
  const std::span<const BufferView> bindings_;
  const RunControl& control_;
  std::shared_ptr<DeviceWorker> worker_;
  std::deque<Posted> posted_;
};

absl::Status WorkerCommands::Run(std::span<const BufferView> bindings,
                                 const RunControl& control) const {
  return Running(*this, bindings, control).Run();
}

}  // namespace telegrad
