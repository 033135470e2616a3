// Encoded commands of drivers that run them on the host: the commands unchanged, with what each
// needs of its bindings, so that a submission is checked by comparing a few numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "devices/api/device.h"
#include "devices/api/run_control.h"

namespace telegrad {

class CommandList : public CommandBuffer {
 public:
  // INVALID_ARGUMENT names the command that is malformed, or that launches a program with other
  // arguments or workgroups than its signature says.
  static absl::StatusOr<std::shared_ptr<const CommandList>> Encode(std::vector<Command> commands);

  std::span<const Command> commands() const { return commands_; }

  // Whether `bindings` are as many and as long as the commands need, inside of their memories and
  // at multiples of what tensor maps need, and no copy overlaps itself or writes what is read-only.
  // INVALID_ARGUMENT says which does.
  absl::Status Check(std::span<const BufferView> bindings) const;

  // What command `index` says of itself, without times and queue.
  TraceEvent Describe(size_t index) const;

  // Calls `run` with each command's index, until one fails or the run is cancelled, and returns its
  // status.
  template <typename Run>
  absl::Status RunEach(const RunControl& control, Run run) const {
    absl::Status status;
    for (size_t i = 0; status.ok() && i < commands_.size(); ++i) {
      if (control.cancellation != nullptr) status = control.cancellation->Check();
      if (!status.ok()) break;
      if (control.events == nullptr) {
        status = run(i);
        continue;
      }
      TraceEvent event = Describe(i);
      event.begin_ns = SteadyNs();
      status = run(i);
      event.end_ns = SteadyNs();
      control.events->push_back(std::move(event));
    }
    return status;
  }

 protected:
  absl::Status Fill(std::vector<Command> commands);

 private:
  absl::Status Need(const BoundPart& part, int64_t length);
  absl::Status AddScalar(int32_t index);
  absl::Status AddArgument(const LaunchArgument& argument);
  absl::Status AddMap(const LaunchArgument& argument);
  absl::Status Add(const Command& command);

  std::vector<Command> commands_;
  std::vector<size_t> copies_;   // which commands are
  std::vector<int64_t> needed_;  // bytes of each binding
  // Multiples, in bytes, of which a part's address is one, for tensor maps.
  std::vector<std::pair<BoundPart, int64_t>> aligned_;
  std::vector<bool> written_;  // by launches; of as many
};

}  // namespace telegrad
