// A stream is ready when its first operation's waits are done, it does not hang, and the default
// stream's order allows it (CUDA Driver API, "Stream synchronization behavior": the default
// stream and the blocking streams of its context wait for each other). One of the ready streams
// is drawn at random, so that a program that relies on an order without waiting for it fails.
#include "tests/fakes/cuda/scheduler.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace fakecuda {
namespace {

bool& HostFunctionFlag() {
  thread_local bool inside = false;
  return inside;
}

// Streams whose operations before `number` the first operation of `stream` must wait for, because
// of the default stream.
template <class F>
void ForEachRival(Driver& driver, const Stream& stream, F f) {
  if (!stream.blocking) return;
  const uint64_t number = stream.operations.front().number;
  for (auto& [handle, other] : driver.streams) {
    if (other->context != stream.context || other->is_default == stream.is_default) continue;
    if (!other->blocking || other->operations.empty()) continue;
    if (other->operations.front().number < number) f(*other);
  }
}

bool Ready(Driver& driver, const Stream& stream) {
  if (stream.operations.empty() || stream.running) return false;
  const Operation& first = stream.operations.front();
  const Context* context = driver.FindContext(stream.context);
  if (context != nullptr && context->error != CUDA_SUCCESS) return true;  // to be dropped
  if (first.hangs) return false;
  for (const auto& marker : first.waits) {
    if (!marker->done) return false;
  }
  bool free = true;
  ForEachRival(driver, stream, [&](const Stream&) { free = false; });
  return free;
}

// The streams that must get on so that the awaited ones do.
std::set<Handle> Needed(Driver& driver) {
  std::set<Handle> needed;
  std::vector<Handle> left(driver.awaited.begin(), driver.awaited.end());
  while (!left.empty()) {
    const Handle handle = left.back();
    left.pop_back();
    if (!needed.insert(handle).second) continue;
    const auto it = driver.streams.find(handle);
    if (it == driver.streams.end() || it->second->operations.empty()) continue;
    for (const auto& marker : it->second->operations.front().waits) {
      if (!marker->done) left.push_back(marker->stream);
    }
    ForEachRival(driver, *it->second, [&](const Stream& other) { left.push_back(other.handle); });
  }
  return needed;
}

std::shared_ptr<Stream> Pick(Driver& driver) {
  std::vector<std::shared_ptr<Stream>> ready;
  std::set<Handle> needed;
  if (driver.knobs.hold != 0) needed = Needed(driver);
  for (const auto& [handle, stream] : driver.streams) {
    if (driver.knobs.hold != 0 && !needed.contains(handle)) continue;
    if (Ready(driver, *stream)) ready.push_back(stream);
  }
  if (ready.empty()) return nullptr;
  return ready[driver.random() % ready.size()];
}

void Add(const Counters& more, Counters* to) {
#define COUNTER(name, text) to->name += more.name;
#include "tests/fakes/cuda/counters.def"
#undef COUNTER
}

void RunFirst(Driver& driver, std::unique_lock<std::mutex>& lock, Stream& stream) {
  Operation& operation = stream.operations.front();
  stream.running = true;
  const Context* context = driver.FindContext(stream.context);
  const bool healthy = context != nullptr && context->error == CUDA_SUCCESS;
  Outcome outcome;
  if (healthy && operation.run != nullptr) {
    const MemoryView view = driver.View(operation.contexts);
    lock.unlock();
    outcome = operation.run(view);
    lock.lock();
  }
  Add(outcome.counted, &driver.counters);
  if (outcome.result != CUDA_SUCCESS) {
    Context* failed = driver.FindContext(stream.context);
    if (failed != nullptr && failed->error == CUDA_SUCCESS) failed->error = outcome.result;
    driver.Problem(outcome.message);
  }
  if (operation.marks != nullptr) {
    operation.marks->done = true;
    operation.marks->time = Clock::now();
  }
  stream.operations.pop_front();
  stream.running = false;
  if (stream.destroyed && stream.operations.empty()) driver.streams.erase(stream.handle);
  driver.done.notify_all();
}

void Loop(Driver& driver) {
  std::unique_lock lock(driver.mutex);
  while (true) {
    std::shared_ptr<Stream> stream = Pick(driver);
    if (stream == nullptr) {
      driver.work.wait(lock);
      continue;
    }
    if (driver.knobs.delay_us > 0 && driver.awaited.empty() && driver.random() % 4 == 0) {
      const auto delay =
          static_cast<int64_t>(driver.random() % static_cast<uint64_t>(driver.knobs.delay_us));
      const auto until = Clock::now() + std::chrono::microseconds(delay);
      driver.work.wait_until(lock, until, [&] { return !driver.awaited.empty(); });
      if (!Ready(driver, *stream) || driver.knobs.hold != 0) continue;
    }
    RunFirst(driver, lock, *stream);
  }
}

// While it lives, somebody waits for the stream.
class Awaiting {
 public:
  Awaiting(Driver& driver, Handle stream) : driver_(driver), stream_(stream) {
    driver_.awaited.insert(stream_);
    driver_.work.notify_all();
  }
  ~Awaiting() { driver_.awaited.erase(driver_.awaited.find(stream_)); }

 private:
  Driver& driver_;
  Handle stream_;
};

}  // namespace

void StartScheduler(Driver& driver) {
  if (std::exchange(driver.started, true)) return;
  std::thread([&driver] { Loop(driver); }).detach();
}

std::shared_ptr<Marker> Submit(Driver& driver, Stream& stream, Operation operation) {
  operation.number = driver.next_number++;
  if (operation.marks == nullptr) operation.marks = std::make_shared<Marker>();
  operation.marks->stream = stream.handle;
  if (operation.contexts.empty()) operation.contexts = {stream.context};
  auto marker = operation.marks;
  stream.operations.push_back(std::move(operation));
  driver.work.notify_all();
  return marker;
}

bool Idle(const Stream& stream) { return stream.operations.empty(); }

void WaitForStream(Driver& driver, std::unique_lock<std::mutex>& lock, Handle handle) {
  const auto it = driver.streams.find(handle);
  if (it == driver.streams.end() || it->second->operations.empty()) return;
  WaitForMarker(driver, lock, it->second->operations.back().marks);
}

void WaitForMarker(Driver& driver, std::unique_lock<std::mutex>& lock,
                   std::shared_ptr<Marker> marker) {
  if (marker == nullptr || marker->done) return;
  const Awaiting awaiting(driver, marker->stream);
  driver.done.wait(lock, [&] { return marker->done; });
}

void DropStream(Driver& driver, std::unique_lock<std::mutex>& lock, Handle handle) {
  const auto it = driver.streams.find(handle);
  if (it == driver.streams.end()) return;
  const std::shared_ptr<Stream> stream = it->second;
  const auto rest = stream->operations.begin() + (stream->running ? 1 : 0);
  for (auto op = rest; op != stream->operations.end(); ++op) op->marks->done = true;
  stream->operations.erase(rest, stream->operations.end());
  driver.done.wait(lock, [&] { return !stream->running; });
  driver.streams.erase(handle);
  driver.done.notify_all();
  driver.work.notify_all();
}

bool InHostFunction() { return HostFunctionFlag(); }

void CallHostFunction(HostFunction function, void* data) {
  HostFunctionFlag() = true;
  function(data);
  HostFunctionFlag() = false;
}

}  // namespace fakecuda
