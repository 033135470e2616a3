// What the flags of the daemon mean for its parts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "devices/drivers.h"
#include "engine/base/flags.h"
#include "engine/base/status.h"
#include "server/admin/compile_service.h"
#include "server/admin/metrics.h"
#include "server/admin/service_manager.h"
#include "server/identity/authenticator.h"
#include "server/service/listeners.h"
#include "server/tenant/limits.h"

namespace telegrad {

ListenOptions ListenersOf(const Flags& flags, const ServiceManager& manager);
AuthenticatorOptions IdentityOf(const Flags& flags);
SessionLimits LimitsOf(const Flags& flags);
CompileService::Options CompilersOf(const Flags& flags);
// The first two must outlive the devices: what happens to workers is logged and counted, and the
// servers that --remote names are opened with the rest. `on_open`: see DriverOptions.
DriverOptions DriversOf(const Flags& flags, Metrics* metrics,
                        const std::function<void(const std::string& driver)>& on_open);
// How many connections of gRPC leave descriptors for all else: what is open now, and a reserve for
// files, workers and the other sockets. RESOURCE_EXHAUSTED where a `limit` of the process leaves
// less than a few.
absl::StatusOr<int64_t> RoomForConnections(const Flags& flags, int64_t limit);

}  // namespace telegrad
