// A queue of the device hands each submission to the same queue in the tenant's process. Work of
// one tenant follows in that queue; where the tenant changes, it waits here until what was
// submitted before has ended, however: so the GPU has work of one tenant at a time on each queue,
// as when one process serves all, and the time of a slice is its own.
#include "devices/hosted/tenants_device.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "devices/api/idle_at_once.h"
#include "devices/api/preparing_queue.h"
#include "devices/hosted/tenant_keeper.h"
#include "devices/hosted/tenant_slot.h"
#include "devices/hosted/worker_places.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

class TenantsQueue final : public Queue, public PreparingQueue {
 public:
  // Number `index` of the queues of `device`.
  TenantsQueue(const HostedQueueFacts& facts, const void* device, size_t index)
      : Queue(facts.name, facts.takes), device_(device), index_(index) {}

  TimelinePoint last() const override {
    const MutexLock lock(mutex_);
    return last_;
  }
  TimelinePoint Prepare(const std::shared_ptr<const CommandBuffer>& commands) override {
    auto own = std::dynamic_pointer_cast<const TenantCommands>(commands);
    if (own == nullptr || own->device() != device_) return {};
    TenantSlot& slot = own->slot();
    return slot.Prepare(std::move(own));
  }

 private:
  absl::StatusOr<TimelinePoint> Enqueue(QueueWork work,
                                        std::span<const TimelinePoint> waits) override {
    const auto* const own = dynamic_cast<const TenantCommands*>(work.commands.get());
    if (own == nullptr || own->device() != device_) {
      return InvalidArgument(name(), ": the commands were not encoded for its device");
    }
    // With memory that went with its process it does not wait for the next. With memory of the one
    // at hand, that has been asked by Prepare, if the submitter does so, and waits for nothing.
    for (const BufferView& view : work.bindings) {
      if (view.memory != nullptr) TG_RETURN_IF_ERROR(view.memory->Health());
    }
    TenantSlot& slot = own->slot();
    const std::shared_ptr<const CommandBuffer> kept = std::move(work.commands);  // and so the slot
    TG_ASSIGN_OR_RETURN(const TenantSlot::Use use, slot.Open());
    TG_ASSIGN_OR_RETURN(auto encoded, slot.Encode(*use, *own));
    work.commands = std::move(encoded);
    std::vector<TimelinePoint> all;
    const MutexLock lock(mutex_);
    for (const TimelinePoint& wait : waits) {
      if (wait.timeline == last_.timeline && wait.value > last_.value) {
        return InvalidArgument(name(), ": a wait for point ", wait.value, " of a queue that is at ",
                               last_.value);
      }
    }
    // First of all, so that no failure lets the work pass what is before it.
    if (last_of_ != &slot && last_.timeline->value() < last_.value) {
      const auto turn = std::make_shared<Timeline>();
      last_.timeline->OnReached(last_.value, [turn](const absl::Status&) { turn->Signal(1); });
      all.push_back({turn, 1});
    }
    all.insert(all.end(), waits.begin(), waits.end());
    TG_ASSIGN_OR_RETURN(last_, use->queues()[index_]->Submit(std::move(work), all));
    last_of_ = &slot;
    return last_;
  }

  const void* const device_;
  const size_t index_;
  mutable Mutex mutex_;
  TimelinePoint last_ TG_GUARDED_BY(mutex_) = {std::make_shared<Timeline>(), 0};
  // To be compared only: one that has gone has ended its work.
  const TenantSlot* last_of_ TG_GUARDED_BY(mutex_) = nullptr;
};

// What is the same for a device and all its tenants.
class TenantsCore : public std::enable_shared_from_this<TenantsCore> {
 public:
  TenantsCore(const HostedOptions& options, HostedFacts given, int64_t context_bytes,
              int64_t number, std::unique_ptr<TenantKeeper> keeper)
      : facts(std::move(given)), options_(options), number_(number), keeper_(std::move(keeper)) {
    options_.setup.memory_limit = facts.memory_limit;
    places =
        std::make_shared<WorkerPlaces>(WorkerPlaces::Options{.device = facts.name,
                                                             .most = options_.most_workers,
                                                             .memory_limit = facts.memory_limit,
                                                             .context_bytes = context_bytes,
                                                             .used = used});
    options_.on_over = keeper_->Waker();
    for (size_t i = 0; i < facts.queues.size(); ++i) {
      owned_.push_back(std::make_unique<TenantsQueue>(facts.queues[i], this, i));
      queues.push_back(owned_.back().get());
    }
  }

