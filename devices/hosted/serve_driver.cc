// The first thread answers pings, so that the daemon can tell by its use of the processor whether
// the process hangs or is waiting for one. Another one reads the orders. It submits runs and copies
// itself, since a queue takes them without waiting, and leaves what a driver may take long for to a
// few other threads: what is allocated, loaded and encoded is used only when it has been answered.
// The first copy of a queue has its part of the staging memory locked, once, so that the GPU copies
// from and to it, and no thread of the driver copies the bytes once more.
// Outcomes are written by whichever thread of the driver reaches the points.
#include "devices/hosted/serve_driver.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include "devices/api/futex.h"
#include "devices/api/idle_at_once.h"
#include "devices/api/locks_host_memory.h"
#include "devices/api/shared_memory.h"
#include "devices/hosted/hosted_control.h"
#include "devices/worker/lockdown.h"
#include "engine/base/device_lost.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/base/unique_fd.h"
#include "engine/process/frame.h"

namespace telegrad {
namespace {

constexpr int kBroken = 1;
constexpr int kRequestThreads = 4;
constexpr size_t kCopyLengths = 64;  // of which the encoded command is kept
constexpr int64_t kStagingPart = kStagingBlocks * kStagingBlock;  // bytes of a queue

class StagingMemory final : public Memory {
 public:
  explicit StagingMemory(const SharedMapping& mapping) : Memory(mapping.base(), mapping.size()) {}
};

// What of the daemon's descriptors and of the driver the server has.
struct Hosting {
  int socket = -1;
  std::unique_ptr<SharedMapping> control, staging;
  UniqueFd bell;
  std::unique_ptr<Device> device;
  int64_t pinned = 0;  // see HostedSetup
};

class DriverServer {
 public:
  explicit DriverServer(Hosting hosting)
      : hosting_(std::move(hosting)),
        control_(*reinterpret_cast<HostedControl*>(hosting_.control->base())),
        device_(*hosting_.device),
        staging_(std::make_shared<StagingMemory>(*hosting_.staging)) {
    for (size_t i = 0; i < device_.queues().size(); ++i) queues_.emplace_back().index = i;
  }

  [[noreturn]] void Serve() {
    std::thread([this] { _exit(TakeOrders()); }).detach();
    for (int i = 0; i < kRequestThreads; ++i) std::thread([this] { AnswerRequests(); }).detach();
    while (true) {
      const uint32_t ping = control_.ping.load();
      control_.pong.store(ping);
      FutexWait(control_.ping, ping, kForeverNs);
    }
  }

 private:
  struct QueueState {
    size_t index = 0;
    // The last submission in each place of the ring; of the thread that reads orders.
    struct Sent {
      uint64_t number = 0;
      TimelinePoint point;
    };
    std::array<Sent, kHostedFlights> sent = {};
    Mutex mutex;
    uint64_t ended TG_GUARDED_BY(mutex) = 0;              // all up to this one
    std::set<uint64_t> ended_early TG_GUARDED_BY(mutex);  // behind those
    std::map<uint64_t, std::shared_ptr<Cancellation>> cancellations TG_GUARDED_BY(mutex);
  };

  int TakeOrders() {
    while (true) {
      auto frame = ReadFrame(hosting_.socket, kMaxHostedOrder);
      if (absl::IsUnavailable(frame.status())) return 0;  // the daemon has gone
      if (!frame.ok() || !Take(*std::move(frame))) return kBroken;
    }
  }

  bool Say(std::string_view frame) {
    const MutexLock lock(saying_);
    return WriteFrame(hosting_.socket, frame).ok();
  }

  bool Take(std::string frame) {
    ByteReader in(frame);
    switch (ReadKind(&in, HostedOrder::kCancel)) {
      case HostedOrder::kDrop:
        return Drop(&in);
      case HostedOrder::kRun:
        return Submit(ReadHostedRun(&in));
      case HostedOrder::kCopy:
        return Submit(ReadHostedCopy(&in));
      case HostedOrder::kCancel:
        return Cancel(&in);
      default: {
        const MutexLock lock(mutex_);
        requests_.push_back(std::move(frame));
        requested_.notify_one();
        return true;
      }
    }
  }

  bool Drop(ByteReader* in) {
    const size_t count = in->Count();
    std::vector<std::shared_ptr<const void>> gone;  // dropped without the lock
    const MutexLock lock(mutex_);
    for (size_t i = 0; i < count; ++i) {
      const auto id = in->Word<uint64_t>();
      if (auto it = memories_.extract(id)) gone.push_back(std::move(it.mapped()));
      if (auto it = programs_.extract(id)) gone.push_back(std::move(it.mapped()));
      if (auto it = commands_.extract(id)) gone.push_back(std::move(it.mapped()));
    }
    return in->Done();
  }

