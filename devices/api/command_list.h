// Commands as drivers that run them on the host keep them: as they came, with what they need of
// each binding, so that a submission is checked against a few numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "devices/api/device.h"

namespace telegrad {

class CommandList : public CommandBuffer {
 public:
  // INVALID_ARGUMENT names the command that is malformed.
  static absl::StatusOr<std::shared_ptr<const CommandList>> Encode(std::vector<Command> commands);

  std::span<const Command> commands() const { return commands_; }
  bool has_launches() const { return copies_.size() < commands_.size(); }

  // Whether `bindings` are as many and as long as the commands need and inside of their memories,
  // and no copy overlaps itself. INVALID_ARGUMENT says which is not.
  absl::Status Check(std::span<const BufferView> bindings) const;

  // What command `index` says of itself, without times and queue.
  TraceEvent Describe(size_t index) const;

 protected:
  absl::Status Fill(std::vector<Command> commands);

 private:
  absl::Status Need(const Launch::Argument& argument, int64_t length);
  absl::Status Add(const Command& command);

  std::vector<Command> commands_;
  std::vector<size_t> copies_;   // which commands are
  std::vector<int64_t> needed_;  // bytes of each binding
};

}  // namespace telegrad