  std::shared_ptr<TenantSlot> NewSlot(std::string_view tenant) {
    TenantSlot::Options slot{
        .opening = std::make_shared<HostedOpening>(options_, facts.name, number_, tenant),
        .used = used,
        .memory_limit = facts.memory_limit,
        .wake = keeper_->Waker(),
        .take = [this](const TenantSlot& slot) { return TakePlace(slot); },
        .keeps = shared_from_this()};
    for (const HostedQueueFacts& queue : facts.queues) slot.queues.push_back(queue.takes);
    return keeper_->Keep(std::make_unique<TenantSlot>(std::move(slot)));
  }

  absl::StatusOr<std::shared_ptr<Memory>> Alloc(const std::shared_ptr<TenantSlot>& slot,
                                                int64_t size) {
    if (size < 0) return InvalidArgument(facts.name, ": an allocation of ", size, " bytes");
    TG_RETURN_IF_ERROR(Charge(size));  // first: what cannot be allocated costs others nothing
    if (Footprint() > facts.memory_limit - size) HaveOthersGiveBack(*slot);
    auto memory = TenantSlot::Alloc(slot, size);
    if (!absl::IsResourceExhausted(memory.status())) return memory;
    // It is within the limit: others keep what they have freed.
    HaveOthersGiveBack(*slot);
    TG_RETURN_IF_ERROR(Charge(size));
    return TenantSlot::Alloc(slot, size);
  }

  void Close() {
    for (const auto& slot : keeper_->slots()) slot->Close();
    keeper_->AwaitUnused();
  }
  int64_t Footprint() const {
    int64_t sum = 0;
    for (const auto& slot : keeper_->slots()) sum += slot->footprint();
    return sum;
  }
  // Of all, however many are at work: a tenant that always is keeps no other's process from ending.
  // What is at work is asked at the next call, as if it had not been at this one.
  absl::StatusOr<int64_t> GiveBack() {
    int64_t sum = 0;
    absl::Status first;
    for (const auto& slot : keeper_->slots()) {
      const auto bytes = slot->GiveBack();
      sum += bytes.value_or(0);
      // What was lost has given everything back, and what does not answer is asked again.
      if (!absl::IsUnavailable(bytes.status()) && !absl::IsFailedPrecondition(bytes.status()) &&
          !absl::IsDeadlineExceeded(bytes.status())) {
        first.Update(bytes.status());
      }
    }
    if (!first.ok()) return first;
    return sum;
  }
  // Null: none has any. One for all tenants, which asks the hardware once for all of them.
  std::shared_ptr<Sensors> sensors() {
    if (!facts.senses) return nullptr;
    return std::shared_ptr<Sensors>(shared_from_this(), &sensors_);
  }

  const HostedFacts facts;
  std::vector<Queue*> queues;
  // Bytes of memory and of contexts.
  const std::shared_ptr<std::atomic<int64_t>> used = std::make_shared<std::atomic<int64_t>>(0);
  std::shared_ptr<WorkerPlaces> places;

 private:
  class AnysSensors final : public Sensors {
   public:
    explicit AnysSensors(const TenantsCore& core) : core_(core) {}

   private:
    Readings Ask() override { return core_.Sense(); }

    const TenantsCore& core_;
  };

  // Of any process that tells: they have the same hardware.
  Readings Sense() const {
    for (const auto& slot : keeper_->slots()) {
      const auto sensors = slot->sensors();
      if (sensors == nullptr) continue;
      Readings readings = sensors->Read();
      for (int i = 0; i < kNumSensors; ++i) {
        if (readings[static_cast<Sensor>(i)]) return readings;
      }
    }
    return {};
  }
  absl::Status Charge(int64_t size) {
    int64_t before;
    if (places->Charge(size, &before)) return absl::OkStatus();
    const int64_t contexts = places->context_bytes();
    return ResourceExhausted(
        facts.name, ": allocating ", size, " bytes with ", before, " in use",
        contexts > 0 ? StrCat(", of which ", contexts, " are for the contexts of workers,") : "",
        " would exceed the memory limit of ", facts.memory_limit, " bytes");
  }
  absl::StatusOr<std::unique_ptr<WorkerPlaces::Place>> TakePlace(const TenantSlot& slot) {
    return places->Take([&] { HaveOthersGiveBack(slot); }, [&] { return EndAnIdleOne(slot); });
  }
  // The one that has been unused for longest.
  bool EndAnIdleOne(const TenantSlot& but) {
    auto slots = keeper_->slots();
    std::ranges::sort(slots, {}, &TenantSlot::last_use_ns);
    for (const auto& slot : slots) {
      if (slot.get() == &but) continue;
      if (auto remains = slot->EndIfIdle()) {
        keeper_->Discard(std::move(remains));
        return true;
      }
    }
    return false;
  }
  // What cannot be asked, or refuses, keeps it.
  void HaveOthersGiveBack(const TenantSlot& but) {
    for (const auto& slot : keeper_->slots()) {
      if (slot.get() != &but) (void)slot->GiveBackAll();
    }
  }