  bool Cancel(ByteReader* in) {
    const auto queue = in->Word<uint32_t>();
    const auto number = in->Word<uint64_t>();
    if (!in->Done() || queue >= queues_.size()) return false;
    QueueState& state = queues_[queue];
    const MutexLock lock(state.mutex);
    const auto it = state.cancellations.find(number);
    if (it != state.cancellations.end()) it->second->Cancel();
    return true;
  }

  // Of the staging memory, by the thread that reads orders. To lock a queue's part takes as long as
  // to copy a few blocks, and where the driver does not, its queue copies as from any memory.
  BufferView StagingView(const HostedView& view) {
    const int64_t part = view.offset / kStagingPart, at = view.offset % kStagingPart;
    const BufferView whole{staging_, view.offset, view.length};
    if (part < 0 || part >= std::ssize(parts_) || view.length > kStagingPart - at) return whole;
    StagingPart& own = parts_[static_cast<size_t>(part)];
    auto* const locks = dynamic_cast<LocksHostMemory*>(&device_);
    if (!own.was_asked && locks != nullptr && locked_ + kStagingPart <= hosting_.pinned) {
      own.was_asked = true;
      auto* const pages = hosting_.staging->base() + part * kStagingPart;
      auto locked = locks->LockHost({pages, [](void*) {}}, kStagingPart);
      if (locked.ok()) {
        own.memory = *std::move(locked);
        locked_ += kStagingPart;
      }
    }
    return own.memory == nullptr ? whole : BufferView{own.memory, at, view.length};
  }

  std::optional<BufferView> ViewOf(const HostedView& view) {
    if (view.memory == kStagingId) return StagingView(view);
    const MutexLock lock(mutex_);
    const auto it = memories_.find(view.memory);
    if (it == memories_.end()) return std::nullopt;
    return BufferView{it->second, view.offset, view.length};
  }

  absl::StatusOr<QueueWork> WorkOf(const HostedRun& run) {
    QueueWork work;
    for (const HostedView& view : run.bindings) {
      auto bound = ViewOf(view);
      if (!bound) return Internal("memory ", view.memory, " is not there");
      work.bindings.push_back(*std::move(bound));
    }
    work.scalars = run.scalars;
    if (run.trace != HostedTrace::kNone) {
      work.trace = std::make_shared<RunTrace>(run.trace == HostedTrace::kDetailed);
    }
    const MutexLock lock(mutex_);
    const auto it = commands_.find(run.commands);
    if (it == commands_.end()) return Internal("commands ", run.commands, " are not there");
    work.commands = it->second;
    return work;
  }

  absl::StatusOr<QueueWork> WorkOf(const HostedCopy& copy) {
    QueueWork work;
    for (const HostedView& view : {copy.to, copy.from}) {
      auto bound = ViewOf(view);
      if (!bound) return Internal("memory ", view.memory, " is not there");
      work.bindings.push_back(*std::move(bound));
    }
    if (copy_commands_.size() >= kCopyLengths) copy_commands_.clear();
    auto& commands = copy_commands_[copy.to.length];
    if (commands == nullptr) {
      Command command;
      command.kind = CommandKind::kCopy;
      command.copy = {.to = {0, 0}, .from = {1, 0}, .length = copy.to.length};
      TG_ASSIGN_OR_RETURN(commands, device_.Encode({std::move(command)}));
    }
    work.commands = commands;
    return work;
  }

  template <typename Order>
  bool Submit(const Order& order) {
    const auto [index, number] = order.point;
    if (index >= queues_.size()) return false;
    QueueState& state = queues_[index];
    std::vector<TimelinePoint> waits;
    for (const HostedPoint& wait : order.waits) {
      if (wait.queue >= queues_.size()) return false;
      const auto& sent = queues_[wait.queue].sent[wait.number % kHostedFlights];
      // One that had ended before the place was needed again is waited for no more, and the daemon
      // sees how it ended.
      if (sent.number == wait.number) waits.push_back(sent.point);
    }
    const auto cancellation = std::make_shared<Cancellation>();
    {
      const MutexLock lock(state.mutex);
      state.cancellations[number] = cancellation;
    }
    std::shared_ptr<RunTrace> trace;
    const auto submit = [&]() -> absl::StatusOr<TimelinePoint> {
      TG_ASSIGN_OR_RETURN(QueueWork work, WorkOf(order));
      work.cancellation = cancellation;
      trace = work.trace;
      return device_.queues()[index]->Submit(std::move(work), waits);
    };
    auto point = submit();
    if (!point.ok()) {  // those behind it wait for a point that has failed
      const auto failed = std::make_shared<Timeline>();
      failed->Signal(1, point.status());
      point = TimelinePoint{failed, 1};
    }
    state.sent[number % kHostedFlights] = {number, *point};
    point->timeline->OnReached(point->value,
                               [this, &state, number = number, trace](const absl::Status& status) {
                                 Ended(state, number, status, trace.get());
                               });
    return true;
  }

