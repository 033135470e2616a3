#include "engine/execution/run_queues.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "engine/execution/prediction.h"

namespace telegrad {
namespace {

// Assumed rate of a device that declares none, which may be a disk.
constexpr double kUnknownBytesPerSecond = 2e9;
// Copies are not cut into smaller parts, because each part is a command.
constexpr int64_t kLeastCopy = int64_t{4} << 20, kLeastBetweenServers = int64_t{1} << 30;

class Direct final : public RunQueues {
 public:
  explicit Direct(bool submitter_waits) : submitter_waits_(submitter_waits) {}

  absl::StatusOr<TimelinePoint> Submit(Device& device, QueueKind kind, SlicedWork work) override {
    Queue& queue = device.queue(kind);
    TimelinePoint point;
    for (size_t i = 0; i < work.slices->size(); ++i) {
      const bool last = i + 1 == work.slices->size();
      const auto submit = [&] {
        return queue.Submit({.commands = (*work.slices)[i].commands,
                             .bindings = last && i == 0 ? std::move(work.bindings) : work.bindings,
                             .scalars = ScalarsOf(*(*work.slices)[i].commands, work.scalars),
                             .trace = work.trace,
                             .cancellation = work.cancellation,
                             .submitter_waits = submitter_waits_},
                            i == 0 ? std::span<const TimelinePoint>(work.waits)
                                   : std::span<const TimelinePoint>(&point, 1));
      };
      auto submitted = submit();
      while (i > 0 && absl::IsResourceExhausted(submitted.status())) {
        point.Wait().IgnoreError();
        submitted = submit();
      }
      TG_RETURN_IF_ERROR(submitted.status());
      point = *std::move(submitted);
    }
    return point;
  }

 private:
  const bool submitter_waits_;
};

}  // namespace

std::vector<uint64_t> ScalarsOf(const CommandBuffer& commands,
                                const std::vector<uint64_t>& scalars) {
  const size_t count = std::min(commands.scalars(), scalars.size());
  return {scalars.begin(), scalars.begin() + static_cast<ptrdiff_t>(count)};
}

void AddLaunch(const Launch& whole, double seconds, int64_t segments,
               std::vector<PredictedCommand>* commands) {
  const auto cut = [&](int64_t i) {
    return whole.grid.x / segments * i + std::min(i, whole.grid.x % segments);
  };
  const auto parts = static_cast<double>(segments);
  for (int64_t s = 0; s < segments; ++s) {
    Command command;
    command.launch = whole;
    command.launch.begin = cut(s);
    command.launch.grid.x = cut(s + 1) - cut(s);
    command.launch.flops = whole.flops / parts;
    command.launch.bytes = whole.bytes / parts;
    commands->push_back({std::move(command), seconds / parts});
  }
}

absl::StatusOr<std::shared_ptr<const std::vector<RunSlice>>> EncodeSlices(
    Device& device, std::vector<PredictedCommand> commands) {
  auto slices = std::make_shared<std::vector<RunSlice>>();
  size_t at = 0;
  do {
    std::vector<Command> some;
    double seconds = 0;
    while (at < commands.size() &&
           (some.empty() || seconds + commands[at].seconds <= kSegmentSeconds)) {
      seconds += commands[at].seconds;
      some.push_back(std::move(commands[at++].command));
    }
    TG_ASSIGN_OR_RETURN(auto encoded, device.Encode(std::move(some)));
    slices->push_back({std::move(encoded), seconds});
  } while (at < commands.size());
  return std::shared_ptr<const std::vector<RunSlice>>(std::move(slices));
}

void AddCopy(const CopyBytes& copy, const Device& device, std::vector<PredictedCommand>* commands,
             const Device* other) {
  const double rate = device.rates().bytes > 0 ? device.rates().bytes : kUnknownBytesPerSecond;
  const auto seconds = [&](int64_t bytes) { return 2 * static_cast<double>(bytes) / rate; };
  const bool between = other != nullptr && other->link() && device.link();
  const auto most = std::max(between ? kLeastBetweenServers : kLeastCopy,
                             static_cast<int64_t>(kSegmentSeconds * rate / 2));
  int64_t at = 0;
  do {
    Command command{.kind = CommandKind::kCopy, .launch = {}, .copy = copy};
    command.copy.to.offset += at;
    command.copy.from.offset += at;
    command.copy.length = std::min(most, copy.length - at);
    at += command.copy.length;
    const double predicted = seconds(command.copy.length);
    commands->push_back({std::move(command), predicted});
  } while (at < copy.length);
}

RunQueues& DirectQueues() {
  static Direct direct(/*submitter_waits=*/false);
  return direct;
}

RunQueues& WaitingQueues() {
  static Direct direct(/*submitter_waits=*/true);
  return direct;
}

}  // namespace telegrad