  HostedOptions options_;
  const int64_t number_;
  std::vector<std::unique_ptr<TenantsQueue>> owned_;
  const std::unique_ptr<TenantKeeper> keeper_;
  AnysSensors sensors_{*this};
};

class TenantsIdleMemory final : public IdleMemory {
 public:
  explicit TenantsIdleMemory(std::shared_ptr<TenantsCore> core) : core_(std::move(core)) {}
  absl::StatusOr<int64_t> GiveBack() override { return core_->GiveBack(); }

 private:
  const std::shared_ptr<TenantsCore> core_;
};

// As one tenant uses it; "": the device itself, with which all that it runs for anybody ends.
class TenantsDevice final : public Device {
 public:
  TenantsDevice(std::shared_ptr<TenantsCore> core, std::string_view tenant)
      : core_(std::move(core)), whole_(tenant.empty()), slot_(core_->NewSlot(tenant)) {}
  ~TenantsDevice() override {
    if (whole_) core_->Close();
  }

  const std::string& name() const override { return core_->facts.name; }
  const Target& target() const override { return core_->facts.target; }
  int64_t memory_limit() const override { return core_->facts.memory_limit; }
  int64_t memory_used() const override {
    return std::max<int64_t>(core_->used->load() - core_->places->context_bytes(), 0);
  }
  Rates rates() const override { return core_->facts.rates; }
  int64_t memory_footprint() const override { return core_->Footprint(); }
  std::shared_ptr<IdleMemory> idle_memory() override {
    return std::make_shared<TenantsIdleMemory>(core_);
  }
  std::shared_ptr<Sensors> sensors() override { return core_->sensors(); }
  bool host_visible() const override { return false; }

  std::shared_ptr<Device> ForTenant(std::string_view tenant) override {
    return std::make_shared<TenantsDevice>(core_, tenant);
  }

  absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t size) override {
    return core_->Alloc(slot_, size);
  }
  absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const ProgramImage& image) override {
    auto program = std::make_shared<TenantProgram>(core_.get(), image);
    TG_ASSIGN_OR_RETURN(const TenantSlot::Use use, slot_->Open());
    TG_RETURN_IF_ERROR(slot_->Load(*use, program).status());
    return program;
  }
  absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(
      std::vector<Command> commands) override {
    return TenantCommands::Encode(slot_, core_.get(), std::move(commands));
  }
  std::span<Queue* const> queues() override { return core_->queues; }
  absl::Status Health() const override { return slot_->Health(); }
  uint64_t generation() const override { return slot_->generation(); }
  absl::Status Recover() override { return slot_->Recover(); }

 private:
  const std::shared_ptr<TenantsCore> core_;
  const bool whole_;
  const std::shared_ptr<TenantSlot> slot_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenForTenants(const HostedOptions& options,
                                                       const std::string& name, int64_t number,
                                                       HostedOpened* said) {
  const HostedOpening opening(options, name, number);
  int64_t context_bytes = 0;
  TG_ASSIGN_OR_RETURN(HostedFacts facts, opening.Describe(said, &context_bytes));
  TG_ASSIGN_OR_RETURN(auto keeper, TenantKeeper::Start());
  HostedOptions of_this = options;
  of_this.setup.hardware = said->hardware;
  return std::make_unique<TenantsDevice>(
      std::make_shared<TenantsCore>(of_this, std::move(facts), context_bytes, number,
                                    std::move(keeper)),
      "");
}

}  // namespace telegrad