  void Ended(QueueState& state, uint64_t number, const absl::Status& status,
             const RunTrace* trace) {
    if (!status.ok()) TellLoss();
    const bool detailed = trace != nullptr && trace->detailed();
    if (detailed) {
      HostedTimes told{.point = {static_cast<uint32_t>(state.index), number}};
      for (const TraceEvent& event : trace->events()) {
        if (told.times.size() == kMaxHostedTimes) break;
        told.times.emplace_back(event.begin_ns, event.end_ns);
      }
      (void)Say(EncodeHostedTimes(told));
    }
    HostedQueueWords& words = control_.queues[state.index];
    HostedOutcome& outcome = words.OutcomeOf(number);
    const std::string_view text = ToStd(status.message()).substr(0, kHostedMessage);
    outcome.code = static_cast<int32_t>(status.code());
    outcome.lost = IsDeviceLost(status) ? 1 : 0;
    outcome.traced = detailed ? 1 : 0;
    outcome.device_ns = trace == nullptr ? 0 : trace->ns();
    outcome.message_bytes = static_cast<uint32_t>(text.size());
    std::ranges::copy(text, outcome.message.begin());
    {
      const MutexLock lock(state.mutex);
      state.cancellations.erase(number);
      state.ended_early.insert(number);
      while (state.ended_early.erase(state.ended + 1) != 0) ++state.ended;
      words.ended.value.store(state.ended);
    }
    if (control_.asleep.load() == 0) return;
    const uint64_t one = 1;
    (void)!write(hosting_.bell.get(), &one, sizeof(one));
  }

  // Before the outcomes of what was lost with it.
  void TellLoss() {
    const absl::Status health = device_.Health();
    if (health.ok() || told_loss_.exchange(true)) return;
    (void)Say(EncodeHostedLoss(ToStd(health.message())));
  }

  void AnswerRequests() {
    while (true) {
      std::string frame;
      {
        ReleasableLock lock(mutex_);
        while (requests_.empty()) requested_.wait(lock);
        frame = std::move(requests_.front());
        requests_.pop_front();
      }
      ByteReader in(frame);
      const auto kind = ReadKind(&in, HostedOrder::kCancel);
      HostedAnswer answer{.request = in.Word<uint64_t>()};
      answer.status = Do(kind, &in, &answer);
      answer.footprint = device_.memory_footprint();
      if (!answer.status.ok()) TellLoss();
      if (!Say(EncodeHostedAnswer(answer))) _exit(kBroken);
    }
  }

  absl::Status Do(HostedOrder kind, ByteReader* in, HostedAnswer* answer) {
    switch (kind) {
      case HostedOrder::kAlloc: {
        const auto id = in->Word<uint64_t>();
        TG_ASSIGN_OR_RETURN(auto memory, device_.Alloc(in->Word<int64_t>()));
        const MutexLock lock(mutex_);
        memories_[id] = std::move(memory);
        return absl::OkStatus();
      }
      case HostedOrder::kLoad: {
        const auto id = in->Word<uint64_t>();
        TG_ASSIGN_OR_RETURN(auto program, device_.Load(ReadImage(in)));
        const MutexLock lock(mutex_);
        programs_[id] = std::move(program);
        return absl::OkStatus();
      }
      case HostedOrder::kEncode:
        return Encode(in);
      case HostedOrder::kGiveBack: {
        const bool all = in->Bool();
        const auto idle = device_.idle_memory();
        if (idle == nullptr) return absl::OkStatus();
        const auto at_once = std::dynamic_pointer_cast<IdleMemoryAtOnce>(idle);
        TG_ASSIGN_OR_RETURN(answer->value,
                            all && at_once != nullptr ? at_once->GiveBackAll() : idle->GiveBack());
        return absl::OkStatus();
      }
      case HostedOrder::kSense: {
        const auto sensors = device_.sensors();
        if (sensors == nullptr) return absl::OkStatus();
        const Readings readings = sensors->Read();
        for (int i = 0; i < kNumSensors; ++i) {
          const auto& value = readings[static_cast<Sensor>(i)];
          answer->told.push_back(value ? 1 : 0);
          answer->told.push_back(value.value_or(0));
        }
        return absl::OkStatus();
      }
      default:
        return Internal("an order that is none");
    }
  }

