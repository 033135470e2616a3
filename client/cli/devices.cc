// telegrad devices: one line per device, and what the server could not use.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string>

#include "client/cli/command.h"
#include "engine/base/status.h"

namespace telegrad::cli {

namespace {

// How a device of another server is reached.
std::string Link(const DeviceInfo& device) {
  if (!device.remote) return "";
  char text[96];
  std::snprintf(text, sizeof(text), ", round trip %.2f ms",
                static_cast<double>(device.round_trip_ns) / 1e6);
  std::string out = device.round_trip_ns > 0 ? text : ", not measured yet";
  if (device.bytes_per_second > 0) {
    std::snprintf(text, sizeof(text), ", %.0f MiB/s",
                  device.bytes_per_second / static_cast<double>(1 << 20));
    out += text;
  }
  return out;
}

// ", f64 0.02, f32 0.05, matrix f16 0.8 T/s"; "" where none is known.
std::string OperationRates(const DeviceInfo& device) {
  std::string out;
  for (const auto& [kind, per_second] : device.rates) {
    char text[32];
    std::snprintf(text, sizeof(text), " %.3g", per_second / 1e12);
    out += StrCat(", ", kind, text);
  }
  return out.empty() ? out : out + " T/s";
}

}  // namespace

absl::Status Devices(const Flags& flags) {
  if (!flags.positional().empty()) {
    return InvalidArgument("unexpected argument ", flags.positional().front());
  }
  TG_ASSIGN_OR_RETURN(const auto connection, Connect(flags));
  std::vector<std::string> notes;
  TG_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices, connection->ListDevices(&notes));
  constexpr double kGiB = 1 << 30;
  size_t width = 10;
  for (const DeviceInfo& device : devices) width = std::max(width, device.name.size());
  const int name_width = static_cast<int>(std::min<size_t>(width, 40));
  std::printf("%-*s %-8s %7s %22s  %s\n", name_width, "NAME", "HEALTH", "THREADS", "MEMORY",
              "TARGET");
  for (const DeviceInfo& device : devices) {
    char memory[64];
    std::snprintf(memory, sizeof(memory), "%.2f of %.2f GiB",
                  static_cast<double>(device.memory_used) / kGiB,
                  static_cast<double>(device.memory_limit) / kGiB);
    std::printf("%-*s %-8s %7d %22s  %s%s%s\n", name_width, device.name.c_str(),
                device.healthy ? "ok" : "failed", device.threads, memory, device.target.c_str(),
                OperationRates(device).c_str(), Link(device).c_str());
    if (!device.healthy) std::printf("  %s\n", device.health.c_str());
  }
  for (const std::string& note : notes) std::printf("%s\n", note.c_str());
  return absl::OkStatus();
}

}  // namespace telegrad::cli
