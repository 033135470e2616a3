// telegrad devices: one line per device, then the devices that the server cannot use.
#include <cinttypes>
#include <cstdio>

#include "client/cli/command.h"
#include "engine/base/status.h"

namespace telegrad::cli {

absl::Status Devices(const Flags& flags) {
  if (!flags.positional().empty()) {
    return InvalidArgument("unexpected argument ", flags.positional().front());
  }
  TG_ASSIGN_OR_RETURN(const auto connection, Connect(flags));
  std::vector<std::string> notes;
  TG_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices, connection->ListDevices(&notes));
  constexpr double kGiB = 1 << 30;
  std::printf("%-10s %-8s %7s %22s  %s\n", "NAME", "HEALTH", "THREADS", "MEMORY", "TARGET");
  for (const DeviceInfo& device : devices) {
    char memory[64];
    std::snprintf(memory, sizeof(memory), "%.2f of %.2f GiB",
                  static_cast<double>(device.memory_used) / kGiB,
                  static_cast<double>(device.memory_limit) / kGiB);
    std::printf("%-10s %-8s %7d %22s  %s\n", device.name.c_str(), device.healthy ? "ok" : "failed",
                device.threads, memory, device.target.c_str());
    if (!device.healthy) std::printf("  %s\n", device.health.c_str());
  }
  for (const std::string& note : notes) std::printf("%s\n", note.c_str());
  return absl::OkStatus();
}

}  // namespace telegrad::cli