  absl::Status Encode(ByteReader* in) {
    const auto id = in->Word<uint64_t>();
    auto commands = ReadCommands(in, [this](uint64_t program) -> std::shared_ptr<LoadedProgram> {
      const MutexLock lock(mutex_);
      const auto it = programs_.find(program);
      return it == programs_.end() ? nullptr : it->second;
    });
    if (!in->Done()) return Internal("malformed commands");
    TG_ASSIGN_OR_RETURN(auto encoded, device_.Encode(std::move(commands)));
    const MutexLock lock(mutex_);
    commands_[id] = std::move(encoded);
    return absl::OkStatus();
  }

  const Hosting hosting_;
  HostedControl& control_;
  Device& device_;
  const std::shared_ptr<Memory> staging_;
  struct StagingPart {
    bool was_asked = false;  // the driver, to lock it
    std::shared_ptr<Memory> memory = nullptr;
  };
  std::array<StagingPart, kHostedQueues> parts_ = {};
  int64_t locked_ = 0;  // bytes of them
  std::deque<QueueState> queues_;
  // By length; of the thread that reads orders.
  std::map<int64_t, std::shared_ptr<const CommandBuffer>> copy_commands_;
  std::atomic<bool> told_loss_ = false;
  Mutex saying_;  // over a frame that is written

  Mutex mutex_;
  ConditionVariable requested_;
  std::deque<std::string> requests_ TG_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, std::shared_ptr<Memory>> memories_ TG_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, std::shared_ptr<LoadedProgram>> programs_ TG_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, std::shared_ptr<const CommandBuffer>> commands_
      TG_GUARDED_BY(mutex_);
};

HostedFacts FactsOf(Device& device) {
  HostedFacts facts{.name = device.name(),
                    .target = device.target(),
                    .rates = device.rates(),
                    .memory_limit = device.memory_limit(),
                    .senses = device.sensors() != nullptr};
  for (const Queue* const queue : device.queues()) {
    facts.queues.push_back({queue->name(), queue->takes()});
  }
  return facts;
}

// All that the daemon gives, and what it is to open.
absl::StatusOr<HostedSetup> Receive(int socket, Hosting* hosting) {
  TG_RETURN_IF_ERROR(WriteFrame(socket, EncodeHostedHello()));
  TG_ASSIGN_OR_RETURN(auto descriptors, ReceiveDescriptors(socket, 3));
  TG_ASSIGN_OR_RETURN(const std::string frame, ReadFrame(socket, kMaxHostedOpened));
  TG_ASSIGN_OR_RETURN(HostedSetup setup, DecodeHostedSetup(frame));
  TG_ASSIGN_OR_RETURN(hosting->control,
                      SharedMapping::Map(descriptors[0].get(), sizeof(HostedControl)));
  TG_ASSIGN_OR_RETURN(hosting->staging,
                      SharedMapping::Map(descriptors[1].get(), SizeOf(descriptors[1])));
  hosting->bell = std::move(descriptors[2]);
  hosting->socket = socket;
  hosting->pinned = setup.pinned;
  return setup;
}

}  // namespace

int ServeDriver(int socket, const HostedOpener& open) {
  Hosting hosting;
  HostedOpened opened;
  std::vector<std::unique_ptr<Device>> devices;
  const auto setup = Receive(socket, &hosting);
  opened.status = setup.status();
  // Before anything of the driver is loaded.
  if (opened.status.ok()) opened.status = ConfineDriver();
  if (opened.status.ok()) {
    auto found = open(*setup, &opened);
    opened.status = found.status();
    if (found.ok()) devices = *std::move(found);
  }
  if (devices.size() == 1) opened.device = FactsOf(*devices[0]);
  if (!WriteFrame(socket, EncodeHostedOpened(opened)).ok() || !opened.status.ok()) return kBroken;
  if (!opened.device) {
    (void)ReadFrame(socket, kMaxHostedHello);  // until the daemon has read it
    return 0;
  }
  hosting.device = std::move(devices[0]);
  static auto* const server =
      new DriverServer(std::move(hosting));  // its threads use it to the end
  server->Serve();
}

}  // namespace telegrad
