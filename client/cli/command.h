// The commands of the telegrad program. To add one: a row in kCommands (main.cc) and a file with
// its function.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cc/admin.h"
#include "client/cc/connection.h"
#include "engine/base/flags.h"

namespace telegrad::cli {

struct Command {
  std::string_view name;
  std::string_view arguments;  // what follows the name in the usage line
  std::string_view summary;
  std::span<const FlagRow> flags;  // beside those that every command has
  // Runs with the flags parsed. INVALID_ARGUMENT from here is shown with a hint to --help.
  absl::Status (*run)(const Flags& flags);
  bool connects = true;                // without: --help omits the flags that say how to connect
  std::string (*details)() = nullptr;  // lines that --help prints before the flags
};

// Connects to --address, or to what DefaultAddress (client/cc/local_daemon.h) says.
absl::StatusOr<std::shared_ptr<Connection>> Connect(const Flags& flags);

// Of telegrad admin and telegrad top: a line for each tenant of each queue.
std::string QueueTable(const std::vector<DeviceQueueUse>& queues);

std::string AdminDetails();
std::string ModelsDetails();

absl::Status Admin(const Flags& flags);
absl::Status Bench(const Flags& flags);
absl::Status Check(const Flags& flags);
absl::Status Devices(const Flags& flags);
absl::Status Down(const Flags& flags);
absl::Status Explain(const Flags& flags);
absl::Status Models(const Flags& flags);
absl::Status Run(const Flags& flags);
absl::Status Stats(const Flags& flags);
absl::Status Tensors(const Flags& flags);
absl::Status Top(const Flags& flags);
absl::Status Train(const Flags& flags);
absl::Status Up(const Flags& flags);

}  // namespace telegrad::cli
