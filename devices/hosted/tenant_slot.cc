// Whoever uses the process at hand is counted, and it is ended by choice only while nobody does.
// Drivers are asked without the lock.
#include "devices/hosted/tenant_slot.h"

#include <algorithm>

#include "devices/api/command_list.h"
#include "devices/api/idle_at_once.h"
#include "devices/api/trace.h"
#include "devices/worker/short_lives.h"
#include "engine/base/device_lost.h"
#include "engine/base/status.h"
#include "engine/base/thread.h"

namespace telegrad {
namespace {

constexpr size_t kFewPrograms = 64;

// A tenant's memory, with what has to stay for as long.
struct HeldMemory {
  std::shared_ptr<TenantSlot> slot;
  std::shared_ptr<TenantBytes> bytes;
  std::shared_ptr<Memory> memory;

  HeldMemory(std::shared_ptr<TenantSlot> s, std::shared_ptr<TenantBytes> b,
             std::shared_ptr<Memory> m)
      : slot(std::move(s)), bytes(std::move(b)), memory(std::move(m)) {}
  HeldMemory(const HeldMemory&) = delete;
  HeldMemory& operator=(const HeldMemory&) = delete;
  ~HeldMemory() {
    const int64_t size = memory->size();
    memory = nullptr;
    bytes->Return(size);
  }
};

}  // namespace

void TenantBytes::Add(int64_t size) {
  const MutexLock lock(mutex_);
  ++count_;
  if (lost_) {
    used_->fetch_sub(size);
  } else {
    bytes_ += size;
  }
}

void TenantBytes::Return(int64_t size) {
  const MutexLock lock(mutex_);
  --count_;
  if (lost_) return;
  bytes_ -= size;
  used_->fetch_sub(size);
}

void TenantBytes::Lose() {
  const MutexLock lock(mutex_);
  if (!lost_) used_->fetch_sub(bytes_);
  lost_ = true;
}

bool TenantBytes::none() const {
  const MutexLock lock(mutex_);
  return lost_ || count_ == 0;
}

absl::StatusOr<std::shared_ptr<const TenantCommands>> TenantCommands::Encode(
    std::shared_ptr<TenantSlot> slot, const void* device, std::vector<Command> commands) {
  auto out = std::make_shared<TenantCommands>(slot, device, std::move(commands));
  // Copies are of any thread that has bytes, which is not to wait for the process.
  if (std::ranges::all_of(out->commands(),
                          [](const Command& one) { return one.kind == CommandKind::kCopy; })) {
    TG_ASSIGN_OR_RETURN(const auto checked, CommandList::Encode(out->commands()));
    out->scalars_ = checked->scalars();
    out->needs_ = checked->needs();
    return out;
  }
  TG_ASSIGN_OR_RETURN(const TenantSlot::Use use, slot->Open());
  TG_ASSIGN_OR_RETURN(const auto encoded, slot->Encode(*use, *out));
  out->scalars_ = encoded->scalars();
  out->needs_ = encoded->needs();
  return out;
}

TenantCommands::~TenantCommands() { slot_->Forget(*this); }

TenantSlot::Use::~Use() {
  if (slot_ == nullptr) return;
  const MutexLock lock(slot_->mutex_);
  if (--slot_->users_ == 0) slot_->unused_.notify_all();
}

TenantSlot::~TenantSlot() {
  Close();
  if (recovery_.joinable()) recovery_.join();
  if (preparer_.joinable()) preparer_.join();
}

void TenantSlot::Close() {
  std::unique_ptr<WorkerPlaces::Place> place;  // without the lock, as the next, which goes first
  std::unique_ptr<Device> last;
  ReleasableLock lock(mutex_);
  closed_ = true;
  wanted_.notify_all();
  while (users_ > 0) unused_.wait(lock);
  if (bytes_ != nullptr) bytes_->Lose();
  last.swap(device_);
  place.swap(place_);
  if (place != nullptr) place->NoteEnding();
  lock.unlock();
}

absl::StatusOr<std::unique_ptr<Device>> TenantSlot::Start(uint64_t generation) const {
  TG_ASSIGN_OR_RETURN(auto first, options_.opening->Open(generation));
  auto device = MakeGenerationsDevice(
      std::move(first),
      [opening = options_.opening](uint64_t number) { return opening->Open(number); }, nullptr,
      generation);
  if (std::ranges::equal(device->queues(), options_.queues, {}, &Queue::takes)) return device;
  return absl::UnavailableError(StrCat(options_.opening->whose(), " came with other queues"));
}

void TenantSlot::PutOff() {
  pause_ns_ = NextStartPauseNs(pause_ns_);
  next_try_ns_ = SteadyNs() + pause_ns_;
}

std::optional<TenantSlot::Use> TenantSlot::AtHand() {
  const MutexLock lock(mutex_);
  if (closed_ || device_ == nullptr) return std::nullopt;
  ++users_;
  return Use(this, device_.get());
}

absl::StatusOr<TenantSlot::Use> TenantSlot::Open() {
  {
    const MutexLock lock(mutex_);
    ++uses_;
    last_use_ns_ = SteadyNs();
  }
  if (auto use = AtHand()) return *std::move(use);
  const MutexLock one(starting_);
  if (auto use = AtHand()) return *std::move(use);
  uint64_t next;
  {
    const MutexLock lock(mutex_);
    if (closed_) return absl::CancelledError("the device was closed");
    if (!why_.ok() && SteadyNs() < next_try_ns_) return why_;
    next = generation_ + 1;
  }
  std::unique_ptr<WorkerPlaces::Place> place;
  if (options_.take) {
    TG_ASSIGN_OR_RETURN(place, options_.take(*this));
  }
  auto device = Start(next);  // where it is not stored, it goes without the lock
  ReleasableLock lock(mutex_);
  if (closed_) return absl::CancelledError("the device was closed");
  if (!device.ok()) {
    why_ = DeviceLostError(StrCat("the server cannot start ", options_.opening->whose(),
                                  " (generation ", next,
                                  "); its log says why: ask its operator, and try again"));
    PutOff();
    return why_;
  }
  device_ = *std::move(device);
  place_ = std::move(place);
  why_ = absl::OkStatus();
  pause_ns_ = next_try_ns_ = 0;
  ++users_;
  Use use(this, device_.get());
  lock.unlock();
  // One that has ended since it was started woke the keeper when that could not see it yet.
  if (options_.wake) options_.wake();
  return use;
}

absl::Status TenantSlot::Health() const {
  const MutexLock lock(mutex_);
  if (device_ != nullptr) return device_->Health();
  return SteadyNs() < next_try_ns_ ? why_ : absl::OkStatus();
}

uint64_t TenantSlot::generation() const {
  const MutexLock lock(mutex_);
  return device_ != nullptr ? device_->generation() : std::max<uint64_t>(generation_, 1);
}

absl::Status TenantSlot::Recover() {
  const auto use = AtHand();
  if (!use) return FailedPrecondition(options_.opening->whose(), " has not ended");
  return (*use)->Recover();
}

int64_t TenantSlot::footprint() {
  const auto use = AtHand();
  return use ? Possible((*use)->memory_footprint()) : 0;
}

int64_t TenantSlot::Possible(int64_t bytes) const {
  return std::clamp<int64_t>(bytes, 0, options_.memory_limit);
}

std::shared_ptr<TenantBytes> TenantSlot::BytesIn(Device& device) {
  const uint64_t generation = device.generation();
  const MutexLock lock(mutex_);
  if (bytes_ == nullptr || bytes_->generation() < generation) {
    if (bytes_ != nullptr) bytes_->Lose();
    bytes_ = std::make_shared<TenantBytes>(options_.used, generation);
  }
  return bytes_;
}

absl::StatusOr<std::shared_ptr<Memory>> TenantSlot::Alloc(const std::shared_ptr<TenantSlot>& slot,
                                                          int64_t size) {
  const auto use = slot->Open();
  if (!use.ok()) {
    slot->options_.used->fetch_sub(size);
    return use.status();
  }
  auto bytes = slot->BytesIn(**use);
  bytes->Add(size);
  auto memory = (*use)->Alloc(size);
  if (!memory.ok()) {
    bytes->Return(size);
    return memory.status();
  }
  // Lost and brought back meanwhile: whose memory it is, nobody can tell.
  if (const uint64_t now = (*use)->generation(); now != bytes->generation()) {
    memory->reset();
    bytes->Return(size);
    return DeviceLostError(StrCat(slot->options_.opening->whose(), " was replaced (generation ",
                                  now, ") while memory was allocated: try again"));
  }
  Memory* const raw = memory->get();
  return std::shared_ptr<Memory>(
      std::make_shared<HeldMemory>(slot, std::move(bytes), *std::move(memory)), raw);
}

absl::StatusOr<std::shared_ptr<LoadedProgram>> TenantSlot::Load(
    Device& device, const std::shared_ptr<const TenantProgram>& program) {
  {
    const MutexLock lock(mutex_);
    const auto known = programs_.find(program.get());
    if (known != programs_.end() && !known->second.of.expired()) return known->second.program;
  }
  TG_ASSIGN_OR_RETURN(auto loaded, device.Load(program->image()));
  std::vector<std::shared_ptr<LoadedProgram>> dropped;  // without the lock
  const MutexLock lock(mutex_);
  Loaded& place = programs_[program.get()];
  dropped.push_back(std::move(place.program));
  place = {program, loaded};
  if (programs_.size() < sweep_at_) return loaded;
  std::erase_if(programs_, [&](auto& entry) {
    if (!entry.second.of.expired()) return false;
    dropped.push_back(std::move(entry.second.program));
    return true;
  });
  sweep_at_ = 2 * programs_.size() + kFewPrograms;
  return loaded;
}

absl::StatusOr<std::shared_ptr<const CommandBuffer>> TenantSlot::Encode(
    Device& device, const TenantCommands& commands) {
  const uint64_t generation = device.generation();
  {
    const MutexLock lock(mutex_);
    const auto known = encoded_.find(&commands);
    if (known != encoded_.end() && known->second.generation == generation) {
      return known->second.commands;
    }
  }
  std::vector<Command> list = commands.commands();
  for (size_t i = 0; i < list.size(); ++i) {
    std::shared_ptr<LoadedProgram>& given = list[i].launch.program;
    if (list[i].kind != CommandKind::kLaunch || given == nullptr) continue;
    const auto program = std::dynamic_pointer_cast<const TenantProgram>(given);
    if (program == nullptr || program->device() != commands.device()) {
      return InvalidArgument("command ", i, ": the program was not loaded on ", device.name());
    }
    TG_ASSIGN_OR_RETURN(given, Load(device, program));
  }
  TG_ASSIGN_OR_RETURN(auto encoded, device.Encode(std::move(list)));
  Encoded dropped;  // without the lock
  const MutexLock lock(mutex_);
  Encoded& place = encoded_[&commands];
  dropped = std::exchange(place, {encoded, generation});
  return encoded;
}

// Where it is lost, to submit them fails at once.
bool TenantSlot::HasEncoded(const TenantCommands& commands) const {
  const auto known = encoded_.find(&commands);
  return device_ != nullptr && known != encoded_.end() &&
         (known->second.generation == device_->generation() || !device_->Health().ok());
}

TimelinePoint TenantSlot::Prepare(std::shared_ptr<const TenantCommands> commands) {
  const MutexLock lock(mutex_);
  if (closed_ || HasEncoded(*commands)) return {};
  for (const Preparation& known : preparations_) {
    if (known.commands == commands) return {known.ended, 1};
  }
  if (!preparer_.joinable()) {
    auto thread = StartThread([this] { PrepareAll(); });
    if (!thread.ok()) return {};  // whoever submits prepares
    preparer_ = *std::move(thread);
  }
  preparations_.push_back({std::move(commands)});
  wanted_.notify_all();
  return {preparations_.back().ended, 1};
}

void TenantSlot::PrepareAll() {
  while (true) {
    std::shared_ptr<const TenantCommands> commands;
    {
      ReleasableLock lock(mutex_);
      while (preparations_.empty() && !closed_) wanted_.wait(lock);
      if (preparations_.empty()) return;
      commands = preparations_.front().commands;
    }
    absl::Status status;
    {
      const auto use = Open();
      status = use.ok() ? Encode(**use, *commands).status() : use.status();
    }
    Preparation done;  // with which the slot may go
    {
      const MutexLock lock(mutex_);
      done = std::move(preparations_.front());
      preparations_.pop_front();
    }
    commands = nullptr;
    done.ended->Signal(1, status);
  }
}

void TenantSlot::Forget(const TenantCommands& commands) {
  std::shared_ptr<const CommandBuffer> dropped;  // without the lock
  const MutexLock lock(mutex_);
  const auto known = encoded_.find(&commands);
  if (known == encoded_.end()) return;
  dropped = std::move(known->second.commands);
  encoded_.erase(known);
}

bool TenantSlot::IsIdle() const {
  if (device_ == nullptr || users_ > 0 || recovering_) return false;
  if (bytes_ != nullptr && !bytes_->none()) return false;
  return std::ranges::all_of(device_->queues(), [](const Queue* queue) {
    const TimelinePoint last = queue->last();
    return last.timeline == nullptr || last.timeline->value() >= last.value;
  });
}

std::unique_ptr<TenantRemains> TenantSlot::TakeRemains() {
  auto remains = std::make_unique<TenantRemains>();
  for (auto& [key, loaded] : programs_) remains->programs.push_back(std::move(loaded.program));
  for (auto& [key, encoded] : encoded_) remains->commands.push_back(std::move(encoded.commands));
  programs_.clear();
  encoded_.clear();
  remains->device.swap(device_);
  remains->place.swap(place_);
  if (remains->place != nullptr) remains->place->NoteEnding();
  generation_ = remains->device->generation();
  options_.opening->Forget();  // before another one can be started
  return remains;
}

std::optional<int64_t> TenantSlot::End() {
  std::unique_ptr<TenantRemains> remains;
  {
    const MutexLock lock(mutex_);
    const bool used = uses_ != std::exchange(uses_seen_, uses_);
    if (used || !IsIdle()) return std::nullopt;
    remains = TakeRemains();
  }
  return Possible(remains->device->memory_footprint());
}

std::unique_ptr<TenantRemains> TenantSlot::EndIfIdle() {
  const MutexLock lock(mutex_);
  return IsIdle() ? TakeRemains() : nullptr;
}

int64_t TenantSlot::last_use_ns() const {
  const MutexLock lock(mutex_);
  return last_use_ns_;
}

absl::StatusOr<int64_t> TenantSlot::GiveBack() {
  uint64_t seen;
  {
    const MutexLock lock(mutex_);
    seen = uses_seen_;
  }
  if (const auto held = End()) return *held;
  const auto use = AtHand();
  const auto idle = use ? (*use)->idle_memory() : nullptr;
  if (idle == nullptr) return 0;
  auto bytes = idle->GiveBack();
  if (absl::IsFailedPrecondition(bytes.status())) {  // as if it had not been asked
    const MutexLock lock(mutex_);
    uses_seen_ = seen;
  }
  if (bytes.ok()) return Possible(*bytes);
  return bytes;
}

absl::StatusOr<int64_t> TenantSlot::GiveBackAll() {
  const auto use = AtHand();
  if (!use || (*use)->memory_footprint() <= (*use)->memory_used()) return 0;
  const auto idle = std::dynamic_pointer_cast<IdleMemoryAtOnce>((*use)->idle_memory());
  return idle == nullptr ? 0 : idle->GiveBackAll();
}

int64_t TenantSlot::Look(const std::function<void()>& wake) {
  constexpr int64_t kNever = INT64_MAX;
  {
    // Not as one more user: the tenant does nothing, and its process may be ended for another's.
    const MutexLock lock(mutex_);
    if (closed_ || device_ == nullptr) return kNever;
    // In this order: where the next generation comes in between, its memory is not taken for lost.
    const uint64_t generation = device_->generation();
    const bool lost = !device_->Health().ok();
    if (bytes_ != nullptr &&
        (bytes_->generation() < generation || (lost && bytes_->generation() == generation))) {
      bytes_->Lose();
    }
    if (!lost || recovering_) return kNever;
    const int64_t next = std::max(next_try_ns_, options_.opening->next_start_ns());
    if (SteadyNs() < next) return next;
    recovering_ = true;
  }
  if (recovery_.joinable()) recovery_.join();
  auto thread = StartThread([this, wake] {
    BringBack();
    wake();
  });
  if (thread.ok()) {
    recovery_ = *std::move(thread);
    return kNever;
  }
  const MutexLock lock(mutex_);
  recovering_ = false;
  PutOff();
  return next_try_ns_;
}

void TenantSlot::BringBack() {
  absl::Status recovered;
  if (const auto use = AtHand()) recovered = (*use)->Recover();
  const MutexLock lock(mutex_);
  recovering_ = false;
  if (recovered.ok() || absl::IsFailedPrecondition(recovered)) {
    pause_ns_ = next_try_ns_ = 0;
  } else {
    PutOff();
  }
}

}  // namespace telegrad
