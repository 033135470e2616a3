// The process that opens the first device says how many there are; each of the others gets one of
// its own.
#include "devices/hosted/hosted_device.h"

#include <algorithm>
#include <utility>

#include "devices/api/generations_device.h"
#include "devices/hosted/hosted_opening.h"
#include "devices/hosted/tenants_device.h"
#include "engine/base/status.h"
#include "engine/process/child_process.h"

namespace telegrad {
namespace {

absl::StatusOr<std::unique_ptr<Device>> OpenOne(const HostedOptions& options,
                                                const std::string& name, int64_t number,
                                                HostedOpened* said) {
  if (options.by_tenant) return OpenForTenants(options, name, number, said);
  const auto opening = std::make_shared<HostedOpening>(options, name, number);
  TG_ASSIGN_OR_RETURN(auto first, opening->Open(1, said));
  return MakeGenerationsDevice(
      std::move(first), [opening](uint64_t generation) { return opening->Open(generation); },
      opening->sensors());
}

}  // namespace

std::vector<std::unique_ptr<Device>> OpenHosted(const HostedOptions& given,
                                                std::vector<std::string>* notes) {
  const auto note = [&](std::string text) {
    if (notes != nullptr) notes->push_back(std::move(text));
  };
  std::vector<std::unique_ptr<Device>> out;
  HostedOptions options = given;
  if (options.executable.empty()) {
    auto executable = FindBeside("telegrad-device-worker", "the device worker");
    if (!executable.ok()) {
      note(StrCat(options.prefix, ": ", ToStd(executable.status().message())));
      return out;
    }
    options.executable = *std::move(executable);
  }
  int64_t shown = 1;
  for (int64_t number = 0; number < shown; ++number) {
    const std::string name = StrCat(options.prefix, ":", number);
    HostedOpened said{.shown = -1};
    auto device = OpenOne(options, name, number, &said);
    if (number == 0) shown = std::min<int64_t>(said.shown, kMaxHostedDevices);
    // What it says of the driver, the others say again.
    bool told = false;
    for (const std::string& text : said.notes) {
      const bool of_device = text.starts_with(name);
      if (number == 0 || of_device) note(text);
      told |= of_device;
    }
    if (device.ok()) {
      out.push_back(*std::move(device));
    } else if (said.shown < 0) {  // nothing: its process has ended
      note(StrCat(number == 0 ? options.prefix : name, ": ", ToStd(device.status().message())));
    } else if (number < shown && !told) {
      note(StrCat(name, " is left out: ", ToStd(device.status().message())));
    }
  }
  return out;
}

}  // namespace telegrad
